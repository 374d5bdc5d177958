"""Bytes: reference values, conservation, and agreement with what the transforms really send."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eris.config import load_config
from eris.errors import ConfigError
from eris.local.spec import ModelSpec
from eris.paper.table_rules import BaselineSettings
from eris.planner import METHODS, Fleet, ModelSize, Peer, scenario, traffic
from eris.planner.traffic import payload
from eris.seeds import private_root, public_root
from eris.shards.plan import scattered
from eris.transforms.sparsify import rand_k
from eris.transforms.transform import SendContext

TEN = Fleet.uniform(10, 20e6)
GB = 1e9


def fleets(least=2):
    rate = st.floats(1e3, 1e9)
    peer = st.tuples(rate, rate)
    return st.lists(peer, min_size=least, max_size=12).map(
        lambda rates: Fleet(tuple(Peer(f"p{k}", up, down) for k, (up, down) in enumerate(rates)))
    )


@st.composite
def scenarios(draw):
    fleet = draw(fleets(3))
    everybody = st.integers(0, len(fleet) - 1)
    owners = draw(st.lists(everybody, min_size=1, max_size=len(fleet), unique=True))
    return scenario(
        n=ModelSize(draw(st.integers(50, 10**6)), draw(st.sampled_from([0, 0, 300]))),
        fleet=fleet,
        aggregators=owners,
        shares=draw(st.lists(st.floats(0.01, 10), min_size=len(owners), max_size=len(owners))),
        participants=draw(st.none() | st.lists(everybody, min_size=2, unique=True)),
        audience=draw(st.sampled_from(["all", "participants"])),
        keep=draw(st.floats(0.001, 1)),
        masks=draw(st.sampled_from(["shared", "independent", "public"])),
        header=draw(st.sampled_from([0, 160])),
        chunk=draw(st.sampled_from([math.inf, 1 << 20, 1000])),
        config=load_config(changes=["options.shatter.virtual_degree=2"]),
    )


@given(scenarios(), st.sampled_from(sorted(METHODS)))
def test_what_all_send_is_what_all_receive(round, method):
    for phase in traffic(method, round).phases:
        assert phase.sent.sum() == pytest.approx(phase.received.sum(), rel=1e-9, abs=1e-6)
        assert (phase.sent >= -1e-6).all()
        assert (phase.received >= -1e-6).all()


@given(scenarios(), st.sampled_from(sorted(METHODS)))
def test_a_node_moves_at_least_what_its_member_role_does(round, method):
    found = traffic(method, round)
    assert found.node_upload >= found.member_upload * (1 - 1e-12) - 1e-6
    assert found.node_download >= found.member_download * (1 - 1e-12) - 1e-6
    assert found.member_total <= found.member_upload + found.member_download + 1e-6
    assert found.network == pytest.approx(found.received.sum())


@given(scenarios())
def test_compression_never_costs_bytes(round):
    dense, sparse = traffic("eris", round), traffic("eris+dsc", round)
    if round.masks == "shared":
        assert sparse.network <= dense.network * (1 + 1e-12) + 1
    assert sparse.member_upload <= dense.member_upload * (1 + 1e-12) + 1


def test_the_large_model_of_the_paper():
    """4.68 GB a member, but 9.36 GB each way for a node that also aggregates; the network moves (K−1)(b+b')."""
    round = scenario(n=1_300_000_000, fleet=TEN, keep=0.01, masks="independent")
    plain, sparse = traffic("eris", round), traffic("eris+dsc", round)
    assert (plain.member_upload, plain.member_download, plain.member_total) == (4.68 * GB, 4.68 * GB, 9.36 * GB)
    assert (plain.node_upload, plain.node_download) == (9.36 * GB, 9.36 * GB)
    assert plain.network == pytest.approx(9 * 2 * 5.2 * GB)
    assert sparse.member_upload == pytest.approx(46.8e6)
    assert (sparse.node_upload, sparse.node_download) == pytest.approx((4.7268 * GB, 4.7268 * GB))
    assert traffic("fedavg", round).network == pytest.approx(10 * 2 * 5.2 * GB)


def test_shared_masks_shrink_the_download_too():
    round = scenario(n=1_300_000_000, fleet=TEN, keep=0.01)
    assert traffic("eris+dsc", round).member_download == pytest.approx(46.8e6)


@pytest.mark.parametrize(
    ("keep", "members", "union"),
    [(0.01, 10, 0.096), (0.00012, 25, 0.0030), (0.006, 50, 0.26), (0.033, 50, 0.81), (0.05, 50, 0.92)],
)
def test_public_masks_publish_their_union(keep, members, union):
    round = scenario(n=10**9, fleet=Fleet.uniform(members, 1.0), keep=keep, masks="public")
    assert payload("eris+dsc", round).down.sum() / (4 * 10**9) == pytest.approx(
        union, abs=0.006 if union > 0.1 else 5e-4
    )


def test_one_aggregator_that_is_no_member_is_a_server():
    outsider = Fleet(tuple(Peer(f"p{k}", 3e6, 5e6) for k in range(8)), Peer("server", 3e6, 5e6))
    members = tuple(range(7))
    sharded = scenario(n=1000, fleet=outsider, aggregators=[7], participants=members, audience="participants")
    central, eris = traffic("fedavg", sharded), traffic("eris", sharded)
    np.testing.assert_array_equal(eris.sent[:7], central.sent[:7])
    np.testing.assert_array_equal(eris.received[:7], central.received[:7])
    assert (eris.sent[7], eris.received[7]) == (central.sent[8], central.received[8])


def test_the_other_methods_by_hand():
    b = 4 * 1_000_000
    round = scenario(n=1_000_000, fleet=TEN)
    assert traffic("ako", round).member_upload == 9 * b / 5
    assert traffic("qdpsgd", round).member_upload == pytest.approx(9 * (3 / 16 * b + 4))
    assert traffic("shatter", round).member_upload == pytest.approx(4 * b * (1 - 1 / 19))
    assert traffic("soteriafl", round).member_upload == pytest.approx(0.05 * b)
    assert traffic("priprune", round).member_upload == pytest.approx(0.99 * b + 4 * 10_000)
    more = scenario(n=1_000_000, fleet=TEN, config=load_config(changes=["options.priprune.prune=0.3"]))
    assert traffic("priprune", more).member_upload == pytest.approx(0.7 * b + 1_000_000 / 8)
    few = scenario(n=1_000_000, fleet=TEN, config=load_config(changes=["options.qdpsgd.degree=4"]))
    assert traffic("qdpsgd", few).member_upload == pytest.approx(4 * (3 / 16 * b + 4))


def test_what_is_built_on_eris_costs_what_eris_costs():
    round = scenario(n=1_000_000, fleet=TEN, aggregators=3)
    for method in ("eris+ldp", "fedprox", "scaffold"):
        assert traffic(method, round).network == traffic("eris", round).network


def test_members_that_sit_out_send_nothing_but_listen():
    round = scenario(n=1000, fleet=TEN, aggregators=[0, 1], participants=[1, 2, 3])
    found = traffic("eris", round)
    assert found.phases[0].sent.tolist() == [0, 2000, 4000, 4000, *[0] * 7]
    assert found.phases[0].received.tolist() == [6000, 4000, *[0] * 9]
    assert found.phases[1].sent.tolist() == [18000, 18000, *[0] * 9]
    deaf = scenario(n=1000, fleet=TEN, aggregators=[0, 1], participants=[1, 2, 3], audience="participants")
    assert traffic("eris", deaf).phases[1].received.tolist() == [0, 2000, 4000, 4000, *[0] * 7]
    assert traffic("fedavg", deaf).phases[1].received[:5].tolist() == [0, 4000, 4000, 4000, 0]


def test_buffers_travel_whole():
    round = scenario(n=ModelSize(100_000, 1000), fleet=TEN, keep=0.01)
    assert traffic("eris+dsc", round).phases[0].sent[0] == pytest.approx(4 * 0.9 * (1000 + 1000))
    fixed = scenario(n=ModelSize(100_000, 1000), fleet=TEN, keep=0.01, encoding="fixed")
    assert traffic("eris+dsc", fixed).phases[0].sent[0] == pytest.approx(0.9 * (4 * 1000 + 8 * 1000))


def test_every_chunk_has_a_header():
    round = scenario(n=1000, fleet=TEN, aggregators=[0], header=160, chunk=1000)
    assert traffic("eris", round).phases[0].sent[1] == 4000 + 4 * 160
    empty = scenario(n=1, fleet=TEN, aggregators=[0, 1], header=160)
    assert traffic("eris", empty).phases[0].sent[5] == 4 + 2 * 160


@pytest.mark.parametrize("independent", [False, True])
@pytest.mark.parametrize(("n", "aggregators", "keep"), [(10_007, 7, 0.03), (62_000, 50, 0.00012), (999, 3, 1.0)])
def test_the_closed_form_is_what_the_transforms_send(independent, n, aggregators, keep):
    plan = scattered(n, aggregators, public_root(3).child("plan"))
    spec = ModelSpec.flat(n)
    context = SendContext(
        round=0,
        member=0,
        plan=plan,
        public=public_root(3),
        private=private_root(3, 0),
        tensor_sizes=spec.trainable_sizes,
    )
    vector = np.arange(n, dtype=np.float32)
    parts = rand_k(keep, independent=independent).compress(vector, context).parts(plan)
    round = scenario(
        n=n,
        fleet=Fleet.uniform(aggregators, 1.0),
        keep=keep,
        masks="independent" if independent else "shared",
    )
    expected, sent = payload("eris+dsc", round).up, [part.payload_bytes for part in parts]
    assert sum(sent) == pytest.approx(expected.sum(), abs=1e-6)
    if independent:
        assert sent == expected.tolist()
    else:  # a shard's part of the round's mask is random: within six standard deviations of its mean
        assert np.abs(np.array(sent) - expected).max() <= 4 * 6 * math.sqrt(max(1.0, keep * n / aggregators))


def test_impossible_rounds_are_refused():
    with pytest.raises(ConfigError, match=r"12 aggregators for 10 members.*use 1 … 10"):
        scenario(n=10, fleet=TEN, aggregators=12)
    with pytest.raises(ConfigError, match="0 aggregators"):
        scenario(n=10, fleet=TEN, aggregators=0)
    with pytest.raises(ConfigError, match="kept share p is 0"):
        scenario(n=10, fleet=TEN, keep=0)
    with pytest.raises(ConfigError, match="masks are 'none'"):
        scenario(n=10, fleet=TEN, masks="none")
    with pytest.raises(ConfigError, match="audience is 'nobody'"):
        scenario(n=10, fleet=TEN, audience="nobody")
    with pytest.raises(ConfigError, match="11 of 10 members are to take part"):
        scenario(n=10, fleet=TEN, participants=11)
    with pytest.raises(ConfigError, match="3 shard sizes for 2 aggregators"):
        scenario(n=10, fleet=TEN, aggregators=2, shares=[1, 1, 1])
    with pytest.raises(ConfigError, match="aggregators are"):
        scenario(n=10, fleet=TEN, aggregators=[99])
    with pytest.raises(ConfigError, match="at least one value"):
        scenario(n=0, fleet=TEN)
    with pytest.raises(ConfigError, match="no method 'fedproks'"):
        traffic("fedproks", scenario(n=10, fleet=TEN))
    with pytest.raises(ConfigError, match="4 nodes cannot have"):
        traffic("shatter", scenario(n=10, fleet=Fleet.uniform(2, 1.0)))
    with pytest.raises(ConfigError, match="header"):
        scenario(n=10, fleet=TEN, header=-1)
    with pytest.raises(ConfigError, match="prune is 2"):
        BaselineSettings(prune=2)
    with pytest.raises(ConfigError, match="ako_partitions is 0"):
        BaselineSettings(ako_partitions=0)
