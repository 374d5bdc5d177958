"""Identification: a blurred recovery betrays its original all the same if it is nearer to it than to all others.

>>> pictures = np.random.default_rng(0).random((20, 1, 8, 8))
>>> found = identification(0.5 * pictures[:5] + 0.25, pictures, np.arange(5))
>>> found.rate, found.chance, round(found.low, 2)
(1.0, 0.05, 0.48)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eris.audit.intervals import rate_interval
from eris.audit.similarity.pixels import Picture, Scores, mse
from eris.errors import InputError

__all__ = ["Identification", "identification"]

Distance = Callable[[Picture, Picture], Scores]


@dataclass(frozen=True, slots=True)
class Identification:
    """How many of the recovered pictures found their original, and how often guessing would have."""

    found: int
    count: int
    candidates: int
    low: float
    high: float

    @property
    def rate(self) -> float:
        """The share of recovered pictures that are nearest to their original."""
        return self.found / self.count

    @property
    def chance(self) -> float:
        """What a blind guess finds."""
        return 1 / self.candidates


def identification(
    recovered: Picture, candidates: Picture, originals: NDArray[np.integer], distance: Distance = mse
) -> Identification:
    """Look for each recovered picture's nearest candidate; `originals` says which candidate would be right.

    A tie counts as a miss: an attack that returns the same grey picture for all must not be rewarded by order.
    """
    if len(recovered) != len(originals) or not len(recovered):
        raise InputError(
            f"there are {len(recovered)} recovered pictures for {len(originals)} originals", fix="give one for each"
        )
    found = 0
    for picture, original in zip(recovered, originals.tolist(), strict=True):
        distances = distance(candidates, np.broadcast_to(picture, candidates.shape))
        others = np.delete(distances, original)
        found += bool(others.size == 0 or distances[original] < others.min())
    return Identification(found, len(recovered), len(candidates), *rate_interval(found, len(recovered)))
