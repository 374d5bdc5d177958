"""Deal units out to shards at random: so many to each, every arrangement equally likely.

Every unit draws a random word; the rank of its word says who owns it, as if the units were shuffled and then cut. Only
words near a cut need sorting: for nearly all others a histogram of the upper bits gives the owner. The words are drawn
twice, a few at a time, which costs less than keeping them; only the owners take memory as long as the plan.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from eris.seeds import Seed
from eris.shards.apportion import Counts
from eris.shards.segment import Owners

__all__ = ["shuffled"]

Words = NDArray[np.uint64]
Bins = NDArray[np.intp]

_AT_ONCE = 1 << 16
_MOST_BITS = 16


def shuffled(sizes: Counts, seed: Seed, dtype: type[np.unsignedinteger]) -> Owners:
    """Return an owner for each unit, so that a owns sizes[a]; equal words rank by position, as in a stable sort.

    `seed` is public: everybody draws the same words. `dtype` is wide enough for the largest owner.
    """
    units, bounds = int(sizes.sum()), np.cumsum(sizes)[:-1]
    stops = _stops(seed, units)  # ranks at which each bin ends
    starts = np.concatenate([[0], stops[:-1]])
    owner_of = np.searchsorted(bounds, starts, side="right").astype(dtype)
    is_cut = owner_of != np.searchsorted(bounds, stops - 1, side="right")
    owners, near, near_words = np.empty(units, dtype), [], []
    for first, words, bins in _drawn(seed, units):
        owners[first : first + words.size] = owner_of[bins]
        found = np.flatnonzero(is_cut[bins])
        near.append(first + found)
        near_words.append(words[found])
    if near:
        _give_by_rank(np.concatenate(near), np.concatenate(near_words), starts[is_cut], stops[is_cut], bounds, owners)
    return owners


def _give_by_rank(near: Bins, words: Words, starts: Counts, stops: Counts, bounds: Counts, owners: Owners) -> None:
    """Write the owners of the units in bins that contain a cut, by their exact ranks.

    Args:
        near: the units in those bins, with their random `words`.
        starts, stops: the ranks that each of the bins covers.
        bounds: the ranks at which owners change.
        owners: of all units, to write into.
    """
    ranks = np.concatenate([np.arange(0), *(np.arange(a, b) for a, b in zip(starts, stops, strict=True))])
    owners[near[np.argsort(words, kind="stable")]] = np.searchsorted(bounds, ranks, side="right")


def _stops(seed: Seed, units: int) -> Counts:
    counts = np.zeros(1 << _bits(units), np.int64)
    for _, _, bins in _drawn(seed, units):
        counts += np.bincount(bins, minlength=counts.size)
    return np.cumsum(counts)


def _drawn(seed: Seed, units: int) -> Iterator[tuple[int, Words, Bins]]:
    """Yield the words in order, a few at a time: where they begin, the words, and the bins their upper bits name."""
    shift = np.uint64(64 - _bits(units))
    for first in range(0, units, _AT_ONCE):
        words = seed.words(min(_AT_ONCE, units - first), start=first)
        yield first, words, (words >> shift).astype(np.intp)


def _bits(units: int) -> int:
    return min(max(units.bit_length(), 1), _MOST_BITS)
