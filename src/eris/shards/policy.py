"""Decide which shard plan is in force in a round, and which aggregator gets which shard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

from eris.errors import ConfigError
from eris.local.spec import ModelSpec
from eris.seeds import Seed
from eris.shards.plan import ShardPlan, contiguous, per_tensor, scattered

__all__ = ["Layout", "PlanKind", "Schedule", "ShardPolicy"]

PlanKind = Literal["random", "contiguous", "tensor"]
Schedule = Literal["fixed", "redraw", "rotate"]


@dataclass(frozen=True, slots=True)
class Layout:
    """The shards of a round: one plan over the trainable coordinates, one over the buffers."""

    trainable: ShardPlan
    buffers: ShardPlan

    @property
    def shards(self) -> int:
        """Number of shards A."""
        return self.trainable.shards

    @property
    def n(self) -> int:
        """Length of the whole vector."""
        return self.trainable.n + self.buffers.n

    def size(self, shard: int) -> int:
        """Return how many coordinates a shard holds in all."""
        return int(self.trainable.sizes[shard]) + int(self.buffers.sizes[shard])


@dataclass(frozen=True)
class ShardPolicy:
    """How the model is cut: kind of plan, number of shards, block length, capacities, and when it changes.

    ``fixed``: one plan for the run. ``redraw``: a new one every `every` rounds (over time an aggregator then sees every
    coordinate). ``rotate``: the shards stay, their aggregators move on by one every `every` rounds.
    """

    spec: ModelSpec
    shards: int
    seed: Seed
    kind: PlanKind = "random"
    block: int = 1
    capacities: tuple[float, ...] | None = None
    schedule: Schedule = "fixed"
    every: int = 1
    replicas: int = 1  # 2: every shard goes to two aggregators, whose means are compared

    def __post_init__(self) -> None:
        if self.kind not in get_args(PlanKind):
            raise ConfigError(f"shard plan is {self.kind!r}", fix=f"use one of {', '.join(get_args(PlanKind))}")
        if self.schedule not in get_args(Schedule):
            raise ConfigError(f"shard schedule is {self.schedule!r}", fix=f"use one of {', '.join(get_args(Schedule))}")
        if self.shards < 1 or self.block < 1:
            raise ConfigError(f"there are {self.shards} shards in blocks of {self.block}", fix="use 1 or more of each")
        if self.capacities is not None and len(self.capacities) != self.shards:
            raise ConfigError(
                f"there are {len(self.capacities)} capacities for {self.shards} shards", fix="give one for each shard"
            )
        if self.every < 1:
            raise ConfigError(f"shards.every is {self.every}", fix="use 1 or more rounds")
        if not 1 <= self.replicas <= 2 or self.replicas > self.shards:
            raise ConfigError(
                f"{self.replicas} replicas do not work with {self.shards} aggregators",
                fix="use 1, or 2 with at least two aggregators",
                key="shards.replicas",
            )
        if self.schedule == "rotate" and self.capacities is not None:
            raise ConfigError(
                "shards that rotate cannot follow capacities", fix="use a fixed or redrawn plan, or no capacities"
            )

    def draw(self, round: int) -> int:
        """Return the number of the draw in force in a round."""
        return round // self.every if self.schedule == "redraw" else 0

    def layout(self, round: int) -> Layout:
        """Return the shards of a round."""
        return self.drawn(self.draw(round))

    def drawn(self, draw: int) -> Layout:
        """Return the shards of a draw."""
        return _layout(self, draw)

    def assignment(self, round: int, aggregators: Sequence[int]) -> tuple[int, ...]:
        """Return which of the aggregating peers gets each shard."""
        if len(aggregators) != self.shards:
            raise ConfigError(
                f"there are {len(aggregators)} aggregators for {self.shards} shards",
                fix="give one aggregator for each shard",
            )
        turn = round // self.every if self.schedule == "rotate" else 0
        return tuple(aggregators[(shard + turn) % self.shards] for shard in range(self.shards))

    def witnesses(self, round: int, aggregators: Sequence[int]) -> tuple[int, ...]:
        """Return which peer averages each shard a second time: the next shard's aggregator; nobody without replicas."""
        if self.replicas == 1:
            return ()
        homes = self.assignment(round, aggregators)
        return (*homes[1:], homes[0])


@lru_cache(maxsize=2)  # the plan in force, and the one before it for messages still on their way
def _layout(policy: ShardPolicy, draw: int) -> Layout:
    spec, seed = policy.spec, policy.seed.child("shards", draw)
    buffer_sizes = [t.size for t in spec.vector_tensors if t.role == "buffer"]
    return Layout(
        _plan(policy, spec.trainable_sizes, seed.child("trainable")),
        _plan(policy, buffer_sizes, seed.child("buffers")),
    )


def _plan(policy: ShardPolicy, sizes: Sequence[int], seed: Seed) -> ShardPlan:
    if policy.kind == "contiguous":
        return contiguous(sum(sizes), policy.shards, capacities=policy.capacities)
    if policy.kind == "tensor":
        return per_tensor(sizes, policy.shards, seed, block=policy.block, capacities=policy.capacities)
    return scattered(sum(sizes), policy.shards, seed, block=policy.block, capacities=policy.capacities)
