"""Storage for long vectors: reusable memory, mapped files, and how to walk through them."""
