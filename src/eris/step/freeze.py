"""A step that leaves some coordinates alone: those of lost shards.

Nothing was published for them, so model and state stay exactly as they are, momentum included. The step runs over the
whole vector and is undone there, because saving a few values costs less than an extra lookup for every coordinate.
"""

from __future__ import annotations

from eris.local.spec import Vector
from eris.shards.plan import Coordinates
from eris.step.optimizer import ServerOptimizer, State

__all__ = ["apply_except"]


def apply_except(
    optimizer: ServerOptimizer, model: Vector, direction: Vector, state: State, frozen: Coordinates
) -> None:
    """Apply the optimizer in place; on the frozen coordinates, model and state keep their bits."""
    vectors = [model, *state.values()] if frozen.size else []
    saved = [vector[frozen] for vector in vectors]
    optimizer.apply(model, direction, state)
    for vector, before in zip(vectors, saved, strict=True):
        vector[frozen] = before
