"""Exact statements about counts: an interval for a rate, and the ε that a number of right guesses refutes.

The bound is that of auditing in one run: of m canaries with independent fair coins an attacker guesses r and gets v
right. Were the training (ε, δ)-private, that many would be right with a probability of at most β + 2mδα.

>>> round(epsilon_lower_bound(64, 43, 43), 4), epsilon_lower_bound(4, 3, 3)
(2.6271, 0.0)
>>> tuple(round(bound, 3) for bound in rate_interval(43, 64))
(0.543, 0.784)
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from eris.errors import InputError

__all__ = ["epsilon_lower_bound", "rate_interval"]

_LARGEST_EPSILON = 64.0


def epsilon_lower_bound(
    canaries: int, guesses: int, correct: int, *, delta: float = 1e-5, level: float = 0.05
) -> float:
    """Return the largest ε that these guesses refute at the level; 0 if they refute none.

    It holds for one statistic that was chosen beforehand: a maximum over rounds, members or aggregators breaks it.
    """
    if not 0 <= correct <= guesses <= canaries:
        raise InputError(f"{correct} right of {guesses} guesses on {canaries} canaries", fix="give m ≥ r ≥ v ≥ 0")
    if not _refuted(0.0, canaries, guesses, correct, delta, level):
        return 0.0
    low, high = 0.0, _LARGEST_EPSILON
    while high - low > 1e-9:
        middle = (low + high) / 2
        if _refuted(middle, canaries, guesses, correct, delta, level):
            low = middle
        else:
            high = middle
    return low


def rate_interval(hits: int, count: int, *, level: float = 0.05) -> tuple[float, float]:
    """Return the Clopper–Pearson interval of a rate."""
    if count == 0:
        return 0.0, 1.0
    low = 0.0 if hits == 0 else _solve(lambda q: _tail(count, q)[hits] - level / 2)
    high = 1.0 if hits == count else _solve(lambda q: level / 2 - (1 - _tail(count, q)[hits + 1]))
    return low, high


def _refuted(epsilon: float, canaries: int, guesses: int, correct: int, delta: float, level: float) -> bool:
    tail = _tail(guesses, 1 / (1 + math.exp(-epsilon)))
    beta = tail[correct]
    steps = np.arange(1, correct + 1)
    between = tail[correct - steps] - beta  # P[v > Bin ≥ v − i]
    alpha = float((between / steps).max(initial=0.0))
    return bool(beta + 2 * canaries * delta * alpha < level)


def _tail(count: int, rate: float) -> NDArray[np.float64]:
    """Return P[Bin(count, rate) ≥ v] for v = 0 … count + 1."""
    hits = np.arange(count + 1)
    if rate in (0.0, 1.0):
        masses = (hits == count * rate).astype(np.float64)
    else:
        choose = [math.lgamma(count + 1) - math.lgamma(v + 1) - math.lgamma(count - v + 1) for v in range(count + 1)]
        masses = np.exp(np.array(choose) + hits * math.log(rate) + (count - hits) * math.log1p(-rate))
    tail: NDArray[np.float64] = np.append(np.cumsum(masses[::-1])[::-1], 0.0)
    tail[0] = 1.0
    return tail


def _solve(above: object) -> float:
    """Return the root of an increasing function on (0, 1)."""
    low, high = 0.0, 1.0
    assert callable(above)
    for _ in range(60):
        middle = (low + high) / 2
        if above(middle) > 0:
            high = middle
        else:
            low = middle
    return (low + high) / 2
