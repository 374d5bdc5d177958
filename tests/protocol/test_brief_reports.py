"""A peer reports what it holds in a few bytes; it is asked to spell it out only if that is not what we know."""

from __future__ import annotations

from eris.protocol.messages import BriefReport, Manifest, Report
from eris.protocol.open_round import Wanted
from eris.protocol.round_plan import RoundPlan
from eris.wire.schema import decode, encode
from tests.protocol.test_coordinator import coordinator, manifest


def report(plan: RoundPlan, peer: int, *items: Manifest, complete: bool = True) -> Report:
    return Report(plan.digest, peer, {item.shard: item.digest for item in items}, complete=complete)


def brief(plan: RoundPlan, peer: int, *items: Manifest, complete: bool = True) -> BriefReport:
    said = report(plan, peer, *items, complete=complete).brief
    again: BriefReport = decode(BriefReport, encode(said))
    return again


def test_brief_and_full_reports_come_to_the_same_verdict() -> None:
    verdicts = []
    for briefly in (False, True):
        made = coordinator()
        plan = made.plan(0.0)
        items = [manifest(plan, shard) for shard in range(2)]
        for item in items:
            made.manifest(item)
        for peer in range(4):
            if briefly:
                made.report_briefly(peer, brief(plan, peer, *items))
            else:
                made.report(report(plan, peer, *items).full.of(peer))
            assert made.wanted(peer) == Wanted()
        verdicts.append(made.decide(90.0))
    assert verdicts[0] == verdicts[1]
    assert verdicts[0] is not None
    assert (verdicts[0].late, verdicts[0].lost_shards) == ((4,), ())


def test_a_report_that_comes_before_the_manifests_is_read_when_they_are_here() -> None:
    made = coordinator()
    plan = made.plan(0.0)
    items = [manifest(plan, shard) for shard in range(2)]
    for peer in range(5):
        made.report_briefly(peer, brief(plan, peer, *items))
    assert made.wanted(0) == Wanted((0, 1))
    made.manifest(items[0])
    assert made.wanted(0) == Wanted((1,))
    assert made.decide(0.0) is None
    made.manifest(items[1])  # from whoever had it
    assert made.wanted(0) == Wanted()
    verdict = made.decide(0.0)
    assert verdict is not None
    assert not verdict.lost_shards


def test_who_holds_another_manifest_than_the_coordinator_is_asked_to_spell_it_out() -> None:
    made = coordinator()
    plan = made.plan(0.0)
    told = [manifest(plan, 0), manifest(plan, 1)]
    for item in told:
        made.manifest(item)
    other = manifest(plan, 1, "bb" * 32)  # shown to some members only
    made.report_briefly(3, brief(plan, 3, told[0], other))
    assert made.wanted(3) == Wanted((), full=True)
    wanted = made.report(report(plan, 3, told[0], other).full.of(3))
    assert wanted == (1,)
    proof = made.manifest(other)
    assert proof is not None
    assert proof.aggregator == plan.assignment[1]
    for peer in range(3):
        made.report_briefly(peer, brief(plan, peer, *told))
    verdict = made.decide(90.0)
    assert verdict is not None
    assert verdict.lost_shards == (1,)


def test_a_brief_report_that_nobody_can_read_counts_for_no_shard_but_its_peer_was_not_late() -> None:
    made = coordinator()
    plan = made.plan(0.0)
    items = [manifest(plan, shard) for shard in range(2)]
    for item in items:
        made.manifest(item)
    for peer in range(5):
        wrong = manifest(plan, 0, "dd" * 32) if peer < 3 else items[0]
        made.report_briefly(peer, brief(plan, peer, wrong, items[1]))
    verdict = made.decide(90.0)
    assert verdict is not None
    assert verdict.late == ()
    assert verdict.lost_shards == (0, 1)  # two of five said something that could be read
