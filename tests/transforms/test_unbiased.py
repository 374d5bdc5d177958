"""E C(x) = x, and E‖C(x) − x‖² is what the closed form says (methods: B.2, B.8.1)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from eris.transforms import (
    bernoulli,
    identity,
    natural,
    qsgd,
    qsgd_max,
    rand_k,
    stratified_rand_k,
    terngrad,
)
from tests.transforms.scenes import context, normal, plans

TENSORS = (20, 3, 1, 16)
N = sum(TENSORS)
DRAWS = 2500
PLAN = plans(TENSORS)["scattered"]
VECTOR = normal(N, seed=5)


def draws(compressor, vector, count=DRAWS):
    """Return many independent results, one a row (a member and a round each)."""
    return np.array(
        [compressor.compress(vector, context(PLAN, tensors=TENSORS, round=r, member=r)).dense() for r in range(count)],
        dtype=np.float64,
    )


def unbiased_error(f):
    return float(np.sum(f * (1 - f)))


def level_error(values, unit):
    """Return unit²·Σ f(1−f), f the fractional part of |x|/unit."""
    multiples = np.abs(values.astype(np.float64)) / unit
    return unit**2 * unbiased_error(multiples - np.floor(multiples))


def squares(values):
    return float(np.sum(values.astype(np.float64) ** 2))


def natural_error(values):
    sizes = np.abs(values[values != 0].astype(np.float64))
    below = 2.0 ** np.floor(np.log2(sizes))
    return float(np.sum((sizes - below) * (2 * below - sizes)))


def per_tensor_error(vector, levels):
    pieces = np.split(vector, np.cumsum(TENSORS)[:-1])
    return sum(level_error(piece, float(np.abs(piece).max()) / levels) for piece in pieces)


def stratified_error(compressor, vector):
    shards = [vector[PLAN.coordinates(a)] for a in range(PLAN.shards)]
    return sum((s.size / math.ceil(compressor.p * s.size) - 1) * squares(s) for s in shards)


CLOSED_FORM = [
    (identity(), lambda c, x: 0.0),
    (rand_k(0.25), lambda c, x: c.omega(N) * squares(x)),
    (rand_k(0.9), lambda c, x: c.omega(N) * squares(x)),
    (bernoulli(0.2), lambda c, x: c.omega(N) * squares(x)),
    (bernoulli(0.05), lambda c, x: c.omega(N) * squares(x)),
    (stratified_rand_k(0.3), stratified_error),
    (rand_k(0.3, independent=True), stratified_error),
    (qsgd(1), lambda c, x: level_error(x, math.sqrt(squares(x)))),
    (qsgd(4), lambda c, x: level_error(x, math.sqrt(squares(x)) / 4)),
    (qsgd_max(2), lambda c, x: per_tensor_error(x, 1)),
    (qsgd_max(4), lambda c, x: per_tensor_error(x, 3)),
    (terngrad(), lambda c, x: float(np.abs(x).max()) * float(np.abs(x).sum(dtype=np.float64)) - squares(x)),
    (natural(), lambda c, x: natural_error(x)),
]


@pytest.mark.parametrize(("compressor", "closed_form"), CLOSED_FORM, ids=[repr(c) for c, _ in CLOSED_FORM])
def test_mean_and_variance(compressor, closed_form):
    results = draws(compressor, VECTOR)
    deviation = results.std(axis=0) / math.sqrt(DRAWS)
    assert (np.abs(results.mean(axis=0) - VECTOR) <= 4 * deviation + 1e-6 * np.abs(VECTOR) + 1e-12).all()
    errors = np.sum((results - VECTOR) ** 2, axis=1)
    expected = closed_form(compressor, VECTOR)
    assert abs(errors.mean() - expected) <= 4 * errors.std() / math.sqrt(DRAWS) + 1e-6 * expected
    assert expected <= compressor.omega(N) * squares(VECTOR) * (1 + 1e-6)


@pytest.mark.parametrize("compressor", [rand_k(0.25), bernoulli(0.25)], ids=repr)
def test_sparsifiers_attain_omega_for_every_vector(compressor):
    for vector in (np.ones(N, np.float32), np.eye(1, N, 3, dtype=np.float32)[0], VECTOR):
        errors = np.sum((draws(compressor, vector, 1500) - vector) ** 2, axis=1)
        assert abs(errors.mean() - 3 * squares(vector)) <= 4 * errors.std() / math.sqrt(1500) + 1e-4


def test_a_shift_by_half_a_sigma_would_be_seen():
    """The 4-sigma test can fail: a biased version of the same compressor does not pass it."""
    results = draws(rand_k(0.25), VECTOR) * 1.2
    deviation = results.std(axis=0) / math.sqrt(DRAWS)
    assert not (np.abs(results.mean(axis=0) - VECTOR) <= 4 * deviation).all()


@pytest.mark.parametrize("n", [4, 100, 10_000])
def test_terngrad_attains_its_omega(n):
    """At (1, a, …, a) with a = 1/(√n + 1)."""
    worst = np.full(n, 1 / (math.sqrt(n) + 1))
    worst[0] = 1
    attained = worst.max() * worst.sum() / np.sum(worst**2) - 1
    assert attained == pytest.approx(terngrad().omega(n), rel=1e-12)
    nearby = [normal(n, seed=s) for s in range(20)]
    assert all(np.abs(x).max() * np.abs(x).sum() / squares(x) - 1 < terngrad().omega(n) for x in nearby)


def test_terngrad_attains_it_in_fact():
    n = 100
    worst = np.full(n, 1 / 11, np.float32)
    worst[0] = 1
    errors = [
        squares(terngrad().compress(worst, context(n, round=r)).dense() - worst) / squares(worst) for r in range(2000)
    ]
    assert abs(np.mean(errors) - 4.5) <= 4 * np.std(errors) / math.sqrt(2000)


@pytest.mark.parametrize("exponent", [-149, -130, -20, 0, 30, 100])
def test_natural_attains_an_eighth(exponent):
    """At (4/3)·2ᵉ, over float32's whole range; the smallest values have no 4/3 and are exact."""
    worst = np.full(200_000, 4 / 3 * 2.0**exponent).astype(np.float32)
    sent = natural().compress(worst, context(worst.size)).dense().astype(np.float64)
    error = np.mean((sent / 2.0**exponent - worst / 2.0**exponent) ** 2) / np.mean((worst / 2.0**exponent) ** 2)
    if exponent == -149:
        assert error == 0
    else:
        assert error == pytest.approx(0.125, rel=0.02)


@pytest.mark.parametrize("n", [1, 10, 1000, 10**6])
@pytest.mark.parametrize("levels", [2, 4, 16, 100])
def test_bounds_hold_where_values_are_worst(n, levels):
    """Half-way between levels is the worst place: f(1−f) = 1/4 each."""
    half = np.full(n, 0.5 / levels)
    half[0] = 1.0  # sets the largest value
    assert level_error(half, 1 / levels) / squares(half) <= qsgd_max(levels + 1).omega(n)
    unit = math.sqrt(squares(half)) / levels
    assert level_error(half, unit) / squares(half) <= qsgd(levels).omega(n)


def test_stratified_omega_is_a_bound_over_all_plans():
    compressor = stratified_rand_k(0.3)
    for plan in plans(TENSORS).values():
        assert compressor.omega_of(plan) <= compressor.omega(N) + 1e-12
    assert compressor.omega_of(PLAN) == max(size / math.ceil(0.3 * size) - 1 for size in PLAN.sizes.tolist())
