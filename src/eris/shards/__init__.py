"""③ Who sees which coordinates: shard plans, split and reassemble, assignment to aggregators."""
