"""The compressor that changes nothing."""

from __future__ import annotations

from dataclasses import dataclass

from eris.local.spec import Vector
from eris.transforms.compress import DenseCompressor
from eris.transforms.packed import Code, Float32, Packed
from eris.transforms.transform import SendContext

__all__ = ["Identity", "identity"]


@dataclass(frozen=True)
class Identity(DenseCompressor):
    """Send every value as float32."""

    unbiased = True
    contractive = True

    def __repr__(self) -> str:
        return "identity()"

    def omega(self, n: int) -> float:
        """Return 0: nothing is lost."""
        del n
        return 0.0

    def code(self, tensor_sizes: tuple[int, ...]) -> Code:
        """Return plain float32."""
        del tensor_sizes
        return Float32()

    def compress(self, vector: Vector, context: SendContext) -> Packed:
        """Return the vector itself, packed."""
        del context
        return Packed(vector.size, None, vector)


def identity() -> Identity:
    """Send every value as float32."""
    return Identity()
