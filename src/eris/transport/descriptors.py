"""How many sockets and files a process of a run has open at once, and whether it may: known before it begins."""

from __future__ import annotations

from eris.errors import ConfigError

__all__ = ["coordinator_descriptors", "peer_descriptors", "require_descriptors"]

_OWN = 64  # standard streams, journal, checkpoints, logs, mapped files, what libraries keep open


def coordinator_descriptors(members: int) -> int:
    """Return what a coordinator needs: a connection for every member."""
    return members + _OWN


def peer_descriptors(members: int, aggregators: int, *, aggregates: bool = True) -> int:
    """Return what a peer needs: a link to every aggregator and, if it is one itself, one from every member."""
    return aggregators + _OWN + (members if aggregates else 0)


def require_descriptors(needed: int, what: str) -> None:
    """Refuse to begin what would run out of descriptors in its middle."""
    try:
        import resource
    except ImportError:  # pragma: no cover - Windows has no such limit
        return
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if allowed != resource.RLIM_INFINITY and needed > allowed:
        raise ConfigError(
            f"{what} needs {needed:,} file descriptors, this process may have {allowed:,}",
            fix=f"raise the limit: ulimit -n {needed}",
        )
