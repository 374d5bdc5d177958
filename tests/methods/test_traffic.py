"""The planner's closed forms against the bytes of simulated runs: to the byte, or in expectation of drawn graphs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from eris.config import load_config
from eris.events import RoundEnded, Sent
from eris.methods import METHODS
from eris.planner import Fleet, scenario, traffic
from eris.simulate.method_run import MethodRun
from eris.simulate.run import open_engine
from eris.transforms.named import COMPRESSORS
from eris.wire.frame import CHUNK, HEADER_BYTES
from tests.simulate.setting import settings

K, N = 7, 700
INDEPENDENT = ["compression.masks=independent", "compression.keep=0.1"]
NOT_IN_CLOSED_FORM = {  # by themselves: graphs and shared masks are drawn, DP-SGD needs samples; each has a test below
    *("shatter", "eris+dsc", "eris+dsc+ldp", "eris+dsc+masked", "fedavg-dpsgd"),
}

COMPRESSED = [  # each compressor that may stand alone, and the bytes it makes of N values in one tensor
    ([f"compression.compressor={name}", *more], size)
    for name, more, size in [
        ("identity", [], 4 * N),
        ("fp16", [], 2 * N),
        ("bf16", [], 2 * N),
        ("natural", [], -(-9 * N // 8)),
        ("sign", [], -(-N // 8)),
        ("terngrad", [], -(-2 * N // 8) + 4),
        ("qsgd", ["compression.options={levels=4}"], -(-4 * N // 8) + 4),  # −4 … 4: four bits, and one unit
        ("qsgd_max", ["compression.options={levels=8}"], -(-4 * N // 8) + 4),
        ("uniform", ["compression.options={levels=16}"], -(-5 * N // 8) + 4),
        ("top_k", ["compression.keep=0.2"], 4 * 140 + -(-N // 8)),  # places as a bitmap
        ("top_k", ["compression.keep=0.01"], 4 * 7 + 4 * 7),  # as a list
        ("rand_k", ["compression.keep=0.1", "compression.masks=independent"], 4 * 70),
        ("magnitude_prune", ["compression.options={p=0.3}"], 4 * 490 + -(-N // 8)),  # 0.3 left out, places as a bitmap
        ("magnitude_prune", ["compression.keep=0.7"], 4 * 490 + -(-N // 8)),  # the same, said by what is kept
        ("magnitude_prune", ["compression.options={p=0.01}"], 4 * N),  # zeros are shorter than a bitmap
    ]
]


def counted(tmp_path, method, *changes, rounds=2):
    """Run a method and return its events, by kind."""
    quadratic = ["data.name=synthetic-quadratic", f"model.options={{n={N}}}", f"rounds={rounds}", f"members={K}"]
    config = settings(*quadratic, *changes, method=method)
    engine, events = open_engine(config), []
    MethodRun(engine.facts.compose(config), tmp_path / "run", engine, listeners=[events.append]).run()
    return {kind: [event for event in events if isinstance(event, kind)] for kind in (RoundEnded, Sent)}


def planned(method, *changes, **options):
    config = load_config(changes=changes)
    fleet = Fleet.uniform(K, rate=20e6)
    options = {"n": N, "aggregators": list(range(K)), "header": HEADER_BYTES, "chunk": CHUNK} | options
    return traffic(method, scenario(fleet=fleet, config=config, **options))


def seconds(closed):
    return sum(max(phase.sent.max(), phase.received.max()) for phase in closed.phases) / 20e6


@pytest.mark.parametrize(
    ("method", "changes", "options"),
    [
        *[(method, [], {}) for method in METHODS if method not in NOT_IN_CLOSED_FORM],
        ("eris", ["aggregators=3"], {"aggregators": [0, 1, 2]}),
        ("eris", ["shards.replicas=2"], {"replicas": 2}),
        ("eris", ["shards.replicas=2", "aggregators=3"], {"aggregators": [0, 1, 2], "replicas": 2}),
        ("eris+dsc", [*INDEPENDENT, "shards.replicas=2"], {"replicas": 2}),
        ("eris", [f"shards.capacities={[float(k + 1) for k in range(K)]}"], {"shares": list(range(1, K + 1))}),
        ("soteriafl", ["options.soteriafl.keep=0.013"], {}),
        ("cdp-sgd", ["options.cdp-sgd.keep=0.2"], {}),
        ("priprune", ["options.priprune.prune=0.3"], {}),
        ("priprune-pseudo", ["options.priprune-pseudo.prune=0.2"], {}),
        ("eris+dsc", INDEPENDENT, {}),
        ("eris+dsc+ldp", INDEPENDENT, {}),
        *[("fedavg+compression", changes, {}) for changes, _ in COMPRESSED],
        ("ako", ["options.ako.partitions=5"], {}),
        ("gossip", ["options.gossip.degree=2"], {}),
        ("qdpsgd", ["options.qdpsgd.degree=4"], {}),
        ("qdpsgd", ["options.qdpsgd.degree=4", "options.qdpsgd.levels=7"], {}),
    ],
)
def test_to_the_byte(method, changes, options, tmp_path):
    """What the planner reads from a configuration is what a run of that configuration sends."""
    closed = planned(method, *changes, **options)
    for ended in counted(tmp_path, method, *changes)[RoundEnded]:
        assert ended.traffic.total == pytest.approx(closed.network, abs=1e-6)
        assert ended.traffic.seconds == pytest.approx(seconds(closed), rel=1e-9)
    servers = [phase for phase in closed.phases if len(closed.phases) > 1]
    if servers:
        sent, received = closed.phases[0].sent[:-1].mean(), closed.phases[-1].received[:-1].mean()
        assert (ended.traffic.member.up, ended.traffic.member.down) == pytest.approx((sent, received))
    else:
        assert ended.traffic.member.up == ended.traffic.member.down == pytest.approx(closed.sent[:-1].mean())


def test_ako_with_partitions_that_differ(tmp_path):
    """700 = 3 · 100 + 4 · 100: with 8 partitions some have 87, some 88 values."""
    events = counted(tmp_path, "ako", "options.ako.partitions=8", rounds=8)
    sizes = [ended.traffic.total - K * (K - 1) * HEADER_BYTES for ended in events[RoundEnded]]
    assert sorted(sizes) == [K * (K - 1) * 4 * size for size in (87, 87, 87, 87, 88, 88, 88, 88)]
    closed = planned("ako", "options.ako.partitions=8")
    assert sum(ended.traffic.total for ended in events[RoundEnded]) == pytest.approx(8 * closed.network)


def test_noise_in_every_step_costs_no_byte(tmp_path):
    """DP-SGD needs gradients of single samples, so this one is on real digits."""
    digits = [
        "data.name=mnist-sample",
        "data.samples=3",
        "data.test_samples=10",
        "local.batch=full",
        "model.options={}",
    ]
    closed = planned("fedavg", n=61706)
    for ended in counted(tmp_path, "fedavg-dpsgd", *digits, rounds=1)[RoundEnded]:
        assert ended.traffic.total == closed.network


@pytest.mark.parametrize("method", ["eris+dsc", "eris+dsc+ldp"])
def test_a_shared_mask_is_as_long_wherever_it_falls(method, tmp_path):
    """What lies in a member's own shard is drawn; all messages together are not."""
    events = counted(tmp_path, method, "compression.keep=0.1", "aggregators=3", rounds=9)
    closed = planned("eris+dsc", keep=0.1, aggregators=[0, 1, 2])
    totals = [ended.traffic.total for ended in events[RoundEnded]]
    assert set(totals) == {round(closed.network)}
    uploads = {ended.traffic.seconds for ended in events[RoundEnded]}
    assert len(uploads) > 1


def both_ways(tmp_path, compressor, rounds):
    """Return the bytes of one message in each round; with shared places the result is as short as an update."""
    changes = [f"compression.compressor={compressor}", "compression.keep=0.1"]
    ended = counted(tmp_path, "fedavg+compression", *changes, rounds=rounds)[RoundEnded]
    sizes = [one.traffic.member.up for one in ended]
    assert [one.traffic.member.down for one in ended] == sizes
    assert [one.traffic.total for one in ended] == [2 * K * size for size in sizes]
    return np.array(sizes) - HEADER_BYTES


@pytest.mark.parametrize("compressor", ["rand_k", "stratified_rand_k"])
def test_shared_places_shorten_the_result_as_well(compressor, tmp_path):
    assert set(both_ways(tmp_path, compressor, rounds=2)) == {4 * 70}


def test_bernoulli_in_expectation(tmp_path):
    """Every value is kept with p = 0.1: a binomial number of them, the same for all members in a round."""
    kept = both_ways(tmp_path, "bernoulli", rounds=60) / 4
    assert np.all(kept == np.round(kept))
    spread = math.sqrt(N * 0.1 * 0.9)
    assert abs(kept.mean() - 0.1 * N) < 4 * spread / math.sqrt(kept.size)
    assert 0.6 * spread < kept.std() < 1.4 * spread


@pytest.mark.parametrize(("changes", "size"), COMPRESSED)
def test_a_compressors_size_is_foreseen(changes, size):
    received = planned("fedavg+compression", *changes).phases[0].received[-1]
    assert received == K * (size + HEADER_BYTES)


def test_every_compressor_is_held_to_its_size():
    named = {change.partition("=")[2] for changes, _ in COMPRESSED for change in changes if "compressor=" in change}
    assert named | {"rand_k", "stratified_rand_k", "bernoulli"} == set(COMPRESSORS)


def test_shatter_given_its_graph_and_in_expectation(tmp_path):
    rounds, piece = 60, 4 * N // 2 + HEADER_BYTES
    events = counted(tmp_path, "shatter", rounds=rounds)
    totals = np.array([ended.traffic.total for ended in events[RoundEnded]])
    by_round = np.zeros(rounds)
    for sent in events[Sent]:
        assert set(np.unique(sent.bytes)) <= {0, piece, 2 * piece, 3 * piece, 4 * piece}
        assert sent.reached == tuple(np.flatnonzero(sent.bytes))
        by_round[sent.round] += sum(sent.bytes)
    np.testing.assert_array_equal(totals, by_round)  # exactly what the messages of the drawn graph weigh
    closed = planned("shatter")
    assert abs(totals.mean() - closed.network) < 4 * totals.std(ddof=1) / math.sqrt(rounds)
    assert totals.max() <= 4 * 2 * K * piece
