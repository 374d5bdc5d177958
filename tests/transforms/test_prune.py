"""PriPrune, with and without keeping what it withholds (methods: E, J)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from eris.errors import ConfigError, InputError
from eris.privacy import clip_by_norm
from eris.seeds import public_root
from eris.shards.plan import contiguous, scattered
from eris.transforms import Accepted, chain, normalise_steps, prune
from tests.transforms.scenes import context, normal

VALUES = st.one_of(st.sampled_from([0.0, 1.0, -1.0, 2.0]), st.floats(-8, 8, width=32))
SHARES = st.sampled_from([0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.9])


def pruned(vector, p):
    return chain(prune(p)).outgoing(vector, {}, {}, context(vector.size)).packed


@given(arrays(np.float32, st.integers(1, 80), elements=VALUES), SHARES)
def test_it_keeps_what_the_quantile_says(vector, p):
    threshold = np.quantile(np.abs(vector).astype(np.float64), 1 - p)
    near = np.isclose(np.abs(vector), threshold, rtol=1e-9, atol=0)  # the quantile itself is rounded
    expected = np.where(np.abs(vector) <= threshold, vector, 0)
    assert np.array_equal(pruned(vector, p).dense()[~near], expected[~near])


@given(st.integers(2, 300), SHARES)
def test_it_drops_a_share_p(n, p):
    vector = np.random.default_rng(n).permutation(np.arange(1, n + 1)).astype(np.float32)
    dropped = n - np.count_nonzero(pruned(vector, p).dense())
    assert math.ceil(p * n - 1e-9) - 1 <= dropped <= math.ceil(p * n - 1e-9)
    kept = pruned(vector, p).dense()
    assert np.abs(kept).max() == n - dropped  # the largest went


def test_ties_stay():
    assert np.array_equal(pruned(np.ones(10, np.float32), 0.5).dense(), np.ones(10))


@pytest.mark.parametrize(("p", "explicit"), [(0.01, False), (0.03, False), (0.04, True), (0.3, True)])
def test_its_bytes(p, explicit):
    """(1 − p)·4n and a bitmap where that is shorter than 4n."""
    n, plan = 10_000, contiguous(10_000, 1)
    packed = pruned(normal(n), p)
    (part,) = packed.parts(plan)
    kept = n - math.ceil(p * (n - 1))
    assert packed.explicit == explicit
    assert part.payload_bytes == (4 * kept + n // 8 if explicit else 4 * n)
    assert part.payload_bytes <= 4 * n


@pytest.mark.parametrize("p", [0.0, 1.0, -0.1, math.nan])
def test_impossible_shares(p):
    with pytest.raises(ConfigError, match="0 < p < 1"):
        prune(p)


def test_values_without_an_order_are_refused():
    with pytest.raises(InputError, match="no order"):
        pruned(np.array([1, np.nan, 2], np.float32), 0.5)


def test_without_keeping_there_is_no_state():
    transform = chain(prune(0.1))
    assert transform.private_state(5) == {}
    model = normal(5)
    transform.start(model, {})
    assert np.array_equal(model, normal(5))


@pytest.mark.parametrize("p", [0.02, 0.25])
def test_withheld_values_stay_in_the_members_own_model(p):
    """Against a plain loop that only knows models: x_k = x − Δ, the member goes on from what it did not send."""
    n, rate = 40, np.float32(0.5)
    transform, plan = chain(prune(p, keep_withheld=True)), scattered(40, 4, public_root(1))
    private = transform.private_state(n)
    model, target, kept_at_home = np.zeros(n, np.float32), normal(n, spread=2), np.zeros(n, np.float32)
    for round in range(12):
        start = model.copy()
        transform.start(start, private)
        assert np.allclose(start, model - kept_at_home, rtol=1e-6)
        trained = start - rate * (start - target)
        outgoing = transform.outgoing(start - trained, private, {}, context(plan, round=round))
        transform.settle(outgoing, private, Accepted(plan))
        whole = model - trained  # Δ against the global model
        threshold = np.quantile(np.abs(whole), 1 - p, method="lower")
        kept_at_home = np.where(np.abs(whole) > threshold, whole, 0).astype(np.float32)
        sent = outgoing.packed.dense()
        assert np.allclose(sent, whole - kept_at_home, atol=1e-5)
        assert np.allclose(private["0.withheld"], kept_at_home, atol=1e-5)
        assert np.count_nonzero(sent * private["0.withheld"]) == 0
        model = model - sent


def test_a_lost_shard_freezes_what_is_withheld_there():
    transform, plan = chain(prune(0.3, keep_withheld=True)), contiguous(20, 2)
    private = transform.private_state(20)
    transform.settle(transform.outgoing(normal(20), private, {}, context(plan)), private, Accepted(plan))
    before = private["0.withheld"].copy()
    assert before.any()
    outgoing = transform.outgoing(normal(20, seed=2), private, {}, context(plan))
    transform.settle(outgoing, private, Accepted(plan, (1,)))
    assert np.array_equal(private["0.withheld"][10:], before[10:])
    assert not np.array_equal(private["0.withheld"][:10], before[:10])


def test_keeping_needs_the_units_of_the_model():
    with pytest.raises(ConfigError, match="normalise_steps"):
        chain(normalise_steps(), prune(0.1, keep_withheld=True))
    chain(normalise_steps(), prune(0.1))
    chain(clip_by_norm(1.0), prune(0.1, keep_withheld=True))
