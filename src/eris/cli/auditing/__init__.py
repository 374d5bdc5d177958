"""The sub-commands of `eris audit`, one file each, and what they share on the command line."""
