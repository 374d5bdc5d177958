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
from eris.simulate.task_facts import TaskFacts
from eris.simulate.work import Job, Work

__all__ = ["Engine", "Pending", "ReadState"]

ReadState = Callable[[int], Vector | None]
"""Returns a member's stored state, which is not to be changed; None before its first round."""

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

    def train(self, jobs: Sequence[Job], read: ReadState) -> Iterator[Work]:
        """Begin the jobs; give their results in order. Arrays of one are valid until the next is asked for."""
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
