"""What an attack's scores come to, each figure with its chance level and an interval.

Chance is not taken from a formula. Under the hypothesis that nothing leaked the coins are fair and have nothing to do
with the scores; so they are tossed again, many times, and the same figure is computed with the same selection (the best
round, the best aggregator). The share of tosses that do as well as the real coins is the p-value.

The intervals come from drawing members with replacement, except for rates of one pre-chosen guess each (exact).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eris.audit.binomial import epsilon_lower_bound, rate_interval
from eris.audit.canaries import Coins
from eris.audit.guesses import Guesses, Scores, guess
from eris.audit.roc import area, standardised, true_positive_rate
from eris.seeds import Seed

__all__ = ["STATISTICS", "Figure", "Sheet", "by_member", "by_round", "epsilon", "figures", "guessing"]

STATISTICS = {
    "auc": "area under the ROC curve at the last round, mean over views",
    "tpr_at_1_percent": "included canaries found at 1 % false positives, mean over views",
    "tpr_at_0.1_percent": "included canaries found at 0.1 % false positives, mean over views",
    "accuracy": "right guesses at the last round, one view chosen beforehand",
    "held_out_round": "right guesses at the round that is best on the other half of the members",
    "paper_mean": "right guesses, mean over views and members, at the best round (the paper's)",
    "paper_max": "right guesses, best view of each member, mean over members, at the best round",
}
_TOSSES_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure with what chance makes of it (mean and 95 % point), its p-value and a 95 % interval."""

    value: float
    chance: float
    chance_95: float
    p_value: float
    low: float
    high: float

    def plain(self) -> dict[str, float]:
        """Return plain data."""
        return {name: getattr(self, name) for name in ("value", "chance", "chance_95", "p_value", "low", "high")}


@dataclass(frozen=True)
class Sheet:
    """One attack's scores, for each member: rounds × views × canaries, and what follows from them."""

    guesses: tuple[Guesses, ...] = field(repr=False)
    last: tuple[Scores, ...] = field(repr=False)  # views × canaries, the last round's scores, standardised
    keys: tuple[Scores, ...] = field(repr=False)  # random, to order equal scores

    @classmethod
    def of(cls, scores: Sequence[Scores], seed: Seed) -> Sheet:
        """Guess by these scores; the keys come from a seed."""
        keys = tuple(seed.child("ties", member).uniforms(part.shape[-1]) for member, part in enumerate(scores))
        guesses = tuple(guess(part, own) for part, own in zip(scores, keys, strict=True))
        return cls(guesses, tuple(np.nan_to_num(standardised(part[-1])) for part in scores), keys)

    def take(self, members: Sequence[int]) -> Sheet:
        """Return the sheet of some members, perhaps several times the same."""
        parts = (self.guesses, self.last, self.keys)
        return Sheet(*(tuple(part[member] for member in members) for part in parts))  # type: ignore[arg-type]


def figures(
    sheet: Sheet, coins: Sequence[Coins], seed: Seed, *, tosses: int = 1000, resamples: int = 200
) -> dict[str, Figure]:
    """Return every statistic of a sheet with its chance level and interval."""
    values = {name: float(value[0]) for name, value in _statistics(sheet, [part[None] for part in coins]).items()}
    null = _null(sheet, coins, seed.child("null"), tosses)
    spread = _spread(sheet, coins, seed.child("resamples"), resamples)
    found = {}
    for name, value in values.items():
        chance, about = null[name], spread[name]
        p_value = (1 + int((chance >= value - 1e-12).sum())) / (1 + tosses)
        bounds = np.quantile(about, [0.025, 0.975]) if len(about) else np.array([np.nan, np.nan])
        if name == "accuracy":
            right, count = guessing(sheet, coins)
            bounds = np.array(rate_interval(right, count))
        found[name] = Figure(
            value, float(chance.mean()), float(np.quantile(chance, 0.95)), p_value, float(bounds[0]), float(bounds[1])
        )
    return found


def guessing(sheet: Sheet, coins: Sequence[Coins]) -> tuple[int, int]:
    """Return the right guesses and all guesses at the last round from the view chosen beforehand."""
    right = count = 0
    for guesses, toss in zip(sheet.guesses, coins, strict=True):
        last = guesses[-1, 0]
        right += int((last == np.where(toss, 1, -1)).sum())
        count += int((last != 0).sum())
    return right, count


def by_round(sheet: Sheet, coins: Sequence[Coins]) -> list[float]:
    """Return the share of right guesses in each round, mean over views and members."""
    rates = [_rates(guesses, toss[None]).mean(axis=1) for guesses, toss in zip(sheet.guesses, coins, strict=True)]
    found: list[float] = _over_members(rates)[:, 0].tolist()
    return found


def by_member(sheet: Sheet, coins: Sequence[Coins]) -> list[float]:
    """Return the share of right guesses about each member at the last round, mean over views."""
    pairs = zip(sheet.guesses, coins, strict=True)
    return [float(_rates(guesses[-1:], toss[None]).mean()) for guesses, toss in pairs]


def epsilon(sheet: Sheet, coins: Sequence[Coins], *, delta: float) -> dict[str, Any]:
    """Return the ε that the pre-chosen guesses refute, with everything it needs to be read."""
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


def _statistics(sheet: Sheet, coins: Sequence[Coins]) -> dict[str, Scores]:
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
    """Return rounds × views × tosses; ½ where nothing was guessed."""
    count = (guesses != 0).sum(axis=-1)[..., None]
    return np.where(count > 0, _right(guesses, coins) / np.maximum(count, 1), 0.5)


def _over_members(rates: Sequence[Scores]) -> Scores:
    return np.asarray(np.mean(np.stack(rates), axis=0))


def _held_out(rates: Sequence[Scores]) -> Scores:
    """Choose the round on one half of the members, score it on the other, both ways; rounds × tosses go in."""
    halves = [_over_members(part) for part in (rates[::2], rates[1::2]) if len(part)]
    if len(halves) == 1:
        return np.asarray(halves[0][-1])
    chosen = [
        np.take_along_axis(score, choose.argmax(axis=0)[None], axis=0)[0] for choose, score in (halves, halves[::-1])
    ]
    return np.asarray((chosen[0] + chosen[1]) / 2)


def _ordering(sheet: Sheet, coins: Sequence[Coins]) -> dict[str, Scores]:
    tosses, keys = np.concatenate(coins, axis=1), np.concatenate(sheet.keys)
    views = min(len(scores) for scores in sheet.last)
    sums = {name: np.zeros(tosses.shape[0]) for name in ("auc", "tpr_at_1_percent", "tpr_at_0.1_percent")}
    for view in range(views):
        pooled = np.concatenate([scores[view] for scores in sheet.last])
        sums["auc"] += area(pooled, tosses) / views
        sums["tpr_at_1_percent"] += true_positive_rate(pooled, tosses, 0.01, keys) / views
        sums["tpr_at_0.1_percent"] += true_positive_rate(pooled, tosses, 0.001, keys) / views
    return sums


def _null(sheet: Sheet, coins: Sequence[Coins], seed: Seed, tosses: int) -> dict[str, Scores]:
    generator, parts = seed.generator(), []
    for start in range(0, tosses, _TOSSES_AT_ONCE):
        rows = min(_TOSSES_AT_ONCE, tosses - start)
        again = [generator.random((rows, len(toss))) < 0.5 for toss in coins]
        parts.append(_statistics(sheet, again))
    return {name: np.concatenate([part[name] for part in parts]) for name in STATISTICS}


def _spread(sheet: Sheet, coins: Sequence[Coins], seed: Seed, resamples: int) -> dict[str, Scores]:
    found: dict[str, list[float]] = {name: [] for name in STATISTICS}
    for number in range(resamples):
        members = seed.child(number).integers(len(coins), count=len(coins)).tolist()
        values = _statistics(sheet.take(members), [coins[member][None] for member in members])
        for name, value in values.items():
            found[name].append(float(value[0]))
    return {name: np.array(values) for name, values in found.items()}
