"""Norm clipping of the whole update at the member."""

from __future__ import annotations

import math

import numpy as np

from eris.errors import ConfigError
from eris.local.spec import Vector
from eris.transforms.transform import SendContext, State, Transform

__all__ = ["ClipByNorm", "clip_by_norm", "norm"]


def norm(vector: Vector) -> float:
    """Return the ℓ2 norm, squared and summed in float64 (a float32 square would overflow at 10¹⁹)."""
    wide = vector.astype(np.float64)
    return math.sqrt(float(np.dot(wide, wide)))


class ClipByNorm(Transform):
    """Scale the update down to ℓ2 norm C if it is longer."""

    def __init__(self, bound: float) -> None:
        if not (math.isfinite(bound) and bound > 0):
            raise ConfigError(f"clipping bound is {bound}", fix="use a finite bound > 0")
        self.bound = bound

    def __repr__(self) -> str:
        return f"clip_by_norm({self.bound})"

    def outgoing(self, update: Vector, private: State, public: State, context: SendContext) -> Vector:
        """Return the update with norm at most C."""
        del private, public, context
        length = norm(update)
        return update if length <= self.bound else update * np.float32(self.bound / length)


def clip_by_norm(bound: float) -> ClipByNorm:
    """Scale the update down to ℓ2 norm `bound` if it is longer."""
    return ClipByNorm(bound)
