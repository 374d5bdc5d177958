"""Masked rounds keep going, whoever fails or lies.

A shard moves on if its pair of aggregator and unmasker fails, a peer that fails in three pairs has neither duty any
more, and participants take turns to sit out until the one that spoils sums is among them. Nobody can be named under
masks, and nobody is excluded for what may be a broken link. Each rule is tried against its opposite: without it, the
run stops.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from eris.errors import Reason, Refused
from eris.protocol import coordinator as coordinating
from eris.protocol.agreement import Agreement, sits_out
from eris.protocol.messages import Upload
from eris.protocol.participation import is_alarm, without_a_third
from eris.protocol.round_plan import RoundPlan
from eris.protocol.verdict import Verdict
from tests.equivalence.federation import Federation
from tests.protocol.test_masked_rounds import MASKED, PLAIN

CASE = MASKED.change(members=7, shards=3, rounds=8)
ROTATING = MASKED.change(members=7, shards=7, rounds=8, schedule="rotate")


def beyond_the_limit(upload: Upload) -> None:
    upload.part.symbols[:1] += np.uint32(1 << 31)


def under_another_pad(upload: Upload) -> None:
    upload.checks[:] += np.uint32(7)


def spoiled(federation: Federation, liar: int, how: Callable[[Upload], None] = beyond_the_limit) -> Verdict:
    """Play a round in which one member leaves the limit by far, or its own pad, wherever it takes part."""
    plan = federation.plan()
    federation.begin(plan)
    uploads = federation.contribute(plan, federation._train)
    for upload in uploads:
        if upload.member == liar:
            how(upload)
    federation.upload(plan, uploads)
    federation.publish(plan, federation.cut(plan))
    verdict = federation.decide()
    federation.conclude(verdict)
    federation.participants.append(plan.participants)
    return verdict


def alarms(verdicts: list[Verdict]) -> list[bool]:
    return [is_alarm(entry.lost for entry in verdict.shards) for verdict in verdicts]


@pytest.mark.parametrize(
    ("case", "how"),
    [
        (CASE, beyond_the_limit),
        (CASE, under_another_pad),
        (PLAIN.change(members=7, shards=3, rounds=8), beyond_the_limit),
    ],
    ids=["masked", "another pad", "fixed point"],
)
@pytest.mark.parametrize("liar", range(7))
def test_after_two_alarms_a_rotating_third_sits_out_until_the_liar_is_among_it(case, how, liar: int) -> None:
    """Whichever third it is in: the sum without the last one follows from the others, so nobody refuses it."""
    federation = Federation(case)
    verdicts = [spoiled(federation, liar, how) for _ in range(8)]
    found = alarms(verdicts)
    assert found[:2] == [True, True]
    assert not all(found)  # the model has moved in spite of it
    for number, who in enumerate(federation.participants):
        resting = number >= 2 and found[number - 2 : number] == [True, True]
        assert len(who) == (7 if not resting else len(without_a_third(range(7), sum(found[:number]))))
        assert found[number] == bool(verdicts[number].lost_shards) == (liar in who)


def test_without_the_rule_one_liar_stops_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinating, "ALARMS", 10**9)
    federation = Federation(CASE)
    assert all(alarms([spoiled(federation, 3) for _ in range(8)]))


def test_wrong_pads_are_an_alarm_and_move_the_pair() -> None:
    """They may be an aggregator's, an unmasker's or a member's doing: both rules apply."""
    federation = Federation(CASE)
    first, second = (spoiled(federation, 3, under_another_pad) for _ in range(2))
    assert {entry.lost for entry in (*first.shards, *second.shards)} == {Reason.WRONG_PADS.value}
    plans = [entry for entry in federation.journal if isinstance(entry, RoundPlan)]
    pairs = [set(zip(plan.assignment, plan.unmaskers, strict=True)) for plan in plans]
    assert not pairs[0] & pairs[1]


def test_a_coordinator_that_comes_back_lets_the_same_third_sit_out() -> None:
    federation = Federation(CASE)
    for _ in range(2):
        spoiled(federation, 3)
    before = federation.coordinator
    after = type(before)(before.recipe, before.rules, tuple(before.roster.values()), list(federation.journal))
    for peer, key in before.mask_keys.items():
        after.show_key(peer, key)
    assert after.plan(0.0).participants == before.plan(0.0).participants == without_a_third(range(7), 2)


def test_members_refuse_that_a_third_sits_out_without_alarms() -> None:
    federation = Federation(CASE)
    for _ in range(3):
        federation.round()
    plan = federation.plan()
    forged = replace(plan, participants=without_a_third(plan.participants, 0))
    assert sits_out(forged.participants, plan.participants)
    agreement = Agreement("equivalence", tuple(f"peer-{k}" for k in range(7)), min_contributors=1)
    agreement.check(forged, federation.recipe)  # whoever has just come cannot know
    with pytest.raises(Refused, match="no impossible sums"):
        federation.members[0].begin(forged)
    with pytest.raises(Refused, match="participants"):
        agreement.check(replace(plan, participants=plan.participants[1:]), federation.recipe)
    federation.members[0].begin(plan)


def silenced(federation: Federation, *peers: int) -> list[tuple[tuple[int, ...], tuple[int, ...], Verdict]]:
    """Play rounds in which some peers unmask nothing, and take no pads off; return who had which duty."""
    found = []
    for peer in peers:
        federation.aggregators[peer].take_off = lambda answer, sender: None
    for _ in range(6):
        plan = federation.plan()
        federation.begin(plan)
        for peer in peers:
            federation.unmaskers[peer].abstain(plan)
        federation.upload(plan, federation.contribute(plan, federation._train))
        federation.publish(plan, federation.cut(plan))
        verdict = federation.decide()
        federation.conclude(verdict)
        found.append((plan.assignment, plan.unmaskers, verdict))
    return found


def test_a_pair_that_fails_moves_on_and_who_fails_in_three_pairs_has_neither_duty_any_more() -> None:
    federation = Federation(ROTATING)
    rounds = silenced(federation, 3)
    lost = [{e.shard for e in verdict.shards if e.lost == Reason.UNMASK.value} for _, _, verdict in rounds]
    assert lost[0]
    assert not federation.coordinator.excluded
    assert 3 in federation.coordinator.without_duty
    homes, helpers, last = rounds[-1]
    assert 3 not in {*homes, *helpers}
    assert not last.lost_shards


def test_no_pair_that_failed_is_formed_again_while_there_are_others() -> None:
    """Where shards rotate, every shard would come to the same two peers in its turn."""
    failed = set[tuple[int, int]]()
    for homes, helpers, verdict in silenced(Federation(ROTATING), 3):
        pairs = [*zip(homes, helpers, strict=True)]
        assert not failed & {*pairs, *((helper, home) for home, helper in pairs)}
        failed |= {pairs[shard] for shard in verdict.lost_shards}
    assert len(failed) >= 2


def test_moving_pairs_brings_nobody_more_than_the_largest_share() -> None:
    """Where several shards move to the same place, the rest goes on along the ring: members would refuse the plan."""
    federation = Federation(MASKED.change(members=7, shards=7, rounds=8))
    federation.coordinator.rules = replace(federation.coordinator.rules, max_share=None)  # two shards' worth
    for homes, helpers, _ in silenced(federation, 3):
        assert max(Counter(homes).values()) <= 2
        assert max(Counter(zip(homes, helpers, strict=True)).values()) <= 2
    assert 3 not in homes


def test_where_pairs_stay_the_same_shards_are_lost_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinating.Coordinator, "_note_pairs", lambda self, plan, verdict: None)
    rounds = silenced(Federation(MASKED.change(members=7, shards=7, rounds=8)), 3)
    assert all(verdict.lost_shards for _, _, verdict in rounds)


def test_an_honest_run_never_alarms() -> None:
    federation = Federation(CASE)
    federation.run()
    assert {len(who) for who in federation.participants} == {7}
