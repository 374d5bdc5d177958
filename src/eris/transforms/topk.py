"""Top-k: keep the largest values. Biased, so a shift around it needs γ = 1 (EF21).

Which values are largest depends on the data, so the support travels with the message, as a list or a bitmap, and tells
something about the data by itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from eris.errors import ConfigError, InputError, Reason, Refused
from eris.local.spec import Vector
from eris.seeds import Seed
from eris.shards.plan import Coordinates, ShardPlan
from eris.transforms.packed import Code, Float32, Packed
from eris.transforms.sparsify import share_of
from eris.transforms.transform import SendContext

__all__ = ["TopK", "magnitudes", "top_k"]


def magnitudes(vector: Vector, context: SendContext) -> Vector:
    """Return |x|; refuse NaN, which has no order."""
    sizes = np.abs(vector)
    if sizes.size and not math.isfinite(float(sizes.max())):
        raise InputError(
            "the update is not finite, so its values have no order",
            fix="lower the learning rate or look for a division by zero",
            peer=context.member,
            round=context.round,
        )
    return sizes


@dataclass(frozen=True)
class TopK:
    """Keep the k = ⌊pn⌋ values of largest magnitude, unscaled; of equals the one with the lower coordinate."""

    p: float

    unbiased = False
    contractive = True  # ‖C(x) − x‖² ≤ (1 − k/n)‖x‖²
    plan_invariant = True
    sparse = True
    shared_support = False

    def __post_init__(self) -> None:
        if not 0 < self.p <= 1:
            raise ConfigError(f"kept share p is {self.p}", fix="use 0 < p ≤ 1")

    def __repr__(self) -> str:
        return f"top_k({self.p})"

    def omega(self, n: int) -> None:
        """Return None: biased."""
        del n

    def code(self, tensor_sizes: tuple[int, ...]) -> Code:
        """Return plain float32."""
        del tensor_sizes
        return Float32()

    def support(self, shard: int, plan: ShardPlan, public: Seed, mask_key: bytes) -> None:
        """Refuse unless everything is kept: only the message says which coordinates it has."""
        del public, mask_key
        if share_of(self.p, plan.n) < plan.n:
            raise Refused(Reason.MALFORMED, f"a message of {self!r} has no coordinates", shard=shard)

    def compress(self, vector: Vector, context: SendContext) -> Packed:
        """Keep the largest values and say which they are."""
        k = share_of(self.p, vector.size)
        if k == vector.size:
            return Packed(vector.size, None, vector)
        support = _largest(magnitudes(vector, context), k)
        return Packed(vector.size, support, vector[support], explicit=True)


def _largest(sizes: Vector, k: int) -> Coordinates:
    edge = np.partition(sizes, sizes.size - k)[sizes.size - k]
    above = np.flatnonzero(sizes > edge)
    level = np.flatnonzero(sizes == edge)[: k - above.size]
    return np.sort(np.concatenate([above, level])).astype(np.int64, copy=False)


def top_k(p: float) -> TopK:
    """Keep the share p of largest magnitude (biased)."""
    return TopK(p)
