"""What an attacker knows of one member's update in one round, ready to be inverted.

A sight holds the coordinates that were seen, the member's values there with everything known about their way undone
(`eris.audit.reconstruct`), the public model before the round, and how the member trained. Coordinates that were not
seen are not in it: an attack cannot use them by mistake.

>>> sight = Sight(np.zeros(6, np.float32), np.array([1, 4]), np.array([0.5, -0.5], np.float32), LocalSteps(lr=0.1))
>>> sight.share(6), sight.gradient.tolist()
(0.3333333333333333, [5.0, -5.0])
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from eris.audit.inversion.rounding import Rounding
from eris.errors import InputError
from eris.local.spec import Vector
from eris.seeds import Seed
from eris.shards.plan import Coordinates

__all__ = ["Handling", "LocalSteps", "Sight"]


@dataclass(frozen=True, slots=True)
class LocalSteps:
    """How a member trains in a round, which every peer knows: plain gradient steps from the public model.

    A member that sends a gradient instead of a difference of models makes one step with lr = 1.
    """

    lr: float = 1.0
    steps: int = 1
    samples: int = 1  # of the member
    batch: int = 1  # samples in a step; with fewer than `samples` the steps go through them in turn
    momentum: float = 0.0


@dataclass(frozen=True, slots=True)
class Handling:
    """What was done to the update that cannot be undone, but can be done to a candidate's as well, or allowed for."""

    clip: float = 0.0  # ℓ2 bound of the update; 0: none
    sample_clip: float = 0.0  # ℓ2 bound of every sample's gradient (DP-SGD); 0: none
    noise: float = 0.0  # standard deviation of the noise on each value of the update; 0: none


@dataclass(frozen=True, eq=False)
class Sight:
    """The member's update on the coordinates that were seen, and what is public."""

    model: Vector = field(repr=False)  # x^t, the whole flat vector in spec order
    seen: Coordinates = field(repr=False)  # places among the trainable coordinates, ascending
    values: Vector = field(repr=False)  # the update x^t − x_k there
    local: LocalSteps = LocalSteps()
    handling: Handling = Handling()
    rounding: Rounding | None = None  # of the values, if they were rounded to a grid before they were sent

    def __post_init__(self) -> None:
        if self.seen.shape != self.values.shape or self.seen.ndim != 1:
            raise InputError(f"{self.seen.shape} coordinates with {self.values.shape} values")
        if self.seen.size and (np.diff(self.seen) <= 0).any():
            raise InputError("the coordinates of a sight are not ascending", fix="sort them with their values")
        if self.rounding is not None and self.rounding.units.shape != self.values.shape:
            raise InputError(f"{self.rounding.units.shape} units with {self.values.shape} values")

    @property
    def gradient(self) -> Vector:
        """The mean gradient over the member's steps, where it was seen."""
        return self.values / np.float32(self.local.lr * self.local.steps)

    def share(self, n: int) -> float:
        """Return the share of n coordinates that was seen."""
        return self.seen.size / n

    def filled(self, n: int) -> Vector:
        """Return the update with zeros where nothing was seen: what the published attacks match."""
        whole = np.zeros(n, np.float32)
        whole[self.seen] = self.values
        return whole

    def randomised(self, seed: Seed) -> Sight:
        """Return the same sight with values that say nothing, as long as the true ones: the attack's chance level."""
        noise = seed.generator().standard_normal(self.values.size)
        noise *= np.linalg.norm(self.values.astype(np.float64)) / np.linalg.norm(noise)
        return replace(self, values=noise.astype(np.float32))
