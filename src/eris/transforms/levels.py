"""The code of quantisers: whole multiples of a unit.

A symbol is `level + L` with level in −L … L, so it needs the bits of 2L. The unit is a float32 that travels with every
part: one for the vector, or one for each tensor. A unit is rounded **up**, so that L units reach the largest value; and
quantisers round against the unit that travels, so that its rounding costs no bias.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.errors import ConfigError, InputError, Reason, Refused
from eris.local.spec import Vector
from eris.shards.plan import Coordinates

__all__ = ["MOST_LEVELS", "Levels", "tensor_stops", "unit_of"]

_LARGEST = float(np.finfo(np.float32).max)
MOST_LEVELS = 2**15 - 1  # sixteen bits a symbol


@dataclass(frozen=True)
class Levels:
    """Whole multiples, −L … L, of a unit for the vector or for each tensor."""

    levels: int
    stops: tuple[int, ...] = ()  # where each tensor ends in the vector; empty: one unit for all

    def __post_init__(self) -> None:
        if not 1 <= self.levels <= MOST_LEVELS:
            raise ConfigError(f"number of levels is {self.levels}", fix=f"use 1 … {MOST_LEVELS}")

    @property
    def name(self) -> str:
        """`levels-L`, with the number of units if there are several."""
        return f"levels-{self.levels}" + (f"-units-{len(self.stops)}" if len(self.stops) > 1 else "")

    @property
    def bits(self) -> int:
        """The bits of the largest symbol, 2L."""
        return (2 * self.levels).bit_length()

    @property
    def dtype(self) -> np.dtype[Any]:
        """One byte if the symbols fit, otherwise two."""
        return np.dtype(np.uint8 if self.bits <= 8 else "<u2")

    @property
    def scale_count(self) -> int:
        """One unit, or one for each tensor."""
        return max(1, len(self.stops))

    def decode(self, symbols: NDArray[Any], scales: Vector, coordinates: Coordinates | None) -> Vector:
        """Return (symbol − L) · unit."""
        self._check(symbols, scales)
        values = symbols.astype(np.float32)
        values -= np.float32(self.levels)
        for number, place in enumerate(self.places(symbols.size, coordinates)):
            values[place] *= scales[number]
        return values

    def places(self, count: int, coordinates: Coordinates | None) -> Iterator[slice]:
        """Yield where the values under each unit stand, among those of all coordinates or of the given ones."""
        if self.scale_count == 1:
            yield slice(0, count)
            return
        stops = self._stops if coordinates is None else np.searchsorted(coordinates, self._stops)
        start = 0
        for stop in stops.tolist():
            yield slice(start, stop)
            start = stop

    def restricted(self, coordinates: Coordinates) -> Levels:
        """Return the code of these coordinates standing alone: tensors end where their part of them ends."""
        return Levels(self.levels, tuple(np.searchsorted(coordinates, self._stops).tolist()))

    @cached_property
    def _stops(self) -> Coordinates:
        return np.array(self.stops, np.int64)

    def _check(self, symbols: NDArray[Any], scales: Vector) -> None:
        if scales.size != self.scale_count:
            raise Refused(Reason.MALFORMED, f"received {scales.size} units, but {self.name} has {self.scale_count}")
        if not ((scales >= 0) & (scales.astype(np.float64) * self.levels <= _LARGEST)).all():
            raise Refused(Reason.MALFORMED, f"a unit of {self.name} is negative or too large")
        if symbols.size and int(symbols.max()) > 2 * self.levels:
            raise Refused(Reason.MALFORMED, f"a symbol of {self.name} is {int(symbols.max())}")


def unit_of(largest: float, levels: int) -> np.float32:
    """Return the smallest float32 of which `levels` reach `largest`."""
    exact = largest / levels
    # The bound leaves room for rounding up: L units must still be a float32.
    if not exact < _LARGEST / levels * (1 - 2.0**-22):
        raise InputError(
            f"the largest value to quantise is {largest}",
            fix="clip the update, or lower the learning rate: training has diverged",
        )
    unit = np.float32(exact)
    return unit if float(unit) >= exact else np.nextafter(unit, np.float32(np.inf))


def tensor_stops(tensor_sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Return where each tensor ends in the vector."""
    return tuple(itertools.accumulate(tensor_sizes))
