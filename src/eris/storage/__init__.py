"""Where long vectors lie: memory that is used again, files that are mapped, and how to walk through them."""
