"""The user's own learning problem, by import path: `eris join --task package.module:Task`, or `eris run --task`.

What the path names is called once with the run's configuration and this peer's number, and returns a task:

    def task(config: eris.Config, peer: int) -> eris.Task: ...

A class works too, if it takes these two arguments. Its methods are only ever called for this peer: `samples(peer)`,
`memory(peer)`, `train(peer, …)`. It need not know anything about the others' data. Where the model is too long for
memory it is an `eris.BlockTask`: `initial_blocks` and `train_blocks` are called instead of `initial` and `train`.

A simulation calls it once for each member, and calls each of these tasks for its own member alone.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from eris.config import Config, load_config
from eris.errors import ConfigError, DataError, ErisError, TaskError
from eris.local.correction import Correction, correctable
from eris.local.spec import ModelSpec, Vector
from eris.local.task import BlockTask, LocalResult, Memory, Task, rehearse
from eris.methods import method_by_name
from eris.seeds import Seed
from eris.tasks import TASKS, as_asked, build_task

__all__ = ["MakeTask", "TaskOfAll", "task_for", "task_of_all"]

MakeTask = Callable[[Config, int], Task]

_ASKED = ("spec", "samples", "initial", "memory", "train", "evaluate")
_IN_BLOCKS = {"initial": "initial_blocks", "train": "train_blocks"}


def task_for(given: str | MakeTask | None, config: Config, peer: int) -> Task:
    """Build a peer's task.

    Args:
        given: an import path or a factory; None: the task that the configuration describes.
        peer: its number.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # the user's own modules, as `eris run` finds them
    _check_method(config, own=given is not None)
    if given is None:
        return build_task(config.model_dump(mode="json"))
    task = _made(given, config, peer)
    rehearse(task, [peer])
    method = method_by_name(config.methods[0])
    return as_asked(method.completed(config), task)


def task_of_all(path: str, config: Mapping[str, Any]) -> Task:
    """Build a simulation's task from what makes the task of one peer; worker processes call this too."""
    settings = load_config(config)
    return as_asked(settings, TaskOfAll(path, settings))


class TaskOfAll:
    """The tasks of all members, each made when first needed; the first one's test data serve everybody."""

    def __init__(self, given: str | MakeTask, config: Config) -> None:
        self._given, self._config = given, config
        self._made: dict[int, Task] = {}
        self._corrections: tuple[Correction, ...] = ()
        self.members = config.members
        self.spec: ModelSpec = self.of(0).spec

    def of(self, member: int) -> Task:
        """Return the task of one member."""
        if member not in self._made:
            task = _made(self._given, self._config, member)
            rehearse(task, [member])
            if self._made:
                self.spec.require_same(task.spec.digest, where=f"the task of member {member}", base=task.spec.base)
            for correction in self._corrections:
                task = correctable(task).corrected(correction)
            self._made[member] = task
        return self._made[member]

    def corrected(self, correction: Correction) -> TaskOfAll:
        """Return the same with this correction of every local gradient, if the tasks can be corrected."""
        other = copy.copy(self)
        other._made, other._corrections = {}, (*self._corrections, correction)
        other.of(0)
        return other

    def samples(self, member: int) -> int:
        """Return how many training samples a member has."""
        return self.of(member).samples(member)

    def initial(self, seed: Seed) -> Vector:
        """Return the initial model."""
        return self.of(0).initial(seed)

    def memory(self, member: int) -> Memory:
        """Return the initial memory of a member's local optimizer."""
        return self.of(member).memory(member)

    def train(self, member: int, model: Vector, memory: Memory, *, round: int, seed: Seed) -> LocalResult:
        """Train one member."""
        return self.of(member).train(member, model, memory, round=round, seed=seed)

    def score(self, member: int, model: Vector, memory: Memory) -> Mapping[str, Any]:
        """Return one member's scores of a model."""
        task = self.of(member)
        score = getattr(task, "score", None)
        return task.evaluate(model) if score is None else score(member, model, memory)

    def evaluate(self, model: Vector) -> dict[str, Any]:
        """Return the metrics on the first member's held-out data, as `eris up` does."""
        return self.of(0).evaluate(model)


def _made(given: str | MakeTask, config: Config, peer: int) -> Task:
    """Call what makes a peer's task (an import path or a factory); refuse a result that is not one."""
    name = given if isinstance(given, str) else getattr(given, "__qualname__", type(given).__name__)
    make = TASKS.find(given)
    try:
        task = make(config, peer)
    except DataError as error:  # only here is it known whose data these are
        raise DataError(error.what, fix=error.fix, **{**error.where, "peer": peer}) from error
    except ErisError:
        raise
    except Exception as error:
        raise TaskError(
            f"{name}(config, {peer}) failed: {type(error).__name__}: {error}",
            fix="correct it: it is called with the configuration and this peer's number",
        ) from error
    asked = [_IN_BLOCKS.get(name, name) for name in _ASKED] if isinstance(task, BlockTask) else _ASKED
    if lacking := [name for name in asked if not hasattr(task, name)]:
        raise TaskError(f"what {name} returned has no {', '.join(lacking)}", fix="add what eris.Task asks for")
    return task


def _check_method(config: Config, *, own: bool) -> None:
    """Refuse what peers cannot do yet, and noise that nobody would add."""
    method = method_by_name(config.methods[0])
    if method.exchange is not None:
        raise ConfigError(
            f"{method.name} has its own exchange, which only `eris run` supports", fix="use eris", key="method"
        )
    if own and method.with_defaults(config.for_method(method.name)).privacy.unit == "sample":
        raise ConfigError(
            "your own task takes its local steps itself: DP-SGD cannot be added to it",
            fix="use privacy.unit = 'member', or name model and data",
            key="privacy.unit",
        )
