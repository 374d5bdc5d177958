"""Aggregators that lie: about who reached them, and about what the contributions come to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from eris.errors import Reason, Refused
from eris.events import VerdictWritten
from eris.peer.node import Node
from eris.protocol.messages import Report, Withheld
from tests.adversary.parties import LyingAggregator, publish_instead
from tests.peer.town import Town, noting, settings, town
from tests.protocol.test_coordinator import coordinator, manifest

CHEAT = "birch"


def played(place: Town) -> tuple[dict[str, Node], list[VerdictWritten]]:
    """Return all peers, ready to run, and where the verdicts that one of them follows will be."""
    found: list[VerdictWritten] = []
    nodes = {name: place.node(name, listeners=noting(found, VerdictWritten)) for name in place.names[:1]}
    return nodes | {name: place.node(name) for name in place.names[1:]}, found


def finish(place: Town, nodes: dict[str, Node]) -> None:
    for name, node in nodes.items():
        place.start(name, node.run)
    place.wait()


@pytest.mark.parametrize("whom", ["strangers", "all participants"])
def test_prevented_a_false_notice_moves_no_shard_to_who_sent_it(tmp_path: Path, whom: str) -> None:
    """Prevented: strangers among contributors are refused, and nobody's reach is judged by an aggregator's word."""
    config = settings("members=5", "aggregators=4", "rounds=4")
    with town(tmp_path, config, round=20.0, max_share=1.0) as place:
        nodes, verdicts = played(place)
        liar = LyingAggregator(
            nodes[CHEAT], lambda plan: tuple(range(1000)) if whom == "strangers" else plan.participants
        )
        finish(place, nodes)
        assert [event.plan.assignment for event in verdicts] == 4 * [(0, 1, 2, 3)]
        assert all(not event.verdict.lost_shards for event in verdicts)
        assert len({node.model_digest() for node in nodes.values()}) == 1
        if whom == "strangers":
            assert len(liar.refused) == 4
            assert all("contributors are not ascending participants" in str(error) for error in liar.refused)


def test_prevented_a_minority_that_says_an_aggregator_cannot_be_reached() -> None:
    """Prevented, up to half of the participants; in memory, where the coordinator's own rule is the thing tested."""
    of = coordinator(unreached_rounds=1)
    for accusers, believed in ((2, False), (3, True)):
        plan = of.plan(0.0)
        for shard in range(plan.shards):
            of.manifest(manifest(plan, shard))
        for peer in range(5):
            unreached = (plan.assignment[1],) if peer < accusers else ()
            held = {shard: manifest(plan, shard).digest for shard in range(plan.shards)}
            of.report(Report(plan.digest, peer, held, complete=True, unreached=unreached))
        of.decide(0.0)
        assert of.out_of_reach == ({plan.assignment[1]} if believed else set())


def test_prevented_a_majority_cannot_concentrate_shards_beyond_the_largest_share() -> None:
    """Prevented whatever anyone says: what nobody may take stays with its home, and is lost by name."""
    of = coordinator(unreached_rounds=1, max_share=0.5)
    plan = of.plan(0.0)
    for peer in range(5):
        of.report(Report(plan.digest, peer, {}, complete=True, unreached=tuple(sorted(plan.aggregators - {0}))))
    of.decide(0.0)
    later = of.plan(0.0)
    assert max(later.assignment.count(peer) for peer in later.aggregators) / later.shards <= 0.5


def test_prevented_contributors_that_do_not_take_part() -> None:
    of = coordinator()
    plan = of.plan(0.0)
    with pytest.raises(Refused, match="not ascending participants") as refusal:
        of.withheld(Withheld(plan.digest, 0, plan.assignment[0], Reason.TOO_FEW, (0, 17)))
    assert refusal.value.reason is Reason.MALFORMED


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_prevented_a_mean_that_is_not_finite_reaches_no_model(tmp_path: Path, value: float) -> None:
    """Prevented: every member refuses it before it reports, so its shard is lost, by name, in every round."""
    with town(tmp_path, settings("members=5", "aggregators=3", "rounds=3"), round=20.0) as place:
        nodes, verdicts = played(place)
        publish_instead(nodes[CHEAT], lambda values: values.__setitem__(0, value))
        finish(place, nodes)
        cheat = place.names.index(CHEAT)
        for event in verdicts:
            assert set(event.verdict.lost_shards) == set(event.plan.shards_of(cheat))
        assert all(np.isfinite(node.member.replica.model).all() for node in nodes.values())
        assert len({node.model_digest() for node in nodes.values()}) == 1


def test_detected_finite_means_whose_step_overflows_end_the_run_by_name(tmp_path: Path) -> None:
    """Detected: no peer ends with exit code 0 and a model that is none."""
    config = settings("members=3", "aggregators=3", "rounds=4", "server.optimizer_options.lr=10")
    with town(tmp_path, config, round=20.0) as place:
        nodes, _ = played(place)
        for node in nodes.values():
            publish_instead(node, lambda values: values.fill(np.float32(3e38)))
        for name, node in nodes.items():
            place.start(name, node.run)
        for name in place.names:
            with pytest.raises(Refused, match="the model is not finite"):
                place.wait(name)
