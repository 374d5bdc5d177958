"""The coordinator alone: quorum, deadlines, replacement, membership, and going on after a restart."""

from __future__ import annotations

import numpy as np
import pytest

from eris.errors import ConfigError, Reason, Refused, RunStopped
from eris.local.spec import ModelSpec
from eris.protocol.coordinator import Coordinator
from eris.protocol.journal import Membership
from eris.protocol.member import NO_REFERENCE
from eris.protocol.messages import Manifest, Report, Withheld
from eris.protocol.placement import Placement
from eris.protocol.roster import RosterEntry, roster_weights
from eris.protocol.round_plan import Deadlines, RoundPlan
from eris.protocol.rules import Rules
from eris.protocol.verdict import GENESIS, Verdict
from eris.seeds import public_root
from eris.shards.policy import ShardPolicy
from eris.wire.schema import plain, read_plain
from tests.protocol.test_rounds import check_equal, recipe, reference, world
from tests.protocol.world import sign_as, verify


def roster(members: int = 5, **fields: object) -> list[RosterEntry]:
    return [RosterEntry(peer, f"peer-{peer}", 1.0, **fields) for peer in range(members)]


def coordinator(shards: int = 2, *, dsc: bool = False, journal: list | None = None, **rules: object) -> Coordinator:
    settings = Rules("run", tuple(range(shards)), deadlines=Deadlines(50.0, 90.0), **rules)
    journal = [] if journal is None else journal
    return Coordinator(recipe(shards, dsc=dsc), settings, roster(), journal, verify=verify)


def manifest(plan: RoundPlan, shard: int, payload: str = "aa" * 32) -> Manifest:
    aggregator = plan.assignment[shard]
    everyone = plan.participants
    made = Manifest(plan.digest, plan.round, shard, aggregator, everyone, 1.0, 1.0, payload)
    from dataclasses import replace

    return replace(made, signature=sign_as(aggregator)(made.signed_bytes))


def finish_round(of: Coordinator, now: float = 0.0, holders: range = range(5)) -> Verdict:
    plan = of.plan(now)
    manifests = [manifest(plan, shard) for shard in range(plan.shards)]
    for item in manifests:
        of.manifest(item)
    for peer in holders:
        of.report(Report(plan.digest, peer, {m.shard: m.digest for m in manifests}, complete=True))
    verdict = of.decide(now + 1000.0)
    assert verdict is not None
    return verdict


def test_a_shard_counts_if_more_than_half_hold_it() -> None:
    assert not finish_round(coordinator(), holders=range(3)).lost_shards
    assert finish_round(coordinator(), holders=range(2)).lost_shards == (0, 1)
    assert finish_round(coordinator(quorum=5), holders=range(4)).lost_shards == (0, 1)


def test_no_verdict_before_all_are_done_or_the_time_is_up() -> None:
    made = coordinator()
    plan = made.plan(0.0)
    assert made.decide(89.9) is None
    verdict = made.decide(90.0)
    assert verdict is not None
    assert verdict.late == (0, 1, 2, 3, 4)
    assert {entry.lost for entry in verdict.shards} == {"not published"}
    assert made.plan(90.0).chain == verdict.digest
    assert plan.chain == GENESIS


def test_the_verdict_comes_at_once_when_everybody_is_done() -> None:
    made = coordinator()
    plan = made.plan(0.0)
    items = [manifest(plan, shard) for shard in range(2)]
    for peer in range(5):
        assert made.decide(0.0) is None
        wanted = made.report(Report(plan.digest, peer, {m.shard: m.digest for m in items}, complete=True))
        assert wanted == ((0, 1) if peer == 0 else ())
        if wanted:
            for item in items:
                made.manifest(item)
    assert made.decide(0.0) is not None


def test_one_manifest_a_shard_and_only_from_its_owner() -> None:
    made = coordinator()
    plan = made.plan(0.0)
    forged = manifest(plan, 0)
    from dataclasses import replace

    with pytest.raises(Refused, match="bad-signature"):
        made.manifest(replace(forged, hash="bb" * 32))
    with pytest.raises(Refused, match="bad-signature"):
        made.manifest(replace(forged, aggregator=3))
    with pytest.raises(Refused, match="wrong-plan"):
        made.manifest(replace(forged, plan="c" * 64))
    with pytest.raises(Refused, match="not-a-member"):
        made.report(Report(plan.digest, 17, {}))
    assert not made.excluded
    other = replace(forged, aggregator=3, signature="")
    made.manifest(replace(other, signature=sign_as(3)(other.signed_bytes)))  # for a shard that is not its own
    assert set(made.excluded) == {3}
    with pytest.raises(Refused, match="false-manifest"):
        made.require_honest(3)


def test_an_absent_aggregator_is_replaced_by_the_least_loaded_within_the_largest_share() -> None:
    made = coordinator(max_share=0.6)
    finish_round(made)
    made.gone(1)
    assert made.plan(0.0).assignment == (0, 2)


def test_a_replacement_that_would_see_too_much_leaves_the_shard_lost() -> None:
    made = coordinator(max_share=0.4)
    made.gone(1)
    assert made.plan(0.0).assignment == (0, 1)
    made = coordinator(max_share=0.4)
    made.leave(1)
    with pytest.raises(RunStopped, match="no other peer may take it"):
        made.plan(0.0)


def test_nobody_stands_in_beyond_what_members_allow_in_the_whole_run() -> None:
    """Shards that stay are counted over the run: nobody would send a third one, and the round would wait for it."""
    peers, had = {entry.peer: entry for entry in roster(4)}, {peer: {peer} for peer in range(4)}
    policy = ShardPolicy(ModelSpec.flat(8), 4, public_root(1))

    def placed(*present: int) -> tuple[int, ...]:
        found = Placement(policy, Rules("run", (0, 1, 2, 3), max_share=0.5), peers, 0, {}, had).place(present)[0]
        for shard, peer in enumerate(found):
            had[peer].add(shard)
        return found

    assert placed(1, 2, 3) == (1, 1, 2, 3)
    assert placed(0, 1, 2) == (0, 1, 2, 0)
    assert placed(1, 2, 3) == (1, 1, 2, 3)  # whoever has seen it before
    assert placed(0, 1) == (0, 1, 2, 0)  # both have seen two: shard 2 waits for its home
    del peers[2]
    assert placed(0, 1)[2] in (0, 1)  # it left for good: somebody has to be named


def test_members_that_cannot_be_dialled_never_aggregate() -> None:
    made = coordinator(max_share=1.0)
    made.roster = {p: RosterEntry(p, f"peer-{p}", 1.0, can_aggregate=p < 2) for p in range(5)}
    made.gone(1)
    assert made.plan(0.0).assignment == (0, 0)


def test_an_aggregator_whom_few_can_dial_gets_no_shard_until_it_joins_again() -> None:
    of = coordinator(unreached_rounds=2)
    closed = of.plan(0.0).assignment[1]
    for _ in range(2):
        plan = of.plan(0.0)
        assert plan.assignment[1] == closed
        of.manifest(manifest(plan, 0))
        of.withheld(Withheld(plan.digest, 1, closed, Reason.TOO_FEW, (closed,)))
        held = {0: manifest(plan, 0).digest}
        for peer in range(5):
            unreached = (closed,) if peer < 3 else ()
            of.report(Report(plan.digest, peer, held, complete=True, unreached=unreached))
        assert of.decide(0.0) is not None
    assert of.out_of_reach == {closed}
    assert closed not in of.plan(0.0).assignment
    finish_round(of)
    of.join(of.roster[closed])
    assert of.plan(0.0).assignment[1] == closed


def test_a_lost_quorum_ends_the_run() -> None:
    made = coordinator()
    for peer in range(3):
        made.gone(peer)
    with pytest.raises(RunStopped, match="2 of 5 members are present, but the quorum is 3"):
        made.plan(0.0)


def test_nobody_waits_for_a_peer_that_is_gone() -> None:
    made = coordinator()
    plan = made.plan(0.0)
    made.gone(4)
    for shard in range(2):
        made.withheld(Withheld(plan.digest, shard, plan.assignment[shard], Reason.TOO_FEW))
    for peer in range(4):
        made.report(Report(plan.digest, peer, {}, complete=True))
    verdict = made.decide(0.0)
    assert {entry.lost for entry in verdict.shards} == {"too-few"}


@pytest.mark.parametrize("change", ["join", "leave", "weight"])
def test_changes_of_membership_begin_a_reference_epoch_with_the_next_plan(change: str) -> None:
    made = coordinator(dsc=True)
    first = made.plan(0.0)
    if change == "join":
        made.join(RosterEntry(7, "peer-7", 1.0))
    elif change == "leave":
        made.leave(4)
    else:
        made.join(RosterEntry(2, "peer-2", 9.0))
    assert made.plan(0.0) == first, "the round in flight stays as it is"
    finish_round(made)
    plan = made.plan(0.0)
    assert (plan.reference_epoch, plan.reference_begins) == (1, 1)
    finish_round(made, holders=range(4))
    plan = made.plan(0.0)
    assert (plan.reference_epoch, plan.reference_begins) == (1, 1), "one change, one epoch"


def test_a_returning_peer_keeps_its_reference_only_if_it_is_the_right_one() -> None:
    made = coordinator(dsc=True)
    finish_round(made)
    assert made.returned(2, private_round=1, reference_epoch=0)
    assert not made.returned(2, private_round=0, reference_epoch=0), "a contribution of it was committed since"
    finish_round(made)
    assert made.plan(0.0).reference_epoch == 1
    assert not made.returned(3, private_round=2, reference_epoch=NO_REFERENCE)
    assert coordinator(dsc=False).returned(2, private_round=-1, reference_epoch=NO_REFERENCE), "nothing to keep"


def test_a_coordinator_that_comes_back_goes_on_with_the_plan_in_flight() -> None:
    journal: list = []
    before = coordinator(journal=journal, dsc=True)
    finish_round(before)
    before.leave(4)
    in_flight = before.plan(0.0)
    after = coordinator(journal=journal, dsc=True)
    assert after.in_flight == in_flight
    assert after.plan(0.0).digest == in_flight.digest
    assert after.chain == before.chain
    assert sorted(after.roster) == [0, 1, 2, 3]
    verdict = finish_round(after, holders=range(4))
    assert verdict.epoch == in_flight.epoch
    assert after.plan(0.0).epoch == in_flight.epoch + 1, "epochs rise at every start"


def test_a_change_survives_a_coordinator_that_dies_before_the_next_plan() -> None:
    journal: list = []
    before = coordinator(journal=journal, dsc=True)
    finish_round(before)
    before.returned(2, private_round=0, reference_epoch=0)
    assert isinstance(journal[-1], Membership)
    after = coordinator(journal=journal, dsc=True)
    assert after.plan(0.0).reference_epoch == 1


def test_a_member_that_joins_and_one_that_leaves_change_no_bit_of_the_rest() -> None:
    """Joins and leaves in the middle of a DSC run: references restart together, the reference run agrees."""
    made = world(3, members=6, made=recipe(3, dsc=True))
    made.settle(rounds=3)
    made.coordinator.leave(5)
    made.settle(rounds=3)
    del made.peers[5]
    made.settle(rounds=2)
    newcomer = made._new_peer(6)
    newcomer.member.restore(made._best_snapshot())
    newcomer.member.forget_reference()
    made.peers[6] = newcomer
    made.coordinator.join(RosterEntry(6, "peer-6", 2.0))
    made.settle(rounds=4)
    plain = reference(made, dsc=True)
    for plan, verdict in made.verdicts:
        plain.step(plan, verdict)
    check_equal(made, plain)
    plan = made.verdicts[-1][0]
    assert {entry.peer for entry in plan.roster} == {0, 1, 2, 3, 4, 6}
    assert plan.reference_epoch == 2
    total = sum(np.float64(plan.weights[k]) * p.member.private["0.reference"] for k, p in made.peers.items())
    np.testing.assert_allclose(total, made.peers[0].member.replica.public["0.reference"], atol=1e-5)


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf"), 2.0**60])
def test_impossible_weights_are_refused_by_name(weight: float) -> None:
    with pytest.raises(Exception, match="peer-1"):
        RosterEntry(1, "peer-1", weight)


def test_large_weights_do_not_wrap() -> None:
    assert roster_weights([2.0**32, 2.0**32]).tolist() == [0.5, 0.5]
    assert roster_weights([1.0, 2.0**53]).tolist() == [float(np.float32(1 / (1 + 2.0**53))), 1.0]


def test_fewer_than_one_contributor_is_no_rule() -> None:
    with pytest.raises(ConfigError, match="min_contributors"):
        Rules("run", (0,), min_contributors=0)


def test_plans_and_verdicts_survive_plain_data() -> None:
    made = coordinator()
    plan, verdict = made.plan(0.0), finish_round(made)
    assert read_plain(RoundPlan, plain(plan)).digest == plan.digest
    assert read_plain(Verdict, plain(verdict)).digest == verdict.digest


def test_a_rewind_takes_back_the_reference_epochs_that_began_after_it() -> None:
    made = coordinator(dsc=True)
    for _ in range(3):
        finish_round(made)
    for peer in range(5):  # all were down and come back with what they had before round 1
        assert not made.returned(peer, private_round=1, reference_epoch=0)
    assert made.reference_epoch == 1
    made.rewind(1)
    assert made.reference_epoch == 0  # their references are those of round 1 again
    assert made.plan(0.0).reference_begins == 0


def test_a_rewind_keeps_who_left() -> None:
    made = coordinator(dsc=True)
    finish_round(made)
    made.leave(4)
    finish_round(made, holders=range(4))
    made.rewind(1)
    plan = made.plan(0.0)
    assert [entry.peer for entry in plan.roster] == [0, 1, 2, 3]
    assert (plan.reference_epoch, plan.reference_begins) == (1, 1)


def test_who_comes_back_lets_all_say_what_they_hold() -> None:
    made = coordinator()
    assert not made.plan(0.0).attest
    finish_round(made)
    made.gone(3)
    made.returned(3, private_round=0, reference_epoch=0)
    assert made.plan(0.0).attest
    finish_round(made)
    assert not made.plan(0.0).attest


def test_a_rewind_takes_rounds_back_and_begins_an_epoch_of_its_own() -> None:
    made = world(2)
    made.settle(rounds=4)
    coordinator, taken_back = made.coordinator, made.verdicts[2]
    assert coordinator is not None
    coordinator.rewind(2)
    assert (coordinator.round, coordinator.chain) == (2, made.verdicts[1][1].digest)
    plan = coordinator.plan(made.now)
    assert plan.chain == taken_back[0].chain
    assert plan.epoch > taken_back[0].epoch
    assert plan.digest != taken_back[0].digest
    again = type(coordinator)(coordinator.recipe, coordinator.rules, made.roster, made.journal)
    assert again.in_flight == plan  # a restart sees the same history


@pytest.mark.parametrize(("states", "agreed"), [("aab", ""), ("aaab", "a"), ("b", ""), ("aaaab", "a")])
def test_the_state_of_the_model_is_what_more_than_half_of_all_say(states: str, agreed: str) -> None:
    made = coordinator()
    plan = made.plan(0.0)
    for peer, state in enumerate(reversed(states)):  # the odd one reports first
        made.report(Report(plan.digest, peer, {}, complete=True, state=64 * state))
    verdict = made.decide(1000.0)
    assert verdict is not None
    assert verdict.state == 64 * agreed


def test_who_was_excluded_says_nothing_more_that_is_kept() -> None:
    journal: list = []
    made = coordinator(journal=journal)
    plan = made.plan(0.0)
    for payload in ("aa" * 32, "bb" * 32):
        made.manifest(manifest(plan, 0, payload))
    kept = len(journal)
    for payload in ("cc" * 32, "dd" * 32):
        with pytest.raises(Refused, match=Reason.EQUIVOCATION.value):
            made.manifest(manifest(plan, 0, payload))
    assert len(journal) == kept


def test_who_joins_again_and_again_does_not_fill_the_journal() -> None:
    journal: list = []
    made = coordinator(dsc=True, journal=journal)
    finish_round(made)
    for _ in range(50):
        made.returned(1, private_round=0, reference_epoch=NO_REFERENCE)
    refused = 0
    for number in range(50):
        try:
            made.join(RosterEntry(1, "peer-1", 1.0, organisation=f"{number}"))
        except Refused:
            refused += 1
    assert refused == 42
    assert sum(isinstance(entry, Membership) for entry in journal) == 9
    finish_round(made)
    made.join(RosterEntry(1, "peer-1", 1.0, organisation="at last"))


def test_whom_a_round_lacks_that_could_publish_nothing() -> None:
    made = coordinator(min_contributors=4)
    made.gone(3)
    assert made.lacking == ()
    made.gone(1)
    assert made.lacking == (1, 3)
    made.heard_again(3)
    assert made.lacking == ()


def test_too_few_of_those_drawn_are_here_and_enough_others_take_their_place() -> None:
    made = coordinator(participation=0.6, min_contributors=3)
    first = made._participants()
    made.gone(first[0])
    drawn = made.plan(0.0).participants
    assert len(drawn) == 3
    assert first[0] not in drawn
    assert not made.lacking


def test_a_round_is_futile_when_it_is_due_without_a_shard_and_too_few_are_here() -> None:
    made = coordinator(min_contributors=5)
    plan = made.plan(0.0)
    made.gone(4)
    assert not made.is_futile(10.0)  # nobody has reported yet
    for peer in range(4):
        made.report(Report(plan.digest, peer, {}, complete=True))
    assert made.is_futile(10.0)
    made.heard_again(4)
    assert not made.is_futile(1000.0)  # all are here: it was played, and it is lost
    assert made.decide(1000.0) is not None
    assert (made.lost_in_a_row, made.short_in_a_row) == (1, 1)
    finish_round(made)
    assert (made.lost_in_a_row, made.short_in_a_row) == (0, 0)
