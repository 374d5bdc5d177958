"""The descriptors and memory that a process of a run needs, checked against its limits before the run begins."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from eris.errors import ConfigError

__all__ = [
    "coordinator_descriptors",
    "coordinator_memory",
    "link_memory",
    "peer_descriptors",
    "require_descriptors",
    "require_process_memory",
]

_OWN = 64  # standard streams, journal, checkpoints, logs, mapped files, what libraries keep open
# Resident bytes, rounded up from what was measured: the interpreter with what it imports (90 MB), a member's connection
# to the coordinator (82 to 99 kB with 100 to 300 of them), a peer's end of a link (47 kB).
_PROCESS = 100_000_000
_CONNECTION = 150_000
_LINK = 50_000


def coordinator_descriptors(members: int) -> int:
    """Return how many descriptors a coordinator needs: one connection per member."""
    return members + _OWN


def peer_descriptors(members: int, aggregators: int, *, aggregates: bool = True) -> int:
    """Return the descriptors of a peer: a link to every aggregator and, if it `aggregates`, one from every member."""
    return aggregators + _OWN + (members if aggregates else 0)


def coordinator_memory(members: int, bulletins: int = 0) -> int:
    """Return the bytes a coordinator needs: a connection per member, and the bulletins it keeps."""
    return _PROCESS + members * _CONNECTION + bulletins


def link_memory(members: int, aggregators: int, *, aggregates: bool = True) -> int:
    """Return the bytes of a peer's process and its links (those of `peer_descriptors`), not counting its vectors."""
    return _PROCESS + (aggregators + (members if aggregates else 0)) * _LINK


def require_process_memory(needed: int, what: str) -> None:
    """Refuse to start if memory would run out midway."""
    allowed = _memory_limit()
    if needed > allowed:
        raise ConfigError(
            f"{what} needs {needed / 1e9:.1f} GB of memory, but this process may have only {allowed / 1e9:.1f} GB",
            fix="use a larger machine, more aggregators, or --spill-above",
        )


def _memory_limit() -> int:
    """Return the smallest of what the machine has, its control group allows, and `ulimit -v` allows."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")] if hasattr(os, "sysconf") else []
    with contextlib.suppress(OSError, ValueError):  # "max", or no such group
        limits.append(int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    with contextlib.suppress(ImportError):
        import resource

        if (virtual := resource.getrlimit(resource.RLIMIT_AS)[0]) != resource.RLIM_INFINITY:
            limits.append(virtual)
    return min(limits, default=sys.maxsize)


def require_descriptors(needed: int, what: str) -> None:
    """Refuse to start if descriptors would run out midway."""
    try:
        import resource
    except ImportError:  # pragma: no cover - Windows has no such limit
        return
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if allowed != resource.RLIM_INFINITY and needed > allowed:
        raise ConfigError(
            f"{what} needs {needed:,} file descriptors, but this process may have only {allowed:,}",
            fix=f"raise the limit: ulimit -n {needed}",
        )
