"""Corrections of local gradients: an extra term in the loss, or a pull against drift.

A correction is called before every local step with the gradient, the current weights, the weights the round began with,
and the member's memory; it changes the gradient in place. These are flat numpy vectors on the processor and torch
tensors on an accelerator; a function written with `+`, `-`, `*` and in-place operators serves both.

A task that takes corrections has `corrected(correction)`, which returns the same task with one more.

>>> import numpy as np
>>> gradient = np.float32([1, 1])
>>> proximal(mu=0.5)(gradient, np.float32([2, 0]), np.float32([0, 0]), {})
>>> gradient.tolist()
[2.0, 1.0]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

from eris.errors import ConfigError
from eris.local.task import Task
from eris.registry import Registry, call_with_options, described_options

__all__ = [
    "CORRECTIONS",
    "DRIFT",
    "CorrectableTask",
    "Correction",
    "control_variate",
    "correctable",
    "corrected",
    "correction_by_name",
    "proximal",
]

Correction = Callable[[Any, Any, Any, dict[str, Any]], None]
"""Called with (gradient, weights, start, memory); changes the gradient in place. Vectors hold the trainable values."""

DRIFT = "drift"  # key, in a member's memory, of what its chain adds to every gradient during training


@runtime_checkable
class CorrectableTask(Task, Protocol):
    """A task whose local gradients can be corrected."""

    def corrected(self, correction: Correction) -> Self:
        """Return the same task with this correction of every local gradient."""
        ...


@dataclass(frozen=True)
class _Proximal:
    mu: float

    def __call__(self, gradient: Any, weights: Any, start: Any, memory: dict[str, Any]) -> None:
        del memory
        gradient += self.mu * (weights - start)


def proximal(mu: float = 0.01) -> Correction:
    """Pull the weights towards the round's model by adding μ/2·‖x − xᵗ‖² to the loss (FedProx)."""
    if not 0 <= mu < float("inf"):
        raise ConfigError(f"mu is {mu}", fix="use 0 ≤ μ < ∞")
    return _Proximal(mu)


@dataclass(frozen=True)
class _ControlVariate:
    def __call__(self, gradient: Any, weights: Any, start: Any, memory: dict[str, Any]) -> None:
        del weights, start
        gradient += memory[DRIFT]


def control_variate() -> Correction:
    """Add the drift of this member that the method's transforms have estimated (SCAFFOLD's c − c_k)."""
    return _ControlVariate()


CORRECTIONS: Registry[Callable[..., Correction]] = Registry(
    "correction",
    "eris.corrections",
    {"proximal": proximal, "control-variate": control_variate},
    refuses=lambda thing: "" if callable(thing) else "it cannot be called with options",
    options=described_options,
)


def correction_by_name(name: str, **options: Any) -> Correction:
    """Return the correction with this name or path `module:name`, made with these options."""
    made = call_with_options(name, CORRECTIONS.find(name), options, word="option")
    if not callable(made):
        raise ConfigError(
            f"correction {name} returned a {type(made).__name__}", fix="return a function that corrects a gradient"
        )
    return made


def correctable(task: Task, name: str = "") -> CorrectableTask:
    """Return the task if its gradients can be corrected; otherwise refuse it."""
    if not isinstance(task, CorrectableTask):
        raise ConfigError(
            f"the method corrects local gradients{name and f' ({name})'}, "
            f"but {type(task).__name__} cannot be corrected",
            fix="use a method without a correction, or give the task a method corrected(correction)",
        )
    return task


def corrected(task: Task, name: str, options: dict[str, Any]) -> Task:
    """Return a task with the correction of that name.

    `options` are the correction's own.
    """
    return correctable(task, name).corrected(correction_by_name(name, **options))
