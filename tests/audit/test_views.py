"""Who sees what: a vantage shows its own shards, never more."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from eris.audit.observer import Observer, Vantage, parse_observer
from eris.errors import ConfigError
from eris.exposure import ExposureLedger
from eris.seeds import public_root
from tests.audit.federation import MEMBERS, train


@pytest.fixture(scope="module")
def eris(tmp_path_factory):
    return train(tmp_path_factory.mktemp("eris"))


def owned(record, peer):
    shards = [shard for shard, home in enumerate(record.assignment) if home == peer]
    return np.concatenate([record.layout.trainable.coordinates(shard) for shard in shards])


def test_an_aggregator_sees_its_own_coordinates_and_no_others(eris):
    record = eris.records()[0]
    sent = record.sent[0]
    for peer in range(1, MEMBERS):
        view = Vantage((peer,), "own").view(sent, record.layout, record.assignment)
        assert np.array_equal(np.sort(view.coordinates), np.sort(owned(record, peer)))
        model = record.model.copy()
        model[view.coordinates] -= view.values
        assert set(np.flatnonzero(model != record.model)) <= set(owned(record, peer))
        assert view.scalars == {"weight": sent.weight, "steps": sent.steps}


def test_one_aggregator_alone_sees_what_a_server_sees(tmp_path):
    alone, server = train(tmp_path / "a", "aggregators=1"), train(tmp_path / "b", method="fedavg")
    for one, other in zip(alone.records(), server.records(), strict=True):
        for member in range(1, MEMBERS):
            own = Vantage((0,), "own").view(one.sent[member], one.layout, one.assignment)
            full = Vantage((), "all").view(other.sent[member], other.layout, other.assignment)
            assert np.array_equal(own.coordinates, full.coordinates)
            assert np.array_equal(own.values, full.values)


def test_all_aggregators_together_see_everything(tmp_path):
    """Bit for bit the view of FedAvg, for a victim that is no aggregator."""
    few, server = train(tmp_path / "a", "aggregators=3"), train(tmp_path / "b", method="fedavg")
    for one, other in zip(few.records(), server.records(), strict=True):
        joint = Vantage((0, 1, 2), "own").view(one.sent[4], one.layout, one.assignment)
        full = Vantage((), "all").view(other.sent[4], other.layout, other.assignment)
        assert np.array_equal(joint.coordinates, full.coordinates)
        assert np.array_equal(joint.values, full.values)


def test_the_wire_carries_all_but_the_members_own_shard(eris):
    record = eris.records()[0]
    view = Vantage((), "sent").view(record.sent[2], record.layout, record.assignment)
    assert set(view.coordinates) == set(range(record.layout.trainable.n)) - set(owned(record, 2))


def test_nothing_of_a_lost_message_is_seen(eris):
    record = eris.records()[0]
    sent = replace(record.sent[2], reached=(0, 4), bytes=(9, 0, 0, 0, 9))
    assert Vantage((1,), "own").view(sent, record.layout, record.assignment).size == 0
    assert Vantage((1,), "own").view(sent, record.layout, record.assignment).scalars == {}
    wire = Vantage((), "sent").view(sent, record.layout, record.assignment)
    assert set(record.layout.trainable.owners_of(wire.coordinates)) == {0, 4}


@pytest.mark.parametrize("schedule", ["fixed", "redraw", "rotate"])
def test_with_replicas_a_shard_has_two_observers(tmp_path, schedule):
    """The ledger counts the same as the views show."""
    audited = train(tmp_path, "shards.replicas=2", f"shards.schedule={schedule}")
    ledger = ExposureLedger(audited.composition.recipe, MEMBERS, tmp_path / "ledger", server=False)
    for event in audited.events:
        ledger(event)
    largest, union = 0.0, {}
    for record in audited.records():
        for peer, victim in itertools.permutations(range(MEMBERS), 2):
            view = Vantage((peer,), "own").view(record.sent[victim], record.layout, record.assignment, record.witnesses)
            homes = zip(record.assignment, record.witnesses, strict=True)
            shards = [shard for shard, pair in enumerate(homes) if peer in pair]
            assert set(record.layout.trainable.owners_of(view.coordinates)) == set(shards)
            assert len(shards) == 2
            largest = max(largest, view.size / record.layout.n)
            union.setdefault((peer, victim), set()).update(view.coordinates.tolist())
        wire = Vantage((), "sent").view(record.sent[2], record.layout, record.assignment, record.witnesses)
        assert wire.size == record.layout.n  # its own shard goes to the second aggregator
        others = Vantage((0, 1, 3, 4), "own").view(record.sent[2], record.layout, record.assignment, record.witnesses)
        assert others.size == record.layout.n
    account = ledger.summary()
    assert account["largest_share_per_round"] == pytest.approx(largest)
    for peer in range(MEMBERS):
        most = max(len(seen) for (who, _), seen in union.items() if who == peer) / record.layout.n
        assert account["union_by_observer"][str(peer)] == pytest.approx(most)


@pytest.mark.parametrize("schedule", ["redraw", "rotate"])
def test_moving_plans_show_other_coordinates_in_every_round(tmp_path, schedule):
    audited = train(tmp_path, f"shards.schedule={schedule}")
    seen = []
    for record in audited.records():
        view = Vantage((1,), "own").view(record.sent[0], record.layout, record.assignment)
        assert np.array_equal(np.sort(view.coordinates), np.sort(owned(record, 1)))
        seen.append(set(view.coordinates.tolist()))
    assert seen[0] != seen[1] != seen[2]


def test_the_victim_is_never_among_the_observers():
    for text in ("aggregator", "coalition:2", "coalition:5", "broadcast"):
        for victim in range(5):
            for vantage in parse_observer(text).vantages(victim, range(5), 5, public_root(1), limit=9):
                assert victim not in vantage.peers


def test_larger_coalitions_hold_the_smaller_ones():
    seed = public_root(1)
    for size in range(1, 6):
        small = Observer("coalition", size).vantages(0, range(1, 8), 8, seed, limit=1)[0]
        large = Observer("coalition", size + 1).vantages(0, range(1, 8), 8, seed, limit=1)[0]
        assert set(small.peers) < set(large.peers)
    everybody = Observer("coalition", 7).vantages(0, range(1, 8), 8, seed, limit=5)
    assert [set(vantage.peers) for vantage in everybody] == [set(range(1, 8))]  # the same in any order


def test_with_a_server_there_is_one_view():
    for text in ("aggregator", "server", "coalition:1"):
        vantages = parse_observer(text).vantages(0, [0], 5, public_root(1), limit=8, server=True)
        assert vantages == [Vantage((), "all")]
    colluding = parse_observer("coalition:3").vantages(0, [0], 5, public_root(1), limit=8, server=True)[0]
    assert colluding.reach == "all"
    assert len(colluding.peers) == 2


def test_a_victim_that_aggregates_alone_is_seen_through_what_it_publishes():
    for text in ("aggregator", "coalition:1"):
        vantages = parse_observer(text).vantages(0, [0], 3, public_root(1), limit=8)
        assert {vantage.peers for vantage in vantages} == {(1,), (2,)}
        assert all(vantage.reach == "none" for vantage in vantages)


@pytest.mark.parametrize("text", ["nobody", "coalition", "coalition:", "coalition:0", "coalition:x", "server:2"])
def test_observers_that_are_none(text):
    with pytest.raises(ConfigError):
        parse_observer(text)


def test_observers_that_cannot_be():
    with pytest.raises(ConfigError, match="no server"):
        Observer("server").vantages(0, range(3), 3, public_root(1), limit=1)
    with pytest.raises(ConfigError, match="3 aggregators"):
        Observer("coalition", 4).vantages(0, range(3), 5, public_root(1), limit=1)
