"""A member trains from its own model, not from the published one."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from eris.local.spec import Vector
from eris.methods.method import MethodOptions
from eris.transforms import State, Transform

__all__ = ["OwnModel", "OwnModelOptions", "own_model"]


class OwnModelOptions(MethodOptions):
    """The options shared by all methods in which members have their own models."""

    start: Literal["same", "own"] = Field(
        default="same", description="members begin with the same model, or each with its own: same, own"
    )


class OwnModel(Transform):
    """Keep the model in the member's private state; a new epoch begins with the one that everybody knows."""

    def __repr__(self) -> str:
        return "own_model()"

    def private_state(self, n: int) -> State:
        """Return a place for the model."""
        return {"model": np.zeros(n, np.float32)}

    def public_state(self, n: int) -> State:
        """Return a place for the model that everybody starts from."""
        return {"model": np.zeros(n, np.float32)}

    def start(self, model: Vector, private: State) -> None:
        """Train from the member's own model."""
        np.copyto(model, private["model"])

    def new_epoch(self, private: State, public: State) -> None:
        """Start again from the model that everybody starts from."""
        np.copyto(private["model"], public["model"])


def own_model() -> OwnModel:
    """Train from the member's own model."""
    return OwnModel()
