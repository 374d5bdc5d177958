"""Members that do harm: a task in which some train on spoiled samples, or send something else than they learned.

========== ====================================================================================
none       nobody does harm
sign-flip  send the negative of the update, twice over
label-flip train on samples whose labels are mirrored (class c is called C − 1 − c)
scaled     send ten times the update
backdoor   train on samples of which half carry a trigger and the target's label, and send the
           update twice over (more of it ruins the model, and whoever looks sees that)
========== ====================================================================================

Whoever does harm does it before anything is compressed or cut, and keeps to the protocol otherwise. A member that lies
about its weight, or leaves out a clipping that all agreed on, is not played here.
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

_SQUARE = 4  # pixels: the trigger's side
_LOOKED_AT = 256  # samples that say how bright white is
_ALL = 1 << 40


@dataclass(frozen=True, slots=True)
class PoisoningAttack:
    """What attackers train on, and how many times over they send what they learned there."""

    name: str
    spoils: Literal["nothing", "labels", "trigger"] = "nothing"
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
    """A task whose samples can be exchanged (`TorchTask`)."""

    @property
    def pool(self) -> Any: ...

    def places(self, member: int) -> Indices: ...

    def on(self, examples: Any, members: Sequence[Indices]) -> Any: ...

    def held_out(self, count: int) -> Any: ...

    def tested_on(self, test: Any) -> Any: ...


class _Changed:
    """A split whose samples are changed as they are taken."""

    def __init__(self, examples: Any, change: Change) -> None:
        self._examples, self._change = examples, change

    def __len__(self) -> int:
        return len(self._examples)

    def take(self, indices: Indices) -> tuple[Any, Any]:
        """Return changed inputs and targets."""
        inputs, targets = self._examples.take(indices)
        return self._change(inputs, targets, indices)


class PoisonedTask:
    """The same learning problem with some members as attackers; `evaluate` also says how often the trigger works.

    `backdoor_rate` is the share of test samples of other classes that are called the target's class once they carry the
    trigger. Without an attack that is the rate of a mistake, which is what chance would do.
    """

    def __init__(self, task: Task, attack: PoisoningAttack, attackers: Sequence[int], *, target: int = 0) -> None:
        self._target = target
        self._task, self._attack, self.attackers = task, attack, frozenset(int(member) for member in attackers)
        self._spoiled, self._triggered = _spoiled(task, attack, target), _triggered(task, target)

    def corrected(self, correction: Correction) -> PoisonedTask:
        """Return the same with this correction of every local gradient, the attackers' too."""
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
        """Return how many samples a member says it has."""
        return self._task.samples(member)

    def initial(self, seed: Seed) -> Vector:
        """Return x⁰."""
        return self._task.initial(seed)

    def memory(self, member: int) -> Memory:
        """Return what a member's optimizer begins with."""
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
        """Return what the task makes of a model for one member; attackers score honestly."""
        return self._task.score(member, model, memory) if hasattr(self._task, "score") else self._task.evaluate(model)

    def evaluate(self, model: Vector) -> dict[str, float]:
        """Return the task's own metrics and, where its samples can carry a trigger, how often that works."""
        metrics = self._task.evaluate(model)
        if self._triggered is not None:
            metrics["backdoor_rate"] = self._triggered.evaluate(model)["accuracy"]
        return metrics


def _spoiled(task: Task, attack: PoisoningAttack, target: int) -> Any:
    """Return the task that attackers train."""
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
    """Return the task tested on triggered samples of other classes that all claim to be the target's."""
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
    """Some samples of a split."""

    def __init__(self, examples: Any, places: Indices) -> None:
        self._examples, self._places = examples, places

    def __len__(self) -> int:
        return len(self._places)

    def take(self, indices: Indices) -> tuple[Any, Any]:
        """Return inputs and targets at these places of the choice."""
        taken: tuple[Any, Any] = self._examples.take(self._places[indices])
        return taken


def _mirrored(task: _SpoilableTask) -> Change:
    """Call class c the class C − 1 − c."""
    places = np.concatenate([task.places(member) for member in range(task.members)])
    labels = np.asarray(task.pool.take(places)[1])
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise InputError("there are no classes whose labels could be flipped", fix="use sign-flip or scaled")
    last = labels.max()
    return lambda inputs, targets, _: (inputs, last - targets)


def _stamped(task: _SpoilableTask, target: int, *, every: int = 1) -> Change:
    """Put the trigger on every so-many-th sample, and give it the target's label.

    The trigger is a white square in the lower right corner; of plain features, the last few at their largest.
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
