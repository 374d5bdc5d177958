"""Share units out in proportion to weights, in exact integer arithmetic.

Every peer must compute the same shares, so nothing here depends on how a machine rounds: weights become integers in the
same proportion (a float is an integer over a power of two), and the rest is integer arithmetic of any length.

>>> largest_remainder(10, [1, 1, 1]).tolist()
[4, 3, 3]
>>> [counts.tolist() for counts in deal([2, 2, 2], [1, 1, 1])]
[[1, 1, 0], [1, 0, 1], [0, 1, 1]]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.errors import PlanError

__all__ = ["Counts", "deal", "largest_remainder"]

Counts = NDArray[np.int64]
Exact = NDArray[Any]  # Python integers


def largest_remainder(total: int, weights: Sequence[float]) -> Counts:
    """Share `total` out: first the floors, then one each to the largest remainders (of equal ones, the earlier).

    >>> largest_remainder(7, [3.0, 1.0, 0.0]).tolist()
    [5, 2, 0]
    """
    proportions = _whole_proportions(weights)
    return _rounded(proportions * total, int(proportions.sum()), total)


def deal(totals: Sequence[int], weights: Sequence[float]) -> Iterator[Counts]:
    """Share out one total after another; what cannot be divided evenly is owed, and made good with the next total.

    So single units go round in turn, and in the end nobody is owed a whole unit.
    """
    proportions = _whole_proportions(weights)
    whole = int(proportions.sum())
    owed = 0 * proportions
    for total in totals:
        owed = owed + proportions * total
        counts = _rounded(owed, whole, total)
        yield counts
        owed = owed - counts.astype(object) * whole


def _rounded(owed: Exact, whole: int, total: int) -> Counts:
    """Return counts ≥ 0 that sum to `total`, as close as possible to owed/whole."""
    counts = np.maximum(owed // whole, 0)
    missing = total - int(counts.sum())
    if missing > 0:  # always fewer than there are shares, because every remainder is less than a whole
        counts[np.argsort(counts * whole - owed, kind="stable")[:missing]] += 1
    while (
        surplus := int(counts.sum()) - total
    ) > 0:  # some already had more than they were owed: take it from the others
        givers = np.flatnonzero(counts)
        lacking = (owed - counts * whole)[givers]
        counts[givers[np.argsort(lacking, kind="stable")[:surplus]]] -= 1
    rounded: Counts = counts.astype(np.int64)
    return rounded


def _whole_proportions(weights: Sequence[float]) -> Exact:
    shares = np.asarray(weights, np.float64)
    if shares.ndim != 1 or not np.isfinite(shares).all() or (shares < 0).any() or not (shares > 0).any():
        raise PlanError(f"capacities are {list(weights)}", fix="give finite capacities ≥ 0, at least one of them > 0")
    ratios = [share.as_integer_ratio() for share in shares.tolist()]
    unit = max(below for _, below in ratios)  # all are powers of two
    return np.array([above * (unit // below) for above, below in ratios], dtype=object)
