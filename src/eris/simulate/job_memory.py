"""The shared memory through which a worker process and its engine exchange vectors, and its layout.

Two places hold a model with the public state (one is read while the other is written). Each slot holds what belongs to
one job: the member's state on the way in and out, its values, its buffers and, if members differ in it, its support.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from eris.local.spec import Vector
from eris.protocol.recipe import Recipe
from eris.shards.plan import Coordinates
from eris.simulate.shared_memory import SharedBytes
from eris.transforms import State

__all__ = ["JobMemory", "JobMemoryPlan", "Slot"]

_ALIGNED = 64


@dataclass(frozen=True, slots=True)
class JobMemoryPlan:
    """How large the places are; both sides compute the same offsets from it."""

    slots: int  # jobs that have a place at once
    n_trainable: int
    n_buffer: int
    support: int  # coordinates a slot has room for; 0 where all members share the support
    state: int  # values of the largest member state
    public: tuple[tuple[str, int], ...]  # public state by name and size

    @classmethod
    def of(cls, recipe: Recipe, slots: int, memory_size: int) -> JobMemoryPlan:
        """Plan the places for a recipe; `memory_size` is how many values a task remembers of a member at most."""
        n = recipe.spec.n_trainable
        private = sum(part.size for part in recipe.chain.private_state(n).values())
        public = tuple((name, part.size) for name, part in recipe.chain.public_state(n).items())
        support = 0 if recipe.compressor.shared_support else n
        return cls(slots, n, recipe.spec.n_buffer, support, memory_size + private, public)

    @property
    def model_bytes(self) -> int:
        """Bytes of a place for model and public state."""
        return _rounded(4 * (self.n_trainable + self.n_buffer + sum(size for _, size in self.public)))

    @property
    def slot_bytes(self) -> int:
        """Bytes of a slot."""
        return _rounded(8 * self.support) + _rounded(4 * (self.n_trainable + self.n_buffer)) + _rounded(4 * self.state)

    @property
    def size(self) -> int:
        """Bytes in all."""
        return 2 * self.model_bytes + self.slots * self.slot_bytes

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> JobMemoryPlan:
        """Rebuild a plan from `to_dict`."""
        return cls(**{**data, "public": tuple((name, size) for name, size in data["public"])})


@dataclass(frozen=True, slots=True)
class Slot:
    """The places of one job."""

    values: Vector
    buffers: Vector
    support: Coordinates  # of the values, if members differ in it
    state: Vector  # the member's, before and after


class JobMemory:
    """The places themselves, as arrays."""

    def __init__(self, plan: JobMemoryPlan, memory: SharedBytes) -> None:
        self.plan, self.memory = plan, memory
        self.models = [self._model(number) for number in range(2)]
        self.slots = [self._slot(number) for number in range(plan.slots)]

    def _model(self, number: int) -> tuple[Vector, State]:
        plan, start = self.plan, number * self.plan.model_bytes
        model = self._floats(start, plan.n_trainable + plan.n_buffer)
        start += model.nbytes
        public = {}
        for name, size in plan.public:
            public[name] = self._floats(start, size)
            start += 4 * size
        return model, public

    def _slot(self, number: int) -> Slot:
        plan = self.plan
        start = 2 * plan.model_bytes + number * plan.slot_bytes
        support = cast(Coordinates, self.memory.array(np.int64, start, plan.support))
        start += _rounded(8 * plan.support)
        values = self._floats(start, plan.n_trainable + plan.n_buffer)
        state = self._floats(start + _rounded(values.nbytes), plan.state)
        return Slot(values[: plan.n_trainable], values[plan.n_trainable :], support, state)

    def _floats(self, start: int, count: int) -> NDArray[np.float32]:
        return cast(Vector, self.memory.array(np.float32, start, count))


def _rounded(size: int) -> int:
    """Round up to whole cache lines."""
    return -(-size // _ALIGNED) * _ALIGNED
