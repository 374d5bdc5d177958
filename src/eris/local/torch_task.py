"""The torch task: a network, samples, and who has which of them.

Each process holds one copy of the network as a `FlatModule`; training loads the round's vector into it, takes its local
steps on the flat vector, and reads the difference. Nothing of one call survives into the next except in `memory`. With
one torch thread and seeded batches, a main process, a worker and a real peer compute the same bits.
"""

from __future__ import annotations

import copy
import functools
import operator
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from eris.errors import ConfigError
from eris.local.correction import Correction
from eris.local.devices import device_of, make_repeatable
from eris.local.dry_batch import check_dry_batch
from eris.local.estimator import estimator
from eris.local.spec import ModelSpec, Vector, as_vector
from eris.local.task import LocalResult, Memory
from eris.local.torch_cohort import CohortGradient, descend_together
from eris.local.torch_examples import (
    Batch,
    Chosen,
    DrawnSamples,
    Examples,
    HeldSamples,
    MemberSamples,
    TensorCache,
    batches_of,
    count_of,
    mapped,
    tensors_at,
)
from eris.local.torch_gradient import LocalGradient, gradient_of, mean_gradient
from eris.local.torch_losses import Classification
from eris.local.torch_module import FlatModule, one_thread, require_module
from eris.local.torch_objective import Objective, Score
from eris.local.torch_optimizer import local_optimizer, round_steps
from eris.local.torch_single_gradients import single_gradients
from eris.local.torch_work import LocalWork
from eris.seeds import Seed, public_root

__all__ = ["TorchTask"]

Indices = NDArray[np.int64]

_REHEARSED = 3  # members whose samples a rehearsal checks if samples are only made when a member trains
_OWN = "own/"  # prefix of names in memory that belong to personal values
_LOCK = threading.RLock()  # torch has one random generator and one number of threads in a process


class TorchTask:
    """Train a torch model on each member's samples; see `LocalWork` for what a round's local work can be.

    Args:
        factory: builds the network.
        train: the training split.
        members: for each member, the places of its samples in the training split.
        test: the test split that all share.
        validation: for each member, the places of the samples it holds back, in the training split.
        tests: for each member, the places of its own test samples, in the test split.
        work: what a member does in a round.
        objective: loss and metrics; by default those of classification.
        gradient: computes the gradient of a batch; by default as `work` says.
        evaluation_batch: how many samples are scored at once.
        cache_bytes: how many bytes of tensors are kept between rounds.
    """

    def __init__(
        self,
        factory: Callable[[], torch.nn.Module],
        train: Examples,
        members: Sequence[Indices],
        *,
        test: Examples | None = None,
        validation: Sequence[Indices] = (),
        tests: Sequence[Indices] = (),
        work: LocalWork | None = None,
        objective: Objective | None = None,
        gradient: LocalGradient | None = None,
        evaluation_batch: int = 100,
        cache_bytes: int = 1 << 26,
    ) -> None:
        self._factory, self._train, self._test = factory, train, test
        self._places, self._validation = members, list(validation)
        self._tests = list(tests)  # each member's own test samples, if members have any
        self.work = work or LocalWork()
        self._objective: Objective = objective or Classification()
        self._gradient: LocalGradient = gradient or gradient_of(self.work)
        self._evaluation_batch, self._cache_bytes = evaluation_batch, cache_bytes
        self._optimizer, self._estimator = local_optimizer(self.work), estimator(self.work)
        self._corrections: tuple[Correction, ...] = ()
        self._flat: FlatModule | None = None
        self._cache = TensorCache(cache_bytes)
        if self.work.keep and self.sample_noise:
            raise ConfigError(
                "DP-SGD does not work with local.keep: tensors that stay at home would carry traces of samples, "
                "without noise, into later gradients",
                fix="use privacy.unit = 'member', or no local.keep",
                key="local.keep",
            )

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the network and the tensors: a worker process makes its own."""
        return {**self.__dict__, "_flat": None, "_cache": TensorCache(self._cache_bytes)}

    @property
    def spec(self) -> ModelSpec:
        """The model as named tensors."""
        return self._module().spec

    @property
    def members(self) -> int:
        """Number of members with data."""
        return len(self._places)

    @property
    def sample_noise(self) -> float:
        """The noise multiplier of DP-SGD in every local step; 0 without DP-SGD."""
        return float(getattr(self._gradient, "multiplier", 0.0))

    def samples(self, member: int) -> int:
        """Return how many training samples a member has."""
        return len(self._places[member])

    def initial(self, seed: Seed) -> Vector:
        """Return the weights of a newly built network, with torch's generator under this seed."""
        with _LOCK:
            return FlatModule(self._built(seed), buffers=self.work.buffers, keep=self.work.keep).vector.copy()

    def memory(self, member: int) -> Memory:
        """Return what a member's optimizer or estimator keeps, and the tensors that stay with it."""
        memory: Memory = {}
        n = self.spec.n_trainable
        if self.work.send == "gradient":
            memory |= self._estimator.init(self.samples(member), n)
        elif self.work.keep_state:
            memory |= self._optimizer.init(n)
            own = self._optimizer.init(self._module().n_personal) if self.work.keep else {}
            memory |= {_OWN + name: value for name, value in own.items()}
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
            work = self._estimate if self.work.send == "gradient" else self._descend
            update, steps, loss = work(flat, model, self._samples_of(member), memory, seed)
            if "local" in memory:
                memory["local"][:] = flat.local_values()
            metrics = self._personal_scores(flat, member, model) if self.work.keep else {}
        return LocalResult(update, self.samples(member), steps, loss, metrics)

    def _samples_of(self, member: int) -> MemberSamples:
        if getattr(self._train, "by_batch", False):
            return DrawnSamples(self._train, self._places[member])
        return HeldSamples(self._cache.get(("train", member), self._train, self._places[member]))

    def _personal_scores(self, flat: FlatModule, member: int, model: Vector) -> dict[str, float]:
        """Score the round's shared model together with the member's current own tensors, on its own samples."""
        if (own := self._held_by(member)) is None:
            return {}
        flat.load(model)
        flat.evaluate()
        return {f"personal_{name}": value for name, value in self._scored(flat, *own).means().items()}

    def _held_by(self, member: int) -> tuple[str, Examples] | None:
        """Return the samples that a member is scored on: those it holds back or, if none, its own tests."""
        held = self._validation[member] if member < len(self._validation) else ()
        tests = self._tests[member] if member < len(self._tests) else ()
        if len(held):
            return f"held-{member}", Chosen(self._train, np.asarray(held))
        if self._test is not None and len(tests):
            return f"test-{member}", Chosen(self._test, np.asarray(tests))
        return None

    def rehearse(self, members: Sequence[int] | None = None) -> None:
        """Send a dry batch through the network and check these members' samples (default: all that exist)."""
        made = min(self.members, _REHEARSED) if getattr(self._train, "made_later", False) else self.members
        shares = {member: self._places[member] for member in (range(made) if members is None else members)}
        with self._at_work(public_root(0).child("dry-batch")) as flat:
            check_dry_batch(flat, self._objective, self._train, shares, self._test)
            if (check := getattr(self._gradient, "check", None)) is not None:
                first = np.resize(next(iter(shares.values())), 2)  # a member's only sample is taken twice
                check(flat, self._objective, flat.placed(tensors_at(self._train, first)))

    def check_cohort(self) -> None:
        """Refuse settings that do not allow training several members in one call."""
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
            own = [self._samples_of(member) for member in members]
            batches = [self._batches(samples, seed) for samples, seed in zip(own, private, strict=True)]
            states = memories if self.work.keep_state else fresh
            ends, losses = descend_together(self._together(), self._optimizer, starts, batches, states)
        steps = self._optimizer.effective_steps(len(losses))
        return [
            LocalResult(start - end, self.samples(member), steps, sum(seen) / len(seen))
            for member, start, end, seen in zip(members, starts, ends, zip(*losses, strict=True), strict=True)
        ]

    def _together(self) -> CohortGradient:
        if self.work.send != "delta" or self._gradient is not mean_gradient or self._corrections:
            raise ConfigError(
                "members cannot be trained in cohorts: only the plain gradients of local steps can be joined",
                fix="use local.cohort = 1, or leave local.send and privacy.unit at their defaults",
                key="local.cohort",
            )
        if self.work.keep or not self._module().on_host:
            what = "tensors that stay at home" if self.work.keep else f"a network on {self._module().device}"
            raise ConfigError(f"{what} cannot be trained in cohorts", fix="use local.cohort = 1", key="local.cohort")
        return CohortGradient(self._module(), self._objective)

    def evaluate(self, model: Vector) -> dict[str, float]:
        """Return loss and accuracy on the test split, overall and for each class.

        If members hold back validation samples, also `validation_loss` and `validation_accuracy` over all of those.
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

    def score(self, member: int, model: Vector, memory: Memory) -> dict[str, tuple[float, float]]:
        """Return sums and counts for a model with the member's own tensors, on its held-back or own test samples.

        The result is empty if members neither hold anything back nor have tests of their own.
        """
        if (own := self._held_by(member)) is None:
            return {}
        with self._at_work(None) as flat:
            self._load_for_evaluation(flat, model)
            flat.load_local(memory.get("local", flat.initial_local))
            return self._scored(flat, *own).pairs()

    def gradient_norm(self, model: Vector, weights: Sequence[float] | None = None) -> float:
        """Return ‖Σ w_k ∇f_k‖² over all training data (weights by samples unless given), in evaluation mode."""
        counts = np.array([self.samples(member) for member in range(self.members)], np.float64)
        shares = counts / counts.sum() if weights is None else np.asarray(weights, np.float64)
        total = np.zeros(self.spec.n_trainable, np.float64)
        with self._at_work(None) as flat:
            self._load_for_evaluation(flat, model)
            for member, share in enumerate(shares):
                flat.differentiate(self._objective, *flat.placed(self.examples(member)))
                total += share * flat.read_gradient()
        return float(np.dot(total, total))

    def restricted(self, places: Sequence[Indices]) -> TorchTask:
        """Return the same task with only some of each member's samples (places in its own list)."""
        other = copy.copy(self)
        other._places = [own[chosen] for own, chosen in zip(self._places, places, strict=True)]
        return other

    def examples(self, member: int) -> Batch:
        """Return a member's samples as the model takes them, with their targets."""
        return self._cache.get(("train", member), self._train, self._places[member])

    @property
    def pool(self) -> Examples:
        """The split that holds all members' samples."""
        return self._train

    def places(self, member: int) -> Indices:
        """Return the places of a member's samples in `pool`."""
        return self._places[member]

    def on(self, examples: Examples, members: Sequence[Indices]) -> TorchTask:
        """Return the same task on other samples."""
        other = copy.copy(self)
        other._train, other._places = examples, list(members)
        return other

    def tested_on(self, test: Examples) -> TorchTask:
        """Return the same task, tested on other samples."""
        other = copy.copy(self)
        other._test, other._validation, other._tests = test, [], []
        return other

    def held_out(self, count: int) -> TorchTask | None:
        """Return the same task with a single member, whose samples are the first `count` test samples."""
        if self._test is None:
            return None
        return self.on(self._test, [np.arange(min(count, len(self._test)))])

    def sample_losses(self, member: int, model: Vector) -> NDArray[np.float64]:
        """Return the loss of each of a member's samples, in evaluation mode."""
        with self._at_work(None) as flat, torch.no_grad():
            self._load_for_evaluation(flat, model)
            batch = flat.placed(self.examples(member))
            losses = getattr(self._objective, "losses", None)
            if losses is not None:
                return np.asarray(losses(flat.module, *batch).double().cpu().numpy())
            return np.array([self._objective.loss(flat.module, *sample).item() for sample in _one_by_one(batch)])

    def sample_gradients(self, member: int, model: Vector) -> Vector:
        """Return the gradient of each of a member's samples (samples × trainable), in evaluation mode."""
        with self._at_work(None) as flat:
            self._load_for_evaluation(flat, model)
            batch = flat.placed(self.examples(member))
            gradients = np.empty((count_of(batch), flat.spec.n_trainable), np.float32)
            place = 0
            for rows in single_gradients(flat, self._objective, batch):
                gradients[place : place + len(rows)] = rows.cpu().numpy()
                place += len(rows)
        return gradients

    def _descend(
        self, flat: FlatModule, model: Vector, samples: MemberSamples, memory: Memory, seed: Seed
    ) -> tuple[Vector, float, float]:
        steps = round_steps(flat, self.work, *self._states(flat, memory), self._steps(len(samples)))
        losses, noise = list[float](), self._noise_seed(seed, model)
        for number, part in enumerate(self._batches(samples, seed)):
            if losses:
                steps.apply()
            losses.append(self._gradient(flat, self._objective, flat.placed(part), noise, number))
            self._correct(flat, model, memory)
        update = np.empty_like(model)
        steps.finish(model, update)
        return update, self._optimizer.effective_steps(len(losses)), sum(losses) / len(losses)

    def corrected(self, correction: Correction) -> Self:
        """Return the same task with this correction of every local gradient; one that it has is not added twice."""
        if correction in self._corrections:
            return self
        if self.work.send != "delta":
            raise ConfigError(
                f"local.send is {self.work.send!r}: there are no local steps to correct",
                fix="use delta",
                key="local.send",
            )
        task = copy.copy(self)
        task._corrections = (*self._corrections, correction)
        return task

    def _correct(self, flat: FlatModule, start: Vector, memory: Memory) -> None:
        """Apply the corrections, in place, to the gradient that was computed last."""
        n = flat.spec.n_trainable
        for correct in self._corrections:
            if flat.on_host:
                correct(flat.gradient, flat.trainable, start[:n], memory)
            else:
                there = {name: torch.from_numpy(value).to(flat.device) for name, value in memory.items()}
                begun = torch.from_numpy(start[:n].copy()).to(flat.device)
                correct(flat.flat_gradient[:n], flat.flat[:n], begun, there)

    def _states(self, flat: FlatModule, memory: Memory) -> tuple[Memory, Memory]:
        """Return the optimizer's state for shared and for personal values: what the member kept, or a fresh one."""
        if not self.work.keep_state:
            return self._optimizer.init(flat.spec.n_trainable), self._optimizer.init(flat.n_personal)
        own = {name.removeprefix(_OWN): value for name, value in memory.items() if name.startswith(_OWN)}
        return memory, own

    def _noise_seed(self, seed: Seed, model: Vector) -> Seed:
        """Return the seed of the noise in local steps, which depends on the round and the model it began with.

        A round repeated from another model must not reuse the noise: the difference would reveal both.
        """
        return seed.for_values(model) if self.sample_noise else seed

    def _batches(self, samples: MemberSamples, seed: Seed) -> Iterator[Batch]:
        count, size = len(samples), self.work.batch
        if size == "full" or size >= count:
            yield from (samples.at(None) for _ in range(self._steps(count)))
            return
        epoch, start, order = 0, count, torch.empty(0)
        for _ in range(self._steps(count)):
            if start >= count:
                order = torch.from_numpy(seed.child("epoch", epoch).permutation(count))
                epoch, start = epoch + 1, 0
            places = order[start : start + size]
            start += size
            yield samples.at(places)

    def _steps(self, count: int) -> int:
        """Return how many steps a member with `count` samples takes in a round."""
        size = self.work.batch
        return self.work.steps or self.work.epochs * (1 if size == "full" or size >= count else -(-count // size))

    def _estimate(
        self, flat: FlatModule, model: Vector, samples: MemberSamples, memory: Memory, seed: Seed
    ) -> tuple[Vector, float, float]:
        n, noise = flat.spec.n_trainable, self._noise_seed(seed, model)

        def oracle(point: Vector, places: Indices | None) -> tuple[Vector, float]:
            flat.load_trainable(point)
            loss = self._gradient(flat, self._objective, flat.placed(samples.at(places)), noise, 0)
            return flat.read_gradient().copy(), loss

        estimate, loss = self._estimator.estimate(oracle, model[:n], len(samples), memory, seed)
        return np.concatenate([estimate, model[n:] - flat.read()[n:]]), 1.0, loss

    def _scores(self, flat: FlatModule, name: str, examples: Examples, *, by_class: bool) -> dict[str, float]:
        score = self._scored(flat, name, examples)
        return score.means() | (score.by_class() if by_class else {})

    def _scored(self, flat: FlatModule, name: str, examples: Examples) -> Score:
        with torch.inference_mode():
            parts = [
                self._objective.score(flat.module, *flat.placed(self._cache.get((name, start), examples, places)))
                for start, places in batches_of(examples, self._evaluation_batch)
            ]
        return functools.reduce(operator.add, parts)

    def _load_for_evaluation(self, flat: FlatModule, model: Vector) -> None:
        flat.load(as_vector(model, self.spec.n, what="model"))
        flat.load_local(flat.initial_local)
        flat.evaluate()

    def _at_work(self, seed: Seed | None) -> _AtWork:
        """Lend out the process's only network, with one thread and torch's generator under `seed` (for dropout)."""
        return _AtWork(self._module(), seed)

    def _module(self) -> FlatModule:
        if self._flat is None:
            device = device_of(self.work.device)
            make_repeatable(device)
            with _LOCK:
                self._flat = FlatModule(
                    self._built(public_root(0)),
                    buffers=self.work.buffers,
                    keep=self.work.keep,
                    device=device,
                    precision=self.work.precision,
                )
        return self._flat

    def _built(self, seed: Seed) -> torch.nn.Module:
        before = torch.get_rng_state()
        torch.default_generator.manual_seed(_number(seed.child("weights")))
        try:
            model = self._factory()
        finally:
            torch.set_rng_state(before)
        return require_module(model)


class _AtWork:
    """Holds the process's only network; a class, because entering a generator for every gradient shows in the time."""

    __slots__ = ("_device_generator", "_flat", "_generator", "_seed", "_thread")

    def __init__(self, flat: FlatModule, seed: Seed | None) -> None:
        self._flat, self._seed = flat, seed

    def __enter__(self) -> FlatModule:
        _LOCK.acquire()
        self._thread = one_thread()
        self._thread.__enter__()
        if self._seed is not None:
            self._generator = torch.get_rng_state()
            torch.default_generator.manual_seed(_number(self._seed.child("torch")))
            if not self._flat.on_host:
                device = getattr(torch, self._flat.device.type)
                self._device_generator = device.get_rng_state()
                device.manual_seed(_number(self._seed.child("torch")))
        return self._flat

    def __exit__(self, *error: object) -> None:
        if self._seed is not None:
            torch.set_rng_state(self._generator)
            if not self._flat.on_host:
                getattr(torch, self._flat.device.type).set_rng_state(self._device_generator)
        self._thread.__exit__(None, None, None)
        _LOCK.release()


def _one_by_one(batch: Batch) -> Iterator[Batch]:
    for place in range(count_of(batch)):
        inputs, targets = (mapped(part, operator.itemgetter(slice(place, place + 1))) for part in batch)
        yield inputs, targets


def _number(seed: Seed) -> int:
    # The key is already random; drawing a word from it would cost more than the step's arithmetic.
    return int.from_bytes(seed.key[:8], "little")
