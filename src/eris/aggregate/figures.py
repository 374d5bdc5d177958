"""Figures that members share: sums and counts of their scores, as integers that add up in any order.

A member scores the model at the start of a round on its held-back samples, and sends the sums with its contribution to
shard 0: 64-bit words modulo 2⁶⁴, a sum and a count for each figure, both with 20 bits after the point; with masked
shards, under the same pads. The manifest publishes their total over the shard's contributors, and every peer forms the
same mean from it, bit for bit.

>>> figures = Figures(("loss", "accuracy"))
>>> total = add(figures.encode({"loss": (6.0, 8), "accuracy": (7, 8)}, members=2),
...             figures.encode({"loss": (1.0, 2), "accuracy": (2, 2)}, members=2))
>>> figures.means(signed(total))
{'loss': 0.7, 'accuracy': 0.9}
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eris.aggregate.fixed_point import Ring64, add

__all__ = ["FIGURE_BYTES", "MOST_FIGURES", "NO_FIGURES", "SHARD", "Figures", "add", "signed", "smaller_is_better"]

SHARD = 0  # the shard that figures travel with
FIGURE_BYTES = 8  # per word
MOST_FIGURES = 32
NO_FIGURES: Ring64 = np.empty(0, np.uint64)

_FRACTION = 2.0**20
_ROOM = 2**62  # no sum over all members exceeds it, so none comes near the edge of the ring
_ERRORS = ("loss", "error", "mae", "mse", "rmse", "perplexity")


def smaller_is_better(name: str) -> bool:
    """Return whether smaller values of a figure are better, judging by its name.

    >>> [smaller_is_better(name) for name in ("loss", "test_error", "accuracy", "f1")]
    [True, True, False, False]
    """
    return name.rpartition("_")[2] in _ERRORS


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures that all members of a run share, and what the first of them decides."""

    names: tuple[str, ...]
    every: int = 1  # rounds between evaluations
    patience: int = 0  # the run ends after so many evaluations without a new best; 0: it does not
    keep_best: bool = False  # whether the model of the best evaluation is the run's result

    def due(self, round: int) -> bool:
        """Return whether members score the model at the start of this round."""
        return round % self.every == 0

    @property
    def words(self) -> int:
        """Number of words that figures take in a contribution."""
        return 2 * len(self.names)

    def encode(self, scores: Mapping[str, tuple[float, float]], members: int) -> Ring64:
        """Write a member's sums and counts; one that is not finite or too large becomes the worst possible score."""
        most = _limit(members)
        words: list[int] = []
        for name in self.names:
            total, count = scores[name]
            worst = most if smaller_is_better(name) else -most
            exact = total * _FRACTION
            words += [
                max(-most, min(most, round(exact))) if math.isfinite(exact) else worst,
                max(1, min(most, round(count * _FRACTION))),
            ]
        return np.array(words, np.int64).view(np.uint64)

    def possible(self, sums: Sequence[int], contributors: int, members: int) -> bool:
        """Return whether so many contributors, of a roster of `members`, can have produced these sums."""
        most = contributors * _limit(members)
        return (
            len(sums) == self.words
            and all(-most <= total <= most for total in sums[::2])
            and all(contributors <= count <= most for count in sums[1::2])
        )

    def means(self, sums: Sequence[int]) -> dict[str, float]:
        """Return the means by name; empty if there are no sums."""
        pairs = zip(sums[::2], sums[1::2], strict=True)
        return {name: total / count for name, (total, count) in zip(self.names, pairs, strict=False)}

    def score(self, sums: Sequence[int]) -> float | None:
        """Return the deciding figure as a float32, larger meaning better; None if there is none."""
        if not sums:
            return None
        mean = self.means(sums)[self.names[0]]
        return float(np.float32(-mean if smaller_is_better(self.names[0]) else mean))


def signed(words: Ring64) -> tuple[int, ...]:
    """Read words of the ring as signed integers."""
    return tuple(words.view(np.int64).tolist())


def _limit(members: int) -> int:
    """Return the largest magnitude that one member's word can have."""
    return _ROOM // members
