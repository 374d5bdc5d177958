"""Judge an attack's scores: guesses, the ROC curve, and figures with their chance level and interval.

Guesses follow the paper's rule: the highest third is called in, the lowest third out, the rest is left open.

>>> [guess_counts(m) for m in (4, 8, 16, 32, 64, 128)]
[(2, 1), (3, 2), (6, 5), (11, 10), (22, 21), (43, 42)]
>>> guess(np.array([0.1, 3.0, -2.0, 0.5]), keys=np.arange(4.0)).tolist()
[0, 1, -1, 1]
>>> scores, coins = np.array([3.0, 1.0, 2.0, 0.0]), np.array([[True, False, True, False]])
>>> area(scores, coins).tolist(), true_positive_rate(scores, coins, 0.01, keys=np.arange(4.0)).tolist()
([1.0], [1.0])

Chance is not taken from a formula. Under the hypothesis that nothing leaked, the coins are fair and independent of the
scores; so they are tossed again many times, and the same figure is computed with the same selection (the best round,
the best aggregator). The share of tosses that do as well as the real coins is the p-value.

The area under the curve and the accuracy of one pre-chosen guess each have a valid interval (`intervals`). A figure
that was selected (a best round, a best view) has none: no interval from one run is right for it.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.audit.canaries import Coins
from eris.audit.intervals import area_interval, epsilon_lower_bound, guesses_interval, placements
from eris.seeds import Seed

__all__ = [
    "FALSE_POSITIVE_RATES",
    "STATISTICS",
    "Figure",
    "Guesses",
    "ScoreSheet",
    "Scores",
    "area",
    "by_member",
    "by_round",
    "detection",
    "epsilon",
    "figures",
    "guess",
    "guess_counts",
    "guessing",
    "interval_of_accuracy",
    "interval_of_area",
    "pooled",
    "standardised",
    "true_positive_rate",
]

Scores = NDArray[np.float64]
Guesses = NDArray[np.int8]

STATISTICS = {
    "auc": "area under the ROC curve at the last round, mean over views",
    "accuracy": "right guesses at the last round, one view chosen beforehand",
    "held_out_round": "right guesses at the round that is best on the other half of the members",
    "paper_mean": "right guesses, mean over views and members, at the best round (the paper's)",
    "paper_max": "right guesses, best view of each member, mean over members, at the best round",
}
FALSE_POSITIVE_RATES = {"1 %": 0.01, "0.1 %": 0.001}
_FALSE_POSITIVES = 10  # the fewest that a rate must allow, or it is not measured
_TOSSES_AT_ONCE = 64


def guess_counts(canaries: int) -> tuple[int, int]:
    """Return how many canaries are called in and how many out, by the paper's rule."""
    return min(canaries, int(canaries / 3 + 1)), max(0, canaries - int(2 * canaries / 3 + 1))


def guess(scores: Scores, keys: NDArray[Any]) -> Guesses:
    """Guess membership along the last axis: 1 in, −1 out, 0 open.

    Equal scores are ordered by random `keys`, never by position, which could favour included canaries. Where a score
    is missing (NaN, the member was away) nothing is guessed.
    """
    count = scores.shape[-1]
    called_in, called_out = guess_counts(count)
    order = np.lexsort((np.broadcast_to(keys, scores.shape), -scores), axis=-1)
    ranked = np.zeros(scores.shape, np.int8)
    ranked[..., :called_in], ranked[..., count - called_out :] = 1, -1
    guesses = np.empty(scores.shape, np.int8)
    np.put_along_axis(guesses, order, ranked, axis=-1)
    guesses[np.isnan(scores).any(axis=-1)] = 0
    return guesses


def area(scores: Scores, coins: Coins) -> Scores:
    """Return the area under the ROC curve for each row of coins; ties count half, and one class alone gives ½."""
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    inside = coins.sum(axis=-1)
    outside = coins.shape[-1] - inside
    wins = (coins * ranks).sum(axis=-1) - inside * (inside + 1) / 2
    return np.where(inside * outside > 0, wins / np.maximum(inside * outside, 1), 0.5)


def true_positive_rate(scores: Scores, coins: Coins, false_positive_rate: float, keys: NDArray[Any]) -> Scores:
    """Return the share of included canaries found when at most this share of the others is called in.

    There is one for each row of `coins`; equal scores are ordered by random `keys`.
    """
    order = np.lexsort((keys, -scores))
    ranked = coins[..., order]
    inside = ranked.sum(axis=-1)
    allowed = np.floor(false_positive_rate * (ranked.shape[-1] - inside) + 1e-9)
    found = (ranked & (np.cumsum(~ranked, axis=-1) <= allowed[..., None])).sum(axis=-1)
    return np.asarray(found / np.maximum(inside, 1))


def standardised(scores: Scores) -> Scores:
    """Scale scores to mean 0 and standard deviation 1 along the last axis, so that members and rounds can be added.

    Scores that are all equal carry no information and become 0; missing ones stay missing.
    """
    with warnings.catch_warnings(), np.errstate(invalid="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        centred = scores - scores.mean(axis=-1, keepdims=True)
        deviation = np.sqrt((centred * centred).mean(axis=-1, keepdims=True))
    size = np.abs(scores).max(axis=-1, keepdims=True, initial=0.0)
    flat = deviation <= 1e-12 * size
    return np.where(flat, 0.0, centred / np.where(flat, 1.0, deviation))


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure with its value by chance (mean and 95 % point), its p-value and, where there is one, its interval.

    The interval is for 95 % and within one run: it does not say what another seed would give.
    """

    value: float
    chance: float  # mean over tosses
    chance_95: float  # 95 % point over tosses
    p_value: float  # share of the tosses that do as well, the real one included
    low: float | None = None
    high: float | None = None

    def plain(self) -> dict[str, float | None]:
        """Return plain data."""
        return {name: getattr(self, name) for name in ("value", "chance", "chance_95", "p_value", "low", "high")}


@dataclass(frozen=True)
class ScoreSheet:
    """The guesses that follow from one attack's scores, for each member: rounds × views × canaries."""

    guesses: tuple[Guesses, ...] = field(repr=False)
    last: tuple[Scores, ...] = field(repr=False)  # views × canaries, the last round's scores, standardised
    keys: tuple[Scores, ...] = field(repr=False)  # random, to order equal scores

    @classmethod
    def of(cls, scores: Sequence[Scores], seed: Seed) -> ScoreSheet:
        """Make the guesses for each member's scores (rounds × views × canaries); the seed orders equal scores."""
        keys = tuple(seed.child("ties", member).uniforms(part.shape[-1]) for member, part in enumerate(scores))
        guesses = tuple(guess(part, own) for part, own in zip(scores, keys, strict=True))
        return cls(guesses, tuple(np.nan_to_num(standardised(part[-1])) for part in scores), keys)


def figures(sheet: ScoreSheet, coins: Sequence[Coins], seed: Seed, *, tosses: int = 1000) -> dict[str, Figure]:
    """Return every statistic of a sheet with its chance level, from so many tosses, and its interval if it has one.

    `coins` are each member's; `seed` tosses them again.
    """
    values = {name: float(value[0]) for name, value in _statistics(sheet, [part[None] for part in coins]).items()}
    null = _null(sheet, coins, seed.child("null"), tosses)
    bounds = {"auc": interval_of_area(sheet.last, coins), "accuracy": interval_of_accuracy(sheet, coins)}
    found = {}
    for name, value in values.items():
        chance = null[name]
        p_value = (1 + int((chance >= value - 1e-12).sum())) / (1 + tosses)
        level = float(np.quantile(chance, 0.95))
        found[name] = Figure(value, float(chance.mean()), level, p_value, *bounds.get(name, (None, None)))
    return found


def interval_of_area(last: Sequence[Scores], coins: Sequence[Coins]) -> tuple[float, float]:
    """Return the interval of the area under the curve, from each member's standardised scores (views × canaries).

    The area is a mean over views, and so are the placements behind it.
    """
    heads = np.concatenate(coins)
    members = np.repeat(np.arange(len(coins)), [len(toss) for toss in coins])
    placed = [placements(scores, heads) for scores in pooled(last)]
    return area_interval(np.mean(placed, axis=0), heads, members)


def pooled(last: Sequence[Scores]) -> list[Scores]:
    """Return the scores of all members together, view by view."""
    views = min(len(scores) for scores in last)
    return [np.concatenate([scores[view] for scores in last]) for view in range(views)]


def guessing(sheet: ScoreSheet, coins: Sequence[Coins]) -> tuple[int, int]:
    """Return the number of right guesses and of all guesses, at the last round and from the view chosen beforehand."""
    right, counts = _guessed_of(sheet, coins)
    return sum(right), sum(counts)


def interval_of_accuracy(sheet: ScoreSheet, coins: Sequence[Coins]) -> tuple[float, float]:
    """Return the interval of the share of right guesses (`guessing`)."""
    return guesses_interval(*_guessed_of(sheet, coins))


def _guessed_of(sheet: ScoreSheet, coins: Sequence[Coins]) -> tuple[list[int], list[int]]:
    """Return the right guesses about each member and all guesses about it, as `guessing` counts them."""
    last = [guesses[-1, 0] for guesses in sheet.guesses]
    right = [int((part == np.where(toss, 1, -1)).sum()) for part, toss in zip(last, coins, strict=True)]
    return right, [int((part != 0).sum()) for part in last]


def by_round(sheet: ScoreSheet, coins: Sequence[Coins]) -> list[float]:
    """Return the share of right guesses in each round, mean over views and members."""
    rates = [_rates(guesses, toss[None]).mean(axis=1) for guesses, toss in zip(sheet.guesses, coins, strict=True)]
    found: list[float] = _over_members(rates)[:, 0].tolist()
    return found


def by_member(sheet: ScoreSheet, coins: Sequence[Coins]) -> list[float]:
    """Return the share of right guesses about each member at the last round, mean over views."""
    pairs = zip(sheet.guesses, coins, strict=True)
    return [float(_rates(guesses[-1:], toss[None]).mean()) for guesses, toss in pairs]


def epsilon(sheet: ScoreSheet, coins: Sequence[Coins], *, delta: float) -> dict[str, Any]:
    """Return the lower bound on ε (at δ = `delta`) from the pre-chosen guesses, with what is needed to interpret it."""
    right, count = guessing(sheet, coins)
    canaries = sum(len(toss) for toss in coins)
    return {
        "lower_bound": epsilon_lower_bound(canaries, count, right, delta=delta),
        "delta": delta,
        "confidence": 0.95,
        "unit": "sample",
        "adjacency": "one sample more or less",
        "rounds": len(sheet.guesses[0]),
        "canaries": canaries,
        "guesses": count,
        "right": right,
    }


def detection(sheets: Sequence[ScoreSheet], coins: Sequence[Sequence[Coins]]) -> dict[str, dict[str, Any]]:
    """Return the true positive rate at low false positive rates, over one run or several together.

    A rate that would allow fewer than ten false positives is not measured: its value is None.
    """
    views = min(len(part) for sheet in sheets for part in sheet.last)
    heads = np.concatenate([toss for run in coins for toss in run])
    keys = np.concatenate([key for sheet in sheets for key in sheet.keys])
    together = [np.concatenate([part[view] for sheet in sheets for part in sheet.last]) for view in range(views)]
    outside, found = int((~heads).sum()), {}
    for name, rate in FALSE_POSITIVE_RATES.items():
        needed, value = round(_FALSE_POSITIVES / rate), None
        if outside >= needed:
            value = float(np.mean([true_positive_rate(scores, heads[None], rate, keys)[0] for scores in together]))
        found[name] = {"value": value, "non_members": outside, "needed": needed}
    return found


def _statistics(sheet: ScoreSheet, coins: Sequence[Coins]) -> dict[str, Scores]:
    """Return each statistic for each row of coins."""
    rates = [_rates(guesses, toss) for guesses, toss in zip(sheet.guesses, coins, strict=True)]
    means, bests = (_over_members([pick(rate, axis=1) for rate in rates]) for pick in (np.mean, np.max))
    first = [_right(guesses[-1, 0], toss) for guesses, toss in zip(sheet.guesses, coins, strict=True)]
    guessed = sum(int((guesses[-1, 0] != 0).sum()) for guesses in sheet.guesses)
    return {
        **_ordering(sheet, coins),
        "accuracy": np.sum(first, axis=0) / max(1, guessed),
        "held_out_round": _held_out([np.mean(rate, axis=1) for rate in rates]),
        "paper_mean": means.max(axis=0),
        "paper_max": bests.max(axis=0),
    }


def _right(guesses: Guesses, coins: Coins) -> Scores:
    """Return the number of right guesses: … × tosses."""
    heads = coins.T.astype(np.float32)
    return np.asarray((guesses == 1) @ heads + (guesses == -1) @ (1 - heads), np.float64)


def _rates(guesses: Guesses, coins: Coins) -> Scores:
    """Return the share of right guesses, rounds × views × tosses; ½ where nothing was guessed."""
    count = (guesses != 0).sum(axis=-1)[..., None]
    return np.where(count > 0, _right(guesses, coins) / np.maximum(count, 1), 0.5)


def _over_members(rates: Sequence[Scores]) -> Scores:
    return np.asarray(np.mean(np.stack(rates), axis=0))


def _held_out(rates: Sequence[Scores]) -> Scores:
    """Choose the best round on one half of the members and score it on the other, both ways; takes rounds × tosses."""
    halves = [_over_members(part) for part in (rates[::2], rates[1::2]) if len(part)]
    if len(halves) == 1:
        return np.asarray(halves[0][-1])
    chosen = [
        np.take_along_axis(score, choose.argmax(axis=0)[None], axis=0)[0] for choose, score in (halves, halves[::-1])
    ]
    return np.asarray((chosen[0] + chosen[1]) / 2)


def _ordering(sheet: ScoreSheet, coins: Sequence[Coins]) -> dict[str, Scores]:
    tosses, views = np.concatenate(coins, axis=1), pooled(sheet.last)
    return {"auc": np.mean([area(scores, tosses) for scores in views], axis=0)}


def _null(sheet: ScoreSheet, coins: Sequence[Coins], seed: Seed, tosses: int) -> dict[str, Scores]:
    generator, parts = seed.generator(), []
    for start in range(0, tosses, _TOSSES_AT_ONCE):
        rows = min(_TOSSES_AT_ONCE, tosses - start)
        again = [generator.random((rows, len(toss))) < 0.5 for toss in coins]
        parts.append(_statistics(sheet, again))
    return {name: np.concatenate([part[name] for part in parts]) for name in STATISTICS}
