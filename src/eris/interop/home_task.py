"""One peer's task in another library: named arrays go in, named arrays come out.

`eris.interop.sklearn`, `eris.interop.jax` and `eris.interop.lightning` each have a `Learner`; `HomeTask` turns it into
the task that `eris run --task`, `eris up --task`, `eris join --task` and `Federation(task=…)` take.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from eris.errors import ConfigError, InputError, TaskError
from eris.interop.foreign_call import foreign_call, in_our_words
from eris.local.scores import means_of
from eris.local.spec import ModelSpec, Role, Vector
from eris.local.task import LocalResult, Memory
from eris.seeds import Seed, public_root

__all__ = ["Arrays", "Fitted", "HomeTask", "Learner"]

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Fitted:
    """The result of local training: the trained arrays, and facts about them."""

    arrays: Arrays = field(repr=False)
    steps: float = 1.0
    figures: Mapping[str, Any] = field(default_factory=dict)


class Learner(Protocol):
    """A model and one peer's data in some other library."""

    @property
    def count(self) -> int:
        """How many samples there are to train on."""
        ...

    @property
    def roles(self) -> Mapping[str, Role]:
        """The roles of arrays that are not trained."""
        ...

    def begin(self, seed: Seed) -> Arrays:
        """Return the initial arrays, the same on every peer."""
        ...

    def memory(self) -> Memory:
        """Return what is remembered between rounds, as it is before the first round."""
        ...

    def fit(self, arrays: Arrays, memory: Memory, seed: Seed) -> Fitted:
        """Train from `arrays`; `memory` is changed in place, and `seed` is the source of all randomness."""
        ...

    def score(self, arrays: Arrays) -> Mapping[str, Any]:
        """Return figures of a model on held-out data; empty if there are none."""
        ...


class HomeTask:
    """The task of one peer, whatever its number; it knows nothing of the others' data."""

    members = 1

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        if learner.count < 1:
            raise InputError("there are no samples to train on", fix="give this peer some, or leave it out")
        self._start = learner.begin(public_root(0))
        _require_float32(self._start)
        self.spec = ModelSpec.of(self._start, roles=learner.roles)

    def samples(self, member: int) -> int:
        """Return how many samples this peer trains on."""
        del member
        return self._learner.count

    def initial(self, seed: Seed) -> Vector:
        """Return the initial model."""
        with foreign_call(seed.child("initial")):
            return self.spec.flatten(self._learner.begin(seed))

    def memory(self, member: int) -> Memory:
        """Return what the learner remembers, at its beginning."""
        del member
        return self._learner.memory()

    def rehearse(self, members: Any = None) -> None:
        """Train once and score, before anything is written; the result is thrown away."""
        del members
        self._fitted(self.spec.flatten(self._start), self._learner.memory(), public_root(0).child("rehearsal"))
        self.evaluate(self.spec.flatten(self._start))

    def train(self, member: int, model: Vector, memory: Memory, *, round: int, seed: Seed) -> LocalResult:
        """Train from `model` and return the update."""
        del member, round
        fitted = self._fitted(model, memory, seed.require_private("what the library draws"))
        figures = means_of(in_our_words(fitted.figures))
        loss = figures.get("loss", float("nan"))
        update = model - self.spec.flatten(fitted.arrays)
        return LocalResult(update, self._learner.count, fitted.steps, loss, figures)

    def evaluate(self, model: Vector) -> dict[str, Any]:
        """Return figures on this peer's held-out data: means, or pairs (sum, count) where the learner has them."""
        with foreign_call(public_root(0).child("evaluation")):
            return in_our_words(self._learner.score(self._arrays(model)))

    def _fitted(self, model: Vector, memory: Memory, seed: Seed) -> Fitted:
        with foreign_call(seed):
            fitted = self._learner.fit(self._arrays(model), memory, seed)
        for name, array in fitted.arrays.items():
            if name not in self._start or array.shape != self._start[name].shape:
                raise TaskError(
                    f"training returned {name!r} with shape {array.shape}, which the model does not have",
                    fix="return the model with its original names and shapes",
                )
        return fitted

    def _arrays(self, model: Vector) -> Arrays:
        flat = self.spec.unflatten(model)
        return {name: flat.get(name, start).astype(start.dtype) for name, start in self._start.items()}


def _require_float32(arrays: Arrays) -> None:
    for name, array in arrays.items():
        if np.issubdtype(array.dtype, np.floating) and array.dtype.itemsize > 4:
            raise ConfigError(
                f"{name!r} is {array.dtype.name}, but updates are float32",
                fix="make the model float32: eris does not round silently",
            )
