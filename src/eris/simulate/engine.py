"""The engine protocol: what does the members' work, in local processes or on a Ray cluster.

An engine holds the task. It is given the recipe for each run (`begin`) and the model for each round (`publish`); then
it does jobs and returns their results in the order of the jobs, whatever order they were done in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from eris.compose import Composition
from eris.local.spec import Vector
from eris.protocol.replica import Replica
from eris.simulate.partial_sum import Total
from eris.simulate.task_facts import TaskFacts
from eris.simulate.work import Job, Work

__all__ = ["Engine", "Pending", "States"]


class States(Protocol):
    """What members remember between rounds."""

    def read(self, member: int) -> Vector | None:
        """Return a member's state, which is not to be changed; None before its first round."""
        ...

    def stamp(self, member: int) -> int:
        """Return the number of that state: 0 before the first, then one more for each committed one from a job."""
        ...


Pending = Callable[[], dict[str, Any]]
"""Returns the metrics of an evaluation, waiting for it if it is still running."""


class Engine(Protocol):
    """Trains and evaluates."""

    @property
    def facts(self) -> TaskFacts:
        """The model's spec and the members' samples."""
        ...

    def initial(self, seed: int) -> Vector:
        """Return x⁰."""
        ...

    def begin(self, composition: Composition) -> None:
        """Get ready for a run of this composition."""
        ...

    def publish(self, replica: Replica) -> None:
        """Set the model and public state that the coming jobs start from."""
        ...

    def train(self, jobs: Sequence[Job], states: States, *, add_up: bool = False) -> Iterator[Work]:
        """Start the jobs and yield their results in order; a result's arrays are valid until the next is fetched.

        `states` is what the members remember; results do not change it. With `add_up`, values that can be added up
        where they are made come from `sums`, after all results.
        """
        ...

    def sums(self) -> Iterator[Total]:
        """Return what was added up, in any number of parts."""
        ...

    def evaluate(self) -> Pending:
        """Start to evaluate the published model."""
        ...

    def peak_memory(self) -> int:
        """Return the sum of all processes' largest resident sizes, in bytes."""
        ...

    def close(self) -> None:
        """Release processes and memory."""
        ...
