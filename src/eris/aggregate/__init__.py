"""④ What an aggregator makes of the contributions to its shard."""
