"""Stretches of a long vector, worked on one after another so that each stays in the cache meanwhile."""

from __future__ import annotations

__all__ = ["STRETCH", "stretches"]

STRETCH = 1 << 18  # values: few enough for a cache, many enough that the calls for a stretch cost little


def stretches(n: int) -> list[slice]:
    """Cut n coordinates into stretches, all of one length but the last.

    >>> [(place.start, place.stop) for place in stretches(STRETCH + 5)] == [(0, STRETCH), (STRETCH, STRETCH + 5)]
    True
    """
    return [slice(start, min(start + STRETCH, n)) for start in range(0, n, STRETCH)]
