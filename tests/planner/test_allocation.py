"""The linear programme against brute force, and the advice built on it."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eris.errors import ConfigError
from eris.planner import Fleet, Peer, Target, advise, allocate, distribution_time, exposure, scenario
from eris.planner.memory import memory_of_aggregators

N = 100_000
rates = st.floats(1e5, 1e8)


def fleet_of(links, memory=math.inf):
    return Fleet(tuple(Peer(f"p{k}", up, down, memory) for k, (up, down) in enumerate(links)))


def brute_force(round, method, steps=24):
    """Return the least time over a fine grid of shares."""
    parts = len(round.aggregators)
    grid = (cut for cut in itertools.product(range(1, steps), repeat=parts - 1) if sum(cut) < steps)
    return min(distribution_time(method, replace(round, shares=(*cut, steps - sum(cut)))) for cut in grid)


@settings(max_examples=15)
@given(
    st.lists(st.tuples(rates, rates), min_size=4, max_size=6),
    st.integers(2, 3),
    st.sampled_from([1.0, 0.05]),
    st.sampled_from(["shared", "independent"]),
)
def test_no_grid_point_beats_the_programme(links, aggregators, keep, masks):
    round = scenario(n=N, fleet=fleet_of(links), aggregators=aggregators, keep=keep, masks=masks)
    found = allocate(round)
    method = "eris+dsc" if keep < 1 else "eris"
    assert sum(found.shares) == pytest.approx(1)
    assert min(found.shares) >= 0
    assert found.seconds == distribution_time(method, replace(round, shares=found.shares))
    # within a thousandth (the most even of the fastest shares are taken), and the rounding of shards to coordinates
    assert found.seconds <= brute_force(round, method) * 1.003


def test_the_grid_finds_what_the_programme_finds():
    """Not only a bound: with a fine grid both agree."""
    links = [(5e6, 2e6), (1e6, 9e6), (8e6, 8e6), (9e6, 9e6)]
    round = scenario(n=N, fleet=fleet_of(links), aggregators=[0, 1, 2])
    assert allocate(round).seconds == pytest.approx(brute_force(round, "eris", steps=60), rel=0.03)


def test_a_slow_relay_takes_shards_away_from_whom_nobody_can_dial():
    peers = tuple(Peer(f"p{k}", 9e6, 9e6, relayed=k == 0) for k in range(4))
    round = scenario(n=N, fleet=Fleet(peers, relay=Peer("relay", 1e6, 1e6)), aggregators=[0, 1, 2])
    found = allocate(round)
    assert found.shares[0] < 0.5 * min(found.shares[1:])
    assert found.seconds <= brute_force(round, "eris", steps=40) * 1.003
    assert "relay" in {limit.kind for limit in found.limits}


def test_one_phase_alone_wants_shares_in_proportion_to_its_rate():
    """With endless downloads only publishing counts, and shares follow the upload rates."""
    links = [(1e6, 1e15), (2e6, 1e15), (5e6, 1e15), *[(1e12, 1e15)] * 20]
    round = scenario(n=10**7, fleet=fleet_of(links), aggregators=[0, 1, 2])
    assert allocate(round).shares == pytest.approx((1 / 8, 2 / 8, 5 / 8), abs=2e-3)


def test_capacity_beats_even_shares():
    links = [(1e6, 1e6), (50e6, 50e6), (50e6, 50e6), *[(20e6, 20e6)] * 7]
    even = scenario(n=10**6, fleet=fleet_of(links), aggregators=[0, 1, 2])
    assert allocate(even).seconds < 0.6 * distribution_time("eris", even)


def test_where_speed_does_not_care_shares_are_even():
    """A slow member decides the time; nothing is gained by trusting one aggregator with all."""
    links = [*[(100e6, 100e6)] * 4, (1e4, 1e4)]
    found = allocate(scenario(n=10**6, fleet=fleet_of(links), aggregators=[0, 1, 2, 3]))
    assert found.shares == pytest.approx([0.25] * 4, abs=1e-6)
    assert {limit.kind for limit in found.limits} == {"send", "receive"}
    assert {limit.peer for limit in found.limits} == {"p4"}


def test_memory_and_exposure_are_kept():
    peers = (Peer("small", 90e6, 90e6, memory=4e5), *(Peer(f"p{k}", 1e6, 1e6) for k in range(4)))
    round = scenario(n=10**6, fleet=Fleet(peers))
    found = allocate(round)
    best = replace(round, shares=found.shares)
    assert memory_of_aggregators("eris", best)[0] <= 4e5 * 1.001
    assert any(limit.kind == "memory" and limit.peer == "small" for limit in found.limits)
    capped = allocate(round, exposure=0.3)
    assert max(capped.shares) <= 0.3 + 1e-9
    pair = allocate(round, exposure=0.5, coalition=2)
    assert sum(sorted(pair.shares)[-2:]) <= 0.5 + 1e-9
    assert max(allocate(round, largest=0.25).shares) <= 0.25 + 1e-9


def test_what_cannot_be_is_none():
    round = scenario(n=10**6, fleet=fleet_of([(1e6, 1e6)] * 4))
    assert allocate(round, exposure=0.2) is None
    assert allocate(round, exposure=0.49, coalition=2) is None
    assert allocate(scenario(n=10**6, fleet=fleet_of([(1e6, 1e6)] * 4, memory=1e6))) is None
    with pytest.raises(ConfigError, match="holds two shards"):
        allocate(scenario(n=10, fleet=fleet_of([(1e6, 1e6)] * 4), aggregators=[1, 1]))


# ── advice ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_without_a_target_equal_peers_all_aggregate():
    advice = advise(scenario(n=1_650_000, fleet=Fleet.uniform(50, 20e6)), Target())
    assert advice.met
    assert (advice.method, len(advice.scenario.aggregators)) == ("eris", 50)
    assert advice.round_time == pytest.approx(0.6468)
    assert advice.exposure == 0.02
    assert advice.fewer == "round_time"
    assert (advice.block, advice.chunk) == (256, 132_000)


def test_the_fewest_aggregators_that_reach_the_target():
    base = scenario(n=1_650_000, fleet=Fleet.uniform(50, 20e6))
    advice = advise(base, Target(round_time=2.0, exposure=0.08))
    assert advice.method == "eris"
    assert len(advice.scenario.aggregators) == 17  # 49·13.2 MB/(A·20 MB/s) ≤ 2 s needs 17, 8 % needs 13
    assert advice.round_time <= 2.0 * 1.01
    assert advice.fewer == "round_time"
    private = advise(base, Target(round_time=5.0, exposure=0.08))
    assert (len(private.scenario.aggregators), private.fewer) == (13, "exposure")
    loose = advise(base, Target(round_time=20.0))
    assert (len(loose.scenario.aggregators), loose.fewer) == (10, "shard")
    assert len(advise(base, Target(round_time=20.0, largest_shard=1.0)).scenario.aggregators) == 2


def test_the_mildest_compression_that_reaches_the_target():
    base = scenario(n=1_650_000, fleet=Fleet.uniform(50, 20e6))
    advice = advise(base, Target(round_time=0.1))
    assert (advice.method, advice.scenario.keep) == ("eris+dsc", 0.1)
    assert advice.round_time <= 0.1 * 1.01
    stubborn = advise(base, Target(round_time=0.1), least_keep=0.5)
    assert (stubborn.met, stubborn.missed, stubborn.scenario.keep) == (False, ("round_time",), 0.5)


def test_collusion_is_stated_and_limited():
    base = scenario(n=10**6, fleet=Fleet.uniform(20, 20e6))
    advice = advise(base, Target(round_time=60, exposure=0.2, coalition=3))
    seen = dict(advice.coalition_exposure)
    assert seen[3] <= 0.2 * 1.01
    assert seen[3] == exposure("eris", advice.scenario, coalition=3).share
    assert len(advice.scenario.aggregators) == 15


def test_memory_as_a_target():
    base = scenario(n=10**6, fleet=Fleet.uniform(20, 20e6))
    advice = advise(base, Target(memory=1e6))
    assert advice.met
    assert advice.memory <= 1e6 * 1.01
    assert advice.scenario.keep == 0.2
    none = advise(base, Target(memory=1e3))
    assert (none.met, none.missed) == (False, ("memory",))


def test_a_fleet_without_memory_is_told_so():
    peers = tuple(Peer(f"p{k}", 1e6, 1e6, memory=100.0) for k in range(5))
    advice = advise(scenario(n=10**6, fleet=Fleet(peers)), Target())
    assert (advice.met, advice.missed) == (False, ("memory",))


def test_two_members_cannot_hide_from_each_other():
    advice = advise(scenario(n=1000, fleet=Fleet.uniform(2, 1e6)), Target(exposure=0.9), least_keep=1.0)
    assert (advice.met, advice.missed) == (False, ("exposure",))


def test_a_shard_larger_than_allowed_is_a_miss():
    peers = (Peer("only", 1e6, 1e6), *(Peer(f"p{k}", 1e6, 1e6, aggregate=False) for k in range(4)))
    advice = advise(scenario(n=1000, fleet=Fleet(peers)), Target(largest_shard=0.5))
    assert (advice.met, advice.missed) == (False, ("largest_shard",))
    assert advise(scenario(n=1000, fleet=Fleet(peers)), Target()).met  # one candidate: an even share is all of it


def test_bad_targets_are_refused():
    with pytest.raises(ConfigError, match="target round_time is 0"):
        Target(round_time=0)
    peers = tuple(Peer(f"p{k}", 1e6, 1e6, aggregate=False) for k in range(3))
    with pytest.raises(ConfigError, match=r"may aggregate"):
        advise(scenario(n=10, fleet=Fleet(peers)), Target())
    with pytest.raises(ConfigError, match="public independent masks"):
        advise(scenario(n=10, fleet=Fleet.uniform(4, 1.0), masks="public"), Target())


@settings(max_examples=15)
@given(st.lists(st.tuples(rates, rates), min_size=3, max_size=8), st.floats(0.2, 0.9))
def test_a_met_target_is_met(links, limit):
    round = scenario(n=N, fleet=fleet_of(links))
    advice = advise(round, Target(exposure=limit))
    assert advice.met == (exposure(advice.method, advice.scenario).share <= limit * 1.01)
    assert np.sum(advice.scenario.shard_sizes) == N
    assert advice.block <= max(1, advice.scenario.shard_sizes.min() // 100)
