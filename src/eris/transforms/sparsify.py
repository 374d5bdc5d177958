"""Random sparsifiers: the kept coordinates come from a seed, so a message is nothing but its kept values.

With **shared** masks (the default) all members keep the same coordinates in a round: the published mean is always over
all contributors and is as short as the upload. **Independent** masks are keyed by a secret of one member and one
aggregator that travels in the message header. If they were public, everybody could tell whose value the published mean
shows at a coordinate that only one member kept.

Nothing here is as long as the vector, apart from Bernoulli's coins.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from eris.errors import ConfigError, PlanError
from eris.local.spec import Vector
from eris.seeds import Seed
from eris.shards.plan import Coordinates, ShardPlan
from eris.transforms.kept import Blocks, kept_of
from eris.transforms.packed import Code, Float32, Packed
from eris.transforms.transform import SendContext

__all__ = [
    "Bernoulli",
    "RandK",
    "Sparsifier",
    "StratifiedRandK",
    "bernoulli",
    "rand_k",
    "share_of",
    "stratified_rand_k",
]

_ULPS = 4 * 2.0**-53  # rounding error to allow in the product p·n: 0.29 · 100 is meant to be 29
_COINS_AT_ONCE = 1 << 20
_DRAWING = threading.Lock()  # threads that need the same mask at the same time wait, so that it is drawn once


def share_of(p: float, n: int, *, round_up: bool = False) -> int:
    """Return ⌊pn⌋, or ⌈pn⌉, for p as the decimal it was written as; at least 1, unless n is 0.

    >>> share_of(0.29, 100), share_of(0.01, 7), share_of(0.01, 0), share_of(0.5, 5, round_up=True)
    (29, 1, 0, 3)
    """
    share = math.ceil(p * n * (1 - _ULPS)) if round_up else math.floor(p * n * (1 + _ULPS))
    return min(n, max(1, share))


@dataclass(frozen=True)
class Sparsifier:
    """Keep a random share p of the coordinates, scaled by what makes the result unbiased."""

    p: float

    unbiased = True
    contractive = False  # the scaled one is not: its error is ω times the vector
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

    def support(self, shard: int, plan: ShardPlan, public: Seed, mask_key: bytes) -> Coordinates | None:
        """Redraw the round's mask and keep what lies in the shard."""
        del mask_key
        mask = self.mask(plan.n, public)
        return None if mask is None else mask[plan.owners_of(mask) == shard]

    def compress(self, vector: Vector, context: SendContext) -> Packed:
        """Keep the round's coordinates."""
        mask = self.mask(vector.size, context.public)
        return self._pack(vector.size, mask, vector if mask is None else vector[mask])

    def compress_difference(self, update: Vector, reference: Vector, context: SendContext) -> Packed:
        """Keep the round's coordinates of the difference, and form it there only."""
        mask = self.mask(update.size, context.public)
        return self._pack(update.size, mask, update - reference if mask is None else update[mask] - reference[mask])

    def compress_blocks(self, blocks: Blocks, n: int, reference: Vector | None, context: SendContext) -> Packed:
        """Keep the round's coordinates of a vector that comes in blocks, less the reference."""
        mask = self.mask(n, context.public)
        return self._pack(n, mask, kept_of(blocks, n, mask, reference))

    def mask(self, n: int, public: Seed) -> Coordinates | None:
        """Return the coordinates kept in a round, ascending; None: all."""
        raise NotImplementedError

    def scale(self, n: int) -> np.float32:
        """Return what kept values are multiplied by."""
        raise NotImplementedError

    def _pack(self, n: int, mask: Coordinates | None, kept: Vector) -> Packed:
        return Packed(n, mask, kept if mask is None else kept * self.scale(n))


@dataclass(frozen=True)
class RandK(Sparsifier):
    """Keep k = ⌊pn⌋ coordinates drawn without replacement from the whole vector, times n/k."""

    def __repr__(self) -> str:
        return f"rand_k({self.p})"

    def omega(self, n: int) -> float:
        """Return n/k − 1, which every vector attains."""
        return n / share_of(self.p, n) - 1 if n else 0.0

    def mask(self, n: int, public: Seed) -> Coordinates | None:
        """Return k coordinates, every choice equally likely."""
        k = share_of(self.p, n)
        if k == n:
            return None
        with _DRAWING:
            return _subset(public.child("mask"), n, k)

    def scale(self, n: int) -> np.float32:
        """Return n/k."""
        return np.float32(n / share_of(self.p, n))


@lru_cache(maxsize=2)  # all members and aggregators of a process ask for the same mask in a round
def _subset(seed: Seed, n: int, k: int) -> Coordinates:
    mask = seed.subset(n, k)
    mask.flags.writeable = False
    return mask


@dataclass(frozen=True)
class Bernoulli(Sparsifier):
    """Keep every coordinate with probability p, times 1/p; the number kept varies from round to round."""

    def __repr__(self) -> str:
        return f"bernoulli({self.p})"

    def omega(self, n: int) -> float:
        """Return (1 − p)/p, which every vector attains."""
        del n
        return (1 - self.p) / self.p

    def mask(self, n: int, public: Seed) -> Coordinates | None:
        """Return the coordinates whose coin shows heads."""
        if self.p == 1:
            return None
        with _DRAWING:
            return _heads(public.child("mask"), n, self.p)

    def scale(self, n: int) -> np.float32:
        """Return 1/p."""
        del n
        return np.float32(1 / self.p)


@lru_cache(maxsize=2)
def _heads(seed: Seed, n: int, p: float) -> Coordinates:
    """Toss n coins: a byte decides nearly all of them, one more word the few that are left."""
    bytes_that_may = math.ceil(p * 256)
    candidates = [
        first + np.flatnonzero(_bytes(seed.child("coarse"), first, min(_COINS_AT_ONCE, n - first)) < bytes_that_may)
        for first in range(0, n, _COINS_AT_ONCE)
    ]
    few = np.concatenate(candidates).astype(np.int64, copy=False) if candidates else np.empty(0, np.int64)
    mask: Coordinates = few[seed.child("fine").uniforms(few.size) < p * 256 / bytes_that_may]
    mask.flags.writeable = False
    return mask


def _bytes(seed: Seed, first: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    words = seed.words(-(-count // 8), start=first // 8)
    return words.astype("<u8", copy=False).view(np.uint8)[:count]


@dataclass(frozen=True)
class StratifiedRandK(Sparsifier):
    """Keep k_a = ⌈p|I_a|⌉ ≥ 1 coordinates of every shard, times |I_a|/k_a: every message has a fixed length.

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
        return f"rand_k({self.p}, independent=True)" if self.independent else f"stratified_rand_k({self.p})"

    def omega(self, n: int) -> float:
        """Return 1/p − 1, which max_a |I_a|/k_a − 1 never exceeds: γ must not change with the shard plan."""
        del n
        return 1 / self.p - 1

    def omega_of(self, plan: ShardPlan) -> float:
        """Return max_a |I_a|/k_a − 1, what a vector on the worst shard attains."""
        return max((size / self._kept(size) - 1 for size in plan.sizes.tolist() if size), default=0.0)

    def support(self, shard: int, plan: ShardPlan, public: Seed, mask_key: bytes) -> Coordinates:
        """Redraw the mask of this shard, from the public seed or from the secret in the message."""
        size = int(plan.sizes[shard])
        seed = Seed("mask", mask_key, private=True) if self.independent else public.child("mask")
        return plan.coordinates_at(shard, seed.child(shard).subset(size, self._kept(size)))

    def compress(self, vector: Vector, context: SendContext) -> Packed:
        """Keep k_a coordinates of every shard."""
        mask, scales, keys = self._drawn(vector.size, context)
        return Packed(vector.size, mask, vector[mask] * scales, mask_keys=keys)

    def compress_difference(self, update: Vector, reference: Vector, context: SendContext) -> Packed:
        """Keep k_a coordinates of every shard of the difference, and form it there only."""
        mask, scales, keys = self._drawn(update.size, context)
        return Packed(update.size, mask, (update[mask] - reference[mask]) * scales, mask_keys=keys)

    def compress_blocks(self, blocks: Blocks, n: int, reference: Vector | None, context: SendContext) -> Packed:
        """Keep k_a coordinates of every shard of a vector that comes in blocks, less the reference."""
        mask, scales, keys = self._drawn(n, context)
        return Packed(n, mask, kept_of(blocks, n, mask, reference) * scales, mask_keys=keys)

    def _kept(self, size: int) -> int:
        return share_of(self.p, size, round_up=True)

    def _drawn(self, n: int, context: SendContext) -> tuple[Coordinates, Vector, tuple[bytes, ...]]:
        """Draw the mask of every shard; return all of them in ascending order, the scales, and the secrets if any."""
        plan = context.plan
        if plan.n != n:
            raise PlanError(f"the vector has {n} values, but the plan is for {plan.n}", fix="use the round's plan")
        keys = self._mask_keys(context) if self.independent else ()
        masks = [self.support(a, plan, context.public, keys[a] if keys else b"") for a in range(plan.shards)]
        ratios = [size / max(1, self._kept(size)) for size in plan.sizes.tolist()]
        mask = np.concatenate(masks)
        order = np.argsort(mask, kind="stable")
        scales = np.repeat(np.array(ratios, np.float32), [mask.size for mask in masks])
        return mask[order], scales[order], keys

    @staticmethod
    def _mask_keys(context: SendContext) -> tuple[bytes, ...]:
        secret = context.private.require_private("an independent mask").child("mask")
        return tuple(secret.child(shard).key for shard in range(context.plan.shards))


def rand_k(p: float, *, independent: bool = False) -> RandK | StratifiedRandK:
    """Keep a share p of the coordinates; `independent` masks are secret between one member and one aggregator."""
    return StratifiedRandK(p, independent=True) if independent else RandK(p)


def stratified_rand_k(p: float) -> StratifiedRandK:
    """Keep a share p of every shard, at least one coordinate."""
    return StratifiedRandK(p)


def bernoulli(p: float) -> Bernoulli:
    """Keep every coordinate with probability p."""
    return Bernoulli(p)
