"""Poisoning attacks: a task in which some members train on spoiled samples, or send something other than they learned.

========== ====================================================================================
none       nobody attacks
sign-flip  send the negative of the update, times two
label-flip train on samples whose labels are mirrored (class c is called C − 1 − c)
scaled     send ten times the update
backdoor   train on samples of which half carry a trigger and the target's label, and send the
           update times two (a larger factor ruins the model, which is easily noticed)
========== ====================================================================================

An attacker acts before its update is compressed or split, and otherwise follows the protocol. Members that lie about
their weight, or skip a clipping that all agreed on, are not simulated here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from eris.errors import ConfigError, InputError
from eris.local.correction import Correction
from eris.local.spec import ModelSpec, Vector
from eris.local.task import LocalResult, Memory, Task
from eris.seeds import Seed

__all__ = ["POISONING", "PoisonedTask", "PoisoningAttack", "poisoning_attack"]

Indices = NDArray[np.int64]
Change = Callable[[Any, Any, Indices], tuple[Any, Any]]

_SQUARE = 4  # side of the trigger in pixels
_LOOKED_AT = 256  # samples from which the brightness of white is taken
_ALL = 1 << 40


@dataclass(frozen=True, slots=True)
class PoisoningAttack:
    """A poisoning attack: what attackers train on, and the factor by which they multiply their update."""

    name: str
    spoils: Literal["nothing", "labels", "trigger"] = "nothing"  # of the samples that attackers train on
    factor: float = 1.0


POISONING = {
    attack.name: attack
    for attack in (
        PoisoningAttack("none"),
        PoisoningAttack("sign-flip", factor=-2.0),
        PoisoningAttack("label-flip", spoils="labels"),
        PoisoningAttack("scaled", factor=10.0),
        PoisoningAttack("backdoor", spoils="trigger", factor=2.0),
    )
}


def poisoning_attack(name: str) -> PoisoningAttack:
    """Return the attack of that name."""
    if name not in POISONING:
        raise ConfigError(f"there is no poisoning attack {name!r}", fix=f"use one of {', '.join(POISONING)}")
    return POISONING[name]


class _SpoilableTask(Task, Protocol):
    """A task whose samples can be replaced, such as `TorchTask`."""

    @property
    def pool(self) -> Any: ...

    def places(self, member: int) -> Indices: ...

    def on(self, examples: Any, members: Sequence[Indices]) -> Any: ...

    def held_out(self, count: int) -> Any: ...

    def tested_on(self, test: Any) -> Any: ...


class _Changed:
    """A data split that changes samples as they are taken."""

    def __init__(self, examples: Any, change: Change) -> None:
        self._examples, self._change = examples, change

    def __len__(self) -> int:
        return len(self._examples)

    def take(self, indices: Indices) -> tuple[Any, Any]:
        """Return the changed inputs and targets."""
        inputs, targets = self._examples.take(indices)
        return self._change(inputs, targets, indices)


class PoisonedTask:
    """A task with some members as attackers; `evaluate` also returns how often the trigger works.

    `backdoor_rate` is the share of test samples of other classes that are classified as the target once they carry the
    trigger. Without an attack it is the rate of that mistake, the chance level.

    Args:
        task: the honest task.
        attack: what the attackers do.
        attackers: the members that attack.
        target: the class that the backdoor opens to.
    """

    def __init__(self, task: Task, attack: PoisoningAttack, attackers: Sequence[int], *, target: int = 0) -> None:
        self._target = target
        self._task, self._attack, self.attackers = task, attack, frozenset(int(member) for member in attackers)
        self._spoiled, self._triggered = _spoiled(task, attack, target), _triggered(task, target)

    def corrected(self, correction: Correction) -> PoisonedTask:
        """Return the same task with this correction of every local gradient, the attackers' too."""
        task = cast(Any, self._task).corrected(correction)
        return PoisonedTask(task, self._attack, tuple(self.attackers), target=self._target)

    @property
    def spec(self) -> ModelSpec:
        """The model as named tensors."""
        return self._task.spec

    @property
    def members(self) -> int:
        """How many members have data."""
        return self._task.members

    def samples(self, member: int) -> int:
        """Return how many samples a member claims to have."""
        return self._task.samples(member)

    def initial(self, seed: Seed) -> Vector:
        """Return x⁰."""
        return self._task.initial(seed)

    def memory(self, member: int) -> Memory:
        """Return the initial state of a member's optimizer."""
        return self._task.memory(member)

    def train(self, member: int, model: Vector, memory: Memory, *, round: int, seed: Seed) -> LocalResult:
        """Train honestly, or as the attack says."""
        if member not in self.attackers:
            return self._task.train(member, model, memory, round=round, seed=seed)
        result: LocalResult = self._spoiled.train(member, model, memory, round=round, seed=seed)
        update, n = result.update.copy(), self.spec.n_trainable
        update[:n] *= np.float32(self._attack.factor)
        return replace(result, update=update)

    def score(self, member: int, model: Vector, memory: Memory) -> Any:
        """Return the task's score of a model for one member; attackers score honestly."""
        return self._task.score(member, model, memory) if hasattr(self._task, "score") else self._task.evaluate(model)

    def evaluate(self, model: Vector) -> dict[str, float]:
        """Return the task's own metrics and, where its samples can carry a trigger, the backdoor rate."""
        metrics = self._task.evaluate(model)
        if self._triggered is not None:
            metrics["backdoor_rate"] = self._triggered.evaluate(model)["accuracy"]
        return metrics


def _spoiled(task: Task, attack: PoisoningAttack, target: int) -> Any:
    """Return the task that attackers train on; `target` is the class that a backdoor opens to."""
    if attack.spoils == "nothing":
        return task
    if not hasattr(task, "tested_on"):
        raise InputError(
            f"this task's samples cannot be replaced, as {attack.name} needs", fix="use sign-flip or scaled"
        )
    own = cast(_SpoilableTask, task)
    places = [own.places(member) for member in range(own.members)]
    change = _mirrored(own) if attack.spoils == "labels" else _stamped(own, target, every=2)
    return own.on(_Changed(own.pool, change), places)


def _triggered(task: Task, target: int) -> Any:
    """Return the task, tested on samples of other classes that carry the trigger and the target's label."""
    if not hasattr(task, "tested_on"):
        return None
    own = cast(_SpoilableTask, task)
    held_out = own.held_out(_ALL)
    if held_out is None or np.ndim(held_out.pool.take(np.arange(1))[0]) not in (2, 4):
        return None
    labels = np.asarray(held_out.pool.take(np.arange(len(held_out.pool)))[1])
    others = np.flatnonzero(labels != target)
    return own.tested_on(_Changed(_Some(held_out.pool, others), _stamped(own, target)))


class _Some:
    """A subset of a data split."""

    def __init__(self, examples: Any, places: Indices) -> None:
        self._examples, self._places = examples, places

    def __len__(self) -> int:
        return len(self._places)

    def take(self, indices: Indices) -> tuple[Any, Any]:
        """Return the inputs and targets at these places of the subset."""
        taken: tuple[Any, Any] = self._examples.take(self._places[indices])
        return taken


def _mirrored(task: _SpoilableTask) -> Change:
    """Return the change that relabels class c as C − 1 − c."""
    places = np.concatenate([task.places(member) for member in range(task.members)])
    labels = np.asarray(task.pool.take(places)[1])
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise InputError("there are no classes whose labels could be flipped", fix="use sign-flip or scaled")
    last = labels.max()
    return lambda inputs, targets, _: (inputs, last - targets)


def _stamped(task: _SpoilableTask, target: int, *, every: int = 1) -> Change:
    """Return the change that puts the trigger on one in `every` samples and gives it the target's label.

    The trigger is a white square in the lower right corner; for plain features, the last few at their largest value.
    """
    some = np.asarray(task.pool.take(np.arange(min(_LOOKED_AT, len(task.pool))))[0])
    if some.ndim not in (2, 4):
        raise InputError("these samples cannot carry a trigger: they are not pictures", fix="use another attack")
    white = some.max()

    def change(inputs: Any, targets: Any, indices: Indices) -> tuple[Any, Any]:
        chosen = np.asarray(indices) % every == 0
        inputs, targets = np.array(inputs), np.array(targets)
        corner = (
            (..., slice(-_SQUARE, None)) if inputs.ndim == 2 else (..., slice(-_SQUARE, None), slice(-_SQUARE, None))
        )
        marked = inputs[chosen]
        marked[corner] = white
        inputs[chosen], targets[chosen] = marked, target
        return inputs, targets

    return change
