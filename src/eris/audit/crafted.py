"""Crafted gradient canaries: what the most exposed sample there could be would give away.

A natural sample's gradient looks like those of others, and so hides among them. A crafted canary has a gradient that
looks like nothing else: a direction drawn at random from a public seed, the same in every step, as long as a sample's
gradient may be (the clipping bound under DP-SGD, else the mean length of public samples' at the beginning). Formally it
is a sample whose loss is linear, ⟨g, x⟩. Whoever's coin shows heads adds it to the local steps; nothing else changes.
What an attack makes of such canaries is meant as an upper bound of what it gets from samples of that length, and their
ε is the closest to what an accountant says.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from eris.audit.canaries import AuditableTask, Canaries, Coins, PlantedTask, public_samples, toss
from eris.compose import initial_seed
from eris.config import Config
from eris.errors import InputError
from eris.local.correction import Correction
from eris.local.spec import Vector
from eris.local.task import LocalResult, Memory
from eris.seeds import Seed, private_root, public_root

__all__ = ["CraftedTask", "plant_crafted"]


class _Directions:
    """The crafted gradients of each member, made when they are asked for; one member's are kept."""

    def __init__(self, seed: Seed, n: int, count: int, length: float) -> None:
        self._seed, self._n, self.count, self._length = seed, n, count, length
        self._member, self._kept = -1, np.empty((0, 0), np.float32)

    def of(self, member: int) -> Vector:
        """Return canaries × coordinates: signs drawn at random, all of the same length."""
        if member != self._member:
            words = self._seed.child("crafted", member).words(-(-self.count * self._n // 64))
            signs = np.unpackbits(words.view(np.uint8), count=self.count * self._n).reshape(self.count, self._n)
            step = np.float32(self._length / np.sqrt(self._n))
            self._member, self._kept = member, step * (2 * signs.astype(np.float32) - 1)
        return self._kept


class CraftedTask:
    """A task in which each member adds the canaries to its local steps whose coins show heads."""

    def __init__(self, task: AuditableTask, config: Config, directions: _Directions, coins: tuple[Coins, ...]) -> None:
        self._task, self._config, self._directions, self._coins = task, config, directions, coins

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    def corrected(self, correction: Correction) -> CraftedTask:
        """Return the same with this correction of every local gradient but the crafted ones."""
        task = cast(Any, self._task).corrected(correction)
        return CraftedTask(task, self._config, self._directions, self._coins)

    def train(self, member: int, model: Vector, memory: Memory, *, round: int, seed: Seed) -> LocalResult:
        """Train as the task does, and add lr · steps / n_k times each included canary's gradient."""
        result = self._task.train(member, model, memory, round=round, seed=seed)
        local, n = self._config.local, self._task.spec.n_trainable
        rate = 1.0 if local.send == "gradient" else local.lr * result.steps
        chosen = self._coins[member].astype(np.float32) @ self._directions.of(member)
        update = result.update.copy()
        update[:n] += np.float32(rate / max(1, self._task.samples(member))) * chosen
        return replace(result, update=update)


class _CraftedProbe:
    """The canaries as samples of a task: linear losses, and their gradients."""

    def __init__(self, task: AuditableTask, directions: _Directions) -> None:
        self._task, self._directions = task, directions

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    def sample_gradients(self, member: int, model: Vector) -> Vector:
        """Return the crafted gradients, which are the same everywhere."""
        del model
        return self._directions.of(member)

    def sample_losses(self, member: int, model: Vector) -> NDArray[np.float64]:
        """Return ⟨g, x⟩."""
        gradients = self._directions.of(member)
        return np.asarray(gradients @ model[: gradients.shape[1]], np.float64)


def plant_crafted(task: AuditableTask, config: Config, *, most: int) -> PlantedTask:
    """Plant crafted canaries in a task, as many for each member."""
    public = public_samples(task)
    if public is None:
        raise InputError("there are no public samples to compare with", fix="audit a data set with a test split")
    length = _length(config, task, public)
    directions = _Directions(public_root(config.seed).child("audit"), task.spec.n_trainable, most, length)
    coins = tuple(
        toss(private_root(config.seed, member).child("crafted", "coins"), most) for member in range(task.members)
    )
    places = tuple(np.arange(most) for _ in coins)
    kept = tuple(np.arange(task.samples(member)) for member in range(task.members))
    crafted = cast(AuditableTask, CraftedTask(task, config, directions, coins))
    probe = cast(AuditableTask, _CraftedProbe(task, directions))
    return PlantedTask(crafted, probe, Canaries(places, coins, kept), public=public)


def _length(config: Config, task: AuditableTask, public: AuditableTask) -> float:
    """Return how long one sample's gradient may be."""
    if config.privacy.unit == "sample" and config.privacy.clip:
        return config.privacy.clip
    gradients = public.sample_gradients(0, task.initial(initial_seed(config.seed)))
    return float(np.linalg.norm(gradients, axis=1).mean())
