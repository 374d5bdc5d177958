"""What an attacker knows of one member's update in one round, ready to be inverted.

An observation holds the coordinates that were seen, the member's values there with all known transforms undone
(`eris.audit.estimate`), the public model before the round, and how the member trained. Unseen coordinates are not in
it, so an attack cannot use them by mistake.

Updates may have been rounded to a grid before they were sent. Its spacing travels with the values and can be read from
them, as all are multiples of it. If rounded to the nearest, the true value lies within half a unit, and any candidate
in that range explains what was seen perfectly. If rounded at random, the mean is right and the noise is proportional to
the unit, so tensors with a fine grid count for more.

>>> values = np.array([0.5, -0.5], np.float32)
>>> observation = UpdateObservation(np.zeros(6, np.float32), np.array([1, 4]), values, LocalSteps(lr=0.1))
>>> observation.share(6), observation.gradient.tolist()
(0.3333333333333333, [5.0, -5.0])
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from eris.errors import InputError
from eris.local.spec import ModelSpec, Vector
from eris.seeds import Seed
from eris.shards.plan import Coordinates
from eris.transforms import Compressor
from eris.transforms.quantize import Quantizer

__all__ = ["Handling", "LocalSteps", "Rounding", "UpdateObservation", "grid_of", "rounding_of"]

_FIRST = 64  # multiples of a grid's spacing that are tried for the smallest value
_ALIKE = 1e-2  # of a unit


@dataclass(frozen=True, slots=True)
class LocalSteps:
    """How a member trains in a round: plain gradient steps from the public model; every peer knows it.

    A member that sends a gradient instead of a difference of models makes one step with lr = 1.
    """

    lr: float = 1.0
    steps: int = 1
    samples: int = 1  # of the member
    batch: int = 1  # samples in a step; with fewer than `samples` the steps go through them in turn
    momentum: float = 0.0  # within the round


@dataclass(frozen=True, slots=True)
class Handling:
    """What was done to the update that cannot be undone, but can be applied to a candidate's too, or allowed for."""

    clip: float = 0.0  # ℓ2 bound of the update; 0: none
    sample_clip: float = 0.0  # ℓ2 bound of every sample's gradient (DP-SGD); 0: none
    noise: float = 0.0  # standard deviation of the noise on each value of the update; 0: none


@dataclass(frozen=True, eq=False)
class UpdateObservation:
    """The member's update on the coordinates that were seen, and what is public."""

    model: Vector = field(repr=False)  # x^t, the whole flat vector in spec order
    seen: Coordinates = field(repr=False)  # indices among the trainable coordinates, ascending
    values: Vector = field(repr=False)  # the update x^t − x_k there
    local: LocalSteps = LocalSteps()  # how the member trained
    handling: Handling = Handling()  # what was done to its update before it was sent
    rounding: Rounding | None = None  # of the values, if they were rounded to a grid before they were sent
    earlier: tuple[UpdateObservation, ...] = field(default=(), repr=False)  # of the same samples, in earlier rounds

    def __post_init__(self) -> None:
        if self.seen.shape != self.values.shape or self.seen.ndim != 1:
            raise InputError(f"there are {self.seen.shape} coordinates for {self.values.shape} values")
        if self.seen.size and (np.diff(self.seen) <= 0).any():
            raise InputError("the coordinates of an observation are not ascending", fix="sort them with their values")
        if self.rounding is not None and self.rounding.units.shape != self.values.shape:
            raise InputError(f"there are {self.rounding.units.shape} units for {self.values.shape} values")

    @property
    def gradient(self) -> Vector:
        """The mean gradient over the member's steps, where it was seen."""
        return self.values / np.float32(self.local.lr * self.local.steps)

    def share(self, n: int) -> float:
        """Return the share of n coordinates that was seen."""
        return self.seen.size / n

    def filled(self, n: int) -> Vector:
        """Return the whole update with zeros where nothing was seen, which is what the published attacks match."""
        whole = np.zeros(n, np.float32)
        whole[self.seen] = self.values
        return whole

    def randomised(self, seed: Seed) -> UpdateObservation:
        """Return the same observation with noise of the same length as values, for the attack's chance level."""
        noise = seed.generator().standard_normal(self.values.size)
        noise *= np.linalg.norm(self.values.astype(np.float64)) / np.linalg.norm(noise)
        earlier = tuple(part.randomised(seed.child("earlier", place)) for place, part in enumerate(self.earlier))
        return replace(self, values=noise.astype(np.float32), earlier=earlier)


@dataclass(frozen=True, eq=False)
class Rounding:
    """The spacing of the grid at every value that was seen, and whether values were rounded at random."""

    units: Vector = field(repr=False)  # never zero
    at_random: bool

    @property
    def deviation(self) -> float:
        """The noise on a value of the finest grid: √(f(1 − f)) units, for f anywhere between two levels."""
        return float(self.units.min()) / 6**0.5


def rounding_of(compressor: Compressor, spec: ModelSpec, seen: Coordinates, sent: Vector) -> Rounding | None:
    """Return how a compressor rounded the values `sent` on the `seen` coordinates; None if it did not.

    `spec` says which tensor a coordinate lies in, as each may have its own grid.
    """
    if not isinstance(compressor, Quantizer) or not np.any(sent):
        return None
    stops = np.cumsum(spec.trainable_sizes) if compressor.per_tensor else np.array([spec.n_trainable])
    return Rounding(grid_of(sent, np.searchsorted(stops, seen, side="right")), at_random=compressor.unbiased)


def grid_of(values: Vector, tensors: NDArray[np.int64]) -> Vector:
    """Return the grid spacing at each value: the widest of which all seen values of its tensor are multiples.

    It may be a multiple of the true one where few values were seen, and a tensor of which only zeros were seen gets the
    widest spacing of the others: too wide a grid claims too little, never too much.

    >>> values = np.array([0.0, 0.5, -1.0, 0.0, 0.1, 0.2], np.float32)
    >>> grid_of(values, np.array([0, 0, 0, 1, 1, 1])).round(3).tolist()
    [0.5, 0.5, 0.5, 0.10000000149011612, 0.10000000149011612, 0.10000000149011612]
    """
    spacings = np.zeros(int(tensors.max()) + 1, np.float32)
    for tensor in np.unique(tensors[values != 0]):
        spacings[tensor] = _spacing(np.unique(np.abs(values[tensors == tensor])))
    spacings[spacings == 0] = spacings.max()
    units: Vector = spacings[tensors]
    return units


def _spacing(magnitudes: Vector) -> float:
    """Return the widest spacing of which all of these are multiples, the smallest being one of its first few."""
    told = magnitudes[magnitudes > 0].astype(np.float64)
    for multiple in range(1, _FIRST):
        ratios = told * (multiple / told[0])
        if np.abs(ratios - np.rint(ratios)).max() < _ALIKE:
            return float(told[0] / multiple)
    return float(told[0])
