"""One scenario, as plain data: what members compute, how it is cut, who takes part, what gets lost, in which order."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from eris.aggregate.encoding import FixedPoint
from eris.local.spec import ModelSpec, TensorSpec, Vector
from eris.local.task import LocalResult
from eris.privacy.ring_noise import RingNoise
from eris.seeds import Seed, public_root
from eris.shards.policy import ShardPolicy

F = np.float32
PULL = F(0.25)  # how strongly an update depends on the model: an error in one round shows in all later ones

HYPER: dict[str, dict[str, float]] = {
    "fedadagrad": {"lr": 0.3, "beta1": 0.9, "tau": 1e-3},
    "fedadam": {"lr": 0.3, "beta1": 0.9, "beta2": 0.99, "tau": 1e-3},
    "fedavg": {"lr": 0.7},
    "fedavgm": {"lr": 0.7, "beta": 0.9},
    "fednova": {"lr": 0.7},
    "fedyogi": {"lr": 0.3, "beta1": 0.9, "beta2": 0.99, "tau": 1e-3},
}


@dataclass(frozen=True)
class Faults:
    """What goes wrong in one round."""

    links: frozenset[tuple[int, int]] = frozenset()  # (member, shard) uploads that never arrive
    shards: frozenset[int] = frozenset()  # published shards that reach too few


@dataclass(frozen=True)
class Case:
    """A run of a few rounds."""

    n: int = 29
    buffers: int = 5
    members: int = 9
    shards: int = 7
    rounds: int = 5
    kind: str = "random"
    block: int = 1
    capacities: tuple[float, ...] | None = None
    schedule: str = "fixed"
    every: int = 1
    weights: tuple[float, ...] = ()  # none: all equal
    participation: float = 1.0
    normalisation: str = "contributors"
    optimizer: str = "fedavg"
    rule: str = "mean"
    sparsifier: str = ""  # or "rand_k", "bernoulli"
    kept: float = 0.3
    gamma: float | None = None  # of the shift, if there is one
    exponent: int = 40  # updates lie in 2^±exponent
    encoding: FixedPoint | None = None  # none: floats
    unmaskers: int = 0  # of each shard; 0: plain
    noise: RingNoise | None = None  # in fixed point; updates are clipped to its bound
    replicas: int = 1
    seed: int = 0
    arrival: int = 0  # which order messages come in, and which come twice
    lost_links: float = 0.0
    lost_shards: float = 0.0

    def change(self, **settings: Any) -> Case:
        """Return the same scenario, some of it changed."""
        return replace(self, **settings)

    @property
    def spec(self) -> ModelSpec:
        """A few tensors of uneven size, then one of buffers."""
        cut = [self.n // 2, min(3, self.n - self.n // 2)]
        sizes = [size for size in (*cut, self.n - sum(cut)) if size]
        tensors = [TensorSpec(f"weight{i}", (size,), "float32", "trainable") for i, size in enumerate(sizes)]
        return ModelSpec((*tensors, TensorSpec("statistic", (self.buffers,), "float32", "buffer")))

    @property
    def public(self) -> Seed:
        """The root all peers know."""
        return public_root(self.seed)

    @cached_property
    def policy(self) -> ShardPolicy:
        """How the vector is cut."""
        return ShardPolicy(
            self.spec, self.shards, self.public.child("shards"), kind=self.kind, block=self.block,  # type: ignore[arg-type]
            capacities=self.capacities, schedule=self.schedule, every=self.every,  # type: ignore[arg-type]
            replicas=self.replicas,
        )  # fmt: skip

    @property
    def member_weights(self) -> tuple[float, ...]:
        """The samples of each member."""
        return self.weights or (1.0,) * self.members

    @cached_property
    def initial(self) -> Vector:
        """The model before the first round."""
        return _wild(np.random.default_rng([self.seed, 0]), self.n + self.buffers, 3)

    def steps(self, member: int) -> float:
        """Return how many local steps a member takes (only FedNova looks at it)."""
        return 1.0 + member % 3

    @cached_property
    def _table(self) -> list[list[Vector]]:
        source, length = np.random.default_rng([self.seed, 1]), self.n + self.buffers
        return [[_wild(source, length, self.exponent) for _ in range(self.members)] for _ in range(self.rounds)]

    def drift(self, round: int, member: int) -> Vector:
        """Return the part of an update that does not depend on the model."""
        return self._table[round][member]

    def train(self, round: int, member: int, model: Vector) -> LocalResult:
        """Return a member's update from a model."""
        return LocalResult(self.drift(round, member) + PULL * model, samples=1, steps=self.steps(member))

    def faults(self, round: int) -> Faults:
        """Return what goes wrong in a round."""
        source = random.Random(f"faults {self.seed} {round}")
        shards = frozenset(a for a in range(self.shards) if source.random() < self.lost_shards)
        pairs = [(k, a) for k in range(self.members) for a in range(self.shards)]
        return Faults(frozenset(pair for pair in pairs if source.random() < self.lost_links), shards)


def _wild(source: np.random.Generator, length: int, exponent: int) -> Vector:
    """Return values of both signs spread over 2^±exponent, some zero: sums of them round at every addition."""
    signs = source.choice(np.array([-1.0, 1.0, 1.0, -1.0, 0.0]), length)
    return np.ldexp(signs * source.uniform(1, 2, length), source.integers(-exponent, exponent + 1, length)).astype(F)
