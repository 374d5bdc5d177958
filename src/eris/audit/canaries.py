"""Canaries: samples whose membership is decided by a coin toss, so that a membership attack can be scored.

Every member sets some of its samples aside as canaries and tosses an independent fair coin for each, from its private
root. It trains on the rest and on the canaries whose coin shows heads. Whoever tells heads from tails better than
chance has learned something about the member's data.

A natural sample's gradient resembles those of others and hides among them. A *crafted* canary has a gradient unlike any
other: a direction drawn at random from a public seed, the same in every step, and as long as a sample's gradient may be
(the clipping bound under DP-SGD, else the mean length of the public samples' gradients at the initial model). Formally
it is a sample whose loss is linear, ⟨g, x⟩. Where the coin shows heads, the member adds it to its local steps; nothing
else changes. An attack's success on such canaries is meant as an upper bound of its success on samples of that length,
and their ε comes closest to an accountant's.

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
_PUBLIC_BYTES = 1 << 29  # limit for the public samples' gradients: a large model gets fewer samples
_CHUNK_BYTES = 1 << 24  # of gradients that are built before anybody has said how much memory an audit takes
_MOST_TOGETHER = 512  # canaries of all members whose gradients are held at once
_LEAST = 4  # with fewer, the top or bottom third of the guesses is empty


class AuditableTask(Task, Protocol):
    """A learning problem that can be restricted to some samples, and has losses and gradients of single ones."""

    def restricted(self, places: Sequence[Indices]) -> Self:
        """Return the same problem with only the samples at these places of each member's list."""
        ...

    def sample_losses(self, member: int, model: Vector) -> NDArray[np.float64]:
        """Return the loss of each of a member's samples."""
        ...

    def sample_gradients(self, member: int, model: Vector) -> Vector:
        """Return the gradient of each of a member's samples, samples × trainable coordinates."""
        ...


@dataclass(frozen=True)
class Canaries:
    """For each member: which of its samples are canaries, their coins, and which samples it trains on."""

    places: tuple[Indices, ...] = field(repr=False)  # in the member's own list of samples
    coins: tuple[Coins, ...] = field(repr=False)  # heads: trained on
    kept: tuple[Indices, ...] = field(repr=False)  # all that it trains on, in the same list

    @property
    def count(self) -> int:
        """The number of canaries of all members together."""
        return sum(len(places) for places in self.places)


@dataclass(frozen=True)
class PlantedTask:
    """A task with canaries: the task that is trained, and `probe`, the same task with the canaries as its samples."""

    task: AuditableTask
    probe: AuditableTask
    canaries: Canaries
    copies: AuditableTask | None = None  # perturbed copies of the probe's samples, where texts are attacked
    gradients: bool = True  # whether gradients of single samples may be built
    crafted: bool = False  # whether the canaries are gradients, so that training holds one member's at a time
    public: AuditableTask | None = None  # public samples of the same kind, as if they were one member's

    @property
    def texts(self) -> bool:
        """Whether the canaries are texts with summaries."""
        split = getattr(getattr(self.probe, "pool", None), "split", None)
        return not self.crafted and getattr(split, "summaries", None) is not None

    @property
    def held_together(self) -> bool:
        """Whether the gradients of all members' canaries are held at once: only if they are few and fit in memory."""
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
    """Choose canaries among each member's samples and toss their coins.

    Args:
        samples: how many samples each member has.
        seed: of the run; every member draws from its private root.
        fold: of the data; each fold has other canaries and coins.
        share: of a member's samples that become canaries.
        most: the most canaries that a member gets.
        equally: put exactly half of the canaries in (of an odd number, one less), as in the paper's text, instead of
            tossing a fair coin for each. Chance levels and ε are for fair coins.
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
    """Plant canaries in a task; the options are those of `plant`."""
    samples = [task.samples(member) for member in range(task.members)]
    canaries = plant(samples, seed, fold=fold, share=share, most=most, equally=equally)
    restricted = task.restricted(canaries.kept), task.restricted(canaries.places)
    return PlantedTask(*restricted, canaries, public=public_samples(task))


def public_samples(task: AuditableTask, *, gradients: bool = True) -> AuditableTask | None:
    """Return test samples for the attacker to compare with: no more than memory for their `gradients` allows."""
    count = min(_MOST_PUBLIC, _PUBLIC_BYTES // (4 * task.spec.n_trainable)) if gradients else _MOST_PUBLIC
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
    """Put half of the canaries in, chosen at random from a private seed."""
    coins = np.zeros(count, bool)
    coins[seed.require_private("a canary's coin").subset(count, count // 2)] = True
    return coins


class _Directions:
    """The crafted gradients of each member, made on demand; only the last member's are kept.

    Args:
        seed: public, of the directions.
        n: trainable coordinates.
        count: canaries of each member.
        length: ℓ2 length of every crafted gradient.
    """

    def __init__(self, seed: Seed, n: int, count: int, length: float) -> None:
        self._seed, self._n, self.count, self._length = seed, n, count, length
        self._member, self._kept = -1, np.empty((0, 0), np.float32)

    def of(self, member: int) -> Vector:
        """Return a member's crafted gradients, canaries × coordinates: random signs, scaled to the same length."""
        if member != self._member:
            words = self._seed.child("crafted", member).words(-(-self.count * self._n // 64))
            signs = np.unpackbits(words.view(np.uint8), count=self.count * self._n).reshape(self.count, self._n)
            step = np.float32(self._length / np.sqrt(self._n))
            self._member, self._kept = member, np.where(signs.view(bool), step, -step)
        return self._kept


class CraftedTask:
    """A task in which each member adds to its local steps the crafted canaries whose coins show heads.

    Args:
        task: the task without them.
        config: says how far a gradient moves an update.
        directions: the canaries' gradients.
        coins: of each member.
    """

    def __init__(self, task: AuditableTask, config: Config, directions: _Directions, coins: tuple[Coins, ...]) -> None:
        self._task, self._config, self._directions, self._coins = task, config, directions, coins

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    def corrected(self, correction: Correction) -> CraftedTask:
        """Return the same task with this correction of every local gradient but the crafted ones."""
        task = cast(Any, self._task).corrected(correction)
        return CraftedTask(task, self._config, self._directions, self._coins)

    def train(self, member: int, model: Vector, memory: Memory, *, round: int, seed: Seed) -> LocalResult:
        """Train as the task does, then add lr · steps / n_k times each included canary's gradient."""
        result = self._task.train(member, model, memory, round=round, seed=seed)
        local, n = self._config.local, self._task.spec.n_trainable
        rate = 1.0 if local.send == "gradient" else local.lr * result.steps
        chosen = self._coins[member].astype(np.float32) @ self._directions.of(member)
        update = result.update.copy()
        update[:n] += np.float32(rate / max(1, self._task.samples(member))) * chosen
        return replace(result, update=update)


class _CraftedProbe:
    """A task whose samples are the crafted canaries, with their linear losses and constant gradients."""

    def __init__(self, task: AuditableTask, directions: _Directions) -> None:
        self._task, self._directions = task, directions

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    def sample_gradients(self, member: int, model: Vector) -> Vector:
        """Return the crafted gradients, which are the same at every model."""
        del model
        return self._directions.of(member)

    def sample_losses(self, member: int, model: Vector) -> NDArray[np.float64]:
        """Return the loss ⟨g, x⟩ of each crafted canary."""
        gradients = self._directions.of(member)
        return np.asarray(gradients @ model[: gradients.shape[1]], np.float64)


def plant_crafted(task: AuditableTask, config: Config, *, most: int) -> PlantedTask:
    """Plant `most` crafted canaries for each member of a task."""
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
    return PlantedTask(crafted, probe, Canaries(places, coins, kept), crafted=True, public=public)


def _length(config: Config, task: AuditableTask, public: AuditableTask) -> float:
    """Return the length of a crafted gradient: the clipping bound, or the public gradients' mean length.

    Gradients are built a few at a time, since nobody has asked yet whether there is memory for all of them.
    """
    if config.privacy.unit == "sample" and config.privacy.clip:
        return config.privacy.clip
    model, count = task.initial(initial_seed(config.seed)), public.samples(0)
    some = max(1, _CHUNK_BYTES // (4 * task.spec.n_trainable))
    parts = [np.arange(start, min(start + some, count)) for start in range(0, count, some)]
    lengths = [np.linalg.norm(public.restricted([part]).sample_gradients(0, model), axis=1) for part in parts]
    return float(np.concatenate(lengths).mean())
