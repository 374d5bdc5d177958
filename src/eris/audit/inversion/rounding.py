"""Updates that were rounded to a grid before they were sent: what an attacker still knows of the values behind them.

The spacing of the grid travels with the values, and can be read off them: all are multiples of it. Rounded to the
nearest, the true value lies within half a unit, and a candidate in there explains what was seen perfectly. Rounded at
random, the mean is right and the noise is as large as the unit says, so that tensors with a fine grid count for more.

>>> grid_of(np.array([0.0, 0.5, -1.0, 0.0, 0.1, 0.2], np.float32), np.array([0, 0, 0, 1, 1, 1])).round(3).tolist()
[0.5, 0.5, 0.5, 0.10000000149011612, 0.10000000149011612, 0.10000000149011612]
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from eris.local.spec import ModelSpec, Vector
from eris.shards.plan import Coordinates
from eris.transforms import Compressor
from eris.transforms.quantize import Quantizer

__all__ = ["Rounding", "grid_of", "rounding_of"]

_FIRST = 64  # multiples that the smallest value is tried for
_ALIKE = 1e-2  # of a unit


@dataclass(frozen=True, eq=False)
class Rounding:
    """The spacing of the grid at every value that was seen, and whether a coin decided between its neighbours."""

    units: Vector = field(repr=False)  # never zero
    at_random: bool

    @property
    def deviation(self) -> float:
        """The noise on a value of the finest grid: √(f(1 − f)) units, for f anywhere between two levels."""
        return float(self.units.min()) / 6**0.5


def rounding_of(compressor: Compressor, spec: ModelSpec, seen: Coordinates, sent: Vector) -> Rounding | None:
    """Return how the values that were sent on these coordinates had been rounded, if they had been."""
    if not isinstance(compressor, Quantizer) or not np.any(sent):
        return None
    stops = np.cumsum(spec.trainable_sizes) if compressor.per_tensor else np.array([spec.n_trainable])
    return Rounding(grid_of(sent, np.searchsorted(stops, seen, side="right")), at_random=compressor.unbiased)


def grid_of(values: Vector, tensors: NDArray[np.int64]) -> Vector:
    """Return the spacing at each value, read off all values of its tensor: the widest of which they are multiples.

    It may be a multiple of the true one where few values were seen, and a tensor of which only zeros were seen gets the
    widest of the others: too wide a grid claims too little, never too much.
    """
    spacings = np.zeros(int(tensors.max()) + 1, np.float32)
    for tensor in np.unique(tensors[values != 0]):
        spacings[tensor] = _spacing(np.unique(np.abs(values[tensors == tensor])))
    spacings[spacings == 0] = spacings.max()
    units: Vector = spacings[tensors]
    return units


def _spacing(magnitudes: Vector) -> float:
    """Return the widest spacing that all of these are multiples of; the smallest of them is one of its first few."""
    told = magnitudes[magnitudes > 0].astype(np.float64)
    for multiple in range(1, _FIRST):
        ratios = told * (multiple / told[0])
        if np.abs(ratios - np.rint(ratios)).max() < _ALIKE:
            return float(told[0] / multiple)
    return float(told[0])
