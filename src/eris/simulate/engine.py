"""What does the members' work: the protocol that local processes and a Ray cluster fulfil alike.

An engine holds the task. For each run it is told the recipe (`begin`), for each round the model (`publish`); then it
does jobs and gives back their results in the order asked for, whatever order they were done in.
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
        """Return which of its states that is: 0 before the first, and one more for each that a job gave and counted."""
        ...


Pending = Callable[[], dict[str, Any]]
"""Returns the metrics of an evaluation that may still be going on."""


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
        """Show the model and public state that the coming jobs start from."""
        ...

    def train(self, jobs: Sequence[Job], states: States, *, add_up: bool = False) -> Iterator[Work]:
        """Begin the jobs; give their results in order. Arrays of one are valid until the next is asked for.

        With `add_up` values that can be added up where they are made come with `sums`, when all results were given.
        """
        ...

    def sums(self) -> Iterator[Total]:
        """Return what was added up, in any number of parts."""
        ...

    def evaluate(self) -> Pending:
        """Begin to evaluate the published model."""
        ...

    def peak_memory(self) -> int:
        """Return the largest resident sizes of all processes together, in bytes."""
        ...

    def close(self) -> None:
        """Let go of processes and memory."""
        ...
