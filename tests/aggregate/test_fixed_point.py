"""Whole numbers modulo 2³²: sums in any order, limits before weights, alarms where a sum is impossible."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eris.aggregate.fixed_point import RingScale, add, decode_buffers, encode_buffers, next_limit
from eris.errors import ConfigError, InputError

LIMITS = st.integers(-40, 20).map(lambda exponent: 2.0**exponent)
SEEDS = st.integers(0, 2**32 - 1)


def weights_of(random: np.random.Generator, members: int) -> np.ndarray:
    raw = random.random(members) + 1e-3
    return (raw / raw.sum()).astype(np.float32)


@given(SEEDS, LIMITS, st.integers(1, 12), st.integers(0, 200))
def test_the_order_and_grouping_of_the_sum_do_not_matter(seed, limit, members, n):
    random, scale = np.random.default_rng(seed), RingScale(limit)
    weights = weights_of(random, members)
    parts = [scale.encode(random.normal(0, limit, n).astype("f4"), weight).values for weight in weights]
    one = np.zeros(n, np.uint32)
    for part in parts:
        add(one, part)
    halves = [np.zeros(n, np.uint32) for _ in range(2)]  # as two workers would
    for member in random.permutation(members):
        add(halves[member % 2], parts[member])
    assert np.array_equal(one, add(halves[0], halves[1]))


@given(SEEDS, LIMITS, st.integers(1, 300))
def test_everybody_at_the_limit_does_not_wrap(seed, limit, members):
    random, scale = np.random.default_rng(seed), RingScale(limit)
    weights = weights_of(random, members)
    total = np.zeros(2, np.uint32)
    for weight in weights:
        encoded = scale.encode(np.float32([4 * limit, -np.inf]), weight)
        assert encoded.limited == 2
        add(total, encoded.values)
    assert RingScale.within(total, weights)
    assert np.allclose(scale.decode_sum(total), [limit, -limit], rtol=1e-4)


def test_limiting_after_the_weight_would_wrap_unnoticed():
    """What the order of limit and weight is for: four members far outside cancel modulo 2³² if only v·w is limited."""
    scale, quarter, total = RingScale(1.0), np.float32(0.25), np.zeros(1, np.uint32)
    for _ in range(4):
        wrong = np.rint(np.clip(np.float32([8.0]) * quarter, -1, 1) * np.float32(2.0**scale.fraction))
        add(total, wrong.astype(np.int64).astype(np.uint32))
    assert scale.decode_sum(total).tolist() == [0.0]  # eight each, and the mean is said to be nothing


@settings(max_examples=50)
@given(SEEDS, st.sampled_from([10, 100, 1000]))
def test_the_error_against_the_exact_mean_is_half_a_step_a_member(seed, members):
    random, scale = np.random.default_rng(seed), RingScale(1.0)
    weights, exact, total = weights_of(random, members), np.zeros(64), np.zeros(64, np.uint32)
    for weight in weights:
        values = random.normal(0, 1e-3, 64).astype("f4")
        exact += values.astype("f8") * float(weight)
        add(total, scale.encode(values, weight).values)
    bound = members * scale.step / 2 + np.abs(exact) * 2.0**-22 + 1e-12
    assert (np.abs(scale.decode_sum(total) - exact) <= bound).all()


def test_one_contribution_is_decoded_to_what_it_means():
    scale, weight = RingScale(0.25), np.float32(0.125)
    values = np.float32([0.1, -0.2, 0.0, 1.0])
    encoded = scale.encode(values, weight)
    assert encoded.limited == 1
    meant = np.float32([0.1, -0.2, 0.0, 0.25])
    assert np.abs(scale.decode(encoded.values, weight) - meant).max() <= scale.step / weight


def test_golden_bits():
    """Peers on different machines must agree."""
    encoded = RingScale(0.5).encode(np.float32([0.1, -0.1, 0.5, -0.5, 1e-9]), np.float32(1 / 3))
    assert encoded.values.tolist() == [71582792, 4223384504, 357913952, 3937053344, 1]


def test_a_sum_that_nobody_honest_could_make_is_noticed():
    weights = [np.float32(0.5), np.float32(0.5)]
    fits = np.array([2**30, -(2**30)], np.int32).view(np.uint32)
    beyond = np.array([2**30 + 1], np.int32).view(np.uint32)
    assert RingScale.within(fits, weights)
    assert not RingScale.within(beyond, weights)
    assert not RingScale.within(fits, weights[:1])


@pytest.mark.parametrize("limit", [0.0, -1.0, 0.3, float("nan"), float("inf"), 2.0**61])
def test_a_limit_is_a_power_of_two(limit):
    with pytest.raises(ConfigError, match="limit of fixed point"):
        RingScale(limit)


def test_nan_is_refused_and_infinity_is_limited():
    scale = RingScale(1.0)
    with pytest.raises(InputError, match="has a NaN"):
        scale.encode(np.float32([0.0, np.nan]), np.float32(0.5))
    assert scale.encode(np.float32([np.inf]), np.float32(0.5)).limited == 1


@pytest.mark.parametrize("weight", [0.0, -0.1, 1.5, float("nan")])
def test_weights_are_shares(weight):
    with pytest.raises(InputError, match="weight is"):
        RingScale(1.0).encode(np.zeros(1, np.float32), np.float32(weight))


@given(st.floats(1e-12, 1e6))
def test_the_next_limit_is_the_least_power_of_two_above_sixteen_times_the_largest(largest):
    limit = next_limit(largest, first=1.0)
    assert limit / 2 <= 16 * largest < limit
    RingScale(limit)


def test_buffers_have_a_wider_ring():
    weights = [np.float32(0.25), np.float32(0.75)]
    buffers = [np.float32([1000.0, -3.5, 1e8]), np.float32([2000.0, -3.5, 1e8])]
    total = sum((encode_buffers(b, w) for b, w in zip(buffers, weights, strict=True)), np.zeros(3, np.uint64))
    assert np.array_equal(decode_buffers(total), np.float32([1750.0, -3.5, 1e8]))
    with pytest.raises(InputError, match="buffer"):
        encode_buffers(np.float32([np.nan]), weights[0])
    with pytest.raises(InputError, match="buffer"):
        encode_buffers(np.float32([2.0**40]), np.float32(1.0))


@pytest.mark.parametrize("members", [10, 100, 1000])
def test_the_limit_that_follows_means_cuts_nobody_who_agrees_on_nothing(members):
    """Updates that are nothing but noise: their mean is √K smaller than they are, and R has to cover them."""
    random, n = np.random.default_rng(members), 20_000
    updates = random.normal(0, 1e-3, (members, n)).astype("f4")
    largest = float(np.abs(updates.mean(axis=0)).max())
    scale = RingScale(next_limit(largest, first=1.0, members=members))
    assert sum(scale.encode(update, np.float32(1 / members)).limited for update in updates) == 0
    assert members < 1000 or next_limit(largest, first=1.0) < float(
        np.abs(updates).max()
    )  # sixteen times is too little
