"""The engine without worker processes: everything runs in this process, one member after another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eris.compose import Composition, initial_seed
from eris.local.spec import Vector
from eris.local.task import Task
from eris.process_facts import peak_memory
from eris.protocol.replica import Replica
from eris.simulate.engine import Pending, States
from eris.simulate.partial_sum import PartialSum, Total
from eris.simulate.task_facts import check_cohorts, evaluate, facts_of
from eris.simulate.work import Job, Work, do_jobs, in_cohorts

__all__ = ["InlineEngine"]


class InlineEngine:
    """Does every job in this process."""

    def __init__(self, task: Task) -> None:
        self.task, self.facts = task, facts_of(task)
        self._composition: Composition | None = None
        self._replica: Replica | None = None
        self._sum = PartialSum()

    def initial(self, seed: int) -> Vector:
        """Return x⁰."""
        return self.task.initial(initial_seed(seed))

    def begin(self, composition: Composition) -> None:
        """Get ready for a run of this composition."""
        check_cohorts(self.task, composition.config)
        self._composition, self._sum = composition, PartialSum()

    def publish(self, replica: Replica) -> None:
        """Set the model and public state that the coming jobs start from."""
        self._replica = replica

    def train(self, jobs: Sequence[Job], states: States, *, add_up: bool = False) -> Iterator[Work]:
        """Do the jobs one after another."""
        assert self._composition is not None
        assert self._replica is not None
        recipe, config, replica = self._composition.recipe, self._composition.config, self._replica
        size, model, public = config.local.cohort, replica.model, replica.public
        for cohort in in_cohorts(jobs, size, self.task.samples):
            own = [None if (state := states.read(job.member)) is None else state.copy() for job in cohort]
            works = do_jobs(cohort, self.task, recipe, config.seed, model, public, own, cohort=size)
            yield from map(self._sum.take, works) if add_up else works

    def sums(self) -> Iterator[Total]:
        """Return the one sum there is."""
        if (total := self._sum.hand_over()) is not None:
            yield total

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
        """Do nothing: there is nothing to release."""
