"""Two aggregators a shard, without a network: who they are, and what two statements that differ lead to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eris.aggregate.mean import WeightedMean
from eris.errors import ConfigError, InputError, Reason
from eris.protocol.coordinator import Coordinator
from eris.protocol.journal import Entry
from eris.protocol.messages import Disagreement, Manifest, Report
from eris.protocol.recipe import Recipe
from eris.protocol.roster import RosterEntry
from eris.protocol.round_plan import RoundPlan
from eris.protocol.rules import Rules
from eris.protocol.verdict import Verdict
from eris.seeds import public_root
from eris.shards.policy import ShardPolicy
from eris.step.plain import FedAvgM
from eris.transforms import chain
from eris.wire.schema import plain, read_plain
from tests.protocol.test_rounds import SPEC
from tests.protocol.world import sign_as, verify


def coordinator(journal: list[Entry] | None = None, *, schedule: str = "fixed", **rules: object) -> Coordinator:
    policy = ShardPolicy(SPEC, 3, public_root(5), schedule=schedule, replicas=2)
    recipe = Recipe(SPEC, policy, chain(), WeightedMean(), FedAvgM(lr=1.0, beta=0.5), public_root(5))
    roster = [RosterEntry(peer, f"peer-{peer}", 1.0) for peer in range(5)]
    return Coordinator(
        recipe, Rules("run", (0, 1, 2), **rules), roster, [] if journal is None else journal, verify=verify
    )


def manifest(plan: RoundPlan, shard: int, aggregator: int, payload: str = "aa" * 32, **fields: object) -> Manifest:
    made = Manifest(plan.digest, plan.round, shard, aggregator, plan.participants, 1.0, 1.0, payload)
    made = replace(made, **fields)
    return replace(made, signature=sign_as(aggregator)(made.signed_bytes))


def conclude(of: Coordinator, *manifests: Manifest) -> Verdict:
    """Let everybody report the first aggregator's manifest of every shard."""
    plan = of.plan(0.0)
    for item in manifests:
        of.manifest(item)
    held = {m.shard: m.digest for m in manifests if plan.assignment[m.shard] == m.aggregator}
    for peer in range(5):
        of.report(Report(plan.digest, peer, held, complete=True))
    verdict = of.decide(0.0)
    assert verdict is not None
    return verdict


@pytest.mark.parametrize(("schedule", "turned"), [("fixed", (1, 2, 0)), ("rotate", (2, 0, 1))])
def test_the_second_aggregator_of_a_shard_is_that_of_the_next_one(schedule: str, turned: tuple[int, ...]) -> None:
    made = coordinator(schedule=schedule)
    assert (made.plan(0.0).assignment, made.plan(0.0).witnesses) == ((0, 1, 2), (1, 2, 0))
    made.decide(1000.0)
    assert made.plan(0.0).witnesses == turned


def test_a_second_aggregator_that_is_away_is_replaced_by_another_peer() -> None:
    made = coordinator()
    made.gone(1)
    plan = made.plan(0.0)
    assert plan.assignment == (0, 3, 2)
    assert plan.witnesses == (4, 2, 0)
    assert all(len(set(plan.aggregators_of(shard))) == 2 for shard in range(3))
    assert plan.shards_of(0) == (0, 2)


def test_where_nobody_may_stand_in_the_shard_stays_with_who_is_away_and_says_so() -> None:
    made = coordinator(max_share=0.3)
    made.gone(1)
    plan = made.plan(0.0)
    assert (plan.assignment, plan.witnesses) == ((0, 1, 2), (1, 2, 0))
    verdict = made.decide(1000.0)
    assert verdict is not None
    assert "nobody else may see more than 30% of an update" in verdict.shards[0].lost


def test_the_same_from_both_is_committed_and_a_difference_is_a_finding() -> None:
    journal: list[Entry] = []
    made = coordinator(journal)
    plan = made.plan(0.0)
    both = [manifest(plan, shard, peer) for shard in range(3) for peer in plan.aggregators_of(shard)]
    assert not conclude(made, *both).lost_shards
    plan = made.plan(0.0)
    both = [manifest(plan, shard, peer) for shard in range(3) for peer in plan.aggregators_of(shard)]
    both[3] = manifest(plan, 1, 2, "bb" * 32)
    verdict = conclude(made, *both)
    assert verdict.lost_shards == (1,)
    assert verdict.shards[1].lost == Reason.REPLICAS_DIFFER.value
    (finding,) = made.disagreements
    assert (finding.first.aggregator, finding.second.aggregator, finding.first.shard) == (1, 2, 1)
    assert str(finding) == "round 1: shard 1: peers 1 and 2: the same contributors, other values"
    assert not made.excluded
    again = Coordinator(made.recipe, made.rules, made.roster.values(), journal)
    assert again.disagreements == [finding]


def test_other_contributors_are_no_accusation() -> None:
    made = coordinator()
    plan = made.plan(0.0)
    finding = Disagreement(manifest(plan, 0, 0), manifest(plan, 0, 1, "bb" * 32, contributors=(0, 1, 2)))
    assert not finding.same_contributors
    assert str(finding).endswith("other contributors")


def test_one_peer_that_says_two_things_is_still_excluded() -> None:
    made = coordinator()
    plan = made.plan(0.0)
    made.manifest(manifest(plan, 0, 0))
    assert made.manifest(manifest(plan, 0, 0)) is None
    assert made.manifest(manifest(plan, 0, 0, "bb" * 32)) is not None
    assert made.excluded.keys() == {0}


def test_nobody_else_may_speak_for_a_shard() -> None:
    made = coordinator()
    made.manifest(manifest(made.plan(0.0), 0, 2))
    assert {peer: lie.reason for peer, lie in made.excluded.items()} == {2: Reason.FALSE_MANIFEST}


def test_a_plan_names_two_different_peers_for_every_shard() -> None:
    plan = coordinator().plan(0.0)
    assert read_plain(RoundPlan, plain(plan)) == plan
    for wrong in ((0, 2, 0), (1, 2), (1, 2, 9)):
        with pytest.raises(InputError, match="two different aggregators"):
            replace(plan, witnesses=wrong)


@pytest.mark.parametrize(("shards", "replicas"), [(1, 2), (3, 3), (3, 0)])
def test_replicas_that_cannot_be(shards: int, replicas: int) -> None:
    with pytest.raises(ConfigError, match="replicas"):
        ShardPolicy(SPEC, shards, public_root(5), replicas=replicas)
