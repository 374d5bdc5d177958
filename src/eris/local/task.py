"""The task protocol: the one interface between eris and a learning problem.

A task knows the model's spec, how many samples each member has, how to train locally and how to evaluate. It holds no
state between rounds: what an optimizer must remember (momentum) is kept in `memory`, which the engine stores for it.

For a model too long for memory a task can also be a `BlockTask`: a peer then asks it for blocks instead of whole
vectors, and gets the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from eris.local.spec import ModelSpec, Vector
from eris.seeds import Seed

__all__ = ["BlockResult", "BlockTask", "CohortTask", "LocalResult", "Memory", "Task", "leave_behind", "rehearse"]

Memory = dict[str, Vector]


@dataclass(frozen=True, slots=True)
class LocalResult:
    """The result of local training: the update start − x_k (trainable values, then buffers), and facts about it."""

    update: Vector
    samples: int
    steps: float = 1.0
    loss: float = float("nan")
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BlockResult:
    """The result of local training if the update is too long for memory: its blocks in order, of any lengths.

    Blocks are used one after another and not kept; each may reuse the memory of the one before.
    """

    blocks: Iterator[Vector] = field(repr=False)
    samples: int
    steps: float = 1.0
    loss: float = float("nan")
    metrics: dict[str, float] = field(default_factory=dict)

    def whole(self) -> LocalResult:
        """Return the same result with the update in one piece.

        >>> BlockResult(iter([np.float32([1, 2]), np.float32([3])]), samples=5).whole().update.tolist()
        [1.0, 2.0, 3.0]
        """
        update = np.concatenate([block.copy() for block in self.blocks])
        return LocalResult(update, self.samples, self.steps, self.loss, self.metrics)


class Task(Protocol):
    """A learning problem shared by all members."""

    @property
    def spec(self) -> ModelSpec:
        """The model as named tensors."""
        ...

    @property
    def members(self) -> int:
        """Number of members with data."""
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
        """Train a member from `model`, which is read-only, and return its update.

        `memory` is the member's own and is changed in place; `seed` is private, the source of batches and noise.
        """
        ...

    def evaluate(self, model: Vector) -> dict[str, Any]:
        """Return metrics of a model on held-out data (loss, accuracy, …): means, or pairs (sum, count).

        For each member's own pairs, add a method `score(member, model, memory)`: see `eris.local.scores`.
        """
        ...


@runtime_checkable
class BlockTask(Protocol):
    """A task that can also work in blocks, so that no peer has to hold a whole model or update in memory."""

    def initial_blocks(self, seed: Seed) -> Iterator[Vector]:
        """Return the values of `initial(seed)` in blocks."""
        ...

    def train_blocks(self, member: int, model: Vector, memory: Memory, *, round: int, seed: Seed) -> BlockResult:
        """Train as `train` does, with the update in blocks; `model` may be mapped from a file and is read-only.

        Arguments as for `Task.train`.
        """
        ...


@runtime_checkable
class CohortTask(Protocol):
    """A task that can also train several members in one call; up to rounding, the results are the same."""

    def check_cohort(self) -> None:
        """Raise, with the reason, if it cannot after all."""
        ...

    def train_cohort(
        self,
        members: Sequence[int],
        models: Sequence[Vector],
        memories: Sequence[Memory],
        *,
        round: int,
        seeds: Sequence[Seed],
    ) -> list[LocalResult]:
        """Do what `train` does, for members with the same number of samples.

        `models`, `memories` and `seeds` have one entry for each of the `members`, used as in `Task.train`.
        """
        ...


def rehearse(task: object, members: Sequence[int] | None = None) -> None:
    """Try a task out, for these members or all, before anything is written; a task without `rehearse` is not tried.

    Every process that trains calls this. A torch task sends a dry batch through its network (`eris.local.dry_batch`).
    """
    if (trial := getattr(task, "rehearse", None)) is not None:
        trial(members)


def leave_behind(task: object, model: Vector, folder: Path) -> None:
    """Let a task that has `save_model` write the final model, in its own format, into the run's folder."""
    if (save := getattr(task, "save_model", None)) is not None:
        save(model, folder)
