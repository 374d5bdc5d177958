r"""Our strongest membership attack: a regression of the member's update on its canaries' gradients.

A local step moves the model along the sum of the gradients of all samples trained on. So, in every round,

    y = n_k Δ / rate = Σ cᵢ gᵢ + (the gradients of other samples) + (what a first-order picture of the round misses)

with the coins c ∈ {0, 1}. The two nuisance terms are estimated from public samples P of the same kind, with gradients
taken at the same public model: the other samples are draws from about the same distribution, with mean μ and
covariance Σ = P̃ᵀP̃/m. A canary stands out by the part of its gradient that Σ does not explain, and almost any small
subset of the coordinates shows that. With v = y − n_k μ and rᵢ = gᵢ − μ the model of one round is

    v = Σ cᵢ rᵢ + e,   e ~ N(0, τ o Σ + σ² I),   o: samples that are not canaries

Rounds are taken as independent given the coins, although the other samples are the same in all of them: estimating
their part jointly was no better on the tuning seeds. (With sixty coordinates or fewer, in rounds of one step, it is:
`stacked_regression` beats this one there.) τ and σ² are fitted to each round in three
steps of expectation maximisation, so a round whose local steps went far from the public model explains little, has a
large residual, and counts for little. The coins have the Gaussian prior N(½, ¼).

An observer that sees none of the member's own values uses the means with others, for which the same holds with
n_k / share samples. As such a mean contains every member's candidates, it is explained by all of them together, if
their gradients fit in memory. An observer that does see own values ignores the means: there are far more of them, they
fit worse than their noise says, and adding them made the attack weaker on the tuning seeds.

Two more ideas made it weaker there and were dropped: taking gradients half-way along the round's move instead of at its
start, whether the mean's move or the member's own as far as it was seen.

Everything is computed from products of gradients. Between rounds the attack keeps one (canaries + 1)² matrix for each
victim and place; within a round, the public samples' gradients twice (whole, and on the observers' shards).
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eris.audit.attack import CanaryProbe, Memory, Need, Observation, PublicProbe
from eris.audit.scoring import Scores
from eris.local.spec import Vector
from eris.shards.plan import Coordinates

__all__ = [
    "COIN",
    "Background",
    "Prior",
    "WhitenedRegression",
    "expected",
    "marginal",
    "products_of",
    "with_fitted_round",
]

Matrix = NDArray[np.float64]

_STEPS = 3  # of expectation maximisation, to fit a round's noise
_LEAST = 1e-4  # the smallest τ


class Prior(NamedTuple):
    """The Gaussian prior of every weight: its mean and its precision (one over the variance)."""

    mean: float
    precision: float


COIN = Prior(0.5, 4.0)


@dataclass(frozen=True, slots=True)
class WhitenedRegression:
    """Score a canary by its expected coin, given all rounds so far."""

    name: str = "whitened"
    cumulative: bool = True

    @property
    def needs(self) -> frozenset[Need]:
        """What the attack needs besides losses."""
        return frozenset({"gradients", "public"})

    def score(self, seen: Observation, memory: Memory) -> Scores:
        """Add a round's information and return the expected coin of each canary."""
        estimate = seen.estimate
        if estimate.seen.size:
            parts = {"information": (estimate.seen, estimate.fresh_update, seen.samples)}
        else:
            name = "together" if seen.candidates else "information"
            parts = {name: (estimate.rest, estimate.fresh_means, seen.samples / max(estimate.share, 1e-9))}
        # Values under a pad are tried too. The more informative of the two counts: the better fit, not the longer one.
        parts["captured"] = (*estimate.captured, seen.samples)
        for name, part in parts.items():
            if part[1].any():  # all zeros carry no information
                memory[name] = _with_round(memory.get(name), seen, *part, together=name == "together")
        known = {name: memory[name] for name in ("information", "captured") if name in memory}
        if "together" in memory:
            shared = marginal(memory["together"], seen.candidates, seen.probe)
            known["information"] = known["information"] + shared if "information" in known else shared
        if not known:
            return np.full(seen.probe.count, 0.5)
        return expected(max(known.values(), key=lambda information: float(np.trace(information[:-1, :-1]))))


def _with_round(
    before: Matrix | None,
    seen: Observation,
    coordinates: Coordinates,
    values: Vector,
    samples: float,
    *,
    together: bool = False,
) -> Matrix:
    """Return the information matrix with that of a round added.

    Args:
        before: the information of the earlier rounds; None in the first.
        seen: the observation of this round.
        coordinates: where the values are known.
        values: the update there, or the mean.
        samples: how many samples the values average over.
        together: whether it is about the coins of all candidates together, instead of the victim's alone.
    """
    public = seen.public_samples
    background, scaled = _background(public, coordinates), np.float32(samples / seen.rate) * values
    if together:
        products = _products_together(seen, public, coordinates, scaled - np.float32(samples) * background.mean)
        count = sum(probe.count for probe in seen.candidates if probe.member in seen.averaged)
    else:
        own = _on(seen.probe, coordinates)
        products = products_of(np.vstack([own, scaled]), np.append(np.ones(len(own)), samples), background)
        count = len(own)
    so_far = np.zeros(products.own.shape) if before is None else before
    return with_fitted_round(so_far, products, background, max(samples - count / 2, 1.0), coordinates.size)


def _products_together(seen: Observation, public: PublicProbe, coordinates: Coordinates, mean: Vector) -> _Products:
    """Return the products of all candidates' gradients and a centred mean; those among gradients are cached.

    Args:
        seen: the observation, which has the candidates.
        public: has the background to centre by, and the cache.
        coordinates: where the mean is known.
        mean: its values there, less the public mean.
    """
    background = _background(public, coordinates)
    key = b"together" + blake2b(coordinates.tobytes(), digest_size=16).digest()
    if key not in public.shards:
        centred = np.vstack([_on(probe, coordinates) for probe in seen.candidates]) - background.mean
        public.shards[key] = (centred, products_of(centred, np.zeros(len(centred)), background))
    centred, gradients = public.shards[key]
    there = [float(probe.member in seen.averaged) for probe in seen.candidates]  # absentees are in no mean
    weights = np.append(np.repeat(there, [probe.count for probe in seen.candidates]), 1.0)
    last = np.asarray(centred @ mean, np.float64)
    own = np.block([[gradients.own, last[:, None]], [last, np.float64(mean @ mean)]])
    along = background.vectors.T @ np.asarray(background.rows @ mean, np.float64)
    return _Products(own * np.outer(weights, weights), np.column_stack([gradients.along, along]) * weights)


def marginal(together: Matrix, candidates: tuple[CanaryProbe, ...], victim: CanaryProbe) -> Matrix:
    """Return the information about the victim's coins: that about all `together`, with the others integrated out."""
    members = np.repeat([probe.member for probe in candidates], [probe.count for probe in candidates])
    others, own = np.flatnonzero(members != victim.member), np.flatnonzero(members == victim.member)
    kept = np.append(own, len(members))
    precision = together[np.ix_(others, others)] + COIN.precision * np.eye(others.size)
    across = together[np.ix_(others, kept)]
    known = across.copy()
    known[:, -1] += COIN.precision * COIN.mean
    return np.asarray(together[np.ix_(kept, kept)] - across.T @ np.linalg.solve(precision, known), np.float64)


def _on(probe: CanaryProbe, coordinates: Coordinates) -> Vector:
    """Return the gradients of one member's canaries on some coordinates."""
    gradients = probe.gradients
    return gradients if coordinates.size == gradients.shape[1] else gradients[:, coordinates]


class Background(NamedTuple):
    """Public gradients on some coordinates: centred rows, their mean, and the eigensystem of the rows' Gram matrix."""

    rows: Vector  # samples × coordinates, the mean subtracted
    mean: Vector
    values: Matrix  # the eigenvalues, none negative
    vectors: Matrix  # the eigenvectors, in columns


class _Products(NamedTuple):
    """Products of the centred canaries and update with each other, and with the public directions."""

    own: Matrix  # (canaries + 1)²
    along: Matrix  # public × (canaries + 1), in the basis of the eigenvectors


def _background(public: PublicProbe, coordinates: Coordinates) -> Background:
    """Return the public gradients on these coordinates, computed once for all members seen on the same shard."""
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
    """Return the products of rows, after subtracting `shifts` (one for each row) times the background's mean."""
    centred = rows - shifts[:, None].astype(np.float32) * background.mean
    own = np.asarray(centred @ centred.T, np.float64)
    return _Products(own, background.vectors.T @ np.asarray(background.rows @ centred.T, np.float64))


def with_fitted_round(
    before: Matrix, products: _Products, background: Background, others: float, size: int, prior: Prior = COIN
) -> Matrix:
    """Return the information matrix with this round's added, after fitting the round's noise.

    Args:
        before: the information of the earlier rounds.
        products: those of this round's update and canaries.
        background: the public gradients on the same coordinates.
        others: how many samples that are not canaries the update holds.
        size: the number of coordinates.
        prior: of every weight.
    """
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
        left = np.append(-expected(after, prior), 1.0)  # the part of the update that the coins do not explain
        along = products.along @ left
        weights, uncertain = along * shrunk, noise * shrunk
        missed = left @ products.own @ left - 2 * weights @ along + values @ (weights**2 + uncertain)
        noise = max(missed / size, 1e-6 * noise)
        spread = max(float((weights**2 + uncertain).sum()) / others, _LEAST)
    return np.asarray(after, np.float64)


def expected(information: Matrix, prior: Prior = COIN) -> Scores:
    """Return the posterior mean of the weights."""
    precision = information[:-1, :-1] + prior.precision * np.eye(len(information) - 1)
    return np.asarray(np.linalg.solve(precision, information[:-1, -1] + prior.precision * prior.mean), np.float64)
