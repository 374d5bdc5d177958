"""Estimate how many samples of each class a member holds, from its update as a sum of public class means.

A round's update is about Σ m_c ḡ_c: the mean gradient of each class c times the number of the member's samples in it.
The means ḡ_c come from public samples at the same public model. How single samples differ from their class mean is
noise of a known shape, which is taken off as in `whitened_regression`. The score of a class is its expected count.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from eris.audit.attack import Memory, Need, Observation
from eris.audit.attacks.whitened_regression import Background, Prior, expected, products_of, with_fitted_round
from eris.audit.scoring import Scores

__all__ = ["ClassComposition"]


@dataclass(frozen=True, slots=True)
class ClassComposition:
    """Score each class by how many samples of it a member is expected to have, given all rounds so far."""

    labels: NDArray[np.int64] = field(repr=False)  # of the public samples
    classes: int  # how many there are
    name: str = "composition"
    cumulative: bool = True

    @property
    def needs(self) -> frozenset[Need]:
        """What the attack needs besides losses."""
        return frozenset({"public"})

    def score(self, seen: Observation, memory: Memory) -> Scores:
        """Add a round's information and return the expected count of each class."""
        estimate, mean = seen.estimate, seen.samples / self.classes
        prior = Prior(mean, 1 / mean**2)
        own = bool(estimate.seen.size)
        coordinates, values = (estimate.seen, estimate.fresh_update) if own else (estimate.rest, estimate.fresh_means)
        rows = seen.public_samples.gradients[:, coordinates]
        means = np.stack([rows[self.labels == label].mean(axis=0) for label in range(self.classes)])
        within = rows - means[self.labels]
        eigenvalues, vectors = np.linalg.eigh(np.asarray(within @ within.T, np.float64))
        background = Background(within, means.mean(axis=0), np.maximum(eigenvalues, 0.0), vectors)
        stacked = np.vstack([means, np.float32(seen.samples / seen.rate) * values])
        products = products_of(stacked, np.append(np.ones(self.classes), seen.samples), background)
        before = memory.get("information", np.zeros(products.own.shape))
        if values.any():
            before = with_fitted_round(before, products, background, seen.samples, coordinates.size, prior)
        memory["information"] = before
        return expected(before, prior)
