"""Signs: one bit a value, and nothing about its size."""

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
from eris.transforms.transform import SendContext

__all__ = ["Sign", "SignBit", "sign"]


@dataclass(frozen=True, slots=True)
class SignBit:
    """0 means 1.0, 1 means −1.0."""

    name: str = "sign"
    bits: int = 1
    dtype: np.dtype[Any] = field(default_factory=lambda: np.dtype(np.uint8))
    scale_count: int = 0

    def decode(self, symbols: NDArray[Any], scales: Vector, coordinates: Coordinates | None) -> Vector:
        """Return 1 − 2·symbol."""
        del scales, coordinates
        if symbols.size and int(symbols.max()) > 1:
            raise Refused(Reason.MALFORMED, f"a symbol of {self.name} is {int(symbols.max())}")
        values = symbols.astype(np.float32)
        values *= np.float32(-2)
        values += np.float32(1)
        return values


@dataclass(frozen=True)
class Sign(DenseCompressor):
    """Send +1 or −1 for every value (+1 for zero), unscaled: biased, and no contraction, so not behind a shift."""

    unbiased = False
    contractive = False

    def __repr__(self) -> str:
        return "sign()"

    def omega(self, n: int) -> None:
        """Return None: biased."""
        del n

    def code(self, tensor_sizes: tuple[int, ...]) -> SignBit:
        """Return one bit a value."""
        del tensor_sizes
        return SignBit()

    def compress(self, vector: Vector, context: SendContext) -> Packed:
        """Return the signs; refuse NaN, which would get a sign and go unnoticed."""
        if not np.isfinite(max_norm(vector)):
            raise InputError(
                "the update is not finite",
                fix="lower the learning rate or look for a division by zero",
                peer=context.member,
            )
        return Packed(vector.size, None, (vector < 0).view(np.uint8), code=SignBit())


def sign() -> Sign:
    """Send the sign of every value (biased)."""
    return Sign()
