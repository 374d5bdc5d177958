r"""The strongest attack on membership we have: a regression of the member's update on its canaries' gradients.

A local step moves the model along the sum of the gradients of all samples trained on. So, in every round,

    y = n_k Δ / rate = Σ cᵢ gᵢ + (the gradients of other samples) + (what a first-order picture of the round misses)

with the coins c ∈ {0, 1}. What is known of the two nuisances comes from public samples P of the same kind, whose
gradients are taken at the same public model: the others are about as many draws from the same distribution, with mean
μ and covariance Σ = P̃ᵀP̃/m. A canary stands out by what its gradient has that Σ does not explain, and almost any small
piece of the coordinates shows that. With v = y − n_k μ and rᵢ = gᵢ − μ the model of one round is

    v = Σ cᵢ rᵢ + e,   e ~ N(0, τ o Σ + σ² I),   o: samples that are not canaries

and rounds are taken as independent given the coins, though the others are the same in all of them: a joint estimate of
their part was no better on the tuning seeds. (Where some hundred coordinates or fewer are seen of rounds of one step,
the plain stacked regression of the tests is ahead of this one by up to 0.06.) τ and σ² are each round's own and are
fitted to it, three steps of expectation maximisation: a round whose local steps went far from the public model explains
little, says so by its residual, and counts as little. The coins have the Gaussian prior N(½, ¼). Who sees none of the
member's own values has the means with others, for which the same holds with n_k / share samples. Beside own values,
means are left out: there is far more of them, they fit worse than their noise says, and adding them made the attack
weaker on tuning seeds.

Everything is done with products of gradients. What is kept from round to round is one (canaries + 1)² matrix for each
victim and place; within a round, the public samples' gradients twice (whole, and on the observers' shards).
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eris.audit.observation import Observation, PublicProbe
from eris.audit.scoring import Scores
from eris.errors import InputError
from eris.local.spec import Vector
from eris.shards.plan import Coordinates

__all__ = ["COIN", "Background", "Prior", "WhitenedRegression", "expected", "products_of", "with_fitted_round"]

Matrix = NDArray[np.float64]

_STEPS = 3  # of fitting a round's noise
_LEAST = 1e-4  # of τ


class Prior(NamedTuple):
    """What is known of every weight beforehand: a mean, and one over a variance."""

    mean: float
    precision: float


COIN = Prior(0.5, 4.0)


@dataclass(frozen=True, slots=True)
class WhitenedRegression:
    """Score a canary by its expected coin, given all rounds so far."""

    name: str = "whitened"
    cumulative: bool = True

    @property
    def needs(self) -> frozenset[Literal["gradients", "copies", "public"]]:
        """What it takes besides losses."""
        return frozenset({"gradients", "public"})

    def score(self, seen: Observation, memory: dict[str, NDArray[Any]]) -> Scores:
        """Add a round's information and return the expected coins."""
        estimate, count = seen.estimate, len(seen.probe.gradients)
        if estimate.seen.size:
            part = (estimate.seen, estimate.fresh_update, seen.samples)
        else:
            part = (estimate.rest, estimate.fresh_means, seen.samples / max(estimate.share, 1e-9))
        # What came under a pad is tried too. Of the two, the one that says more counts: the better fit, not the longer.
        for name, known in (("information", part), ("captured", (*estimate.captured, seen.samples))):
            if known[1].any():  # nothing but zeros tells nothing
                memory[name] = _with_round(memory.get(name), seen, *known)
        if not memory:
            return np.full(count, 0.5)
        return expected(max(memory.values(), key=lambda information: float(np.trace(information[:-1, :-1]))))


def _with_round(
    before: Matrix | None, seen: Observation, coordinates: Coordinates, values: Vector, samples: float
) -> Matrix:
    """Return the information with that of a round."""
    if seen.public is None:
        raise InputError("there are no public samples to compare with", fix="audit a task that has test samples")
    gradients, background = seen.probe.gradients, _background(seen.public, coordinates)
    own = gradients if coordinates.size == gradients.shape[1] else gradients[:, coordinates]
    rows = np.vstack([own, np.float32(samples / seen.rate) * values])
    products = products_of(rows, np.append(np.ones(len(own)), samples), background)
    others = max(samples - len(own) / 2, 1.0)
    so_far = np.zeros(products.own.shape) if before is None else before
    return with_fitted_round(so_far, products, background, others, coordinates.size)


class Background(NamedTuple):
    """Public gradients on some coordinates: centred rows, mean, and the eigenvectors of their products."""

    rows: Vector
    mean: Vector
    values: Matrix
    vectors: Matrix


class _Products(NamedTuple):
    """Products of canaries and update, all less the public mean: with each other, and with the public directions."""

    own: Matrix  # (canaries + 1)²
    along: Matrix  # public × (canaries + 1), in the basis of the eigenvectors


def _background(public: PublicProbe, coordinates: Coordinates) -> Background:
    """Return what is known of the others' gradients here; worked out once for all members seen on the same shard."""
    key = blake2b(coordinates.tobytes(), digest_size=16).digest()
    if not isinstance(found := public.shards.get(key), Background):
        rows = public.gradients
        rows = rows if coordinates.size == rows.shape[1] else rows[:, coordinates]
        mean = rows.mean(axis=0, dtype=np.float64).astype(np.float32)
        centred = rows - mean
        values, vectors = np.linalg.eigh(np.asarray(centred @ centred.T, np.float64))
        found = Background(centred, mean, np.maximum(values, 0.0), vectors)
        public.shards[key] = found
    return found


def products_of(rows: Vector, shifts: Matrix, background: Background) -> _Products:
    """Take the mean off each row, `shifts` times, and multiply."""
    centred = rows - shifts[:, None].astype(np.float32) * background.mean
    own = np.asarray(centred @ centred.T, np.float64)
    return _Products(own, background.vectors.T @ np.asarray(background.rows @ centred.T, np.float64))


def with_fitted_round(
    before: Matrix, products: _Products, background: Background, others: float, size: int, prior: Prior = COIN
) -> Matrix:
    """Return the information with this round's, whose noise is fitted with the weights as they are then expected."""
    public, values = len(background.values), background.values
    start = values.sum() / public
    if not start > 0:
        return before
    spread, noise = 1.0, 0.01 * start * others / public
    for step in range(_STEPS + 1):
        shrunk = 1 / (values + noise * public / (spread * others))
        own = (products.own - products.along.T @ (products.along * shrunk[:, None])) / noise
        after = before + own
        if step == _STEPS:
            break
        left = np.append(-expected(after, prior), 1.0)  # what the coins leave of the update
        along = products.along @ left
        weights, uncertain = along * shrunk, noise * shrunk
        missed = left @ products.own @ left - 2 * weights @ along + values @ (weights**2 + uncertain)
        noise = max(missed / size, 1e-6 * noise)
        spread = max(float((weights**2 + uncertain).sum()) / others, _LEAST)
    return np.asarray(after, np.float64)


def expected(information: Matrix, prior: Prior = COIN) -> Scores:
    """Return the weights' posterior mean."""
    precision = information[:-1, :-1] + prior.precision * np.eye(len(information) - 1)
    return np.asarray(np.linalg.solve(precision, information[:-1, -1] + prior.precision * prior.mean), np.float64)
