"""③ Who sees which coordinates: shard plans, how vectors are split and reassembled, assignment to aggregators."""
