"""Tasks in plain numpy, for tests, documentation and anybody who wants to see a federation without a large library.

`QuadraticTask` has an optimum in closed form; `LogisticTask` is softmax regression on arrays. Both use elementwise
operations and numpy's own `einsum` loops, not BLAS, so their bits do not depend on the number of threads.

>>> from eris.seeds import private_root, public_root
>>> task = QuadraticTask([[0.0, 4.0], [2.0, 0.0]], samples=[1, 3], descent=Descent(learning_rate=0.5))
>>> task.optimum().tolist()
[1.5, 1.0]
>>> result = task.train(0, np.zeros(2, np.float32), task.memory(0), round=0, seed=private_root(7, peer=0))
>>> result.update.tolist(), result.samples
([0.0, -2.0], 1)
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eris.errors import InputError
from eris.local.correction import Correction
from eris.local.spec import ModelSpec, Vector, as_vector
from eris.local.task import LocalResult, Memory
from eris.seeds import Seed

__all__ = ["Descent", "LogisticTask", "QuadraticTask"]

Labels = NDArray[np.int64]
Examples = tuple[Vector, Labels]
_KEPT = 1000  # members whose generated rows are kept


@dataclass(frozen=True, slots=True)
class Descent:
    """Gradient descent with momentum, which is kept over rounds in the member's memory."""

    learning_rate: float = 0.1
    momentum: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise InputError(f"learning rate is {self.learning_rate}", fix="use a finite rate > 0")
        if not 0 <= self.momentum < 1:
            raise InputError(f"momentum is {self.momentum}", fix="use 0 ≤ momentum < 1")

    def memory(self, n: int) -> Memory:
        """Return what one member must remember: nothing without momentum."""
        return {"momentum": np.zeros(n, np.float32)} if self.momentum else {}

    def move(self, model: Vector, gradient: Vector, memory: Memory) -> None:
        """Take one step in place."""
        if self.momentum:
            velocity = memory["momentum"]
            velocity *= np.float32(self.momentum)
            velocity += gradient
            gradient = velocity
        model -= np.float32(self.learning_rate) * gradient


class _Corrected:
    """How both tasks correct their gradients."""

    spec: ModelSpec
    _corrections: tuple[Correction, ...] = ()

    def corrected(self, correction: Correction) -> Self:
        """Return the same task with this correction of every local gradient; one that it has is not added twice."""
        if correction in self._corrections:
            return self
        task = copy.copy(self)
        task._corrections = (*self._corrections, correction)
        return task

    def _correct(self, gradient: Vector, weights: Vector, start: Vector, memory: Memory) -> None:
        n = self.spec.n_trainable
        for correct in self._corrections:
            correct(gradient[:n], weights[:n], start[:n], memory)


class QuadraticTask(_Corrected):
    """Member k minimises f_k(x) = ½ Σ_i h_k,i (x_i − c_k,i)², with its own centre c_k and curvature h_k > 0.

    Coordinates are independent, so every result has a closed form: `optimum` is the minimum of Σ w_k f_k. With a `spec`
    of its own the vector may have buffers; they move towards their centre like everything else.

    Args:
        centres: c, members × values.
        curvatures: h, of the same shape, or one for all.
        samples: how many samples each member counts for; by default one.
        steps: local steps in a round.
        descent: how a step is taken.
        spec: the model as named tensors; by default one vector.
    """

    def __init__(
        self,
        centres: ArrayLike,
        *,
        curvatures: ArrayLike = 1.0,
        samples: Sequence[int] | None = None,
        steps: int = 1,
        descent: Descent | None = None,
        spec: ModelSpec | None = None,
    ) -> None:
        self.centres = np.ascontiguousarray(np.atleast_2d(np.asarray(centres, np.float32)))
        self.curvatures = np.ascontiguousarray(_broadcast(curvatures, self.centres))
        self.descent, self.steps = descent or Descent(), _at_least_one(steps, "number of local steps")
        self.spec = spec or ModelSpec.flat(self.centres.shape[1])
        self._samples = _checked_samples([1] * self.members if samples is None else samples, self.members)
        if self.spec.n != self.centres.shape[1]:
            raise InputError(f"centres have {self.centres.shape[1]} values, the spec has {self.spec.n}")

    @classmethod
    def synthetic(cls, members: int, n: int, seed: Seed, *, descent: Descent | None = None) -> QuadraticTask:
        """Make up a task: centres in [−1, 1), curvatures in [½, 1½), one to nine samples per member."""
        centres = 2 * seed.child("centres").uniforms(members * n) - 1
        curvatures = 0.5 + seed.child("curvatures").uniforms(members * n)
        samples = 1 + seed.child("samples").integers(9, count=members)
        shape = (members, n)
        return cls(
            centres.reshape(shape), curvatures=curvatures.reshape(shape), samples=samples.tolist(), descent=descent
        )

    @property
    def members(self) -> int:
        """Number of members, each with its own quadratic."""
        return int(self.centres.shape[0])

    def samples(self, member: int) -> int:
        """Return the weight of a member."""
        return self._samples[member]

    def initial(self, seed: Seed) -> Vector:
        """Return x⁰ with values in [−1, 1)."""
        return (2 * seed.uniforms(self.spec.n) - 1).astype(np.float32)

    def memory(self, member: int) -> Memory:
        """Return zero momentum, or nothing."""
        del member
        return self.descent.memory(self.spec.n)

    def train(self, member: int, model: Vector, memory: Memory, *, round: int, seed: Seed) -> LocalResult:
        """Take `steps` exact gradient steps."""
        del round, seed
        local = as_vector(model, self.spec.n, what="model").copy()
        loss = self._loss(member, model)
        for _ in range(self.steps):
            gradient = self.curvatures[member] * (local - self.centres[member])
            self._correct(gradient, local, model, memory)
            self.descent.move(local, gradient, memory)
        return LocalResult(model - local, self.samples(member), steps=float(self.steps), loss=loss)

    def evaluate(self, model: Vector) -> dict[str, float]:
        """Return the weighted loss over all members and the model's distance from the optimum."""
        shares = self._shares()
        losses = [share * self._loss(k, model) for k, share in enumerate(shares)]
        return {"loss": math.fsum(losses), "distance": float(np.abs(model - self.optimum()).max(initial=0.0))}

    def score(self, member: int, model: Vector, memory: Memory) -> dict[str, tuple[float, float]]:
        """Return the member's own loss, summed over its samples, and their number."""
        del memory
        count = float(self.samples(member))
        return {"loss": (count * self._loss(member, model), count)}

    def optimum(self) -> NDArray[np.float64]:
        """Return x* = Σ w_k h_k c_k / Σ w_k h_k."""
        above, below = np.zeros(self.spec.n), np.zeros(self.spec.n)
        for share, h, c in zip(self._shares(), self.curvatures, self.centres, strict=True):
            above += share * h.astype(np.float64) * c
            below += share * h.astype(np.float64)
        return above / below

    def _shares(self) -> list[float]:
        return [count / sum(self._samples) for count in self._samples]

    def _loss(self, member: int, model: Vector) -> float:
        away = model.astype(np.float64) - self.centres[member]
        return float(0.5 * np.sum(self.curvatures[member] * away * away))


class LogisticTask(_Corrected):
    """Softmax regression: each member has its own rows of (features, labels); all are tested on the same held-out rows.

    A round is one full-batch step, or `epochs` passes in mini-batches whose order comes from the member's private seed.

    Args:
        train: each member's rows.
        test: the held-out rows.
        classes: how many there are.
        epochs: passes over the rows in a round.
        batch: rows in a mini-batch; None: all.
        descent: how a step is taken.
    """

    def __init__(
        self,
        train: Sequence[tuple[ArrayLike, ArrayLike]],
        test: tuple[ArrayLike, ArrayLike],
        *,
        classes: int,
        epochs: int = 1,
        batch: int | None = None,
        descent: Descent | None = None,
    ) -> None:
        self.classes = _at_least_one(classes, "number of classes")
        drawn = isinstance(train, _DrawnRows)
        self._train: Sequence[Examples] = train if drawn else [_examples(rows, classes) for rows in train]  # type: ignore[assignment]
        self._test = _examples(test, classes)
        self.epochs = _at_least_one(epochs, "number of epochs")
        self.batch = None if batch is None else _at_least_one(batch, "batch size")
        self.descent = descent or Descent()
        self.features = int(self._test[0].shape[1])
        given = [] if drawn else self._train
        if narrow := [k for k, (x, _) in enumerate(given) if x.shape[1] != self.features]:
            raise InputError(
                f"members {narrow} do not have {self.features} features", fix="give all members the same columns"
            )
        self.spec = ModelSpec.of({
            "weight": np.zeros((self.features, classes), np.float32), "bias": np.zeros(classes, np.float32),
        })  # fmt: skip

    @classmethod
    def synthetic(
        cls,
        members: int,
        seed: Seed,
        *,
        samples: int = 20,
        tests: int = 200,
        features: int = 8,
        classes: int = 3,
        **options: Any,
    ) -> LogisticTask:
        """Make up a task: a Gaussian cloud for each class, `samples` rows per member and `tests` rows to test on."""
        centres = 2 * seed.child("centres").generator().standard_normal((classes, features))
        rows = _DrawnRows(centres, members, samples, seed.child("member"))
        return cls(rows, _clouds(centres, tests, seed.child("test")), classes=classes, **options)

    @property
    def members(self) -> int:
        """Number of members."""
        return len(self._train)

    def samples(self, member: int) -> int:
        """Return how many rows a member has."""
        return self._train.rows if isinstance(self._train, _DrawnRows) else int(self._train[member][1].size)

    def initial(self, seed: Seed) -> Vector:
        """Return small random weights and zero biases."""
        bound = 1 / math.sqrt(self.features)
        vector = (bound * (2 * seed.uniforms(self.spec.n) - 1)).astype(np.float32)
        vector[self.spec.slices["bias"]] = 0
        return vector

    def memory(self, member: int) -> Memory:
        """Return zero momentum, or nothing."""
        del member
        return self.descent.memory(self.spec.n)

    def train(self, member: int, model: Vector, memory: Memory, *, round: int, seed: Seed) -> LocalResult:
        """Train on the member's own rows."""
        del round
        features, labels = self._train[member]
        local, losses = as_vector(model, self.spec.n, what="model").copy(), []
        for rows in self._batches(labels.size, seed):
            loss, gradient = self.gradient(local, features[rows], labels[rows])
            self._correct(gradient, local, model, memory)
            self.descent.move(local, gradient, memory)
            losses.append(loss)
        first = losses[0] if losses else math.nan
        return LocalResult(model - local, labels.size, steps=float(len(losses)), loss=first)

    def evaluate(self, model: Vector) -> dict[str, float]:
        """Return loss and accuracy on the held-out rows."""
        features, labels = self._test
        scores = self._scores(model, features)
        loss = float(-np.mean(_log_softmax(scores)[np.arange(labels.size), labels]))
        return {"loss": loss, "accuracy": float(np.mean(np.argmax(scores, axis=1) == labels))}

    def score(self, member: int, model: Vector, memory: Memory) -> dict[str, tuple[float, float]]:
        """Return summed loss and hits on the member's held-out rows: every K-th row, starting at its number."""
        del memory
        features, labels = self._test[0][member :: self.members], self._test[1][member :: self.members]
        scores, rows = self._scores(model, features), np.arange(labels.size)
        hits = float(np.sum(np.argmax(scores, axis=1) == labels))
        loss = -np.sum(_log_softmax(scores)[rows, labels].astype(np.float64))
        return {"loss": (float(loss), rows.size), "accuracy": (hits, rows.size)}

    def gradient(self, model: Vector, features: Vector, labels: Labels) -> tuple[float, Vector]:
        """Return the mean loss over these rows and its gradient as a flat vector."""
        logs = _log_softmax(self._scores(model, features))
        rows = np.arange(labels.size)
        errors = np.exp(logs)
        errors[rows, labels] -= 1
        errors /= np.float32(labels.size)
        gradient = np.empty(self.spec.n, np.float32)
        parts = self.spec.unflatten(gradient)
        np.einsum("rf,rc->fc", features, errors, out=parts["weight"])
        np.einsum("rc->c", errors, out=parts["bias"])
        return float(-np.mean(logs[rows, labels])), gradient

    def examples(self, member: int) -> Examples:
        """Return a member's rows with their labels."""
        return self._train[member]

    def held_out(self, count: int) -> LogisticTask:
        """Return the same problem with the first `count` held-out rows as those of its only member."""
        other = copy.copy(self)
        other._train = [(self._test[0][:count], self._test[1][:count])]
        return other

    def restricted(self, places: Sequence[NDArray[np.int64]]) -> LogisticTask:
        """Return the same problem with only these of each member's rows."""
        rows = [(x[chosen], y[chosen]) for (x, y), chosen in zip(self._train, places, strict=True)]
        options = {"classes": self.classes, "epochs": self.epochs, "batch": self.batch, "descent": self.descent}
        return LogisticTask(rows, self._test, **options)  # type: ignore[arg-type]

    def sample_losses(self, member: int, model: Vector) -> NDArray[np.float64]:
        """Return the loss of each of a member's rows."""
        features, labels = self._train[member]
        logs = _log_softmax(self._scores(model, features))
        return -logs[np.arange(labels.size), labels].astype(np.float64)

    def sample_gradients(self, member: int, model: Vector) -> Vector:
        """Return the gradient of each of a member's rows, rows × coordinates."""
        features, labels = self._train[member]
        rows = [self.gradient(model, features[[row]], labels[[row]])[1] for row in range(labels.size)]
        return np.stack(rows)

    def _scores(self, model: Vector, features: Vector) -> Vector:
        parts = self.spec.unflatten(model)
        scores: Vector = np.einsum("rf,fc->rc", features, parts["weight"]) + parts["bias"]
        return scores

    def _batches(self, rows: int, seed: Seed) -> Iterator[NDArray[np.int64]]:
        for epoch in range(self.epochs if rows else 0):
            if self.batch is None:
                yield np.arange(rows)
                continue
            order = seed.require_private("the order of batches").child("batches", epoch).permutation(rows)
            for first in range(0, rows, self.batch):
                yield order[first : first + self.batch]


def _log_softmax(scores: Vector) -> Vector:
    shifted = scores - scores.max(axis=1, keepdims=True)
    logs: Vector = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return logs


class _DrawnRows(Sequence[Examples]):
    """Rows generated from a seed when a member trains; those of the last few members are kept."""

    def __init__(self, centres: NDArray[np.float64], members: int, rows: int, seed: Seed) -> None:
        self._centres, self._members, self.rows, self._seed = centres, members, rows, seed
        self._kept: dict[int, Examples] = {}

    def __len__(self) -> int:
        return self._members

    def __getitem__(self, member: Any) -> Any:
        if not 0 <= member < self._members:
            raise IndexError(member)
        if (kept := self._kept.get(member)) is None:
            kept = self._kept[member] = _clouds(self._centres, self.rows, self._seed.child(member))
            if len(self._kept) > _KEPT:
                del self._kept[next(iter(self._kept))]
        return kept


def _clouds(centres: NDArray[np.float64], rows: int, seed: Seed) -> Examples:
    labels = seed.child("labels").integers(centres.shape[0], count=rows)
    noise = seed.child("noise").generator().standard_normal((rows, centres.shape[1]))
    return (centres[labels] + noise).astype(np.float32), labels


def _examples(rows: tuple[ArrayLike, ArrayLike], classes: int) -> Examples:
    features, labels = np.ascontiguousarray(rows[0], np.float32), np.asarray(rows[1])
    if features.ndim != 2 or labels.shape != features.shape[:1]:
        raise InputError(
            f"features have shape {features.shape}, labels {labels.shape}",
            fix="give features as rows × columns, and one label for each row",
        )
    if not np.isfinite(features).all():
        raise InputError("features are not all finite", fix="remove or replace NaN and infinite values")
    if labels.size and not (np.issubdtype(labels.dtype, np.integer) and 0 <= labels.min() <= labels.max() < classes):
        raise InputError("labels are not class numbers", fix=f"use integers 0 … {classes - 1}")
    return features, labels.astype(np.int64)


def _broadcast(curvatures: ArrayLike, centres: Vector) -> Vector:
    values = np.asarray(curvatures, np.float32)
    try:
        values = np.broadcast_to(values, centres.shape)
    except ValueError:
        raise InputError(f"curvatures have shape {values.shape}, centres {centres.shape}") from None
    if not (np.isfinite(values).all() and (values > 0).all()):
        raise InputError("curvatures are not all positive", fix="use finite values > 0")
    return values


def _checked_samples(samples: Sequence[int], members: int) -> list[int]:
    if len(samples) != members or any(count < 1 for count in samples):
        raise InputError(f"samples are {list(samples)}", fix=f"give {members} counts ≥ 1, one for each member")
    return [int(count) for count in samples]


def _at_least_one(value: int, what: str) -> int:
    if value < 1:
        raise InputError(f"{what} is {value}", fix="use 1 or more")
    return value
