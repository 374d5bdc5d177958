"""Identification: how often a recovered picture, however blurred, is nearer to its original than to all others.

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
    """How many recovered pictures are nearest to their original, with an interval for the rate and the chance level."""

    found: int  # recovered pictures nearest to their original
    count: int  # recovered pictures
    candidates: int  # originals and others to choose among
    low: float  # of the 95 % interval
    high: float

    @property
    def rate(self) -> float:
        """The share of recovered pictures that are nearest to their original."""
        return self.found / self.count

    @property
    def chance(self) -> float:
        """The rate of blind guessing."""
        return 1 / self.candidates


def identification(
    recovered: Picture, candidates: Picture, originals: NDArray[np.integer], distance: Distance = mse
) -> Identification:
    """Find each recovered picture's nearest candidate, and count how often it is the right one.

    A tie counts as a miss, so that an attack that returns the same grey picture for all gains nothing from the order.

    Args:
        recovered: the pictures.
        candidates: what to choose among.
        originals: for each picture, the index of its original among the candidates.
        distance: what "nearest" means.
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
