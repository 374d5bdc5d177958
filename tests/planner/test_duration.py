"""Distribution time: the paper's values, monotonicity, and where the round waits."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from eris.config import load_config
from eris.paper.difference import differences
from eris.paper.panels import PANELS
from eris.planner import METHODS, Fleet, Peer, bottlenecks, distribution_time, scenario
from eris.planner.costs import cost, finite

FIVE = load_config(changes=["options.shatter.virtual_degree=2"])
rates = st.floats(1e3, 1e9)


def uniform(panel, **changes):
    return scenario(n=PANELS[panel].n, fleet=Fleet.uniform(PANELS[panel].members, 20e6), **changes)


@pytest.mark.parametrize(
    ("panel", "plain", "sparse"),
    [("cnn-dailymail", 468, 236.34), ("imdb", 25.73, 12.87), ("cifar-10", 0.65, 0.33), ("mnist", 0.02, 0.01)],
)
def test_where_all_aggregate_the_honest_time_is_the_printed_one(panel, plain, sparse):
    """The tables are right about ERIS if A = K and own shards are not sent (independent masks, dense download)."""
    round = uniform(panel, keep=PANELS[panel].keep, masks="independent")
    assert distribution_time("eris", round) == pytest.approx(plain, abs=0.005)
    assert distribution_time("eris+dsc", round) == pytest.approx(sparse, abs=0.005)


def test_the_baselines_by_hand():
    round = uniform("cnn-dailymail")
    assert distribution_time("fedavg", round) == 5200
    assert distribution_time("ako", round) == pytest.approx(9 * 5.2e9 / 5 / 20e6)
    assert distribution_time("soteriafl", round) == pytest.approx(2730)
    assert distribution_time("qdpsgd", round) == pytest.approx(9 * 3 / 16 * 5.2e9 / 20e6)


def test_a_slow_member_holds_everybody_up():
    peers = [Peer(f"p{k}", 20e6, 20e6) for k in range(9)] + [Peer("phone", 1e5, 40e6)]
    round = scenario(n=900_000, fleet=Fleet(tuple(peers)), aggregators=range(9))
    collect, publish = bottlenecks("eris", round)
    assert (collect.node, collect.way, collect.seconds) == ("phone", "upload", 36.0)
    assert (publish.equals, publish.way) == (9, "upload")


@given(st.integers(2, 40), st.integers(100, 10**7), rates, st.floats(0.01, 1), st.data())
def test_more_equal_aggregators_are_never_slower(members, n, rate, keep, data):
    more = data.draw(st.integers(2, members))
    few = scenario(n=n, fleet=Fleet.uniform(members, rate), aggregators=more - 1, keep=keep)
    many = scenario(n=n, fleet=Fleet.uniform(members, rate), aggregators=more, keep=keep)
    for method in ("eris", "eris+dsc"):
        assert distribution_time(method, many) <= distribution_time(method, few) * (1 + 1e-9)


@given(st.integers(3, 20), st.integers(100, 10**7), rates, st.sampled_from(sorted(METHODS)), st.floats(1.1, 10))
def test_time_falls_with_the_rate_and_grows_with_the_model(members, n, rate, method, factor):
    def time(size, speed):
        return distribution_time(method, scenario(n=size, fleet=Fleet.uniform(members, speed), config=FIVE, keep=1.0))

    assert time(n, rate * factor) == pytest.approx(time(n, rate) / factor)
    assert time(n + members, rate) > time(n, rate)  # at least one coordinate more in every shard


@given(st.lists(st.tuples(rates, rates), min_size=3, max_size=8), st.sampled_from(sorted(METHODS)), st.data())
def test_a_faster_link_never_hurts(links, method, data):
    peers = [Peer(f"p{k}", up, down) for k, (up, down) in enumerate(links)]
    server = Peer("server", 1e6, 1e6)
    chosen = data.draw(st.integers(0, len(peers) - 1))
    better = [*peers]
    better[chosen] = Peer(peers[chosen].name, peers[chosen].upload * 2, peers[chosen].download * 3)
    owners = tuple(range(len(peers)))
    times = [
        distribution_time(
            method, scenario(n=12345, fleet=Fleet(tuple(fleet), server), aggregators=owners, config=FIVE, keep=1.0)
        )
        for fleet in (peers, better)
    ]
    assert times[1] <= times[0]


@given(st.integers(3, 30), st.floats(0.001, 0.5), st.floats(1.1, 2))
def test_stronger_compression_is_faster(members, keep, factor):
    assume(keep * factor <= 1)
    fleet = Fleet.uniform(members, 1e6)
    weak = scenario(n=1_000_000, fleet=fleet, keep=keep * factor)
    strong = scenario(n=1_000_000, fleet=fleet, keep=keep)
    assert distribution_time("eris+dsc", strong) <= distribution_time("eris+dsc", weak)


def test_members_that_do_not_listen_save_time():
    fleet = Fleet.uniform(20, 1e6)
    some = scenario(n=10**6, fleet=fleet, participants=5, aggregators=5, audience="participants")
    full = scenario(n=10**6, fleet=Fleet.uniform(5, 1e6))
    assert distribution_time("eris", some) == pytest.approx(distribution_time("eris", full))
    assert distribution_time(
        "eris", scenario(n=10**6, fleet=fleet, participants=5, aggregators=5)
    ) > 2 * distribution_time("eris", some)


def test_the_differences_to_the_paper_are_named():
    round = uniform("cnn-dailymail", keep=0.01, config=load_config())
    found = {method: {entry.quantity: entry for entry in differences(method, round)} for method in METHODS}
    assert found["fedavg"] == {} == found["soteriafl"]
    assert set(found["eris"]) == {"node", "formula"}
    assert found["eris"]["node"].honest == 2 * found["eris"]["node"].printed
    assert found["eris"]["formula"].printed == 520
    assert found["ako"]["formula"].printed == 260
    assert set(found["shatter"]) == {"upload", "download", "total", "time"}
    assert set(found["qdpsgd"]) == {"total", "time"}
    assert set(found["eris+dsc"]) == {"download", "total", "time", "node"}
    assert "as sparse as the uploads" in found["eris+dsc"]["time"].why
    assert all(entry.why.endswith(("otherwise",)) is False for entries in found.values() for entry in entries.values())


def test_fewer_aggregators_than_members_differ_in_upload():
    few = uniform("cifar-10", aggregators=10, keep=0.05, masks="independent")
    found = {entry.quantity: entry for entry in differences("eris+dsc", few)}
    assert "no shard of their own" in found["upload"].why
    public = uniform("cifar-10", aggregators=10, keep=0.05, masks="public")
    assert "only what some member kept" in {e.quantity: e for e in differences("eris+dsc", public)}["download"].why


def test_rules_of_the_paper_are_not_stretched():
    """Different rates, or members that sit out, are outside the paper's tables: nothing is compared."""
    mixed = Fleet((Peer("a", 1e6, 1e6), Peer("b", 2e6, 1e6), Peer("c", 1e6, 1e6)))
    assert differences("eris", scenario(n=1000, fleet=mixed)) == []
    assert differences("eris", scenario(n=1000, fleet=Fleet.uniform(4, 1e6), participants=2)) == []


def test_a_cost_gathers_everything():
    entry = cost("eris", uniform("mnist"))
    data = finite(entry.to_dict())
    assert data["method"] == "eris"
    assert data["seconds"] == pytest.approx(0.0243, abs=1e-4)
    assert data["exposure"]["share"] == 0.02
    assert [wait["equals"] for wait in data["waits_for"]] == [50, 50]
    assert cost("priprune", uniform("mnist")).keep == 0.99


def test_a_relay_carries_everything_twice_and_may_hold_everybody_up():
    """Ten peers that nobody can dial: each phase has 10 × 9/10 of a model on its way, all of it by the relay."""
    model, members, rate = 4 * 1_000_000, 10, 20e6
    direct = scenario(n=1_000_000, fleet=Fleet.uniform(members, rate))
    moved = 9 * model
    for relay_rate, phase in [(1e9, 0.9 * model / rate), (50e6, moved / 50e6)]:
        round = scenario(n=1_000_000, fleet=Fleet.uniform(members, rate, relay_rate=relay_rate))
        assert cost("eris", round).relayed == 2 * moved
        assert distribution_time("eris", round) == pytest.approx(2 * phase)
    assert {wait.node for wait in bottlenecks("eris", round)} == {"relay"}
    assert cost("eris", direct).relayed == cost("fedavg", round).relayed == 0
    assert distribution_time("fedavg", round) == distribution_time("fedavg", direct)


def test_only_links_to_relayed_aggregators_go_by_the_relay():
    peers = (Peer("oslo", 20e6, 20e6), Peer("bergen", 20e6, 20e6, relayed=True))
    round = scenario(n=1_000_000, fleet=Fleet(peers, relay=Peer("relay", 1e6, 2e6)))
    assert cost("eris", round).relayed == 4_000_000  # half a model to bergen, and the mean of that half from it
    assert [wait.seconds for wait in bottlenecks("eris", round)] == [2.0, 2.0]
    assert [(wait.node, wait.way) for wait in bottlenecks("eris", round)] == [("relay", "upload")] * 2
