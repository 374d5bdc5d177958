"""The engine without processes: everything happens here, one member after another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eris.compose import Composition, initial_seed
from eris.local.spec import Vector
from eris.local.task import Task
from eris.protocol.replica import Replica
from eris.simulate.engine import Pending, ReadState
from eris.simulate.memory import peak_memory
from eris.simulate.task_facts import check_cohorts, evaluate, facts_of
from eris.simulate.work import Job, Work, do_jobs, in_cohorts

__all__ = ["InlineEngine"]


class InlineEngine:
    """Do every job in this process."""

    def __init__(self, task: Task) -> None:
        self.task, self.facts = task, facts_of(task)
        self._composition: Composition | None = None
        self._replica: Replica | None = None

    def initial(self, seed: int) -> Vector:
        """Return x⁰."""
        return self.task.initial(initial_seed(seed))

    def begin(self, composition: Composition) -> None:
        """Get ready for a run of this composition."""
        check_cohorts(self.task, composition.config)
        self._composition = composition

    def publish(self, replica: Replica) -> None:
        """Show the model and public state that the coming jobs start from."""
        self._replica = replica

    def train(self, jobs: Sequence[Job], read: ReadState) -> Iterator[Work]:
        """Do the jobs one after another."""
        assert self._composition is not None
        assert self._replica is not None
        recipe, config, replica = self._composition.recipe, self._composition.config, self._replica
        size, model, public = config.local.cohort, replica.model, replica.public
        for cohort in in_cohorts(jobs, size, self.task.samples):
            states = [None if (state := read(job.member)) is None else state.copy() for job in cohort]
            yield from do_jobs(cohort, self.task, recipe, config.seed, model, public, states, cohort=size)

    def evaluate(self) -> Pending:
        """Evaluate the published model at once."""
        assert self._composition is not None
        assert self._replica is not None
        metrics = evaluate(self.task, self._replica.model, self._composition.config)
        return lambda: metrics

    def peak_memory(self) -> int:
        """Return this process's largest resident size."""
        return peak_memory()

    def close(self) -> None:
        """There is nothing to let go of."""
