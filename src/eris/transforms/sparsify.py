"""Random sparsifiers: the kept coordinates come from a seed, so a message is nothing but its kept values.

With **shared** masks (the default) all members keep the same coordinates in a round: the published mean is always over
all contributors and is as short as the upload. **Independent** masks are keyed by a secret of one member and one
aggregator that travels in the message header; were they public, the published mean would show a coordinate kept by one
member alone to everybody.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from eris.errors import ConfigError
from eris.local.spec import Vector
from eris.seeds import Seed
from eris.shards.plan import Coordinates, ShardPlan
from eris.transforms.packed import Code, Float32, Packed
from eris.transforms.transform import SendContext

__all__ = ["Bernoulli", "RandK", "StratifiedRandK", "bernoulli", "rand_k", "stratified_rand_k"]

_WORDS_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class _Sparsifier:
    """Keep a random share p of the coordinates, scaled by what makes the result unbiased."""

    p: float

    unbiased = True
    sparse = True
    shared_support = True
    plan_invariant = True

    def __post_init__(self) -> None:
        if not 0 < self.p <= 1:
            raise ConfigError(f"kept share p is {self.p}", fix="use 0 < p ≤ 1")

    def code(self, tensor_sizes: tuple[int, ...]) -> Code:
        """Return plain float32."""
        del tensor_sizes
        return Float32()

    def omega(self, n: int) -> float:
        """Return n/k − 1, which every vector attains."""
        return n / self.kept(n) - 1

    def kept(self, n: int) -> int:
        """Return how many of n coordinates are kept: ⌊pn⌋, at least one."""
        return max(1, int(self.p * n)) if n else 0

    def _scale(self, n: int) -> np.float32:
        return np.float32(n / self.kept(n))


def _owned(mask: Coordinates, shard: int, plan: ShardPlan) -> Coordinates:
    owned: Coordinates = mask[plan.owners_of(mask) == shard]
    return owned


@dataclass(frozen=True)
class RandK(_Sparsifier):
    """Keep k = ⌊pn⌋ coordinates drawn without replacement from the whole vector, times n/k."""

    def __repr__(self) -> str:
        return f"rand_k({self.p})"

    def support(self, shard: int, plan: ShardPlan, public: Seed, mask_key: bytes) -> Coordinates:
        """Redraw the round's mask and keep what lies in the shard."""
        del mask_key
        return _owned(self._mask(plan.n, public), shard, plan)

    def compress(self, vector: Vector, context: SendContext) -> Packed:
        """Keep the round's coordinates."""
        mask = self._mask(vector.size, context.public)
        return Packed(vector.size, mask, vector[mask] * self._scale(vector.size))

    def _mask(self, n: int, public: Seed) -> Coordinates:
        return public.child("mask").subset(n, self.kept(n)) if n else np.empty(0, np.int64)


@dataclass(frozen=True)
class Bernoulli(_Sparsifier):
    """Keep every coordinate with probability p, times 1/p; the number kept varies from round to round."""

    def __repr__(self) -> str:
        return f"bernoulli({self.p})"

    def omega(self, n: int) -> float:
        """Return (1 − p)/p, which every vector attains."""
        del n
        return (1 - self.p) / self.p

    def support(self, shard: int, plan: ShardPlan, public: Seed, mask_key: bytes) -> Coordinates:
        """Redraw the round's mask and keep what lies in the shard."""
        del mask_key
        return _owned(self._mask(plan.n, public), shard, plan)

    def compress(self, vector: Vector, context: SendContext) -> Packed:
        """Keep the coordinates whose word falls below p."""
        mask = self._mask(vector.size, context.public)
        return Packed(vector.size, mask, vector[mask] * np.float32(1 / self.p))

    def _mask(self, n: int, public: Seed) -> Coordinates:
        seed = public.child("mask")
        threshold = np.uint64(min(int(self.p * 2**64), 2**64 - 1))
        hits = [
            first + np.flatnonzero(seed.words(min(_WORDS_AT_ONCE, n - first), start=first) < threshold)
            for first in range(0, n, _WORDS_AT_ONCE)
        ]
        return np.concatenate(hits).astype(np.int64, copy=False) if hits else np.empty(0, np.int64)


@dataclass(frozen=True)
class StratifiedRandK(_Sparsifier):
    """Keep k_a = max(1, ⌊p|I_a|⌋) coordinates of every shard, times |I_a|/k_a: every message has a fixed length.

    The result depends on the shard plan, so it is not bit-equal to the run with one aggregator. With
    `independent=True` each member draws its own, under a secret it shares with the aggregator alone.
    """

    independent: bool = False

    plan_invariant = False

    @property
    def shared_support(self) -> bool:  # type: ignore[override]
        """Whether all members keep the same coordinates in a round."""
        return not self.independent

    def __repr__(self) -> str:
        return f"rand_k({self.p}, masks=independent)" if self.independent else f"stratified_rand_k({self.p})"

    def support(self, shard: int, plan: ShardPlan, public: Seed, mask_key: bytes) -> Coordinates:
        """Redraw the mask of this shard, from the public seed or from the secret in the message."""
        size = int(plan.sizes[shard])
        if not size:
            return np.empty(0, np.int64)
        seed = Seed("mask", mask_key, private=True) if self.independent else public.child("mask")
        return plan.coordinates_at(shard, seed.child(shard).subset(size, self.kept(size)))

    def compress(self, vector: Vector, context: SendContext) -> Packed:
        """Keep k_a coordinates of every shard."""
        plan = context.plan
        keys = self._mask_keys(context) if self.independent else ()
        masks = [self.support(a, plan, context.public, keys[a] if keys else b"") for a in range(plan.shards)]
        scales = [np.full(mask.size, self._scale(int(plan.sizes[a]) or 1)) for a, mask in enumerate(masks)]
        support = np.concatenate(masks)
        order = np.argsort(support, kind="stable")
        support = support[order]
        return Packed(
            vector.size, support, vector[support] * np.concatenate(scales)[order].astype(np.float32), mask_keys=keys
        )

    @staticmethod
    def _mask_keys(context: SendContext) -> tuple[bytes, ...]:
        secret = context.private.require_private("an independent mask").child("mask")
        return tuple(secret.child(shard).key for shard in range(context.plan.shards))


def rand_k(p: float, *, independent: bool = False) -> RandK | StratifiedRandK:
    """Keep a share p of the coordinates; `independent` masks are secret between one member and one aggregator."""
    return StratifiedRandK(p, independent=True) if independent else RandK(p)


def stratified_rand_k(p: float) -> StratifiedRandK:
    """Keep a share p of every shard, at least one coordinate."""
    return replace(StratifiedRandK(p), independent=False)


def bernoulli(p: float) -> Bernoulli:
    """Keep every coordinate with probability p."""
    return Bernoulli(p)
