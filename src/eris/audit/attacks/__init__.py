"""Membership attacks, one file for each family; `by_name` lists them all and adds those that are sums of signals."""
