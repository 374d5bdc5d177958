"""Gaussian noise on the update: differential privacy for a member as a whole, whoever the aggregators are.

A member's update is clipped to norm C, so that replacing all of its data moves it by at most 2C (replacement
adjacency). Noise of standard deviation σ·2C then gives what `accountant` computes for the multiplier σ. It is drawn in
float64 from the member's private seed, added, and rounded once.

Not covered: floating point. Rounded Gaussian noise has gaps in its low bits that a determined observer might use.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from eris.errors import ConfigError
from eris.local.spec import Vector
from eris.privacy.accountant import Accountant, Epsilon
from eris.transforms.capabilities import BoundsNorm
from eris.transforms.chain import Chain
from eris.transforms.transform import SendContext, Transform

__all__ = ["GaussianNoise", "gaussian_noise", "noise_of"]

_BLOCK = 1 << 16


class GaussianNoise(Transform):
    """Add noise of standard deviation σ·2C to an update of norm at most C."""

    def __init__(self, multiplier: float, bound: float) -> None:
        if not (math.isfinite(multiplier) and multiplier > 0):
            raise ConfigError(f"noise multiplier is {multiplier}", fix="use a finite number > 0, or no noise at all")
        if not (math.isfinite(bound) and bound > 0):
            raise ConfigError(f"the norm bound of the noise is {bound}", fix="use the bound of clip_by_norm")
        self.multiplier, self.bound = multiplier, bound

    def __repr__(self) -> str:
        return f"gaussian_noise({self.multiplier}, bound={self.bound})"

    @property
    def sensitivity(self) -> float:
        """2C: how far replacing a member's data can move its clipped update."""
        return 2 * self.bound

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise on every coordinate."""
        return self.multiplier * self.sensitivity

    def check(self, before: Sequence[Transform]) -> None:
        """Refuse to add noise to an update of unknown norm."""
        known: float | None = None
        for transform in before:
            known = transform.norm_bound(known) if isinstance(transform, BoundsNorm) else None
        if known is None or known > self.bound:
            raise ConfigError(
                f"{self!r} adds noise to an update whose norm is {'unbounded' if known is None else f'up to {known}'}",
                fix=f"put clip_by_norm({self.bound}) right before it",
            )

    def outgoing(self, update: Vector, context: SendContext) -> Vector:
        """Add the noise of this member, round and update."""
        generator = context.private.require_private("noise").child("noise").for_values(update).generator()
        noisy = np.empty_like(update)
        for first in range(0, update.size, _BLOCK):
            values = update[first : first + _BLOCK]
            noise = generator.standard_normal(values.size)
            noise *= self.deviation
            noise += values
            noisy[first : first + _BLOCK] = noise
        return noisy

    def spent(self, rounds: int, delta: float) -> Epsilon:
        """Return what a member has spent after sending an update in `rounds` rounds."""
        return Accountant.of(self.multiplier, rounds, unit="member", adjacency="replacement").epsilon(delta)


def gaussian_noise(multiplier: float, bound: float) -> GaussianNoise:
    """Add noise of standard deviation `multiplier`·2·`bound`; put clip_by_norm(`bound`) before it."""
    return GaussianNoise(multiplier, bound)


def noise_of(chain: Chain) -> GaussianNoise | None:
    """Return the noise of a chain, if it has any: what its ε is computed from."""
    return next((transform for transform in chain.transforms if isinstance(transform, GaussianNoise)), None)
