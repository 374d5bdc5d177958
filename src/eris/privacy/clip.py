"""Norm clipping of the whole update at the member."""

from __future__ import annotations

import math

import numpy as np

from eris.errors import ConfigError, InputError
from eris.local.spec import Vector
from eris.transforms.norm import norm
from eris.transforms.transform import SendContext, Transform

__all__ = ["ClipByNorm", "clip_by_norm"]

_MARGIN = 1 - 2.0**-22  # every product is rounded once: a hair less, and the norm really is at most C


class ClipByNorm(Transform):
    """Scale the update down to ℓ2 norm C if it is longer."""

    only_sums = True

    def __init__(self, bound: float) -> None:
        if not (math.isfinite(bound) and bound > 0):
            raise ConfigError(f"clipping bound is {bound}", fix="use a finite bound > 0")
        self.bound = bound

    def __repr__(self) -> str:
        return f"clip_by_norm({self.bound})"

    def norm_bound(self, before: float | None) -> float:
        """Return C."""
        return self.bound if before is None else min(self.bound, before)

    def outgoing(self, update: Vector, context: SendContext) -> Vector:
        """Return the update with norm at most C."""
        length = norm(update)
        if not math.isfinite(length):
            raise InputError(
                "the update is not finite and cannot be clipped",
                fix="lower the learning rate and, if there is any, the noise; or look for a division by zero",
                peer=context.member,
                round=context.round,
            )
        if length <= self.bound:
            return update
        # Round towards zero: a factor near 10⁻³⁸ has few digits, and rounding up could double it.
        factor = np.nextafter(np.float32(_MARGIN * self.bound / length), np.float32(0))
        return np.multiply(update, factor)


def clip_by_norm(bound: float) -> ClipByNorm:
    """Scale the update down to ℓ2 norm `bound` if it is longer."""
    return ClipByNorm(bound)
