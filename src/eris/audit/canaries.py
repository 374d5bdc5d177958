"""Canaries: samples whose membership is decided by a coin, so that an attack on membership can be scored.

Every member sets some of its samples aside as canaries and tosses an independent fair coin for each, from its private
root. It trains on the rest and on the canaries whose coin shows heads. Whoever tells heads from tails better than
chance has learned something about the member's data.

A natural sample's gradient looks like those of others, and so hides among them. A *crafted* canary has a gradient that
looks like nothing else: a direction drawn at random from a public seed, the same in every step, as long as a sample's
gradient may be (the clipping bound under DP-SGD, else the mean length of public samples' at the beginning). Formally it
is a sample whose loss is linear, ⟨g, x⟩. Whoever's coin shows heads adds it to the local steps; nothing else changes.
What an attack makes of such canaries is meant as an upper bound of what it gets from samples of that length, and their
ε is the closest to what an accountant says.

>>> canaries = plant([20, 20], seed=7)
>>> [len(chosen) for chosen in canaries.places], [coins.dtype.name for coins in canaries.coins]
([10, 10], ['bool', 'bool'])
>>> all(len(kept) == 10 + coins.sum() for kept, coins in zip(canaries.kept, canaries.coins))
True
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self, cast

import numpy as np
from numpy.typing import NDArray

from eris.compose import initial_seed
from eris.config import Config
from eris.errors import ConfigError, InputError
from eris.local.correction import Correction
from eris.local.spec import Vector
from eris.local.task import LocalResult, Memory, Task
from eris.seeds import Seed, private_root, public_root

__all__ = [
    "AuditableTask",
    "Canaries",
    "Coins",
    "CraftedTask",
    "PlantedTask",
    "plant",
    "plant_crafted",
    "plant_in",
    "public_samples",
]

Indices = NDArray[np.int64]
Coins = NDArray[np.bool_]

_MOST_PUBLIC = 300
_PUBLIC_BYTES = 1 << 29  # what gradients of public samples may take; fewer of them are used with large models
_MOST_TOGETHER = 512  # canaries of all members whose gradients are held at once
_LEAST = 4  # below, the top and bottom thirds of the guesses are empty


class AuditableTask(Task, Protocol):
    """A learning problem that can be cut down to some samples, and asked about single ones."""

    def restricted(self, places: Sequence[Indices]) -> Self:
        """Return the same problem with only these of each member's samples."""
        ...

    def sample_losses(self, member: int, model: Vector) -> NDArray[np.float64]:
        """Return the loss of each of a member's samples."""
        ...

    def sample_gradients(self, member: int, model: Vector) -> Vector:
        """Return the gradient of each of a member's samples, samples × trainable coordinates."""
        ...


@dataclass(frozen=True)
class Canaries:
    """For each member: which of its samples are canaries, their coins, and what it then trains on."""

    places: tuple[Indices, ...] = field(repr=False)  # in the member's own list of samples
    coins: tuple[Coins, ...] = field(repr=False)
    kept: tuple[Indices, ...] = field(repr=False)

    @property
    def count(self) -> int:
        """Canaries of all members together."""
        return sum(len(places) for places in self.places)


@dataclass(frozen=True)
class PlantedTask:
    """What is trained, and what the attacker asks about: the same task with the canaries as its samples."""

    task: AuditableTask
    probe: AuditableTask
    canaries: Canaries
    copies: AuditableTask | None = None  # perturbed copies of the probe's samples, where texts are attacked
    gradients: bool = True  # whether gradients of single samples may be built
    public: AuditableTask | None = None  # samples of the same kind that are nobody's secret, as those of one member

    @property
    def held_together(self) -> bool:
        """Whether the gradients of all members' canaries are held at once: they must not be many, nor take much."""
        count = self.canaries.count
        small = count <= _MOST_TOGETHER and 4 * count * self.task.spec.n_trainable <= _PUBLIC_BYTES
        return self.gradients and self.copies is None and small


def plant(
    samples: Sequence[int],
    seed: int,
    *,
    fold: int = 0,
    share: float = 0.5,
    most: int | None = None,
    equally: bool = False,
) -> Canaries:
    """Choose canaries among each member's samples and toss their coins, other ones in every fold of the data.

    `share` of a member's samples become canaries, but not more than `most`. `equally` puts half of them in (of an odd
    number one less), whichever: the paper's text; chance levels and ε are for fair coins.
    """
    address = ("canaries", fold) if fold else ("canaries",)
    planted = [
        _of_member(count, private_root(seed, member).child(*address), share, most, equally)
        for member, count in enumerate(samples)
    ]
    places, coins, kept = zip(*planted, strict=True)
    return Canaries(places, coins, kept)


def plant_in(
    task: AuditableTask,
    seed: int,
    *,
    fold: int = 0,
    share: float = 0.5,
    most: int | None = None,
    equally: bool = False,
) -> PlantedTask:
    """Plant canaries in a task."""
    samples = [task.samples(member) for member in range(task.members)]
    canaries = plant(samples, seed, fold=fold, share=share, most=most, equally=equally)
    restricted = task.restricted(canaries.kept), task.restricted(canaries.places)
    return PlantedTask(*restricted, canaries, public=public_samples(task))


def public_samples(task: AuditableTask) -> AuditableTask | None:
    """Return test samples for the attacker to compare with, as many as their gradients may take memory."""
    count = min(_MOST_PUBLIC, _PUBLIC_BYTES // (4 * task.spec.n_trainable))
    held_out = getattr(task, "held_out", None)
    return held_out(count) if held_out is not None and count >= _LEAST else None


def _of_member(
    samples: int, seed: Seed, share: float, most: int | None, equally: bool
) -> tuple[Indices, Coins, Indices]:
    count = min(int(samples * share), samples - 1, most or samples)
    if count < _LEAST:
        raise ConfigError(
            f"a member with {samples} samples has only {max(count, 0)} canaries",
            fix=f"give every member at least {int(_LEAST / share)} samples, for {_LEAST} canaries or more",
            key="data.samples",
        )
    places = seed.child("choice").subset(samples, count)
    coins = split(seed.child("coins"), count) if equally else toss(seed.child("coins"), count)
    kept = np.ones(samples, bool)
    kept[places[~coins]] = False
    return places, coins, np.flatnonzero(kept)


def toss(seed: Seed, count: int) -> Coins:
    """Toss fair coins from a private seed."""
    words = seed.require_private("a canary's coin").words(count)
    return (words & np.uint64(1)).astype(bool)


def split(seed: Seed, count: int) -> Coins:
    """Put half of the canaries in, drawn from a private seed."""
    coins = np.zeros(count, bool)
    coins[seed.require_private("a canary's coin").subset(count, count // 2)] = True
    return coins


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
