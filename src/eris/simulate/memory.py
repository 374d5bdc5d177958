"""Count processes that the system killed because memory ran out."""

from __future__ import annotations

from pathlib import Path

__all__ = ["memory_kills"]

_COUNTS = Path("/proc/vmstat")


def memory_kills() -> int:
    """Return how many processes this system has killed because memory ran out; 0 if it does not say."""
    try:
        counts = dict(line.split() for line in _COUNTS.read_text(encoding="ascii").splitlines())
    except OSError:
        return 0
    return int(counts.get("oom_kill", 0))
