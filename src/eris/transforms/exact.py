"""The compressor that changes nothing."""

from __future__ import annotations

from dataclasses import dataclass

from eris.local.spec import Vector
from eris.seeds import Seed
from eris.shards.plan import Coordinates, ShardPlan
from eris.transforms.packed import Code, Float32, Packed
from eris.transforms.transform import SendContext

__all__ = ["Identity", "identity"]


@dataclass(frozen=True)
class Identity:
    """Send every value as float32."""

    unbiased = True
    plan_invariant = True
    sparse = False
    shared_support = True

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

    def support(self, shard: int, plan: ShardPlan, public: Seed, mask_key: bytes) -> Coordinates | None:
        """Return None: all coordinates of the shard."""
        del shard, plan, public, mask_key
        return None

    def compress(self, vector: Vector, context: SendContext) -> Packed:
        """Return the vector itself, packed."""
        del context
        return Packed(vector.size, None, vector)


def identity() -> Identity:
    """Send every value as float32."""
    return Identity()
