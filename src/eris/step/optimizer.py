"""The contract of a server optimizer."""

from __future__ import annotations

from typing import Protocol

from eris.local.spec import Vector

__all__ = ["ServerOptimizer", "State"]

State = dict[str, Vector]


class ServerOptimizer(Protocol):
    """Moves the model along a direction u (a pseudo-gradient: x ← x − η·f(u)); coordinate by coordinate."""

    @property
    def name(self) -> str:
        """The name used in configurations."""
        ...

    def init(self, n: int) -> State:
        """Return the initial state for n coordinates; every entry is a vector of n."""
        ...

    def apply(self, model: Vector, direction: Vector, state: State) -> None:
        """Move model and state in place, in correctly rounded elementwise operations only."""
        ...
