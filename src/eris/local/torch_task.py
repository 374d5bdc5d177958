"""A learning problem in torch: a network, samples, and who has which of them.

Each process holds one copy of the network as a `FlatModule`; training loads the round's vector into it, takes its local
steps on the flat vector, and reads the difference. Nothing of one call survives into the next except in `memory`. One
torch thread and seeded batches make the result the same bits in a main process, in a worker and in a real peer.
"""

from __future__ import annotations

import copy
import functools
import operator
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from eris.errors import ConfigError
from eris.local.estimator import estimator
from eris.local.spec import ModelSpec, Vector, as_vector
from eris.local.task import LocalResult, Memory
from eris.local.torch_cohort import CohortGradient, descend_together
from eris.local.torch_examples import Batch, Chosen, Examples, TensorCache, batches_of
from eris.local.torch_gradient import LocalGradient, gradient_of, mean_gradient
from eris.local.torch_module import FlatModule, one_thread
from eris.local.torch_objective import Classification, Objective
from eris.local.torch_optimizer import local_optimizer
from eris.local.torch_work import LocalWork
from eris.seeds import Seed, public_root

__all__ = ["TorchTask"]

Indices = NDArray[np.int64]

_LOCK = threading.RLock()  # torch has one random generator and one number of threads in a process


class TorchTask:
    """Train a torch model on each member's samples; see `LocalWork` for what a round's local work can be."""

    def __init__(
        self,
        factory: Callable[[], torch.nn.Module],
        train: Examples,
        members: Sequence[Indices],
        *,
        test: Examples | None = None,
        validation: Sequence[Indices] = (),
        work: LocalWork | None = None,
        objective: Objective | None = None,
        gradient: LocalGradient | None = None,
        evaluation_batch: int = 100,
        cache_bytes: int = 1 << 26,
    ) -> None:
        self._factory, self._train, self._test = factory, train, test
        self._places, self._validation = list(members), list(validation)
        self.work = work or LocalWork()
        self._objective: Objective = objective or Classification()
        self._gradient: LocalGradient = gradient or gradient_of(self.work)
        self._evaluation_batch, self._cache_bytes = evaluation_batch, cache_bytes
        self._optimizer, self._estimator = local_optimizer(self.work), estimator(self.work)
        self._flat: FlatModule | None = None
        self._cache = TensorCache(cache_bytes)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the network and the tensors behind: a worker process makes its own."""
        return {**self.__dict__, "_flat": None, "_cache": TensorCache(self._cache_bytes)}

    @property
    def spec(self) -> ModelSpec:
        """The model as named tensors."""
        return self._module().spec

    @property
    def members(self) -> int:
        """How many members have data."""
        return len(self._places)

    @property
    def sample_noise(self) -> float:
        """The noise multiplier of DP-SGD in every local step; 0 where gradients are taken as they are."""
        return float(getattr(self._gradient, "multiplier", 0.0))

    def samples(self, member: int) -> int:
        """Return how many training samples a member has."""
        return len(self._places[member])

    def initial(self, seed: Seed) -> Vector:
        """Return the weights the factory gives when torch's generator is lent this seed."""
        with _LOCK:
            return FlatModule(self._built(seed), buffers=self.work.buffers).vector.copy()

    def memory(self, member: int) -> Memory:
        """Return what a member's optimizer or estimator keeps, and the tensors that stay with it."""
        memory: Memory = {}
        n = self.spec.n_trainable
        if self.work.send == "gradient":
            memory |= self._estimator.init(self.samples(member), n)
        elif self.work.keep_state:
            memory |= self._optimizer.init(n)
        if (local := self._module().initial_local).size:
            memory["local"] = local.copy()
        return memory

    def train(self, member: int, model: Vector, memory: Memory, *, round: int, seed: Seed) -> LocalResult:
        """Train from `model` on the member's samples; the batches come from the private `seed`."""
        seed = seed.require_private("the choice of batches").child("train", round)
        model = as_vector(model, self.spec.n, what="model")
        with self._at_work(seed) as flat:
            flat.load(model)
            flat.load_local(memory.get("local", flat.initial_local))
            flat.train()
            batch = self._cache.get(("train", member), self._train, self._places[member])
            work = self._estimate if self.work.send == "gradient" else self._descend
            update, steps, loss = work(flat, model, batch, memory, seed)
            if "local" in memory:
                memory["local"][:] = flat.local_values()
        return LocalResult(update, self.samples(member), steps, loss)

    def check_cohort(self) -> None:
        """Refuse what cannot be done for several members in one call."""
        self._together()

    def train_cohort(
        self,
        members: Sequence[int],
        models: Sequence[Vector],
        memories: Sequence[Memory],
        *,
        round: int,
        seeds: Sequence[Seed],
    ) -> list[LocalResult]:
        """Do what `train` does for members with the same number of samples, all in one call: equal up to rounding."""
        private = [seed.require_private("the choice of batches").child("train", round) for seed in seeds]
        starts = np.stack([as_vector(model, self.spec.n, what="model") for model in models])
        fresh = [self._optimizer.init(self.spec.n) for _ in members]
        with self._at_work(None) as flat:
            flat.train()
            own = [self._cache.get(("train", member), self._train, self._places[member]) for member in members]
            batches = [self._batches(batch, seed) for batch, seed in zip(own, private, strict=True)]
            states = memories if self.work.keep_state else fresh
            ends, losses = descend_together(self._together(), self._optimizer, starts, batches, states)
        steps = self._optimizer.effective_steps(len(losses))
        return [
            LocalResult(start - end, self.samples(member), steps, sum(seen) / len(seen))
            for member, start, end, seen in zip(members, starts, ends, zip(*losses, strict=True), strict=True)
        ]

    def _together(self) -> CohortGradient:
        if self.work.send != "delta" or self._gradient is not mean_gradient:
            raise ConfigError(
                "members cannot be trained in cohorts: only plain gradients of local steps can be taken together",
                fix="use local.cohort = 1, or leave local.send and privacy.unit at their defaults",
                key="local.cohort",
            )
        return CohortGradient(self._module(), self._objective)

    def evaluate(self, model: Vector) -> dict[str, float]:
        """Return loss and accuracy on the test split, in all and for each class.

        With validation samples also `validation_loss` and `validation_accuracy` over those of all members.
        """
        metrics: dict[str, float] = {}
        with self._at_work(None) as flat:
            self._load_for_evaluation(flat, model)
            if self._test is not None:
                metrics |= self._scores(flat, "test", self._test, by_class=True)
            if held := [part for part in self._validation if len(part)]:
                scores = self._scores(flat, "validation", Chosen(self._train, np.concatenate(held)), by_class=False)
                metrics |= {f"validation_{name}": value for name, value in scores.items()}
        return metrics

    def gradient_norm(self, model: Vector, weights: Sequence[float] | None = None) -> float:
        """Return ‖Σ w_k ∇f_k‖² over all training data (weights by samples unless given), in evaluation mode."""
        counts = np.array([self.samples(member) for member in range(self.members)], np.float64)
        shares = counts / counts.sum() if weights is None else np.asarray(weights, np.float64)
        total = np.zeros(self.spec.n_trainable, np.float64)
        with self._at_work(None) as flat:
            self._load_for_evaluation(flat, model)
            for member, share in enumerate(shares):
                batch = self._cache.get(("train", member), self._train, self._places[member])
                flat.differentiate(self._objective, *batch)
                total += share * flat.gradient
        return float(np.dot(total, total))

    def restricted(self, places: Sequence[Indices]) -> TorchTask:
        """Return the same problem with only these of each member's samples (places in its own list)."""
        other = copy.copy(self)
        other._places = [own[chosen] for own, chosen in zip(self._places, places, strict=True)]
        return other

    def examples(self, member: int) -> Batch:
        """Return a member's samples as the model takes them, with their targets."""
        return self._cache.get(("train", member), self._train, self._places[member])

    @property
    def pool(self) -> Examples:
        """The split that all members' samples are in."""
        return self._train

    def places(self, member: int) -> Indices:
        """Return where a member's samples are in it."""
        return self._places[member]

    def on(self, examples: Examples, members: Sequence[Indices]) -> TorchTask:
        """Return the same problem on other samples."""
        other = copy.copy(self)
        other._train, other._places = examples, list(members)
        return other

    def sample_losses(self, member: int, model: Vector) -> NDArray[np.float64]:
        """Return the loss of each of a member's samples, in evaluation mode."""
        with self._at_work(None) as flat, torch.no_grad():
            self._load_for_evaluation(flat, model)
            batch = self._cache.get(("train", member), self._train, self._places[member])
            losses = getattr(self._objective, "losses", None)
            if losses is not None:
                return np.asarray(losses(flat.module, *batch).double().numpy())
            return np.array([self._objective.loss(flat.module, *sample).item() for sample in _one_by_one(batch)])

    def sample_gradients(self, member: int, model: Vector) -> Vector:
        """Return the gradient of each of a member's samples (samples × trainable), in evaluation mode."""
        with self._at_work(None) as flat:
            self._load_for_evaluation(flat, model)
            batch = self._cache.get(("train", member), self._train, self._places[member])
            gradients = np.empty((len(batch[1]), flat.spec.n_trainable), np.float32)
            for row, sample in zip(gradients, _one_by_one(batch), strict=True):
                flat.differentiate(self._objective, *sample)
                row[:] = flat.gradient
        return gradients

    def _descend(
        self, flat: FlatModule, model: Vector, batch: Batch, memory: Memory, seed: Seed
    ) -> tuple[Vector, float, float]:
        state = memory if self.work.keep_state else self._optimizer.init(flat.spec.n_trainable)
        losses, n = list[float](), flat.spec.n_trainable
        for number, part in enumerate(self._batches(batch, seed)):
            if losses:
                self._optimizer.apply(flat.trainable, flat.gradient, state)
            losses.append(self._gradient(flat, self._objective, part, seed, number))
        update = np.empty_like(model)
        self._optimizer.difference(model[:n], flat.trainable, flat.gradient, state, update[:n])
        np.subtract(model[n:], flat.vector[n:], out=update[n:])
        return update, self._optimizer.effective_steps(len(losses)), sum(losses) / len(losses)

    def _batches(self, batch: Batch, seed: Seed) -> Iterator[Batch]:
        count, size = len(batch[1]), self.work.batch
        if size == "full" or size >= count:
            yield from (batch for _ in range(self.work.steps or self.work.epochs))
            return
        steps = self.work.steps or self.work.epochs * -(-count // size)
        epoch, start, order = 0, count, torch.empty(0)
        for _ in range(steps):
            if start >= count:
                order = torch.from_numpy(seed.child("epoch", epoch).permutation(count))
                epoch, start = epoch + 1, 0
            places = order[start : start + size]
            start += size
            yield batch[0][places], batch[1][places]

    def _estimate(
        self, flat: FlatModule, model: Vector, batch: Batch, memory: Memory, seed: Seed
    ) -> tuple[Vector, float, float]:
        n = flat.spec.n_trainable

        def oracle(point: Vector, places: Indices | None) -> tuple[Vector, float]:
            np.copyto(flat.trainable, point)
            chosen = batch if places is None else (batch[0][places], batch[1][places])
            loss = self._gradient(flat, self._objective, chosen, seed, 0)
            return flat.gradient.copy(), loss

        estimate, loss = self._estimator.estimate(oracle, model[:n], len(batch[1]), memory, seed)
        return np.concatenate([estimate, model[n:] - flat.vector[n:]]), 1.0, loss

    def _scores(self, flat: FlatModule, name: str, examples: Examples, *, by_class: bool) -> dict[str, float]:
        with torch.inference_mode():
            parts = [
                self._objective.score(flat.module, *self._cache.get((name, start), examples, places))
                for start, places in batches_of(examples, self._evaluation_batch)
            ]
        score = functools.reduce(operator.add, parts)
        return score.means() | (score.by_class() if by_class and len(score.totals) > 1 else {})

    def _load_for_evaluation(self, flat: FlatModule, model: Vector) -> None:
        flat.load(as_vector(model, self.spec.n, what="model"))
        flat.load_local(flat.initial_local)
        flat.evaluate()

    def _at_work(self, seed: Seed | None) -> _AtWork:
        """Lend out the process's one network, with one thread and torch's generator under `seed` (dropout)."""
        return _AtWork(self._module(), seed)

    def _module(self) -> FlatModule:
        if self._flat is None:
            with _LOCK:
                self._flat = FlatModule(self._built(public_root(0)), buffers=self.work.buffers)
        return self._flat

    def _built(self, seed: Seed) -> torch.nn.Module:
        before = torch.get_rng_state()
        torch.default_generator.manual_seed(_number(seed.child("weights")))
        try:
            return self._factory()
        finally:
            torch.set_rng_state(before)


class _AtWork:
    """Holds what a process has only one of; a class, since a generator entered for every gradient shows in the time."""

    __slots__ = ("_flat", "_generator", "_seed", "_thread")

    def __init__(self, flat: FlatModule, seed: Seed | None) -> None:
        self._flat, self._seed = flat, seed

    def __enter__(self) -> FlatModule:
        _LOCK.acquire()
        self._thread = one_thread()
        self._thread.__enter__()
        if self._seed is not None:
            self._generator = torch.get_rng_state()
            torch.default_generator.manual_seed(_number(self._seed.child("torch")))
        return self._flat

    def __exit__(self, *error: object) -> None:
        if self._seed is not None:
            torch.set_rng_state(self._generator)
        self._thread.__exit__(None, None, None)
        _LOCK.release()


def _one_by_one(batch: Batch) -> Iterator[Batch]:
    inputs, targets = batch
    for place in range(len(targets)):
        yield inputs[place : place + 1], targets[place : place + 1]


def _number(seed: Seed) -> int:
    # The key is random already: drawing a word from it would cost more than the step's arithmetic.
    return int.from_bytes(seed.key[:8], "little")
