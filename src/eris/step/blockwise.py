"""The loop all server optimizers share: in place, in blocks that stay in the cache, with scratch allocated once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from eris.errors import ConfigError, InputError
from eris.local.spec import Vector, as_vector
from eris.step.optimizer import State

__all__ = ["BLOCK", "Blockwise", "require_between", "require_positive"]

BLOCK = 1 << 15  # values; a block of model, direction, state and scratch fits the second-level cache
_SMALLEST, _LARGEST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)


class Blockwise:
    """An optimizer that steps one block at a time: subclasses say what happens to a block."""

    keeps: ClassVar[tuple[str, ...]] = ()  # names of the state vectors

    def step(self, model: Vector, direction: Vector, state: State, scratch: tuple[Vector, Vector]) -> None:
        """Move one block of model and state in place; `direction` is only read, `scratch` is free to use."""
        raise NotImplementedError

    def init(self, n: int) -> State:
        """Return the initial state: zeros."""
        return {name: np.zeros(n, np.float32) for name in self.keeps}

    def apply(self, model: Vector, direction: Vector, state: State) -> None:
        """Move model and state in place. Everything is checked before anything moves."""
        _check(model, direction, state, self.keeps)
        first, second = np.empty((2, min(BLOCK, model.size)), np.float32)
        for place in _blocks(model.size):
            size = place.stop - place.start
            part = {name: values[place] for name, values in state.items()}
            self.step(model[place], direction[place], part, (first[:size], second[:size]))


def _blocks(n: int) -> Iterator[slice]:
    return (slice(start, min(start + BLOCK, n)) for start in range(0, n, BLOCK))


def _check(model: Vector, direction: Vector, state: State, keeps: tuple[str, ...]) -> None:
    as_vector(model, model.size, what="model")
    as_vector(direction, model.size, what="direction")
    if set(state) != set(keeps):
        raise InputError(
            f"the optimizer state has {sorted(state)} instead of {sorted(keeps)}", fix="begin with init(n)"
        )
    for name, values in state.items():
        as_vector(values, model.size, what=f"optimizer state {name!r}")


def require_positive(what: str, value: float) -> None:
    """Refuse a number that is not > 0 and finite, as float32 sees it."""
    if not (isinstance(value, int | float) and _SMALLEST <= value <= _LARGEST):
        raise ConfigError(f"{what} is {value}", fix="use a number > 0 that fits into float32")


def require_between(what: str, value: float) -> None:
    """Refuse a number outside [0, 1)."""
    if not (isinstance(value, int | float) and 0 <= value < 1 and np.float32(value) < 1):
        raise ConfigError(f"{what} is {value}", fix="use 0 ≤ value < 1")
