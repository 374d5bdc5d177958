"""The engine for clusters: the same jobs, done by Ray actors.

Ray moves the vectors; the members' states stay here and travel with their jobs, so that a job can be done anywhere.
Results are handed on in the order of the jobs, so the digest is that of the local engine.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from eris.compose import Composition, compose, initial_seed
from eris.config import load_config
from eris.errors import ErisError, MissingExtra
from eris.local.spec import Vector
from eris.local.task import Task
from eris.protocol.replica import Replica
from eris.simulate.engine import Pending, ReadState
from eris.simulate.memory import peak_memory
from eris.simulate.task_facts import TaskFacts, check_cohorts, evaluate, facts_of
from eris.simulate.user_code import failure
from eris.simulate.work import Job, Work, do_jobs, in_cohorts
from eris.simulate.worker_process import TaskSource
from eris.transforms import State

__all__ = ["RayEngine"]

_AHEAD = 2  # jobs that wait at an actor, so that it need not wait for us


class _Actor:
    """What runs on the cluster: one task, one model copy."""

    def __init__(self, factory: str, arguments: dict[str, Any], path: list[str]) -> None:
        sys.path.extend(entry for entry in path if entry not in sys.path)
        module, _, name = factory.partition(":")
        self._task: Task = getattr(importlib.import_module(module), name)(**arguments)
        self._composition: Composition | None = None

    def facts(self) -> dict[str, Any]:
        return facts_of(self._task).to_dict()

    def initial(self, seed: int) -> Vector:
        return self._task.initial(initial_seed(seed))

    def begin(self, config: dict[str, Any], samples: list[int]) -> None:
        self._composition = compose(load_config(config), self._task.spec, samples)
        check_cohorts(self._task, self._composition.config)

    def train(self, cohort: list[Job], model: Vector, public: State, states: list[Vector | None]) -> list[Work]:
        assert self._composition is not None
        recipe, config = self._composition.recipe, self._composition.config
        own = [None if state is None else state.copy() for state in states]  # what Ray hands out cannot be changed
        return do_jobs(cohort, self._task, recipe, config.seed, model, public, own, cohort=config.local.cohort)

    def evaluate(self, model: Vector) -> dict[str, Any]:
        assert self._composition is not None
        return evaluate(self._task, model, self._composition.config)

    def peak_memory(self) -> int:
        return peak_memory()


class RayEngine:
    """Do jobs in Ray actors; `address` names a cluster, empty: one is started on this machine."""

    def __init__(self, source: TaskSource, workers: int, address: str = "") -> None:
        self._ray = _imported_ray()
        self._started = not self._ray.is_initialized()
        if self._started:
            _start(self._ray, workers, address)
        remote = self._ray.remote(num_cpus=1)(_Actor)
        self._actors = [remote.remote(source.factory, source.arguments, sys.path) for _ in range(workers)]
        try:
            self.facts = TaskFacts.from_dict(self._get(self._actors[0].facts.remote()))
        except BaseException:
            self.close()
            raise
        self._model: Any = None
        self._public: Any = None
        self._turn, self._cohort = 0, 1

    def initial(self, seed: int) -> Vector:
        """Return x⁰, from the first actor."""
        vector: Vector = self._get(self._actors[0].initial.remote(seed)).copy()
        return vector

    def begin(self, composition: Composition) -> None:
        """Tell every actor the recipe."""
        self._cohort = composition.config.local.cohort
        config = composition.config.model_dump(mode="json", exclude_none=True)
        self._get([actor.begin.remote(config, self.facts.samples.tolist()) for actor in self._actors])

    def publish(self, replica: Replica) -> None:
        """Put model and public state where all actors can read them."""
        self._model, self._public = self._ray.put(replica.model), self._ray.put(replica.public)

    def train(self, jobs: Sequence[Job], read: ReadState) -> Iterator[Work]:
        """Keep every actor busy with a few jobs; yield results in the order of the jobs."""
        cohorts = in_cohorts(jobs, self._cohort, self.facts.samples.item)
        waiting, running = deque(cohorts), deque[Any]()
        while waiting or running:
            while waiting and len(running) < _AHEAD * len(self._actors):
                cohort = waiting.popleft()
                states = [read(job.member) for job in cohort]
                running.append(self._next_actor().train.remote(list(cohort), self._model, self._public, states))
            yield from self._get(running.popleft())

    def evaluate(self) -> Pending:
        """Evaluate the published model on some actor."""
        reference = self._next_actor().evaluate.remote(self._model)
        return lambda: self._get(reference)

    def peak_memory(self) -> int:
        """Return the largest resident sizes of this process and all actors, added up."""
        theirs: list[int] = self._get([actor.peak_memory.remote() for actor in self._actors])
        return peak_memory() + sum(theirs)

    def close(self) -> None:
        """End the actors, and Ray itself if we started it."""
        for actor in self._actors:
            self._ray.kill(actor)
        if self._started:
            self._ray.shutdown()

    def _next_actor(self) -> Any:
        self._turn = (self._turn + 1) % len(self._actors)
        return self._actors[self._turn]

    def _get(self, reference: Any) -> Any:
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.OutOfMemoryError as error:
            raise MemoryError(f"Ray ended an actor: {error}") from error
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, ErisError | MemoryError):
                raise error.cause from error
            raise failure("an actor", error.cause) from error


def _imported_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing leaves the machine
    try:
        import ray
    except ImportError as error:
        raise MissingExtra("ray", "ray", "engine = 'ray'") from error
    return ray


def _start(ray: Any, workers: int, address: str) -> None:
    if address:
        ray.init(address=address, log_to_driver=False)
    else:
        ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, configure_logging=False)
