"""Scores of canaries: the higher, the more an estimate of the update looks as if the canary had been trained on.

========== =============================================================================================
loss       −ℓ of the canary under the model the attacker can build
calibrated how much lower its loss is there than at the public model
dot        the update's direction times the canary's gradient
cosine     the same with both normalised
regression the canary's weight when the update is written as a sum of all canaries' gradients
paper      −ℓ under xᵗ with the visible values put in as they came: scaled, and without s_k
========== =============================================================================================
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from eris.audit.canaries import AuditableTask
from eris.audit.guesses import Scores
from eris.audit.reconstruct import Estimate
from eris.local.spec import Vector
from eris.shards.plan import Coordinates

__all__ = ["SCORES", "Scorer", "as_sent", "believed"]

SCORES = ("loss", "calibrated", "dot", "cosine", "regression", "paper")

_RIDGE = 1e-3  # of the mean squared gradient: canaries that look alike share their weight
Matrix = NDArray[np.float64]


class Scorer:
    """Scores one member's canaries in one round; what does not depend on the vantage is computed once."""

    def __init__(self, probe: AuditableTask, member: int, model: Vector, *, step: float = 1.0) -> None:
        self._probe, self._member, self._model, self._step = probe, member, model, np.float32(step)
        self._losses = probe.sample_losses(member, model)
        self._gradients = probe.sample_gradients(member, model)
        self._whole_gram: Matrix | None = None

    def scores(self, estimate: Estimate) -> dict[str, Scores]:
        """Return every score of every canary."""
        losses = self._losses_under(estimate)
        dots, norm = self._dots(estimate), _norm(estimate.fresh_update, estimate.fresh_means)
        seen = self._gram(estimate.seen)
        rest = self._gram_of_rest(estimate, seen)
        lengths = np.sqrt(np.maximum(np.diag(seen) + np.diag(rest), 0))
        along = _ratio(dots, norm)
        return {
            "loss": -losses,
            "calibrated": self._losses - losses,
            "dot": along,
            "cosine": _ratio(along, lengths),
            "regression": _weights(seen + estimate.share * rest, dots),
            "paper": -self._losses_as_sent(estimate),
        }

    def _losses_under(self, estimate: Estimate) -> Scores:
        n = self._gradients.shape[1]
        return self._probe.sample_losses(self._member, believed(self._model, estimate, self._step, n))

    def _losses_as_sent(self, estimate: Estimate) -> Scores:
        n = self._gradients.shape[1]
        return self._probe.sample_losses(self._member, as_sent(self._model, estimate, self._step, n))

    def _dots(self, estimate: Estimate) -> Scores:
        known = np.zeros(self._gradients.shape[1], np.float32)
        known[estimate.seen] = estimate.fresh_update
        known[estimate.rest] = estimate.fresh_means
        return np.asarray(self._gradients @ known, np.float64)

    def _gram(self, coordinates: Coordinates) -> Matrix:
        if coordinates.size == self._gradients.shape[1]:
            return self._whole()
        part = self._gradients[:, coordinates]
        return np.asarray(part @ part.T, np.float64)

    def _gram_of_rest(self, estimate: Estimate, seen: Matrix) -> Matrix:
        rest = estimate.rest
        if rest.size + estimate.seen.size == self._gradients.shape[1] and rest.size:
            return self._whole() - seen
        return self._gram(rest)

    def _whole(self) -> Matrix:
        if self._whole_gram is None:
            self._whole_gram = np.asarray(self._gradients @ self._gradients.T, np.float64)
        return self._whole_gram


def believed(model: Vector, estimate: Estimate, step: float | np.float32, n: int) -> Vector:
    """Return the member's model as far as the attacker can build it; n coordinates are trainable."""
    built, view = model.copy(), estimate.view
    built[estimate.seen] -= np.float32(step) * estimate.update
    built[estimate.rest] -= np.float32(step) * estimate.means
    built[n + view.buffer_coordinates] -= view.buffers
    return built


def as_sent(model: Vector, estimate: Estimate, step: float | np.float32, n: int) -> Vector:
    """Return the public model with the visible values put in as they came."""
    built, view = model.copy(), estimate.view
    built[view.coordinates] -= np.float32(step) * view.values
    built[n + view.buffer_coordinates] -= view.buffers
    return built


def _weights(gram: Matrix, dots: Scores) -> Scores:
    """Solve for the weights of the canaries in the update.

    Generalised least squares: on the seen coordinates the victim's values count once, in the means of others with the
    victim's share and with as much less noise. So the products are plain sums, and only the Gram matrix is weighted.
    """
    ridge = _RIDGE * np.trace(gram) / max(1, len(dots))
    if not ridge > 0:
        return np.zeros_like(dots)
    return np.asarray(np.linalg.solve(gram + ridge * np.eye(len(dots)), dots), np.float64)


def _norm(*parts: Vector) -> float:
    return float(np.sqrt(sum(float(np.dot(part, part)) for part in parts)))


def _ratio(above: Scores, below: Scores | float) -> Scores:
    """Divide; nothing over nothing says nothing."""
    below = np.broadcast_to(np.asarray(below, np.float64), above.shape)
    return np.where(below > 0, above / np.where(below > 0, below, 1.0), 0.0)
