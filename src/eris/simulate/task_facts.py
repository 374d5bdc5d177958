"""What composing a run needs to know of its task, and how its model is evaluated."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.compose import Composition, compose
from eris.config import Config
from eris.errors import ConfigError
from eris.local.scores import means_of
from eris.local.spec import ModelSpec, TensorSpec, Vector
from eris.local.task import CohortTask, Task
from eris.simulate.user_code import user_code

__all__ = ["TaskFacts", "check_cohorts", "evaluate", "facts_of"]


@dataclass(frozen=True)
class TaskFacts:
    """The model's spec, the members' samples and how much an optimizer remembers."""

    spec: ModelSpec
    samples: NDArray[np.int64]  # of each member
    memory_size: int  # values, of the member that remembers most

    def compose(self, config: Config) -> Composition:
        """Compose a configuration of one method for this task."""
        return compose(config, self.spec, self.samples)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        tensors = [[t.name, list(t.shape), t.dtype, t.role] for t in self.spec.tensors]
        samples = self.samples.tolist()
        return {"tensors": tensors, "base": self.spec.base, "samples": samples, "memory_size": self.memory_size}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TaskFacts:
        """Rebuild facts from `to_dict`."""
        tensors = tuple(TensorSpec(name, tuple(shape), dtype, role) for name, shape, dtype, role in data["tensors"])
        return cls(ModelSpec(tensors, data["base"]), np.array(data["samples"], np.int64), data["memory_size"])


def facts_of(task: Task) -> TaskFacts:
    """Return the facts of a task."""
    members = range(task.members)
    most = max((sum(vector.size for vector in task.memory(member).values()) for member in members), default=0)
    return TaskFacts(task.spec, np.array([task.samples(member) for member in members], np.int64), most)


def check_cohorts(task: Task, config: Config) -> None:
    """Refuse a task that cannot be trained in cohorts, before anything is trained."""
    if config.local.cohort == 1:
        return
    if not isinstance(task, CohortTask):
        raise ConfigError(
            f"{type(task).__name__} trains one member at a time", fix="use local.cohort = 1", key="local.cohort"
        )
    task.check_cohort()


def evaluate(task: Task, model: Vector, config: Config) -> dict[str, Any]:
    """Return a task's metrics: the accuracies of single classes in one list, the gradient norm where asked for."""
    with user_code("evaluation"):
        metrics = means_of(task.evaluate(model))
    by_class = {int(key.split("/")[1]): metrics.pop(key) for key in list(metrics) if key.startswith("accuracy/")}
    if by_class:
        metrics["per_class"] = [by_class.get(label, math.nan) for label in range(max(by_class) + 1)]
    if config.gradient_norm:
        metrics["gradient_norm_squared"] = _gradient_norm_squared(task, model)
    return metrics


def _gradient_norm_squared(task: Task, model: Vector) -> float:
    measure = getattr(task, "gradient_norm", None)
    if measure is None:
        raise ConfigError(
            f"{type(task).__name__} cannot measure its gradient", fix="set gradient_norm = false", key="gradient_norm"
        )
    return float(measure(model))
