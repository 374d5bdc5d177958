"""How well a candidate explains a sight: the objective of every attack that searches.

Mask-aware, the candidate's update is compared with the sight where it was seen, and with nothing elsewhere: at the true
samples the squared distance is zero. Zero-filled, coordinates that were not seen count as zeros: at the true samples
the distance is what is hidden there, so its minimum lies somewhere else (unless everything was seen).

Values that were rounded are compared as such (mask-aware, squared distance): to the nearest, a candidate within half a
unit misses nothing; at random, every value counts by the size of its noise.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from eris.audit.inversion.attack import Mode
from eris.audit.inversion.public_model import PublicModel
from eris.audit.inversion.sight import Sight
from eris.errors import ConfigError, InputError

__all__ = ["Distance", "Matching"]

Distance = Literal["squared", "cosine"]


class Matching:
    """Measures candidates against one sight; distances are relative to the length of what was seen."""

    def __init__(
        self, sight: Sight, public: PublicModel, *, mode: Mode = "mask-aware", distance: Distance = "squared"
    ) -> None:
        if mode not in ("mask-aware", "zero-filled"):
            raise ConfigError(f"there is no mode {mode!r}", fix="use mask-aware or zero-filled")
        if not sight.seen.size:
            raise InputError("nothing was seen, so there is nothing to match", fix="look from another observer")
        self._sight, self._public, self._distance = sight, public, distance
        values = sight.values if mode == "mask-aware" else sight.filled(public.n)
        everything = mode == "zero-filled" or sight.seen.size == public.n
        self._seen = None if everything else torch.from_numpy(sight.seen.copy())
        self._target = torch.from_numpy(values.copy()).to(public.dtype)
        self._rounding = sight.rounding if mode == "mask-aware" and distance == "squared" else None
        self._slack, self._weights = self._known_rounding()
        target = self._target if self._weights is None else self._target * self._weights
        self._length = max(float(target.norm()), 1e-30)

    @property
    def noise_ratio(self) -> float:
        """The noise on each value, relative to the length of what was seen."""
        rounding = self._rounding
        by_coin = rounding.deviation if rounding is not None and rounding.at_random else 0.0
        return math.hypot(self._sight.handling.noise, by_coin) / self._length

    @property
    def floor(self) -> float:
        """The squared distance that noise alone leaves at the true samples: a better match explains noise."""
        return self._target.numel() * self.noise_ratio**2

    def residual(self, pictures: Tensor, labels: Tensor) -> Tensor:
        """Return the candidate's update less what was seen, relative to the length of the latter."""
        missed = self._shown(pictures, labels) - self._target
        if self._slack is not None:
            missed = missed - missed.clamp(-self._slack, self._slack)
        return (missed if self._weights is None else missed * self._weights) / self._length

    def loss(self, pictures: Tensor, labels: Tensor) -> Tensor:
        """Return the distance of a candidate: ‖·‖² relative to what was seen, or one less the cosine."""
        if self._distance == "squared":
            residual = self.residual(pictures, labels)
            return torch.dot(residual, residual)
        shown = self._shown(pictures, labels)
        lengths = shown.norm().clamp(min=1e-30) * self._length
        distance: Tensor = 1 - torch.dot(shown, self._target) / lengths
        return distance

    def _known_rounding(self) -> tuple[Tensor | None, Tensor | None]:
        """Return how far from what was seen a value may be for nothing, and how much each counts."""
        if self._rounding is None:
            return None, None
        units = torch.from_numpy(self._rounding.units.copy()).to(self._public.dtype)
        return (None, units.min() / units) if self._rounding.at_random else (units / 2, None)

    def _shown(self, pictures: Tensor, labels: Tensor) -> Tensor:
        update = self._public.update(pictures, labels, self._sight.local, self._sight.handling)
        return update if self._seen is None else update[self._seen]
