"""Rules that withstand a few outliers: the coordinate-wise median and the trimmed mean.

Both count every contributor once: members claim their weights themselves, so w_k must not buy influence here and is
ignored. Both give values on the scale of the contributions, so the published scalar c is 1. Neither is linear: what
sparsifiers and shifts send has no meaningful median (`check_rule` refuses it).

The values of a coordinate are sorted, then combined row by row in an explicit loop: the bits cannot depend on how the
vector was cut. −0 is read as +0, because the two compare as equal and a sort may leave them in either order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from eris.aggregate.ordered import BLOCK, blocks, in_order
from eris.aggregate.rule import Contribution
from eris.errors import ConfigError, InputError
from eris.local.spec import Vector

__all__ = ["Median", "TrimmedMean"]

Rows = NDArray[np.float32]


@dataclass(frozen=True)
class Median:
    """Take the middle value of each coordinate; of an even number, half the sum of the middle two.

    >>> given = [Contribution(k, np.float32(0.25), np.array([v], np.float32)) for k, v in enumerate([9, 1, 3, 1000])]
    >>> out = np.empty(1, np.float32)
    >>> Median().fold(given, out)
    >>> out.tolist()
    [6.0]
    """

    name: ClassVar[str] = "median"
    coordinate_wise: ClassVar[bool] = True
    linear: ClassVar[bool] = False

    def fold(self, contributions: Sequence[Contribution], out: Vector) -> None:
        """Write the coordinate-wise median into `out`."""
        half = np.float32(0.5)
        for place, rows in _sorted_blocks(contributions, out):
            lower, upper = rows[(len(rows) - 1) // 2], rows[len(rows) // 2]
            if len(rows) % 2:
                out[place] = lower
            else:  # halves first: the sum of two large values would overflow
                np.add(np.multiply(lower, half, out=lower), np.multiply(upper, half, out=upper), out=out[place])


@dataclass(frozen=True)
class TrimmedMean:
    """Drop the ⌊βK⌋ smallest and largest values of each coordinate, average the rest.

    >>> given = [Contribution(k, np.float32(0.2), np.array([v], np.float32)) for k, v in enumerate([9, 1, 3, 1000, 0])]
    >>> out = np.empty(1, np.float32)
    >>> TrimmedMean(beta=0.2).fold(given, out)
    >>> out.tolist()
    [4.333333492279053]
    """

    beta: float = 0.1

    name: ClassVar[str] = "trimmed_mean"
    coordinate_wise: ClassVar[bool] = True
    linear: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not (isinstance(self.beta, int | float) and math.isfinite(self.beta) and 0 <= self.beta < 0.5):
            raise ConfigError(f"trimmed share beta is {self.beta}", fix="use 0 ≤ beta < 0.5")

    def trimmed(self, contributors: int) -> int:
        """Return how many values are dropped at each end."""
        return int(self.beta * contributors)

    def fold(self, contributions: Sequence[Contribution], out: Vector) -> None:
        """Write the coordinate-wise trimmed mean into `out`."""
        drop = self.trimmed(len(contributions))
        for place, rows in _sorted_blocks(contributions, out):
            kept, total = rows[drop : len(rows) - drop], out[place]
            np.copyto(total, kept[0])
            for row in kept[1:]:
                np.add(total, row, out=total)
            np.divide(total, np.float32(len(kept)), out=total)


def _sorted_blocks(contributions: Sequence[Contribution], out: Vector) -> Iterator[tuple[slice, Rows]]:
    """Yield, block by block, the contributors' values sorted along the members (overwritten by the next block)."""
    ordered = in_order(contributions, out)
    for contribution in ordered:
        if contribution.positions is not None:
            raise InputError(
                "a sparse contribution cannot be ranked",
                fix="use the mean with sparsifiers",
                member=contribution.member,
            )
    scratch = np.empty((len(ordered), min(BLOCK, out.size)), np.float32)
    for place in blocks(out.size):
        rows = scratch[:, : place.stop - place.start]
        for row, contribution in zip(rows, ordered, strict=True):
            np.add(contribution.values[place], np.float32(0), out=row)
        rows.sort(axis=0)
        yield place, rows
