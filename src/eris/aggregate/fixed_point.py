"""Updates as integers modulo 2³² (ring32), whose sum does not depend on the order in which they are added.

A float sum depends on its order, so contributions have to be staged until all have arrived and can be folded by
ascending member id. Integers can be added as they arrive, in any order and by anybody; and a random pad added to one
hides it completely, which is what masked shards rest on.

    limit   |v| ≤ R, R a power of two
    weigh   p = fl32(v · w)
    round   z = rint(p · 2^f),  f = 30 − log₂ R      (scaling by a power of two is exact)
    sum     S = Σ z_k  mod 2³²

The limit comes *before* the weight: then |z_k| ≤ rint(w_k · 2³⁰), and as the weights sum to one, |S| ≤ 2³⁰ + K/2 never
reaches the edge of the ring. If v·w were limited instead, four members at the limit would sum to 2³² ≡ 0 unnoticed.

>>> scale = RingScale(1.0)
>>> shares = [scale.encode(np.float32([0.5, -0.25]), np.float32(0.5)).values for _ in range(2)]
>>> scale.decode_sum(add(shares[0], shares[1])).tolist()
[0.5, -0.25]
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from eris.aggregate.ordered import BLOCK, blocks
from eris.errors import ConfigError, InputError
from eris.local.spec import Vector

__all__ = [
    "BUFFER_FRACTION",
    "Encoded",
    "Ring",
    "Ring64",
    "RingScale",
    "add",
    "buffers_within",
    "decode_buffers",
    "encode_buffers",
    "next_limit",
]

Ring = NDArray[np.uint32]  # values modulo 2³²; read as int32 they lie around zero
Ring64 = NDArray[np.uint64]
_Whole = TypeVar("_Whole", bound=NDArray[np.unsignedinteger[Any]])

ONE = np.float32(1.0)
_WHOLE = 30  # bits below the sign and one bit of room: the largest weighted value is 2³⁰
_LEAST_LIMIT, _LARGEST_LIMIT = 2.0**-60, 2.0**60  # beyond them float32 products would be rounded away or overflow
_HEADROOM = 16.0  # R over the largest value that last moved the model; see `next_limit`
BUFFER_FRACTION = 32  # running variances may be large: buffers have 64 bits, half of them after the point
_LARGEST_BUFFER = 2.0**30  # before weighting, so that a sum stays below 2⁶², far from the edge of the ring


class Encoded(NamedTuple):
    """A member's values in the ring, and how many of them the limit cut (known to that member alone)."""

    values: Ring
    limited: int


@dataclass(frozen=True, slots=True)
class RingScale:
    """How values of magnitude at most `limit` are written as integers; `limit` is a power of two."""

    limit: float

    def __post_init__(self) -> None:
        if not (_LEAST_LIMIT <= self.limit <= _LARGEST_LIMIT and math.frexp(self.limit)[0] == 0.5):
            raise ConfigError(
                f"the limit of fixed point is {self.limit}",
                fix="use a power of two such as 1.0 or 0.0625, or 'auto'",
            )

    @property
    def fraction(self) -> int:
        """f, the number of bits after the point: one step of the grid is 2^−f."""
        return _WHOLE - (math.frexp(self.limit)[1] - 1)

    @property
    def step(self) -> float:
        """The distance of two neighbouring values of the grid, 2^−f."""
        return 2.0**-self.fraction

    def encode(self, values: Vector, weight: np.float32, *, out: Ring | None = None) -> Encoded:
        """Return rint(fl32(v·w)·2^f) of every value after limiting it to ±R; NaN is refused.

        `weight` is w; `out` may be given to write into.
        """
        _require_weight(weight)
        ring = np.empty(values.size, np.uint32) if out is None else out
        signed, limited = ring.view(np.int32), 0
        # Scaling the weight by a power of two adds no rounding: fl32(v·(w·2^f)) is fl32(v·w)·2^f. (Below 2⁻¹²⁶, where
        # they would differ, both round to 0.)
        scratch, factor = np.empty(min(BLOCK, values.size), np.float32), np.float32(weight * 2.0**self.fraction)
        for place in blocks(values.size):
            part, given = scratch[: place.stop - place.start], values[place]
            if not (given.max() <= self.limit and given.min() >= -self.limit):  # NaN compares false
                limited += self._limit(given, part)
                given = part
            np.rint(np.multiply(given, factor, out=part), out=part)
            np.copyto(signed[place], part, casting="unsafe")
        return Encoded(ring, limited)

    def _limit(self, values: Vector, out: Vector) -> int:
        """Limit values that are not all within ±R, and return how many were not; refuse NaN."""
        np.clip(values, -self.limit, self.limit, out=out)
        if np.isnan(out).any():
            raise InputError("the update has a NaN", fix="look for a diverging loss")
        return int(np.count_nonzero(out != values))

    def decode(self, ring: Ring, weight: np.float32) -> Vector:
        """Return the values that one member's contribution stands for, z·2^−f/w, the same at sender and receiver."""
        _require_weight(weight)
        values = self.decode_sum(ring)
        return np.divide(values, weight, out=values)

    def decode_sum(self, ring: Ring, *, out: Vector | None = None) -> Vector:
        """Return S·2^−f in float32."""
        values = np.empty(ring.size, np.float32) if out is None else out
        np.copyto(values, ring.view(np.int32), casting="same_kind")
        return np.multiply(values, np.float32(self.step), out=values)

    @staticmethod
    def bound(weights: Iterable[np.float32]) -> int:
        """Return the largest magnitude of an honest sum over members with these weights."""
        return sum(int(np.rint(np.float64(weight) * 2.0**_WHOLE)) for weight in weights)

    @classmethod
    def within(cls, ring: Ring, weights: Iterable[np.float32], room: int = 0) -> bool:
        """Return whether honest contributors with these weights can produce this sum, `ring`.

        `room` is for noise, which is added after the limit.
        """
        if not ring.size:
            return True
        signed, bound = ring.view(np.int32), cls.bound(weights) + room
        return -bound <= int(signed.min()) and int(signed.max()) <= bound


def add(total: _Whole, values: _Whole) -> _Whole:
    """Add a contribution to a sum, in place, modulo 2³² (buffers: 2⁶⁴)."""
    np.add(total, values, out=total)
    return total


def next_limit(largest: float, *, first: float, members: int = 1) -> float:
    """Return R for the next round: the least power of two above 16 × the largest value that was committed last.

    If the updates of more than 16 members are unrelated, their mean may be √K times smaller than they are; 4·√K ×
    covers that. Everybody derives R from public values. Before anything was committed, or if nothing moved, it is
    `first`.

    >>> next_limit(0.01, first=1.0), next_limit(0.0, first=1.0), next_limit(0.01, first=1.0, members=1600)
    (0.25, 1.0, 2.0)
    """
    if not (largest > 0 and math.isfinite(largest)):
        return first
    headroom = max(_HEADROOM, 4 * math.sqrt(members))
    exponent = math.frexp(headroom * largest)[1]  # 2^(exponent−1) ≤ headroom · largest < 2^exponent
    return min(max(2.0**exponent, _LEAST_LIMIT), _LARGEST_LIMIT)


def encode_buffers(buffers: Vector, weight: np.float32) -> Ring64:
    """Write running statistics as 64-bit integers with 32 bits after the point; refuse what does not fit.

    They are never limited: a running variance cut short would be a different statistic.
    """
    _require_weight(weight)
    wide = buffers.astype(np.float64)
    if wide.size and not np.abs(wide).max() <= _LARGEST_BUFFER:  # NaN compares false
        raise InputError("a buffer is not finite or exceeds 2³⁰", fix="look for a diverging running statistic")
    wide *= np.float64(weight) * 2.0**BUFFER_FRACTION
    return np.rint(wide, out=wide).astype(np.int64).view(np.uint64)


def decode_buffers(ring: Ring64, weight: np.float32 = ONE) -> Vector:
    """Return a sum of buffers in float32 or, given its weight, one member's buffers."""
    return (ring.view(np.int64).astype(np.float64) * (2.0**-BUFFER_FRACTION / float(weight))).astype(np.float32)


def buffers_within(ring: Ring64, weights: Iterable[np.float32]) -> bool:
    """Return whether honest contributors with these weights can produce this sum of buffers."""
    if not ring.size:
        return True
    bound = sum(math.ceil(float(weight) * _LARGEST_BUFFER * 2.0**BUFFER_FRACTION) for weight in weights)
    signed = ring.view(np.int64)
    return -bound <= int(signed.min()) and int(signed.max()) <= bound


def _require_weight(weight: np.float32) -> None:
    if not 0 < weight <= 1:
        raise InputError(f"weight is {weight}", fix="use weights normalised over the whole roster")
