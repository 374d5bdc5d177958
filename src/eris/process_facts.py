"""Say which versions a process runs and how much memory it took at most, for the summary of a run."""

from __future__ import annotations

import sys
from importlib import metadata

__all__ = ["peak_memory", "versions"]


def versions() -> dict[str, str]:
    """Return the versions that matter for reproducing a run."""
    found = {}
    for package in ("eris-fl", "numpy", "torch"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def peak_memory() -> int:
    """Return this process's largest resident size in bytes; 0 if the system does not say."""
    if sys.platform == "win32":
        return 0
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
