"""FedNova: divide each update by the member's local steps, multiply the mean by the mean number of steps.

Members that train longer otherwise pull the model to their own optimum. Only the scalars τ_k travel beside the shards,
and every aggregator sees them.
"""

from __future__ import annotations

import math

import numpy as np

from eris.errors import InputError
from eris.local.spec import Vector
from eris.transforms.transform import MeanStretch, SendContext, Transform

__all__ = ["NormaliseSteps", "normalise_steps"]


class NormaliseSteps(Transform):
    """Send Δ_k/τ_k; step by τ_eff · Σ w_k Δ_k/τ_k with τ_eff = Σ w_k τ_k."""

    needs_steps = only_sums = True

    def __repr__(self) -> str:
        return "normalise_steps()"

    def outgoing(self, update: Vector, context: SendContext) -> Vector:
        """Divide by τ_k."""
        if not (math.isfinite(context.steps) and context.steps > 0):
            raise InputError(
                f"the number of local steps is {context.steps}",
                fix="return steps > 0 from train()",
                peer=context.member,
                round=context.round,
            )
        return update / np.float32(context.steps)

    def incoming(self, direction: Vector, mean: MeanStretch) -> None:
        """Multiply by τ_eff."""
        direction *= mean.steps


def normalise_steps() -> NormaliseSteps:
    """Divide the update by the member's local steps, multiply the mean by their mean (FedNova)."""
    return NormaliseSteps()
