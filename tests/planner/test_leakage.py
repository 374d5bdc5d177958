"""Theorem 3.2: counts of coordinates, collusion, and when the bound says nothing."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eris.errors import ConfigError, InputError
from eris.planner import capacity_from_transcripts, gaussian_capacity, leakage
from eris.planner.leakage import needed_against

LENET = {"n": 61_706, "rounds": 120, "keep": 1 / 31, "shards": 50}


def test_the_reference_value():
    found = leakage(**LENET, capacity=gaussian_capacity(0.01))
    assert found.coordinates == pytest.approx(4777.24, abs=0.005)
    assert found.nats == pytest.approx(23.77, abs=0.005)
    assert found.bits == pytest.approx(found.nats / math.log(2))
    assert not found.vacuous


@given(st.integers(1, 10**7), st.integers(1, 500), st.floats(0.001, 1), st.integers(1, 100), st.data())
def test_linear_in_everything(n, rounds, keep, shards, data):
    coalition = data.draw(st.integers(1, shards))
    one = leakage(n=n, rounds=rounds, keep=keep, shards=shards, capacity=0.01).nats
    assert leakage(n=n, rounds=3 * rounds, keep=keep, shards=shards, capacity=0.01).nats == pytest.approx(3 * one)
    assert leakage(n=n, rounds=rounds, keep=keep / 2, shards=shards, capacity=0.01).nats == pytest.approx(one / 2)
    assert leakage(n=n, rounds=rounds, keep=keep, shards=2 * shards, capacity=0.01).nats == pytest.approx(one / 2)
    many = leakage(n=n, rounds=rounds, keep=keep, shards=shards, coalition=coalition, capacity=0.01).nats
    assert many == pytest.approx(coalition * one)
    everybody = leakage(n=n, rounds=rounds, keep=keep, shards=shards, coalition=shards, capacity=0.01).nats
    assert everybody == pytest.approx(n * rounds * keep * 0.01)
    more, less = needed_against(coalition, shards=shards, keep=keep)
    for change in ({"shards": more}, {"keep": less}):
        kept = leakage(
            **({"n": n, "rounds": rounds, "keep": keep, "shards": shards} | change), coalition=coalition, capacity=0.01
        )
        assert kept.nats == pytest.approx(one)


def test_weighted_shards_count_from_the_largest():
    sizes = [5, 1, 3, 1]
    seen = [leakage(n=1000, rounds=1, shards=sizes, coalition=c, capacity=1).coordinates for c in range(5)]
    assert seen == pytest.approx([0, 500, 800, 900, 1000])


def test_never_more_than_there_is_to_know():
    assert leakage(**LENET, capacity=1.0, entropy=10.0).nats == 10.0
    assert leakage(**LENET, capacity=1.0, entropy=10.0).vacuous
    endless = leakage(**LENET, capacity=math.inf)
    assert (endless.nats, endless.vacuous) == (math.inf, True)
    assert leakage(**LENET, coalition=0, capacity=math.inf).nats == 0


def test_deterministic_work_has_no_bound():
    draw = np.random.default_rng(1).normal
    found = capacity_from_transcripts(draw(size=(20, 7)), np.ones((9, 7)))
    assert (found.largest, found.mean, found.deterministic) == (math.inf, math.inf, 7)
    still = capacity_from_transcripts(np.ones((20, 7)), np.ones((9, 7)))
    assert (still.largest, still.deterministic) == (0.0, 7)


def test_the_estimate_finds_the_ratio_of_variances():
    draw = np.random.default_rng(2).normal
    signal, noise = draw(scale=0.3, size=(4000, 1)), draw(size=(4000, 5))
    found = capacity_from_transcripts(signal + noise, draw(size=(4000, 5)))
    assert found.mean == pytest.approx(gaussian_capacity(0.09), abs=0.02)
    assert found.largest >= found.mean
    assert (found.coordinates, found.members, found.redraws, found.deterministic) == (5, 4000, 4000, 0)


def test_bad_input_is_refused():
    for changes in ({"n": 0}, {"rounds": 0}, {"keep": 0}, {"shards": []}, {"shards": [-1, 2]}, {"coalition": 51}):
        with pytest.raises(ConfigError):
            leakage(**(LENET | {"capacity": 1.0} | changes))
    with pytest.raises(ConfigError, match="C_max"):
        leakage(**LENET, capacity=math.nan)
    with pytest.raises(ConfigError, match="signal-to-noise"):
        gaussian_capacity(-1)
    with pytest.raises(ConfigError, match="coalition has 0"):
        needed_against(0, shards=1, keep=1)
    with pytest.raises(InputError, match="at least two rows"):
        capacity_from_transcripts(np.ones((1, 3)), np.ones((2, 3)))
    with pytest.raises(InputError, match="at least two rows"):
        capacity_from_transcripts(np.full((2, 3), np.nan), np.ones((2, 3)))
    with pytest.raises(InputError, match="same coordinates"):
        capacity_from_transcripts(np.ones((2, 3)), np.ones((2, 4)))
