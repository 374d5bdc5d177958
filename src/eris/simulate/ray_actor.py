"""The Ray actor: one task, and what its members remember, in a process that Ray started on some node."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cached_property
from importlib import metadata
from typing import Any

from eris.compose import Composition, compose, initial_seed
from eris.config import load_config
from eris.local.spec import Vector
from eris.local.task import Task
from eris.process_facts import peak_memory
from eris.simulate.partial_sum import PartialSum, Total, added
from eris.simulate.task_facts import check_cohorts, evaluate, facts_of
from eris.simulate.work import Job, Work, do_jobs
from eris.simulate.worker_process import TaskSource
from eris.transforms import State

__all__ = ["Lacking", "RayActor"]

_BUDGET = 1 << 30  # bytes of states that an actor holds; it asks again for any others


class Lacking(list[int]):
    """The answer of an actor that no longer has these members' states and needs them with the jobs."""


class RayActor:
    """Answers the engine's requests, one at a time.

    Args:
        factory: the function that builds the task, as package.module:function.
        arguments: what it is called with.
        path: where the engine's process finds modules.
        budget: bytes of states to hold.
    """

    def __init__(self, factory: str, arguments: dict[str, Any], path: list[str], budget: int = _BUDGET) -> None:
        sys.path.extend(entry for entry in path if entry not in sys.path)
        self._source = TaskSource(factory, arguments)
        self._composition: Composition | None = None
        self._sum, self._held = PartialSum(), _Held(budget)

    @cached_property
    def _task(self) -> Task:
        """The task, built when it is first needed, so that a failure is reported as such and not as a dead actor."""
        return self._source.task()

    def facts(self) -> dict[str, Any]:
        """Return what composing needs."""
        return facts_of(self._task).to_dict()

    def about(self) -> tuple[str, str]:
        """Return this node's id and its version of eris, after building the task."""
        import ray

        assert self._task
        return str(ray.get_runtime_context().get_node_id()), metadata.version("eris-fl")

    def initial(self, seed: int) -> Vector:
        """Return x⁰."""
        return self._task.initial(initial_seed(seed))

    def begin(self, config: dict[str, Any], samples: Sequence[int]) -> None:
        """Get ready for a run; forget the one before."""
        self._composition = compose(load_config(config), self._task.spec, samples)
        check_cohorts(self._task, self._composition.config)
        self._sum = PartialSum()
        self._held.clear()

    def train(
        self,
        cohort: list[Job],
        model: Vector,
        public: State,
        states: Sequence[Vector | None],
        stamps: Sequence[int] = (),
        *,
        add_up: bool = False,
    ) -> list[Work] | Lacking:
        """Do the jobs of one cohort.

        Args:
            cohort: the jobs.
            model: the model they start from.
            public: the public state.
            states: one for each job; None if there is none yet, or this actor has it from a job it did before.
            stamps: the numbers of those states; 0: none yet.
            add_up: keep the values and return them later as one sum.
        """
        assert self._composition is not None
        recipe, config = self._composition.recipe, self._composition.config
        stamps = stamps or [0] * len(cohort)
        own = [
            self._held.get(job.member, stamp) if state is None and stamp else state
            for job, state, stamp in zip(cohort, states, stamps, strict=True)
        ]
        if lacking := [
            job.member for job, have, stamp in zip(cohort, own, stamps, strict=True) if stamp and have is None
        ]:
            return Lacking(lacking)
        begun = [None if state is None else state.copy() for state in own]  # arrays from Ray are read-only
        works = do_jobs(cohort, self._task, recipe, config.seed, model, public, begun, cohort=config.local.cohort)
        for work, before, stamp in zip(works, own, stamps, strict=True):
            self._held.put(work.job.member, {stamp: before, stamp + 1: work.state})
        return [self._sum.take(work) for work in works] if add_up else works

    def total(self) -> Total | None:
        """Return the sum so far, and start over."""
        return self._sum.hand_over()

    def added(self, *totals: Total | None) -> Total | None:
        """Add up the sums of one node's actors, so that one vector leaves the node."""
        there = [total for total in totals if total is not None]
        return added(there) if there else None

    def evaluate(self, model: Vector) -> dict[str, Any]:
        """Return a model's metrics."""
        assert self._composition is not None
        return evaluate(self._task, model, self._composition.config)

    def peak_memory(self) -> int:
        """Return this process's largest resident size."""
        return peak_memory()


class _Held:
    """Each member's last two states, by stamp: what a job began with, in case it is repeated, and its result."""

    def __init__(self, budget: int) -> None:
        self._budget, self._bytes = budget, 0
        self._states: dict[int, dict[int, Vector]] = {}  # members in the order of their last jobs

    def get(self, member: int, stamp: int) -> Vector | None:
        return self._states.get(member, {}).get(stamp)

    def put(self, member: int, states: dict[int, Vector | None]) -> None:
        self._drop(member)
        kept = {stamp: state.copy() for stamp, state in states.items() if state is not None and state.size}
        if not kept:
            return
        self._states[member] = kept
        self._bytes += sum(state.nbytes for state in kept.values())
        while self._bytes > self._budget:
            self._drop(next(iter(self._states)))

    def clear(self) -> None:
        self._states.clear()
        self._bytes = 0

    def _drop(self, member: int) -> None:
        self._bytes -= sum(state.nbytes for state in self._states.pop(member, {}).values())
