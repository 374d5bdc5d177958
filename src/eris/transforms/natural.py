"""Natural compression: round every value at random to one of the two powers of two around it.

Nine bits a value: a sign, and 0 or one of 255 powers 2⁻¹⁴⁹ … 2¹⁰⁵. That range begins at the smallest float32 (so that
subnormal values keep the ω of 1/8) and ends where no update should be: beyond 2¹⁰⁵ ≈ 4·10³¹ it is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.errors import InputError, Reason, Refused
from eris.local.spec import Vector
from eris.shards.plan import Coordinates
from eris.transforms.compress import DenseCompressor
from eris.transforms.norm import max_norm
from eris.transforms.packed import Packed
from eris.transforms.quantize import coins, rounding_seed
from eris.transforms.transform import SendContext

__all__ = ["Natural", "PowersOfTwo", "natural"]

_LARGEST = 2.0**105
_SIGN = 1 << 8
_BLOCK = 1 << 16


def _table() -> Vector:
    powers = np.concatenate([[0.0], np.ldexp(1.0, np.arange(-149, 106))]).astype(np.float32)
    return np.concatenate([powers, -powers])


_VALUES = _table()


@dataclass(frozen=True, slots=True)
class PowersOfTwo:
    """A sign and an exponent."""

    name: str = "powers-of-two"
    bits: int = 9
    dtype: np.dtype[Any] = field(default_factory=lambda: np.dtype("<u2"))
    scale_count: int = 0

    def decode(self, symbols: NDArray[Any], scales: Vector, coordinates: Coordinates | None) -> Vector:
        """Look the values up."""
        del scales, coordinates
        if symbols.size and int(symbols.max()) >= _VALUES.size:
            raise Refused(Reason.MALFORMED, f"a symbol of {self.name} is {int(symbols.max())}")
        values: Vector = _VALUES[symbols]
        return values


@dataclass(frozen=True)
class Natural(DenseCompressor):
    """Round to a power of two, up with the probability that keeps the mean."""

    unbiased = True
    contractive = True  # ω < 1

    def __repr__(self) -> str:
        return "natural()"

    def omega(self, n: int) -> float:
        """Return 1/8, attained at (4/3)·2ᵉ."""
        del n
        return 0.125

    def code(self, tensor_sizes: tuple[int, ...]) -> PowersOfTwo:
        """Return sign and exponent."""
        del tensor_sizes
        return PowersOfTwo()

    def compress(self, vector: Vector, context: SendContext) -> Packed:
        """Return the powers of two."""
        if not (largest := max_norm(vector)) <= _LARGEST:
            raise InputError(
                f"the largest value to compress is {largest}", fix="clip the update: natural() ends at 2¹⁰⁵"
            )
        seed = rounding_seed(context, vector)
        symbols = np.empty(vector.size, "<u2")
        for first in range(0, vector.size, _BLOCK):
            values = vector[first : first + _BLOCK]
            symbols[first : first + _BLOCK] = _rounded(values, coins(seed, first, values.size))
        return Packed(vector.size, None, symbols, code=PowersOfTwo())


def _rounded(values: Vector, tossed: NDArray[np.uint32]) -> NDArray[np.int64]:
    # As float64 every float32 but 0 is normal: sign, exponent and the 23 bits behind the leading one can be read off.
    bits = values.astype(np.float64).view(np.int64)
    exponent = (bits >> 52 & 0x7FF) - 1023
    fraction = bits >> 29 & 0x7FFFFF
    up = (tossed >> 9) < fraction  # 23 bits against 23 bits: the probability is exact
    power = np.where(values == 0, 0, exponent + up + 150)
    return power + np.where(bits < 0, _SIGN, 0)


def natural() -> Natural:
    """Round every value at random to a neighbouring power of two."""
    return Natural()
