"""Measure a process's peak memory, and count processes that the system killed because memory ran out."""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["memory_kills", "peak_memory"]

_COUNTS = Path("/proc/vmstat")


def peak_memory() -> int:
    """Return this process's largest resident size in bytes; 0 if the system does not say."""
    if sys.platform == "win32":
        return 0
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def memory_kills() -> int:
    """Return how many processes this system has killed because memory ran out; 0 if it does not say."""
    try:
        counts = dict(line.split() for line in _COUNTS.read_text(encoding="ascii").splitlines())
    except OSError:
        return 0
    return int(counts.get("oom_kill", 0))
