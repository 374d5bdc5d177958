"""A step that leaves some coordinates alone: those of lost shards.

On them nothing was published, so model and state stay exactly as they are, momentum included. The step runs over the
whole vector and is undone there, because a few saved values cost less than a detour for every coordinate.
"""

from __future__ import annotations

from eris.local.spec import Vector
from eris.shards.plan import Coordinates
from eris.step.optimizer import ServerOptimizer, State

__all__ = ["apply_except"]


def apply_except(
    optimizer: ServerOptimizer, model: Vector, direction: Vector, state: State, frozen: Coordinates
) -> None:
    """Apply the optimizer in place; model and every state vector keep their bits on the frozen coordinates."""
    vectors = [model, *state.values()] if frozen.size else []
    saved = [vector[frozen] for vector in vectors]
    optimizer.apply(model, direction, state)
    for vector, before in zip(vectors, saved, strict=True):
        vector[frozen] = before
