"""Gradient estimators: how a member estimates the gradient that it sends, at the round's model.

There are three, as in the theory: the mean over a batch (the full gradient if the batch is everything), SVRG and SAGA.
They ask an oracle for gradients and know nothing about networks; what they remember is kept in `memory`.

    SVRG:  g = ∇f_B(x) − ∇f_B(w) + ∇f(w)                       w ← x with chance `refresh`, after the estimate
    SAGA:  g = 1/b Σ_{j∈B} (∇f_j(x) − φ_j) + 1/m Σ_j φ_j       φ_j ← ∇f_j(x) for j ∈ B

They start from the full gradient (SVRG) or a table of all m single gradients (SAGA) at the first model they are given.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from eris.local.spec import Vector
from eris.local.task import Memory
from eris.local.torch_work import LocalWork
from eris.seeds import Seed

__all__ = ["BatchMean", "Estimator", "Oracle", "Saga", "Svrg", "estimator"]

Indices = NDArray[np.int64]


class Oracle(Protocol):
    """Computes the mean gradient over some samples at a point, as a new vector, and the mean loss there."""

    def __call__(self, point: Vector, places: Indices | None) -> tuple[Vector, float]:
        """Return gradient and loss at `point` over the samples at `places` (None: all)."""
        ...


class Estimator(Protocol):
    """Estimates a member's gradient."""

    def init(self, samples: int, n: int) -> Memory:
        """Return what is remembered before the first round."""
        ...

    def estimate(self, oracle: Oracle, point: Vector, samples: int, memory: Memory, seed: Seed) -> tuple[Vector, float]:
        """Return the estimate at `point` and the loss of the batch; change `memory` in place.

        `oracle` computes gradients, `samples` is how many the member has, `seed` chooses the batch.
        """
        ...


class BatchMean:
    """The mean gradient over `batch` samples drawn without replacement, or over all."""

    def __init__(self, batch: int | None) -> None:
        self.batch = batch

    def init(self, samples: int, n: int) -> Memory:
        """Return no memory: each estimate stands alone."""
        del samples, n
        return {}

    def estimate(self, oracle: Oracle, point: Vector, samples: int, memory: Memory, seed: Seed) -> tuple[Vector, float]:
        """Return the mean gradient over a fresh batch.

        Arguments as for `Estimator.estimate`.
        """
        del memory
        return oracle(point, _batch(self.batch, samples, seed))


class Svrg:
    """Corrects a batch's gradient by that of the same batch at a snapshot whose full gradient is known."""

    def __init__(self, batch: int | None, refresh: float | None = None) -> None:
        self.batch, self.refresh = batch, refresh

    def init(self, samples: int, n: int) -> Memory:
        """Return an empty snapshot, marked as not taken yet."""
        del samples
        return {"snapshot": np.zeros(n, np.float32), "full": np.zeros(n, np.float32), "taken": np.zeros(1, np.float32)}

    def estimate(self, oracle: Oracle, point: Vector, samples: int, memory: Memory, seed: Seed) -> tuple[Vector, float]:
        """Return ∇f_B(x) − ∇f_B(w) + ∇f(w), then perhaps move the snapshot to this point.

        Arguments as for `Estimator.estimate`.
        """
        if not memory["taken"][0]:
            self._snap(oracle, point, memory)
        places = _batch(self.batch, samples, seed)
        here, loss = oracle(point, places)
        there, _ = oracle(memory["snapshot"], places)
        here -= there
        here += memory["full"]
        if seed.child("refresh").uniforms(1)[0] < self._chance(samples):
            self._snap(oracle, point, memory)
        return here, loss

    def _chance(self, samples: int) -> float:
        return self.refresh if self.refresh is not None else min(1.0, (self.batch or samples) / samples)

    @staticmethod
    def _snap(oracle: Oracle, point: Vector, memory: Memory) -> None:
        memory["full"][:], _ = oracle(point, None)
        memory["snapshot"][:] = point
        memory["taken"][:] = 1


class Saga:
    """Corrects each sample's gradient by its last one, kept in a table of all samples."""

    def __init__(self, batch: int | None) -> None:
        self.batch = batch

    def init(self, samples: int, n: int) -> Memory:
        """Return an empty table of samples × n, marked as not filled yet."""
        return {"table": np.zeros(samples * n, np.float32), "filled": np.zeros(1, np.float32)}

    def estimate(self, oracle: Oracle, point: Vector, samples: int, memory: Memory, seed: Seed) -> tuple[Vector, float]:
        """Return the corrected mean over the batch, and write its gradients into the table.

        Arguments as for `Estimator.estimate`.
        """
        table = memory["table"].reshape(samples, point.size)
        if not memory["filled"][0]:
            for place in range(samples):
                table[place], _ = oracle(point, np.array([place]))
            memory["filled"][:] = 1
        estimate = _mean_of(table)
        places = _batch(self.batch, samples, seed)
        places = np.arange(samples) if places is None else places
        losses = 0.0
        for place in places:
            fresh, loss = oracle(point, np.array([place]))
            estimate += (fresh - table[place]) / np.float32(len(places))
            table[place] = fresh
            losses += loss
        return estimate, losses / len(places)


def estimator(work: LocalWork) -> Estimator:
    """Return the estimator that `work` names."""
    batch = None if work.batch == "full" else work.batch
    if work.estimator == "svrg":
        return Svrg(batch, work.refresh)
    return Saga(batch) if work.estimator == "saga" else BatchMean(batch)


def _batch(batch: int | None, samples: int, seed: Seed) -> Indices | None:
    if batch is None or batch >= samples:
        return None
    return seed.child("batch").subset(samples, batch)


def _mean_of(table: NDArray[np.float32]) -> Vector:
    total = np.zeros(table.shape[1], np.float32)
    for row in table:
        total += row
    return total / np.float32(len(table))
