"""Two aggregators for every shard: the same model, twice the upload, and a wrong mean that is noticed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from eris.compose import compose
from eris.errors import ConfigError, FloorError, Refused
from eris.events import VerdictWritten
from eris.peer.node import Node
from eris.peer.preflight import first_plan
from eris.protocol.aggregator import Aggregator
from eris.protocol.floor import Floor, shares
from eris.protocol.messages import Published, Withheld, payload_hash
from eris.protocol.round_plan import RoundPlan
from eris.simulate.run import run
from eris.tasks import build_task
from tests.peer.town import after_rounds, settings, simulated, town

CHEAT = 1  # birch: first aggregator of shard 1, second of shard 0


@pytest.mark.parametrize("method", ["eris", "eris+dsc"])
def test_the_model_is_that_of_one_aggregator_a_shard(tmp_path: Path, method: str) -> None:
    config = settings("members=4", "aggregators=3", "rounds=3", "shards.replicas=2", method=method)
    once = settings("members=4", "aggregators=3", "rounds=3", method=method)
    with town(tmp_path, config) as place:
        nodes = {name: place.node(name) for name in place.names}
        for name, node in nodes.items():
            place.start(name, node.run)
        place.wait()
        digests = {node.model_digest() for node in nodes.values()}
    assert digests == {simulated(config, tmp_path / "run")} == {simulated(once, tmp_path / "once")}


def test_uploads_double_and_both_are_counted_as_observers(tmp_path: Path) -> None:
    summaries = [
        run(settings("members=6", "aggregators=4", "rounds=2", f"shards.replicas={n}"), tmp_path / str(n)).summaries[0]
        for n in (1, 2)
    ]
    once, twice = (summary["exposure"] for summary in summaries)
    assert twice["largest_share_per_round"] == pytest.approx(2 * once["largest_share_per_round"], rel=0.1)
    assert twice["union_over_rounds"] == pytest.approx(2 * once["union_over_rounds"], rel=0.1)
    sent = [summary["bytes"]["up_per_member_round"] for summary in summaries]
    # A member that aggregates keeps one part of four at home, or two of eight.
    assert sent[1] == 2 * sent[0]


def cheating(node: Node) -> None:
    """Let a peer publish, well signed, something else than the mean."""
    aggregator: Aggregator = node.links.aggregator._aggregator
    honest = aggregator._cut

    def cut(shard: object, plan: RoundPlan) -> Published | Withheld:
        outcome = honest(shard, plan)
        if not isinstance(outcome, Published) or plan.round != 1:
            return outcome
        values = outcome.values + np.float32(1)
        manifest = replace(outcome.manifest, hash=payload_hash(values, outcome.buffers), signature="")
        return Published(replace(manifest, signature=node._book.sign(manifest.signed_bytes)), values, outcome.buffers)

    aggregator._cut = cut  # type: ignore[method-assign, assignment]


def test_a_wrong_mean_is_found_and_both_peers_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = settings("members=4", "aggregators=3", "rounds=4", "shards.replicas=2")
    verdicts: list[VerdictWritten] = []
    with town(tmp_path, config, round=30.0) as place:
        nodes = [
            place.node(name, listeners=after_rounds(verdicts.append) if name == "amber" else ()) for name in place.names
        ]
        cheating(nodes[CHEAT])
        for name, node in zip(place.names, nodes, strict=True):
            place.start(name, node.run)
        place.wait()
        coordinator = place.coordinator.coordinator
        assert coordinator is not None
        findings = {finding.first.shard: finding for finding in coordinator.disagreements}
        assert findings.keys() == {0, 1}  # the two it aggregates, and only in the round in which it cheated
        for shard, peers in ((0, {0, 1}), (1, {1, 2})):
            assert {findings[shard].first.aggregator, findings[shard].second.aggregator} == peers
            assert findings[shard].same_contributors
            assert findings[shard].first.round == 1
        assert not coordinator.excluded  # who of the two is wrong, two statements do not show
        assert coordinator.lost_reasons == {"replicas-differ": 2}
        assert len(place.coordinator.overview().disagreements) == 2
    assert [event.verdict.lost_shards for event in verdicts] == [(), (0, 1), (), ()]
    assert len({node.model_digest() for node in nodes}) == 1
    assert "shard 0: peers 0 and 1: the same contributors, other values" in caplog.text


def test_a_member_counts_both_and_refuses_a_plan_without_the_second(tmp_path: Path) -> None:
    config = settings("members=4", "aggregators=4", "shards.replicas=2")
    with town(tmp_path, config) as place:
        node = place.node("amber", floor=Floor(max_share=0.6, min_contributors=1))
        plan = first_plan(place.federation(), node.recipe)
        assert plan.witnesses == (1, 2, 3, 0)
        assert max(shares(plan, node.recipe).values()) == pytest.approx(0.5, abs=0.1)
        node.member.begin(plan)
        with pytest.raises(FloorError):
            place.node("birch", floor=Floor(max_share=0.4, min_contributors=1)).member.begin(plan)
        with pytest.raises(Refused, match="replicas"):
            place.node("cedar").member.begin(replace(plan, witnesses=()))


def test_one_aggregator_cannot_be_compared() -> None:
    config = settings("members=3", "aggregators=1", "shards.replicas=2")
    spec = build_task(config.model_dump(mode="json")).spec
    with pytest.raises(ConfigError, match="replicas"):
        compose(config, spec, [1, 1, 1])


def test_faults_on_purpose_know_one_aggregator_a_shard() -> None:
    config = settings("members=3", "shards.replicas=2", "faults.link_failure=0.1")
    spec = build_task(config.model_dump(mode="json")).spec
    with pytest.raises(ConfigError, match="simulated faults"):
        compose(config, spec, [1, 1, 1])
