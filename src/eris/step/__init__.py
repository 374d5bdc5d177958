"""⑤ Server optimizers: every peer runs them on its own copy, aggregators do not."""
