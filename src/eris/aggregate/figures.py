"""Figures that members share: sums and counts of what they scored, as whole numbers that add up in any order.

A member scores the model that a round begins with on what it holds back, and its sums travel with its contribution to
shard 0: 64-bit words modulo 2⁶⁴, a sum and a count for each figure, both with 20 bits behind the point, under the same
pads where contributions are masked. What is published is their total over the shard's contributors, in the manifest;
everybody forms the same mean from it, bit for bit.

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

SHARD = 0  # the one that figures travel with
FIGURE_BYTES = 8  # of a word
MOST_FIGURES = 32
NO_FIGURES: Ring64 = np.empty(0, np.uint64)

_FRACTION = 2.0**20
_ROOM = 2**62  # no sum over all members passes it, so none comes near the edge of the ring
_ERRORS = ("loss", "error", "mae", "mse", "rmse", "perplexity")


def smaller_is_better(name: str) -> bool:
    """Whether a figure is one of errors, by its name.

    >>> [smaller_is_better(name) for name in ("loss", "test_error", "accuracy", "f1")]
    [True, True, False, False]
    """
    return name.rpartition("_")[2] in _ERRORS


@dataclass(frozen=True, slots=True)
class Figures:
    """Which figures all members of a run share, and what is decided by the first of them."""

    names: tuple[str, ...]
    every: int = 1  # rounds between two of them
    patience: int = 0  # evaluations without a better one after which the run ends; 0: it does not
    keep_best: bool = False  # whether the model of the best evaluation is the run's result

    def due(self, round: int) -> bool:
        """Whether members score the model that a round begins with."""
        return round % self.every == 0

    @property
    def words(self) -> int:
        """How many words a contribution has for them."""
        return 2 * len(self.names)

    def encode(self, scores: Mapping[str, tuple[float, float]], members: int) -> Ring64:
        """Write a member's sums and counts; one that is not finite or too large is as bad as can be written."""
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
        """Whether so many contributors, of a roster of `members`, can have caused these sums."""
        most = contributors * _limit(members)
        return (
            len(sums) == self.words
            and all(-most <= total <= most for total in sums[::2])
            and all(contributors <= count <= most for count in sums[1::2])
        )

    def means(self, sums: Sequence[int]) -> dict[str, float]:
        """Return what the sums come to, by name; nothing where there are none."""
        pairs = zip(sums[::2], sums[1::2], strict=True)
        return {name: total / count for name, (total, count) in zip(self.names, pairs, strict=False)}

    def score(self, sums: Sequence[int]) -> float | None:
        """Return the figure that decides, the larger the better, as a float32; None where there is none."""
        if not sums:
            return None
        mean = self.means(sums)[self.names[0]]
        return float(np.float32(-mean if smaller_is_better(self.names[0]) else mean))


def signed(words: Ring64) -> tuple[int, ...]:
    """Read words of the ring as numbers around zero."""
    return tuple(words.view(np.int64).tolist())


def _limit(members: int) -> int:
    """Return how far from zero a word of one member lies at most."""
    return _ROOM // members
