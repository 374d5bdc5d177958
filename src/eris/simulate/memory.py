"""How much memory a process needed at most."""

from __future__ import annotations

import sys

__all__ = ["peak_memory"]


def peak_memory() -> int:
    """Return this process's largest resident size in bytes; 0 where the system does not say."""
    if sys.platform == "win32":
        return 0
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
