from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eris.errors import ConfigError, InputError, Reason, Refused
from eris.seeds import public_root
from eris.shards.plan import contiguous, scattered
from eris.transforms import bf16, fp16, identity, natural, qsgd, qsgd_max, sign, terngrad, uniform
from eris.transforms.levels import MOST_LEVELS, Levels, unit_of
from eris.transforms.quantize import coins
from tests.transforms.scenes import context, normal

STOCHASTIC = [qsgd(3), qsgd_max(4), terngrad(), natural()]
LARGEST = float(np.finfo(np.float32).max)


def public_only(n):
    sent = context(n)
    return type(sent)(0, 0, sent.plan, sent.public, sent.public)


@pytest.mark.parametrize("compressor", STOCHASTIC, ids=repr)
def test_rounding_needs_a_private_seed(compressor):
    with pytest.raises(InputError, match="private seed"):
        compressor.compress(normal(8), public_only(8))


@pytest.mark.parametrize("compressor", [uniform(4), sign(), fp16(), bf16()], ids=repr)
def test_nothing_is_drawn_where_nothing_is_random(compressor):
    first, second = (compressor.compress(normal(64), context(64, member=k)).values() for k in (0, 1))
    assert np.array_equal(first, second)


@pytest.mark.parametrize(
    ("compressor", "bits"),
    [
        (terngrad(), 2), (qsgd(1), 2), (qsgd(2), 3), (qsgd(127), 8), (qsgd(128), 9), (qsgd_max(4), 3),
        (qsgd_max(8), 4), (qsgd_max(16), 5), (uniform(2), 2), (uniform(128), 8), (natural(), 9), (sign(), 1),
        (fp16(), 16), (bf16(), 16), (identity(), 32), (qsgd(MOST_LEVELS), 16),
    ],
    ids=repr,
)  # fmt: skip
def test_bits_of_a_value(compressor, bits):
    packed = compressor.compress(normal(1000), context(1000))
    assert packed.code.bits == bits
    (part,) = packed.parts(contiguous(1000, 1))
    assert part.payload_bytes == math.ceil(1000 * bits / 8) + 4 * part.scales.size


@pytest.mark.parametrize("levels", [0, -1, MOST_LEVELS + 1])
def test_impossible_numbers_of_levels(levels):
    for make, shifted in ((qsgd, 0), (qsgd_max, 1), (uniform, 1)):
        with pytest.raises(ConfigError, match="number of levels"):
            make(levels + shifted)


@given(st.floats(0, 2.0**127, width=32, allow_subnormal=True), st.integers(1, MOST_LEVELS))
def test_units_reach_the_largest_value_and_no_smaller_one_does(largest, levels):
    unit = float(unit_of(largest, levels))
    assert unit * levels >= largest * (1 - 1e-15)
    assert unit * levels <= LARGEST
    if unit > 0:
        assert float(np.nextafter(np.float32(unit), np.float32(0))) * levels < largest


@pytest.mark.parametrize(
    "compressor", [qsgd(4), qsgd_max(4), terngrad(), uniform(4), natural(), fp16(), bf16()], ids=repr
)
def test_values_too_large_to_quantise_are_refused(compressor):
    with pytest.raises(InputError, match="the largest value"):
        compressor.compress(np.full(4, LARGEST, np.float32), context(4))


@given(st.integers(2, 9), st.integers(0, 1000))
def test_uniform_error_is_half_a_level_at_most(levels, seed):
    vector, tensors = normal(60, seed=seed, spread=3), (20, 40)
    sent = uniform(levels).compress(vector, context(60, tensors=tensors)).dense()
    for piece, got in zip(np.split(vector, [20]), np.split(sent, [20]), strict=True):
        largest = float(np.abs(piece).max())
        assert float(np.abs(got - piece).max()) <= largest / (2 * (levels - 1)) * (1 + 1e-6)
        assert got[np.argmax(np.abs(piece))] == pytest.approx(piece[np.argmax(np.abs(piece))], rel=1e-6)


def test_uniform_is_odd():
    vector = np.linspace(-1, 1, 401).astype(np.float32)  # ties among them
    for levels in (2, 3, 4, 5):
        sent = uniform(levels).compress(vector, context(401)).dense()
        assert np.array_equal(sent, -sent[::-1])


@pytest.mark.parametrize("compressor", [qsgd_max(4), uniform(4)], ids=repr)
def test_each_tensor_has_its_own_unit(compressor):
    vector = np.array([1.0, -2.0, 3.0, 100.0, -300.0], np.float32)
    packed = compressor.compress(vector, context(5, tensors=(3, 2)))
    assert packed.scales.tolist() == [1.0, 100.0]
    assert packed.values().tolist() == vector.tolist()


def test_values_on_a_level_are_sent_exactly():
    vector = np.array([0.0, 1.0, -2.0, 4.0, -3.0], np.float32)
    assert all(np.array_equal(qsgd_max(5).compress(vector, context(5, round=r)).dense(), vector) for r in range(20))


def test_tensor_sizes_must_fit():
    with pytest.raises(InputError, match="the tensors have 7 values, but the vector has 8"):
        qsgd_max(4).compress(normal(8), context(8, tensors=(3, 4)))


@pytest.mark.parametrize(
    ("symbols", "scales"),
    [
        ([7], [1.0]), ([0], [math.nan]), ([0], [-1.0]), ([0], [math.inf]), ([0], [LARGEST]), ([0], []), ([0], [1.0, 2]),
    ],
)  # fmt: skip
def test_what_no_sender_makes_is_refused(symbols, scales):
    with pytest.raises(Refused) as refusal:
        Levels(3).decode(np.array(symbols, np.uint8), np.array(scales, np.float32), None)
    assert refusal.value.reason == Reason.MALFORMED


@pytest.mark.parametrize(("compressor", "symbol"), [(natural(), 512), (sign(), 2)], ids=repr)
def test_symbols_out_of_range_are_refused(compressor, symbol):
    code = compressor.code(())
    with pytest.raises(Refused, match="malformed"):
        code.decode(np.array([0, symbol], code.dtype), np.empty(0, np.float32), None)


@given(st.integers(0, 500), st.integers(0, 300))
def test_coins_can_be_drawn_from_anywhere(first, count):
    seed = public_root(1)
    assert np.array_equal(coins(seed, first, count), coins(seed, 0, 1000)[first : first + count])


def test_rounding_does_not_depend_on_the_length_of_blocks():
    """Coordinates beyond the first block get coins of their own."""
    n = 200_000
    sent = qsgd_max(2).compress(np.full(n, 0.5, np.float32) + np.eye(1, n, 0, dtype=np.float32)[0], context(n))
    for length in (1 << 14, 1 << 15, 1 << 16, 100_000):
        assert not np.array_equal(sent.symbols[1:length], sent.symbols[length + 1 : 2 * length])


@pytest.mark.parametrize(
    "compressor", [qsgd(7), qsgd_max(4), terngrad(), uniform(4), natural(), sign(), fp16(), bf16()], ids=repr
)
def test_quantising_takes_less_than_three_vectors(compressor):
    n = 1_000_000
    vector, plan = normal(n), scattered(n, 10, public_root(2), block=64)
    sent = context(plan, tensors=(n // 2, n - n // 2))
    plan.coordinates(0)
    tracemalloc.start()
    packed = compressor.compress(vector, sent)
    packed.parts(plan)
    parts = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    packed.values()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert max(parts, peak) < 3 * 4 * n
