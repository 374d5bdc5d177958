"""Attacks on membership that are more than a sum of signals, a family a file; eris.audit.attack knows their names."""
