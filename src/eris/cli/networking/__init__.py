"""What the verbs of the real network share: options, logs, the live view, child processes."""
