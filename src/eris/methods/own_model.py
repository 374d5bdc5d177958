"""A member trains from a model of its own, not from the published one."""

from __future__ import annotations

import numpy as np

from eris.local.spec import Vector
from eris.transforms import State, Transform

__all__ = ["OwnModel", "own_model"]


class OwnModel(Transform):
    """Keep the model in the member's private state; a new epoch begins with the one that everybody knows."""

    def __repr__(self) -> str:
        return "own_model()"

    def private_state(self, n: int) -> State:
        """Return a place for the model."""
        return {"model": np.zeros(n, np.float32)}

    def public_state(self, n: int) -> State:
        """Return a place for the model that all begin with."""
        return {"model": np.zeros(n, np.float32)}

    def start(self, model: Vector, private: State) -> None:
        """Train from the member's own model."""
        np.copyto(model, private["model"])

    def new_epoch(self, private: State, public: State) -> None:
        """Begin with what all begin with."""
        np.copyto(private["model"], public["model"])


def own_model() -> OwnModel:
    """Train from a model of one's own."""
    return OwnModel()
