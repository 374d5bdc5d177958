"""Sixteen-bit floats: fp16 keeps eleven significant bits and ends at 65504, bf16 keeps eight and float32's range.

Both round to the nearest, half to even, which is deterministic and therefore biased (by at most half a unit in the last
place). What would round to infinity is refused before it is sent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.errors import InputError
from eris.local.spec import Vector
from eris.shards.plan import Coordinates
from eris.transforms.compress import DenseCompressor
from eris.transforms.norm import max_norm
from eris.transforms.packed import Code, Packed
from eris.transforms.transform import SendContext

__all__ = ["BFloat16", "BrainHalf", "Float16", "Half", "bf16", "fp16"]


@dataclass(frozen=True, slots=True)
class Float16:
    """IEEE half precision."""

    name: str = "float16"
    bits: int = 16
    dtype: np.dtype[Any] = field(default_factory=lambda: np.dtype("<f2"))
    scale_count: int = 0

    def decode(self, symbols: NDArray[Any], scales: Vector, coordinates: Coordinates | None) -> Vector:
        """Widen to float32, exactly."""
        del scales, coordinates
        return symbols.astype(np.float32)


@dataclass(frozen=True, slots=True)
class BFloat16:
    """The upper half of a float32 (numpy has no such type, so its bits)."""

    name: str = "bfloat16"
    bits: int = 16
    dtype: np.dtype[Any] = field(default_factory=lambda: np.dtype("<u2"))
    scale_count: int = 0

    def decode(self, symbols: NDArray[Any], scales: Vector, coordinates: Coordinates | None) -> Vector:
        """Widen to float32, exactly."""
        del scales, coordinates
        bits = symbols.astype(np.uint32)
        bits <<= 16
        return bits.view(np.float32)


@dataclass(frozen=True)
class _Sixteen(DenseCompressor):
    """Base class of float16 and bfloat16."""

    unbiased = False
    contractive = True

    def omega(self, n: int) -> None:
        """Return None: rounding to the nearest is biased."""
        del n


@dataclass(frozen=True)
class Half(_Sixteen):
    """Send float16."""

    def __repr__(self) -> str:
        return "fp16()"

    def code(self, tensor_sizes: tuple[int, ...]) -> Code:
        """Return float16."""
        del tensor_sizes
        return Float16()

    def compress(self, vector: Vector, context: SendContext) -> Packed:
        """Round to float16."""
        if not (largest := max_norm(vector)) < 65520:  # from here on the nearest float16 is infinity
            raise _too_large(largest, context, fix="clip the update, or use bf16()")
        return Packed(vector.size, None, vector.astype("<f2"), code=Float16())


@dataclass(frozen=True)
class BrainHalf(_Sixteen):
    """Send bfloat16."""

    def __repr__(self) -> str:
        return "bf16()"

    def code(self, tensor_sizes: tuple[int, ...]) -> Code:
        """Return bfloat16."""
        del tensor_sizes
        return BFloat16()

    def compress(self, vector: Vector, context: SendContext) -> Packed:
        """Round to the upper sixteen bits."""
        if not (largest := max_norm(vector)) < 2.0**128 - 2.0**119:  # from here on the nearest bfloat16 is infinity
            raise _too_large(largest, context, fix="clip the update: it has diverged")
        bits = np.ascontiguousarray(vector, np.float32).view(np.uint32)
        rounded = bits >> 16
        rounded &= 1
        rounded += 0x7FFF
        rounded += bits
        rounded >>= 16
        return Packed(vector.size, None, rounded.astype("<u2"), code=BFloat16())


def _too_large(largest: float, context: SendContext, fix: str) -> InputError:
    where = {"peer": context.member, "round": context.round}
    return InputError(f"the largest value to round to sixteen bits is {largest}", fix=fix, **where)


def fp16() -> Half:
    """Send float16."""
    return Half()


def bf16() -> BrainHalf:
    """Send bfloat16."""
    return BrainHalf()
