"""A long vector is worked on one stretch after another: each is read, changed and left while it lies in the cache."""

from __future__ import annotations

__all__ = ["STRETCH", "stretches"]

STRETCH = 1 << 18  # values: few enough for a cache, many enough that a stretch costs more than the calls for it


def stretches(n: int) -> list[slice]:
    """Cut n coordinates into stretches, all of one length but the last.

    >>> [(place.start, place.stop) for place in stretches(STRETCH + 5)] == [(0, STRETCH), (STRETCH, STRETCH + 5)]
    True
    """
    return [slice(start, min(start + STRETCH, n)) for start in range(0, n, STRETCH)]
