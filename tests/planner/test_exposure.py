"""Exposure: what an observer is sent, and what published means give away."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eris.config import load_config
from eris.errors import ConfigError
from eris.planner import (
    METHODS,
    Fleet,
    ModelSize,
    aggregator_memory,
    exposure,
    require_memory,
    scenario,
)
from eris.planner import memory_of_aggregators as memory_of
from eris.planner.fleet import Peer
from eris.seeds import public_root
from eris.simulate.run import run
from tests.simulate.setting import settings

TEN = Fleet.uniform(10, 1e6)


def test_the_share_of_each_observer():
    round = scenario(n=10**6, fleet=TEN, keep=0.02)
    shares = {method: exposure(method, round).share for method in METHODS if method != "shatter"}
    whole = {"fedavg": 1, "fedavg-ldp": 1, "fedavg-dpsgd": 1, "gossip": 1, "qdpsgd": 1, "min-leakage": 0}
    part = {"priprune": 0.99, "priprune-pseudo": 0.99, "soteriafl": 0.05, "cdp-sgd": 0.05, "ako": 0.2}
    shards = {"eris": 0.1, "eris+ldp": 0.1, "fedprox": 0.1, "scaffold": 0.1, "eris+dsc": 0.002, "eris+dsc+ldp": 0.002}
    shards |= {"eris+masked": 0.0, "eris+dsc+masked": 0.0}
    assert shares == pytest.approx({**whole, **part, **shards, "fedavg+compression": 0.02}, abs=1e-4)


@pytest.mark.parametrize(("coalition", "share"), [(1, 0.2), (2, 0.4), (5, 1.0), (6, 1.0)])
def test_two_observers_a_shard(coalition, share):
    """Peers that are not neighbours have no shard in common: five of ten have them all."""
    seen = exposure("eris", scenario(n=10**6, fleet=TEN, replicas=2), coalition=coalition).share
    assert seen == pytest.approx(share)


def test_two_observers_a_shard_as_the_ledger_of_a_run_counts_them(tmp_path):
    quadratic = ["data.name=synthetic-quadratic", "model.options={n=700}"]
    config = settings("shards.replicas=2", "members=7", "aggregators=5", "rounds=2", *quadratic)
    counted = run(config, tmp_path / "run").summaries[0]["exposure"]["largest_share_per_round"]
    seven = Fleet.uniform(7, 1e6)
    planned = exposure("eris", scenario(n=700, fleet=seven, aggregators=[0, 1, 2, 3, 4], replicas=2)).share
    assert counted == pytest.approx(planned) == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("keep", "members", "alone"), [(0.01, 10, 0.91), (0.00012, 25, 0.997), (0.006, 50, 0.74), (0.033, 50, 0.19)]
)
def test_public_masks_give_lone_values_to_everybody(keep, members, alone):
    """p·[1/A + (1−1/A)(1−p)^(K−1)]: 91 % of the kept values at p = 1 %, K = 10."""
    fleet = Fleet.uniform(members, 1e6)
    found = exposure("eris+dsc", scenario(n=10**9, fleet=fleet, keep=keep, masks="public"))
    assert (1 - keep) ** (members - 1) == pytest.approx(alone, abs=0.006)
    expected = keep * (1 / members + (1 - 1 / members) * (1 - keep) ** (members - 1))
    assert found.share == pytest.approx(expected, rel=1e-3)
    assert found.broadcast == pytest.approx(expected - keep / members, rel=1e-3)


def test_secret_masks_publish_without_a_name():
    secret, public = (
        exposure("eris+dsc", scenario(n=10**6, fleet=TEN, keep=0.01, masks=masks))
        for masks in ("independent", "public")
    )
    assert secret.share == public.share > 0.009
    assert secret.broadcast == public.broadcast > 0.008
    assert "without its name" in secret.note


def test_values_of_one_member_count_as_in_the_ledger_of_a_run(tmp_path):
    """One convention: what nobody else kept is published to everybody, secret masks or not."""
    quadratic = ["data.name=synthetic-quadratic", "model.options={n=6000}"]
    masks = ["compression.keep=0.1", "compression.masks=independent"]
    config = settings("members=6", "aggregators=6", "rounds=3", *quadratic, *masks, method="eris+dsc")
    run(config, tmp_path / "run")
    counted = json.loads((tmp_path / "run" / "exposure.json").read_text())["mean_share_per_round"]
    six = Fleet.uniform(6, 1e6)
    planned = exposure("eris+dsc", scenario(n=6000, fleet=six, keep=0.1, masks="independent")).share
    assert counted == pytest.approx(planned, rel=0.1)


@pytest.mark.parametrize("aggregators", [1, 2])
def test_two_contributors_have_no_secrets(aggregators):
    round = scenario(n=1000, fleet=Fleet.uniform(2, 1e6), aggregators=aggregators)
    assert exposure("eris", round).share == 1
    third = scenario(n=1000, fleet=Fleet.uniform(9, 1e6), aggregators=5, participants=2)
    assert exposure("eris", third).share == 1


def test_all_but_one_member_know_the_last():
    round = scenario(n=10**6, fleet=TEN, keep=0.1)
    assert exposure("eris", round, coalition=8).share == pytest.approx(0.8)
    assert exposure("eris", round, coalition=9).share == 1
    assert exposure("eris+dsc", round, coalition=9).share == pytest.approx(0.1)


@given(st.lists(st.floats(0.1, 10), min_size=2, max_size=9), st.floats(0.01, 1))
def test_coalitions_add_up_from_the_largest_shard(shares, keep):
    fleet = Fleet.uniform(len(shares) + 3, 1e6)
    round = scenario(n=10**6, fleet=fleet, aggregators=len(shares), shares=shares, keep=keep)
    seen = [exposure("eris+dsc", round, coalition=c).share for c in range(1, len(shares) + 1)]
    assert seen == sorted(seen)
    assert seen[0] == pytest.approx(keep * max(shares) / sum(shares), rel=1e-3, abs=2e-6)
    assert seen[-1] == pytest.approx(keep, abs=1e-6)


@given(st.integers(3, 60), st.data())
def test_more_aggregators_show_less(members, data):
    more = data.draw(st.integers(2, members))
    fleet = Fleet.uniform(members, 1e6)
    many, few = (scenario(n=10**6, fleet=fleet, aggregators=a) for a in (more, more - 1))
    assert exposure("eris", many).share <= exposure("eris", few).share


def test_buffers_are_seen_whole():
    round = scenario(n=ModelSize(900, 100), fleet=TEN, aggregators=1, keep=0.1)
    assert exposure("eris+dsc", round).share == pytest.approx((90 + 100) / 1000)


def sampled_shatter(members, chunks, degree, draws):
    """Draw the receivers of one member's chunks and return the mean largest share of any one observer."""
    largest, targets = [], members * chunks - 1
    for draw in range(draws):
        seen = [set() for _ in range(members)]
        for chunk in range(chunks):
            # virtual node `chunk` of member 0 sends; the others are numbered 0 … targets − 1 without it
            picks = public_root(9).child(members, draw, chunk).subset(targets, degree)
            for pick in picks.tolist():
                seen[(pick + (pick >= chunk)) // chunks].add(chunk)
        largest.append(max(len(got) for got in seen[1:]) / chunks)
    return sum(largest) / draws


@pytest.mark.parametrize(("members", "chunks", "degree"), [(10, 2, 4), (25, 4, 4), (50, 2, 3)])
def test_shatter_as_drawn(members, chunks, degree):
    settings = load_config(
        changes=[f"options.shatter.virtual_nodes={chunks}", f"options.shatter.virtual_degree={degree}"]
    )
    round = scenario(n=10**6, fleet=Fleet.uniform(members, 1e6), config=settings)
    assert exposure("shatter", round).share == pytest.approx(sampled_shatter(members, chunks, degree, 400), abs=0.06)


def test_bad_questions_are_refused():
    with pytest.raises(ConfigError, match="the coalition has 0"):
        exposure("eris", scenario(n=10, fleet=TEN), coalition=0)
    with pytest.raises(ConfigError, match="no method 'fedproks'"):
        exposure("fedproks", scenario(n=10, fleet=TEN))


def test_memory_of_aggregation():
    """Staged contributions and one accumulator: about one model where all aggregate, K + 1 models at a server."""
    round = scenario(n=1000, fleet=TEN, keep=0.1)
    assert aggregator_memory("fedavg", round) == 11 * 4000
    assert aggregator_memory("eris", round) == 11 * 400
    assert aggregator_memory("eris+dsc", round) == pytest.approx(11 * 40)
    assert aggregator_memory("ako", round) == 9 * 4000 / 5 + 4000
    two = scenario(n=1000, fleet=TEN, aggregators=[3, 3], shares=[3, 1])
    assert memory_of("eris", two).tolist() == [0, 0, 0, 11 * 4000, *[0] * 6]


def test_too_little_memory_is_refused_by_name():
    peers = [Peer(f"p{k}", 1e6, 1e6) for k in range(9)] + [Peer("watch", 1e6, 1e6, memory=1e6)]
    fleet = Fleet(tuple(peers))
    with pytest.raises(ConfigError, match=r"4\.4 MB to aggregate 10 contributions.* offers 1\.0 MB \[peer=watch\]"):
        require_memory("eris", scenario(n=10**6, fleet=fleet))
    require_memory("eris+dsc", scenario(n=10**6, fleet=fleet, keep=0.01))
    require_memory("eris", scenario(n=10**6, fleet=fleet, aggregators=9))
