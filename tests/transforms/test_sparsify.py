from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eris.errors import ConfigError, InputError, PlanError
from eris.seeds import public_root
from eris.shards.plan import contiguous, scattered
from eris.transforms import bernoulli, rand_k, stratified_rand_k, top_k
from eris.transforms.sparsify import Bernoulli, share_of
from tests.transforms.scenes import context, normal


@given(st.integers(1, 10_000), st.integers(1, 10_000))
def test_a_share_is_meant_in_decimals(numerator, n):
    p = numerator / 10_000
    assert share_of(p, n) == max(1, numerator * n // 10_000)
    assert share_of(p, n, round_up=True) == -(-numerator * n // 10_000)


@pytest.mark.parametrize("p", [0.0, -0.1, 1.0001, math.nan, math.inf])
@pytest.mark.parametrize("make", [rand_k, stratified_rand_k, bernoulli, top_k])
def test_shares_outside_their_range_are_refused(make, p):
    with pytest.raises(ConfigError, match="0 < p ≤ 1"):
        make(p)


def test_rand_k_keeps_k_values_times_n_over_k():
    packed = rand_k(0.1).compress(np.ones(105, np.float32), context(105))
    assert packed.symbols.tolist() == [np.float32(10.5)] * 10
    assert rand_k(0.1).omega(105) == 9.5


def test_everything_kept_is_the_identity():
    vector = normal(50)
    packed = rand_k(1.0).compress(vector, context(50))
    assert packed.support is None
    assert np.array_equal(packed.values(), vector)
    assert rand_k(1.0).omega(50) == 0
    assert rand_k(0.999).compress(vector, context(50)).symbols.size == 49


@pytest.mark.parametrize("shards", [1, 3, 10])
def test_stratified_messages_have_a_fixed_length(shards):
    plan = scattered(1003, shards, public_root(3))
    for round in range(5):
        parts = stratified_rand_k(0.1).compress(normal(1003), context(plan, round=round)).parts(plan)
        assert [part.symbols.size for part in parts] == [-(-size // 10) for size in plan.sizes.tolist()]


def test_stratified_scales_each_shard_by_its_own_share():
    plan = scattered(1000, 3, public_root(3), capacities=[17, 2, 1])
    packed = stratified_rand_k(0.01).compress(np.ones(1000, np.float32), context(plan))
    for part in packed.parts(plan):
        assert part.values().tolist() == [np.float32(part.size / -(-part.size // 100))] * part.symbols.size


def test_stratified_keeps_one_of_every_shard():
    plan = contiguous(20, 20)
    packed = stratified_rand_k(0.01).compress(normal(20), context(plan))
    assert np.array_equal(packed.dense(), normal(20))


def test_counts_in_a_shard_are_hypergeometric():
    """Mean k|I|/n and variance k(|I|/n)(1 − |I|/n)(n − k)/(n − 1): methods B.6."""
    n, draws = 400, 3000
    plan, compressor = scattered(n, 4, public_root(3)), rand_k(0.1)
    counts = np.array([compressor.support(2, plan, public_root(4).child(r), b"").size for r in range(draws)])
    k, share = 40, 0.25
    variance = k * share * (1 - share) * (n - k) / (n - 1)
    assert abs(counts.mean() - k * share) <= 4 * math.sqrt(variance / draws)
    assert abs(counts.var() / variance - 1) <= 4 * math.sqrt(2 / draws)


@pytest.mark.parametrize("p", [0.0005, 1 / 256, 0.01, 0.3, 0.5, 0.97, 0.9999])
def test_bernoulli_tosses_fair_coins(p):
    n = 1_500_000  # more than one batch of coins
    mask = Bernoulli(p).mask(n, public_root(5))
    assert abs(mask.size - n * p) <= 4 * math.sqrt(n * p * (1 - p))
    assert (np.diff(mask) > 0).all()
    halves = np.array([np.count_nonzero(mask < n // 2), np.count_nonzero(mask >= n // 2)])
    assert (np.abs(halves - n * p / 2) <= 4 * math.sqrt(n * p * (1 - p) / 2) + 1).all()


def test_bernoulli_coins_are_independent_of_their_neighbours():
    kept = np.zeros(1 << 20, bool)
    kept[Bernoulli(0.1).mask(kept.size, public_root(6))] = True
    for distance in (1, 2, 7, 8, 64):
        both = np.count_nonzero(kept[distance:] & kept[:-distance])
        expected = (kept.size - distance) * 0.01
        assert abs(both - expected) <= 4 * math.sqrt(expected)


def test_independent_masks_need_a_private_seed():
    open_to_all = context(20)
    known = type(open_to_all)(0, 0, open_to_all.plan, open_to_all.public, open_to_all.public)
    with pytest.raises(InputError, match="private seed"):
        rand_k(0.5, independent=True).compress(normal(20), known)


def test_independent_masks_are_keyed_for_each_member_and_aggregator():
    plan = contiguous(200, 4)
    keys = {
        key
        for member in range(3)
        for round in range(3)
        for key in rand_k(0.1, independent=True)
        .compress(normal(200), context(plan, member=member, round=round))
        .mask_keys
    }
    assert len(keys) == 3 * 3 * 4
    assert {len(key) for key in keys} == {16}


def test_one_key_says_nothing_about_the_other_shards():
    plan, compressor = contiguous(400, 2), rand_k(0.1, independent=True)
    sent = context(plan)
    keys = compressor.compress(normal(400), sent).mask_keys
    mine = compressor.support(1, plan, sent.public, keys[1])
    assert not np.array_equal(compressor.support(1, plan, sent.public, keys[0]), mine)


def test_a_shared_mask_cannot_be_written_to():
    packed = rand_k(0.5).compress(normal(20), context(20))
    with pytest.raises(ValueError, match="read-only"):
        packed.support[0] = 1


def test_stratified_refuses_a_plan_of_another_length():
    with pytest.raises(PlanError, match="plan is for 10"):
        stratified_rand_k(0.5).compress(normal(12), context(10))


@pytest.mark.parametrize(
    "compressor", [rand_k(0.01), stratified_rand_k(0.01), rand_k(0.01, independent=True)], ids=repr
)
def test_compressing_takes_memory_for_what_is_kept_only(compressor):
    n = 2_000_000
    vector, reference, plan = normal(n), normal(n, seed=1), contiguous(n, 10)
    sent = context(plan)
    compressor.compress_difference(vector[:1000], reference[:1000], context(contiguous(1000, 10)))
    tracemalloc.start()
    packed = compressor.compress_difference(vector, reference, sent)
    packed.parts(plan)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < n * 0.01 * 200  # bytes; a vector of n has 4 n
