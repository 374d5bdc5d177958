"""Attacks on membership, a family a file; `by_name` knows all of them, sums of signals included."""
