"""Quantisers: every coordinate is sent, in few bits.

QSGD and TernGrad round to a neighbouring level by a coin that makes the mean right (unbiased, with an ω); uniform
quantisation rounds to the nearest (biased: behind a shift it needs γ = 1). The coins are private: whoever could redraw
them would learn more than the message says.

>>> qsgd(levels=4), qsgd(levels=4).code(()).bits, terngrad().code(()).bits
(qsgd(levels=4), 4, 2)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.errors import ConfigError, InputError
from eris.local.spec import Vector
from eris.seeds import Seed
from eris.transforms.compress import DenseCompressor
from eris.transforms.levels import MOST_LEVELS, Levels, tensor_stops, unit_of
from eris.transforms.norm import max_norm, norm
from eris.transforms.packed import Packed
from eris.transforms.transform import SendContext

__all__ = ["QSGD", "MaxQSGD", "TernGrad", "Uniform", "coins", "qsgd", "qsgd_max", "terngrad", "uniform"]

_BLOCK = 1 << 16  # float64 scratch that stays in the cache
_COIN = 2.0**32


def coins(seed: Seed, first: int, count: int) -> NDArray[np.uint32]:
    """Return `count` numbers of 32 random bits each, from number `first` of their stream: any stretch can be drawn."""
    words = seed.words((first + count + 1) // 2 - first // 2, start=first // 2)
    return words.astype("<u8", copy=False).view("<u4")[first % 2 :][:count]


def rounding_seed(context: SendContext, vector: Vector) -> Seed:
    """Return the private seed of this vector's stochastic rounding in this round."""
    return context.private.require_private("stochastic rounding").child("rounding").for_values(vector)


@dataclass(frozen=True)
class Quantizer(DenseCompressor):
    """Measure a unit for the vector or for every tensor, then round every value to a multiple of it."""

    levels: int

    per_tensor = False
    unbiased = True

    def __post_init__(self) -> None:
        lowest = 1 + self.levels - self.top
        if not lowest <= self.levels <= lowest + MOST_LEVELS - 1:
            raise ConfigError(
                f"number of levels is {self.levels}", fix=f"use {lowest} … {lowest + MOST_LEVELS - 1}", compressor=self
            )

    def code(self, tensor_sizes: tuple[int, ...]) -> Levels:
        """Return multiples of one unit, or of one for each tensor."""
        return Levels(self.top, tensor_stops(tensor_sizes) if self.per_tensor else ())

    def compress(self, vector: Vector, context: SendContext) -> Packed:
        """Return the rounded multiples, with their units."""
        code = self.code(context.tensor_sizes)
        if code.stops and code.stops[-1] != vector.size:
            raise InputError(
                f"the tensors have {code.stops[-1]} values, but the vector has {vector.size}",
                fix="give the sizes of all trainable tensors",
            )
        places = list(code.places(vector.size, None))
        units = np.array([unit_of(self.largest(vector[place]), self.top) for place in places], np.float32)
        symbols = np.empty(vector.size, code.dtype)
        seed = rounding_seed(context, vector) if self.unbiased else None
        for place, unit in zip(places, units, strict=True):
            for block in _blocks(place):
                multiples = _multiples(vector[block], unit)
                multiples += self.top
                symbols[block] = self.rounded(multiples, block, seed)
        return Packed(vector.size, None, symbols, units, code)

    @property
    def top(self) -> int:
        """L, the largest multiple."""
        return self.levels

    def largest(self, values: Vector) -> float:
        """Return the value that L units reach."""
        return max_norm(values)

    def rounded(self, multiples: NDArray[np.float64], block: slice, seed: Seed | None) -> NDArray[Any]:
        """Round to whole numbers; unbiased quantisers toss the coins that belong to these coordinates.

        `multiples` are the values of a `block` of the vector, in units of the quantiser.
        """
        assert seed is not None
        tossed = coins(seed, block.start, multiples.size)
        below = np.floor(multiples)
        multiples -= below
        multiples *= _COIN
        below += tossed < multiples
        return below


def _blocks(place: slice) -> Iterator[slice]:
    for start in range(place.start, place.stop, _BLOCK):
        yield slice(start, min(start + _BLOCK, place.stop))


def _multiples(values: Vector, unit: np.float32) -> NDArray[np.float64]:
    return values / np.float64(unit) if unit else np.zeros(values.size)


@dataclass(frozen=True)
class QSGD(Quantizer):
    """Round at random to s levels of the ℓ2 norm of the whole vector."""

    unbiased = True
    contractive = False

    def __repr__(self) -> str:
        return f"qsgd(levels={self.levels})"

    def omega(self, n: int) -> float:
        """Return min(n/s², √n/s), an upper bound."""
        return min(n / self.levels**2, math.sqrt(n) / self.levels)

    def largest(self, values: Vector) -> float:
        """Return the ℓ2 norm."""
        return norm(values)


@dataclass(frozen=True)
class _PerTensor(Quantizer):
    """L = s − 1 levels of the largest magnitude of each tensor."""

    per_tensor = True

    @property
    def top(self) -> int:
        """L = s − 1: zero is a level too."""
        return self.levels - 1


@dataclass(frozen=True)
class MaxQSGD(_PerTensor):
    """Round at random to L = s − 1 levels of the largest magnitude of each tensor."""

    unbiased = True
    contractive = False

    def __repr__(self) -> str:
        return f"qsgd_max(levels={self.levels})"

    def omega(self, n: int) -> float:
        """Return min(n/(4L²), (√n + 1)/(2L)), an upper bound: f(1−f) is below 1/4 and below f."""
        return min(n / (4 * self.top**2), (math.sqrt(n) + 1) / (2 * self.top))


@dataclass(frozen=True)
class TernGrad(Quantizer):
    """Round at random to −m, 0 or m, where m is the largest magnitude."""

    levels: int = field(default=1, init=False)

    unbiased = True
    contractive = False

    def __repr__(self) -> str:
        return "terngrad()"

    def omega(self, n: int) -> float:
        """Return (√n − 1)/2, attained by (1, a, …, a) with a = 1/(√n + 1)."""
        return (math.sqrt(n) - 1) / 2 if n else 0.0


@dataclass(frozen=True)
class Uniform(_PerTensor):
    """Round to the nearest of L = s − 1 levels of the largest magnitude of each tensor: biased."""

    unbiased = False
    contractive = True  # no value moves by more than itself, the largest hardly at all

    def __repr__(self) -> str:
        return f"uniform(levels={self.levels})"

    def omega(self, n: int) -> None:
        """Return None: biased."""
        del n

    def rounded(self, multiples: NDArray[np.float64], block: slice, seed: Seed | None) -> NDArray[Any]:
        """Round to the nearest whole number (ties go the same way on both sides of zero)."""
        del block, seed
        return np.rint(multiples, out=multiples)


def qsgd(levels: int) -> QSGD:
    """Round at random to `levels` levels of the ℓ2 norm."""
    return QSGD(levels)


def qsgd_max(levels: int) -> MaxQSGD:
    """Round at random to `levels` − 1 levels of each tensor's largest magnitude."""
    return MaxQSGD(levels)


def terngrad() -> TernGrad:
    """Round at random to minus, zero or plus the largest magnitude."""
    return TernGrad()


def uniform(levels: int) -> Uniform:
    """Round to the nearest of `levels` − 1 levels of each tensor's largest magnitude (biased)."""
    return Uniform(levels)
