"""Small scenes the tests of transforms play in: contexts, plans, vectors."""

from __future__ import annotations

import numpy as np

from eris.local.spec import Vector
from eris.seeds import private_root, public_root
from eris.shards.plan import ShardPlan, contiguous, per_tensor, scattered
from eris.transforms import SendContext

TENSORS = (40, 1, 7, 0, 80, 5)
N = sum(TENSORS)


def plans(tensors: tuple[int, ...] = TENSORS) -> dict[str, ShardPlan]:
    """Return plans of every kind over the same coordinates."""
    n, seed = sum(tensors), public_root(11).child("plan")
    return {
        "one": contiguous(n, 1),
        "contiguous": contiguous(n, 3),
        "scattered": scattered(n, 4, seed),
        "blocks of 7": scattered(n, 5, seed, block=7),
        "per tensor": per_tensor(tensors, 3, seed),
        "by capacity": scattered(n, 3, seed, capacities=[5, 1, 2]),
        "more shards than values": scattered(n, n + 3, seed),
    }


def context(
    plan: ShardPlan | int,
    *,
    round: int = 0,
    member: int = 0,
    tensors: tuple[int, ...] = (),
    steps: float = 1.0,
    seed: int = 1,
) -> SendContext:
    """Return what a member knows in a round; an int stands for the contiguous plan of one shard."""
    plan = contiguous(plan, 1) if isinstance(plan, int) else plan
    public = public_root(seed).child("round", round)
    private = private_root(seed, member).child("round", round)
    return SendContext(round, member, plan, public, private, tensors, steps)


def normal(n: int, seed: int = 0, spread: int = 0) -> Vector:
    """Return normal values, over 2^±spread if asked."""
    generator = np.random.default_rng(seed)
    return (generator.standard_normal(n) * 2.0 ** generator.uniform(-spread, spread, n)).astype(np.float32)
