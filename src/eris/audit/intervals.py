"""Confidence intervals for a rate and an area under the ROC curve, and a lower bound on ε from guesses.

Except for `mean_over_seeds`, all are about one run: they say how far chance in its coins and canaries could have moved
a figure, not how much it changes from seed to seed.

The bound on ε is that of auditing in one run: of m canaries with independent fair coins an attacker guesses r and gets
v right. If the training were (ε, δ)-private, that many would be right with a probability of at most β + 2mδα.

>>> round(epsilon_lower_bound(64, 43, 43), 4), epsilon_lower_bound(4, 3, 3)
(2.6271, 0.0)
>>> tuple(round(bound, 3) for bound in rate_interval(43, 64))
(0.543, 0.784)
>>> {name: round(value, 3) for name, value in mean_over_seeds([0.9, 0.94, 0.98]).items()}
{'value': 0.94, 'low': 0.841, 'high': 1.0}
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from eris.errors import InputError
from eris.simulate.spread import t_quantile

__all__ = ["area_interval", "epsilon_lower_bound", "guesses_interval", "mean_over_seeds", "placements", "rate_interval"]

_LARGEST_EPSILON = 64.0


def epsilon_lower_bound(
    canaries: int, guesses: int, correct: int, *, delta: float = 1e-5, level: float = 0.05
) -> float:
    """Return the largest ε that these guesses refute; 0 if they refute none.

    It is valid for one statistic chosen beforehand: taking a maximum over rounds, members or aggregators breaks it.

    Args:
        canaries: m, all canaries.
        guesses: r, those that were guessed.
        correct: v, those that were guessed right.
        delta: the δ of (ε, δ)-privacy.
        level: the significance level.
    """
    if not 0 <= correct <= guesses <= canaries:
        raise InputError(f"{correct} of {guesses} guesses on {canaries} canaries are right", fix="give m ≥ r ≥ v ≥ 0")
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
    """Return the Clopper–Pearson interval of a rate of `hits` in `count`, with confidence 1 − `level`."""
    if count == 0:
        return 0.0, 1.0
    low = 0.0 if hits == 0 else _solve(lambda q: _tail(count, q)[hits] - level / 2)
    high = 1.0 if hits == count else _solve(lambda q: level / 2 - (1 - _tail(count, q)[hits + 1]))
    return low, high


def area_interval(
    placements: NDArray[np.float64], coins: NDArray[np.bool_], members: NDArray[np.int64], *, level: float = 0.05
) -> tuple[float, float]:
    """Return an interval for the area under the ROC curve, with confidence 1 − `level`.

    The area is the mean placement of the included canaries. Its variance is that of DeLong, summed by member
    (Obuchowski): scores of one member's canaries are standardised together, so they are not independent, and members
    may differ. The interval is computed on the logit scale, with Student's t for that many members, so that it stays
    inside (0, 1) and keeps its coverage with few of them.

    Args:
        placements: of each canary, as `placements` returns them.
        coins: whether each canary was included.
        members: whose canary each is.
        level: the significance level.
    """
    inside, outside = int(coins.sum()), int((~coins).sum())
    if not inside or not outside:
        return 0.0, 1.0
    area = float(placements[coins].mean())
    if area in (0.0, 1.0):  # no spread to judge by: as many hits as the rarer side has canaries
        low, high = rate_interval(min(inside, outside), min(inside, outside), level=level)
        return (low, high) if area else (1 - high, 1 - low)
    pull = (placements - area) / np.where(coins, inside, outside)
    return _on_logits(area, *_variance(pull, members), level)


def guesses_interval(hits: Sequence[int], counts: Sequence[int], *, level: float = 0.05) -> tuple[float, float]:
    """Return an interval for the share of right guesses.

    Members may differ in how much they leak, and guesses about one of them belong together: the variance is summed by
    member, as that of `area_interval` is. From a single member, or if all guesses or none are right, there is no
    spread to judge by, and the interval is that of independent guesses.

    Args:
        hits: the right guesses about each member.
        counts: all guesses about each member.
        level: one minus the coverage.
    """
    right, all_guesses = sum(hits), sum(counts)
    if sum(count > 0 for count in counts) < 2 or right in (0, all_guesses):
        return rate_interval(right, all_guesses, level=level)
    rate = right / all_guesses
    pull = (np.asarray(hits) - rate * np.asarray(counts))[np.asarray(counts) > 0] / all_guesses
    return _on_logits(rate, *_variance(pull, np.arange(len(pull))), level)


def placements(scores: NDArray[np.float64], coins: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return for each canary the share of the other side that it is ordered correctly against; ties count half.

    >>> placements(np.array([3.0, 1.0, 2.0, 0.0]), np.array([True, False, False, True])).tolist()
    [1.0, 0.5, 0.5, 0.0]
    """
    found, ranks = np.empty(len(scores)), _midranks(scores)
    inside, outside = int(coins.sum()), int((~coins).sum())
    found[coins] = (ranks[coins] - _midranks(scores[coins])) / max(1, outside)
    found[~coins] = 1 - (ranks[~coins] - _midranks(scores[~coins])) / max(1, inside)
    return found


def _variance(pull: NDArray[np.float64], members: NDArray[np.int64]) -> tuple[float, int]:
    """Return the variance of the sum of all pulls and its degrees of freedom, by member if there are at least two."""
    count = int(members.max()) + 1
    sums = np.bincount(members, pull, count) if count > 1 else pull
    return float(len(sums) / (len(sums) - 1) * (sums**2).sum()), len(sums) - 1


def _midranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: NDArray[np.float64] = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return ranks


def _on_logits(value: float, variance: float, freedom: int, level: float) -> tuple[float, float]:
    """Return Student's interval on the logit scale, which keeps it inside (0, 1)."""
    reach = t_quantile(1 - level / 2, freedom) * math.sqrt(variance) / (value * (1 - value))
    middle = math.log(value / (1 - value))
    return _expit(middle - reach), _expit(middle + reach)


def _expit(value: float) -> float:
    return 1 / (1 + math.exp(-max(-700.0, value)))


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


def _solve(above: Callable[[float], float]) -> float:
    """Return the root of an increasing function on (0, 1)."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if above(middle) > 0:
            high = middle
        else:
            low = middle
    return (low + high) / 2


def mean_over_seeds(values: Sequence[float]) -> dict[str, float]:
    """Return the mean of an area or a rate with its 95 % t-interval, cut off at 0 and 1."""
    mean = statistics.fmean(values)
    reach = t_quantile(0.975, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return {"value": mean, "low": max(0.0, mean - reach), "high": min(1.0, mean + reach)}
