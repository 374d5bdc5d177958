"""What a member trains: the one protocol between eris and a learning problem.

A task knows the model's spec, how many samples each member has, how to train locally and how to evaluate. It holds no
state between rounds: what an optimizer must remember (momentum) lives in `memory`, which the engine stores for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from eris.local.spec import ModelSpec, Vector
from eris.seeds import Seed

__all__ = ["LocalResult", "Memory", "Task"]

Memory = dict[str, Vector]


@dataclass(frozen=True, slots=True)
class LocalResult:
    """What local training gives: the update start − x_k (trainable values, then buffers), and facts about it."""

    update: Vector
    samples: int
    steps: float = 1.0
    loss: float = float("nan")
    metrics: dict[str, float] = field(default_factory=dict)


class Task(Protocol):
    """A learning problem shared by all members."""

    @property
    def spec(self) -> ModelSpec:
        """The model as named tensors."""
        ...

    @property
    def members(self) -> int:
        """How many members have data."""
        ...

    def samples(self, member: int) -> int:
        """Return how many training samples a member has (its aggregation weight)."""
        ...

    def initial(self, seed: Seed) -> Vector:
        """Return the initial flat vector x⁰, the same on every peer."""
        ...

    def memory(self, member: int) -> Memory:
        """Return the initial memory of a member's local optimizer (empty if it keeps nothing)."""
        ...

    def train(self, member: int, model: Vector, memory: Memory, *, round: int, seed: Seed) -> LocalResult:
        """Train from `model` (not changed) and return the update; `memory` is changed in place. `seed` is private."""
        ...

    def evaluate(self, model: Vector) -> dict[str, float]:
        """Return metrics of a model on held-out data (loss, accuracy, …)."""
        ...
