"""Engines that drive the protocol for many members on one machine or a cluster, with faults and a virtual clock."""
