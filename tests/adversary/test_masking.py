"""Everybody tries to see one member's values through the masks: aggregator, unmasker, coordinator, member, the wire."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from eris.aggregate.encoding import FixedPoint
from eris.aggregate.fixed_point import RingScale
from eris.aggregate.staging import Contents
from eris.errors import FloorError, Reason, Refused
from eris.events import NO_PROGRESS
from eris.local.task import LocalResult
from eris.peer.framing import upload_header
from eris.peer.node import Node
from eris.privacy import masking
from eris.privacy.masking import MaskKey
from eris.protocol.aggregator import Aggregator
from eris.protocol.floor import Floor
from eris.protocol.member import Member
from eris.protocol.messages import Published, Upload, Withheld, payload_hash
from eris.protocol.pairs import share_of
from eris.protocol.round_plan import RoundPlan
from eris.protocol.sums import Sums
from eris.protocol.unmasker import Cut, Pads, Unmasker, Unmasking, masked
from eris.protocol.verdict import UnmaskedSum, Verdict
from eris.wire import Header, Kind
from tests.adversary.parties import forge_plans
from tests.equivalence.case import Case
from tests.equivalence.federation import Federation
from tests.peer.town import settings, town
from tests.protocol.test_liveness import spoiled as spoil
from tests.protocol.world import sign_as, verify

CASE = Case(n=400, members=7, shards=7, exponent=2, rounds=3, encoding=FixedPoint(), unmaskers=1)
LATER = 1e6


class Round:
    """A masked round whose contributions have arrived, with every role at hand; cuts and pads are signed."""

    def __init__(self, case: Case = CASE) -> None:
        self.federation = federation = Federation(case)
        for roles in (federation.aggregators, federation.unmaskers):
            for peer, role in roles.items():
                role._sign, role._verify = sign_as(peer), verify
        self.plan = federation.plan()
        federation.begin(self.plan)
        self.uploads = federation.contribute(self.plan, federation._train)

    def cut(self, shard: int, members: tuple[int, ...] | None = None, **changes: object) -> Cut:
        """Return what the shard's aggregator signs: any set that it likes."""
        members = self.plan.participants if members is None else members
        nonces = {upload.member: upload.nonce for upload in self.uploads if upload.shard == shard}
        home = self.plan.assignment[shard]
        said = Cut(self.plan.digest, shard, home, members, tuple(nonces[member] for member in members))
        said = replace(said, **changes)  # type: ignore[arg-type]
        return replace(said, signature=sign_as(home)(said.signed_bytes))

    def ask(self, cut: Cut, now: float = LATER):
        [q] = self.plan.unmaskers_of(cut.shard)
        return self.federation.unmaskers[q].unmask(cut, now)

    def refusal(self, cut: Cut) -> Reason:
        with pytest.raises(Refused) as refused:
            self.ask(cut)
        return refused.value.reason


# ── a hostile aggregator ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_p_cannot_have_a_small_set_unmasked(size: int) -> None:
    scene = Round()
    assert scene.refusal(scene.cut(0, tuple(range(size)))) is Reason.TOO_FEW


def test_p_gets_no_second_set_whatever_came_of_the_first() -> None:
    scene = Round()
    everybody = scene.plan.participants
    assert scene.ask(scene.cut(2)) is not None
    for victim in everybody:
        assert scene.refusal(scene.cut(2, tuple(m for m in everybody if m != victim))) is Reason.CONFLICT


def test_p_does_not_choose_before_the_deadline() -> None:
    scene = Round()
    assert scene.ask(scene.cut(2, scene.plan.participants[1:]), now=0.0) is None


def test_p_cannot_replay_a_contribution_or_a_cut_of_another_round() -> None:
    scene = Round()
    old_cut, old_upload = scene.cut(1), next(u for u in scene.uploads if u.shard == 1 and u.member == 3)
    scene.federation.upload(scene.plan, scene.uploads)
    scene.federation.publish(scene.plan, scene.federation.cut(scene.plan))
    scene.federation.conclude(scene.federation.decide())
    later = scene.federation.plan()
    scene.federation.begin(later)
    [q] = later.unmaskers_of(1)
    with pytest.raises(Refused, match="another plan"):
        scene.federation.unmaskers[q].unmask(old_cut, LATER)
    with pytest.raises(Refused):
        scene.federation.aggregators[later.assignment[1]].receive(old_upload, 3)


def test_p_with_other_nonces_learns_a_sum_under_pads_that_nobody_used() -> None:
    """It may lie about nonces; what it gets then has nothing to do with what it holds, and shows as that."""
    scene = Round()
    scene.federation.upload(scene.plan, scene.uploads)
    home = scene.federation.aggregators[scene.plan.assignment[0]]
    home.tick(0.0)
    honest = home.cut_of(0)
    assert honest is not None
    lie = scene.cut(0, nonces=(bytes(16), *honest.nonces[1:]))
    answer = scene.ask(lie)
    left = home._shards[0].total.values - answer.pads.values
    assert RingScale.within(left, [scene.plan.weights[m] for m in scene.plan.participants]) is False


def kept_to_itself(scene: Round, shard: int, victim: int) -> np.ndarray:
    """Let p have its sum without a victim unmasked and say that nobody did; return what it learned.

    As a member it puts pads on all other shards that do not come off: nothing is committed, and the model stays.
    """
    federation, plan = scene.federation, scene.plan
    home = plan.assignment[shard]
    for upload in scene.uploads:
        if upload.member == home and upload.shard != shard:
            upload.checks[0] += np.uint32(1)
    federation.upload(plan, [u for u in scene.uploads if (u.shard, u.member) != (shard, victim)])
    outcomes = federation.cut(plan)
    [learned] = [outcome.values.copy() for outcome in outcomes if isinstance(outcome, Published)]
    notices = [outcome for outcome in outcomes if isinstance(outcome, Withheld)]
    federation.publish(plan, [*notices, Withheld(plan.digest, shard, home, Reason.UNMASK)])
    verdict = federation.decide()
    assert len(verdict.lost_shards) == plan.shards
    federation.conclude(verdict)
    return learned


def second_try(scene: Round, shard: int) -> tuple[Published | Withheld, np.ndarray]:
    """Play the next round honestly, with the same updates; return what became of a shard, and each member's part."""
    federation = scene.federation
    plan = federation.plan()
    federation.begin(plan)
    uploads = federation.contribute(plan, lambda member, _: CASE.train(0, member.peer, member.look()))
    parts = {k: federation.members[k].uncovered([u for u in uploads if u.member == k]) for k in plan.participants}
    federation.upload(plan, uploads)
    outcomes = {o.shard if isinstance(o, Withheld) else o.manifest.shard: o for o in federation.cut(plan)}
    return outcomes[shard], np.stack([parts[k][shard].part.symbols for k in plan.participants])


def test_p_alone_cannot_keep_a_sum_to_itself_and_take_it_off_the_next_one() -> None:
    """It spoils a round, and learns Σ over all but one in it; the round after, with another q, would show that one."""
    shard, victim = 2, 5
    scene = Round()
    [q] = scene.plan.unmaskers_of(shard)
    kept_to_itself(scene, shard, victim)
    outcome, _ = second_try(scene, shard)
    assert q not in scene.federation.coordinator.in_flight.unmaskers_of(shard)  # who does not know it by itself
    assert isinstance(outcome, Withheld)
    assert outcome.reason is Reason.UNMASK


def test_what_p_would_learn_if_unmaskers_did_not_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack is real: without the rule the difference of the two sums is the victim's part, bit for bit."""
    monkeypatch.setattr(Sums, "told", lambda self, plan: ())
    shard, victim = 2, 5
    scene = Round()
    learned = kept_to_itself(scene, shard, victim)
    outcome, parts = second_try(scene, shard)
    assert isinstance(outcome, Published)
    assert np.array_equal(outcome.values - learned, parts[victim])


def signed_with(outcome: Published, values: np.ndarray) -> Published:
    """What p signs instead of its sum."""
    manifest = replace(outcome.manifest, hash=payload_hash(values, outcome.buffers), signature="")
    signature = sign_as(manifest.aggregator)(manifest.signed_bytes)
    return replace(outcome, manifest=replace(manifest, signature=signature), values=values)


@pytest.mark.parametrize("shards", [1, 2])
def test_p_with_half_of_the_model_cannot_publish_zeros_and_sum_the_same_again(shards: int) -> None:
    """It learns Σ over all but one, has nothing committed in its place, and takes it off the next sum."""
    victim, train = 5, partial(_the_same, case=CASE.change(shards=shards))
    scene = Round(CASE.change(shards=shards))
    federation, plan = scene.federation, scene.plan
    uploads = [u for u in scene.uploads if (u.shard, u.member) != (0, victim)]
    federation.upload(plan, uploads)
    outcomes = {o.manifest.shard: o for o in federation.cut(plan) if isinstance(o, Published)}
    learned = outcomes[0].values.copy()
    lost = [Withheld(plan.digest, shard, plan.assignment[shard], Reason.WRONG_PADS) for shard in range(1, shards)]
    federation.publish(plan, [signed_with(outcomes[0], np.zeros_like(learned)), *lost])
    verdict = federation.decide()
    assert verdict.shards[0].committed
    federation.conclude(verdict)
    again = federation.plan()
    federation.begin(again)
    uploads = federation.contribute(again, train)
    parts = {k: federation.members[k].uncovered([u for u in uploads if u.member == k]) for k in again.participants}
    federation.upload(again, uploads)
    found = {o.shard if isinstance(o, Withheld) else o.manifest.shard: o for o in federation.cut(again)}
    if isinstance(found[0], Published):
        assert not np.array_equal(found[0].values - learned, parts[victim][0].part.symbols)
    assert isinstance(found[0], Withheld)


def _the_same(member: Member, plan: RoundPlan, case: Case) -> LocalResult:
    """Train as in the first round: a member whose batches are whole does so whenever the model stands still."""
    return case.train(0, member.peer, member.look())


def spoiled(scene: Round, shard: int, victim: int) -> tuple[int, Verdict]:
    """Let p keep its sum without a victim to itself; return its unmasker and the verdict, which nobody has seen yet."""
    concluded: list[Verdict] = []
    scene.federation.conclude = concluded.append  # type: ignore[method-assign]
    kept_to_itself(scene, shard, victim)
    del scene.federation.conclude
    [q] = scene.plan.unmaskers_of(shard)
    return q, concluded[0]


def test_a_coordinator_that_leaves_out_what_q_reported_is_refused_by_q() -> None:
    """With p it would have the sum without one member, and let a later unmasker take it for a sum that never was."""
    shard, victim = 2, 5
    scene = Round()
    q, verdict = spoiled(scene, shard, victim)
    everybody_else = tuple(m for m in scene.plan.participants if m != victim)
    assert UnmaskedSum(shard, everybody_else) in verdict.unmasked
    for hidden in ((), (UnmaskedSum(shard, scene.plan.participants),)):
        with pytest.raises(Refused, match="whose pads") as refused:
            scene.federation.members[q].conclude(replace(verdict, unmasked=hidden))
        assert refused.value.reason is Reason.WRONG_DIGEST
        with pytest.raises(Refused, match="whose pads"):  # nor on the way round the round, with a snapshot
            scene.federation.members[q].restore(
                scene.federation.members[0].snapshot(), missed=[replace(verdict, unmasked=hidden)]
            )
    scene.federation.members[q].conclude(verdict)  # the truth is still welcome
    assert scene.federation.members[q].untold == ()


def test_a_coordinator_that_calls_q_late_instead_leaves_a_trace_at_q() -> None:
    """A report may really have been lost, so nobody is accused; q knows what was not told, and says so."""
    shard, victim = 2, 5
    scene = Round()
    q, verdict = spoiled(scene, shard, victim)
    member = scene.federation.members[q]
    member.conclude(replace(verdict, unmasked=(), late=(q,)))
    assert member.untold == (UnmaskedSum(shard, tuple(m for m in scene.plan.participants if m != victim)),)


def test_p_cannot_publish_a_sum_as_that_of_others_than_q_gave_pads_for() -> None:
    """The manifest is signed by p alone; q's report, and q's look at the verdict, stand for q's signature in it."""
    shard, victim = 2, 5
    scene = Round()
    federation, plan = scene.federation, scene.plan
    others = tuple(m for m in plan.participants if m != victim)
    federation.upload(plan, [u for u in scene.uploads if (u.shard, u.member) != (shard, victim)])
    claimed = plan.participants
    home = plan.assignment[shard]
    outcomes: list[Published | Withheld] = []
    for outcome in federation.cut(plan):
        if isinstance(outcome, Published) and outcome.manifest.shard == shard:
            scale = federation.members[home].held._scale_of(plan, claimed, {})
            false = replace(outcome.manifest, contributors=claimed, c=scale, signature="")
            outcome = replace(outcome, manifest=replace(false, signature=sign_as(home)(false.signed_bytes)))
        outcomes.append(outcome)
    federation.publish(plan, outcomes)
    verdict = federation.decide()
    assert verdict.lost_shards == (shard,)
    assert verdict.shards[shard].lost == Reason.UNMASK.value
    assert verdict.unmasked == (UnmaskedSum(shard, others),)


@pytest.mark.parametrize("restarted", [False, True])
def test_another_term_of_a_coordinator_lets_q_answer_no_second_set(restarted: bool) -> None:
    """A standby takes over, or a coordinator comes back: the plan is another, the round and its updates are not."""
    with TemporaryDirectory() as folder:
        scene = Round()
        [q] = scene.plan.unmaskers_of(2)
        everybody, unmasker = scene.plan.participants, scene.federation.unmaskers[q]
        unmasker._sums = Sums(Path(folder) / "sums.jsonl")
        assert scene.ask(scene.cut(2)) is not None
        key = MaskKey(1) if restarted else scene.federation.members[q]._key
        if restarted:
            unmasker = Unmasker(q, scene.federation.recipe, key, sums=Sums(Path(folder) / "sums.jsonl"), verify=verify)
            scene.federation.unmaskers[q] = unmasker
        keys = [*scene.plan.mask_keys]
        keys[q] = key.public.hex()
        for epoch, victim in enumerate((*everybody, None), 1):
            scene.plan = replace(scene.plan, epoch=epoch, mask_keys=tuple(keys))
            unmasker.begin(scene.plan, 0.0)
            cut = scene.cut(2, tuple(member for member in everybody if member != victim))
            if victim is None:
                assert scene.ask(cut) is not None  # the same sum again is nothing new
            else:
                assert scene.refusal(cut) is Reason.SUMMED_BEFORE


class Rerun(Round):
    """Two rounds that everybody took part in, after which the run goes back to the beginning, as after a power cut."""

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__()
        federation = self.federation
        if folder is not None:
            for peer in federation.members:
                self.remember(peer, Sums(folder / f"{peer}.jsonl"))
        began = {k: (m.snapshot(), dict(m.private)) for k, m in federation.members.items()}
        self.publish(self.plan, self.uploads)
        self.first, self.parts = self.play()
        federation.coordinator.rewind(0)
        for peer, member in federation.members.items():
            member.restore(began[peer][0])
            member.private = began[peer][1]

    def remember(self, peer: int, sums: Sums) -> None:
        """Give a peer its record of sums, as a start of it would."""
        self.federation.members[peer]._sums = self.federation.unmaskers[peer]._sums = sums

    def publish(self, plan: RoundPlan, uploads: list[Upload]) -> dict[int, Published]:
        """Have a round played with these contributions; return what was published."""
        self.federation.upload(plan, uploads)
        outcomes = self.federation.cut(plan)
        self.federation.publish(plan, outcomes)
        self.federation.conclude(self.federation.decide())
        return {o.manifest.shard: o for o in outcomes if isinstance(o, Published)}

    def play(self, without: int | None = None, turn: int = 0) -> tuple[dict[int, Published], dict[int, list[Upload]]]:
        """Play the next round; return what was published, and what members sent.

        Args:
            without: whose contributions are left out.
            turn: by how many shards the unmaskers move on.
        """
        federation = self.federation
        plan = federation.plan()
        plan = replace(plan, unmaskers=plan.unmaskers[turn:] + plan.unmaskers[:turn])
        federation.coordinator._open.plan = plan
        federation.begin(plan)
        uploads = federation.contribute(plan, federation._train)
        parts = {k: federation.members[k].uncovered([u for u in uploads if u.member == k]) for k in plan.participants}
        return self.publish(plan, [u for u in uploads if u.member != without]), parts

    def shown(self, second: dict[int, Published], victim: int) -> list[int]:
        """Return the shards of which the two sums tell everybody the victim's values."""
        sums = {shard: self.first[shard].values - published.values for shard, published in second.items()}
        return [shard for shard in sums if np.array_equal(sums[shard], self.parts[victim][shard].part.symbols)]


def test_a_run_that_goes_back_and_plays_on_without_one_member_does_not_show_that_one() -> None:
    """Nobody need be hostile: all were down, and one is late in a round that is played again.

    The second round begins after other verdicts than before (another epoch's), but from the same model, bit for bit.
    """
    victim = 5
    scene = Rerun()
    again, _ = scene.play()
    assert len(again) == 7  # all as before: nothing new is shown
    second, parts = scene.play(without=victim)
    assert all(
        np.array_equal(now.part.symbols, then.part.symbols)
        for now, then in zip(parts[victim], scene.parts[victim], strict=True)
    )
    assert scene.shown(second, victim) == []
    assert second == {}


def test_a_coordinator_that_takes_the_run_back_finds_no_q_that_has_forgotten(tmp_path: Path) -> None:
    """It leaves one member out, and gives each shard a q that never unmasked it and was started again since."""
    victim = 5
    scene = Rerun(tmp_path)
    scene.play()
    for peer in scene.federation.members:
        scene.remember(peer, Sums(tmp_path / f"{peer}.jsonl"))
    second, _ = scene.play(without=victim, turn=1)
    assert scene.shown(second, victim) == []
    assert second == {}


@pytest.mark.parametrize("told", [False, True])
def test_q_unmasks_nothing_behind_its_report(told: bool) -> None:
    """Else p would say first that the shard is lost, wait for q's report, and show its cut then."""
    scene = Round()
    [q] = scene.plan.unmaskers_of(2)
    if told:
        assert scene.federation.members[q].report().unmasked == ()
        assert scene.refusal(scene.cut(2)) is Reason.LATE
    else:
        assert scene.ask(scene.cut(2)) is not None
        assert scene.federation.members[q].report().unmasked == (UnmaskedSum(2, scene.plan.participants),)
        assert scene.ask(scene.cut(2)) is not None  # the same again is nothing new


def test_nobody_is_believed_about_sums_of_shards_that_it_does_not_unmask() -> None:
    scene = Round()
    plan, coordinator = scene.plan, scene.federation.coordinator
    lie = UnmaskedSum(2, plan.participants[1:])
    small = UnmaskedSum(2, plan.participants[:2])
    [q] = plan.unmaskers_of(2)
    for peer in scene.federation.members:
        said = (small,) if peer == q else (lie,)
        coordinator.report(replace(scene.federation.members[peer].report(), unmasked=said, complete=True))
    verdict = coordinator.decide(scene.federation.now)
    assert verdict is not None
    assert verdict.lost_shards == tuple(range(7))
    assert verdict.unmasked == ()


def test_refusals_that_go_on_end_the_run_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """p keeps the first sum to itself, and one member sends no more: no q unmasks, and the run does not pretend."""
    refused: list[Reason] = []
    unmask = Unmasker.unmask

    def noting(self: Unmasker, cut: Cut, now: float) -> Unmasking | None:
        try:
            return unmask(self, cut, now)
        except Refused as refusal:
            refused.append(refusal.reason)
            raise

    monkeypatch.setattr(Unmasker, "unmask", noting)
    config = settings("members=5", "rounds=100", "method=eris+masked", "aggregators=1")
    with town(tmp_path, config, round=20.0) as place:
        nodes = [place.node(name) for name in place.names]
        keep_to_yourself(nodes[0])
        send_once(nodes[4])
        for node in nodes:
            place.start(node.settings.name, node.run)
        ended, run = place.coordinator.wait(60.0), place.coordinator.coordinator
        place.wait()
    assert ended is not None
    assert ended.startswith(NO_PROGRESS)
    assert Reason.UNMASK.value in ended
    assert refused.count(Reason.SUMMED_BEFORE) >= 8
    assert run.round < 20
    assert not run.excluded
    assert {node.member.round for node in nodes} == {run.round}
    assert np.array_equal(nodes[0].member.replica.model, place.node(place.names[0]).member.replica.model)  # as it began


def send_once(node: Node) -> None:
    """Let a member contribute to the first round alone, and say from then on that it sends nothing."""
    honest = node.member.contribute

    def contribute(*given: Any) -> list[Upload]:
        if node.member.round:
            raise Refused(Reason.OUT_OF_RANGE, "nothing to send")
        return honest(*given)

    node.member.contribute = contribute  # type: ignore[method-assign]


def keep_to_yourself(node: Node) -> None:
    """Let p say of the first round's sum that it was not unmasked."""
    role = node.links.aggregator._aggregator
    honest = role._unmasked

    def withheld(shard: Any, plan: RoundPlan, now: float) -> Published | Withheld | None:
        outcome = honest(shard, plan, now)
        if plan.round or not isinstance(outcome, Published):
            return outcome
        return Withheld(plan.digest, shard.number, node.number, Reason.UNMASK)

    role._unmasked = withheld  # type: ignore[method-assign]


# ── a hostile unmasker ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("wrong", ["values", "buffers", "checks"])
def test_q_cannot_have_pads_of_its_own_making_published_where_a_check_or_the_range_tells(wrong: str) -> None:
    scene = Round()
    scene.federation.upload(scene.plan, scene.uploads)
    home = scene.federation.aggregators[scene.plan.assignment[3]]
    home.tick(0.0)
    answer = scene.ask(home.cut_of(3))
    array = getattr(answer.pads, wrong).copy()
    if not array.size:
        pytest.skip("this shard has none")
    array += array.dtype.type(1 << (8 * array.itemsize - 1))
    forged = replace(answer, pads=answer.pads._replace(**{wrong: array}), signature="")
    with pytest.raises(Refused, match="not signed"):
        home.take_off(forged, answer.unmasker)
    home.take_off(replace(forged, signature=sign_as(answer.unmasker)(forged.signed_bytes)), answer.unmasker)
    [outcome] = home.tick(0.0)
    assert isinstance(outcome, Withheld)
    assert outcome.reason in (Reason.WRONG_PADS, Reason.OUT_OF_RANGE)


def test_q_alone_holds_nothing_that_depends_on_values() -> None:
    """What it says follows from key, plan and cut: one that was never near any data says the same, word for word."""
    scene = Round()
    cut = scene.cut(4)
    [q] = scene.plan.unmaskers_of(4)
    said = scene.ask(cut)
    stranger = Unmasker(q, scene.federation.recipe, scene.federation.members[q]._key)
    stranger.begin(scene.plan, 0.0)
    again = stranger.unmask(cut, LATER)
    assert again is not None
    assert all(np.array_equal(one, two) for one, two in zip(said.pads, again.pads, strict=True))


# ── what no mask prevents ────────────────────────────────────────────────────────────────────────────────────────────


def parts_of(scene: Round, shard: int) -> dict[int, np.ndarray]:
    """Return what each member sent to a shard, without its pad."""
    mine = {k: [u for u in scene.uploads if (u.member, u.shard) == (k, shard)] for k in scene.plan.participants}
    return {k: scene.federation.members[k].uncovered(sent)[0].part.symbols for k, sent in mine.items()}


def test_p_and_q_together_see_a_members_shard_and_neither_does_alone() -> None:
    """q knows the pad of each contribution, p has the contribution: hence the floor counts pairs."""
    scene = Round()
    [q] = scene.plan.unmaskers_of(2)
    unmasker, honest = scene.federation.unmaskers[q], parts_of(scene, 2)
    for upload in [u for u in scene.uploads if u.shard == 2]:
        pads = unmasker._summed(scene.cut(2, (upload.member,)), scene.plan)
        assert np.array_equal(upload.part.symbols - pads.values, honest[upload.member])
        for alone in (upload.part.symbols, pads.values):
            assert np.mean(alone == honest[upload.member]) < 0.05


def test_all_contributors_but_one_see_the_last_one() -> None:
    scene = Round()
    scene.federation.upload(scene.plan, scene.uploads)
    [published] = [o for o in scene.federation.cut(scene.plan) if o.manifest.shard == 2]
    parts = parts_of(scene, 2)
    for victim in scene.plan.participants:
        others = sum((parts[k] for k in parts if k != victim), np.zeros_like(parts[victim]))
        assert np.array_equal(published.values - others, parts[victim])


@pytest.mark.parametrize("liar", ["p", "q"])
def test_a_lie_about_the_sum_within_its_range_is_not_noticed(liar: str) -> None:
    """Neither the check words nor the range tell a value from another one that members might have sent."""
    scene = Round()
    scene.federation.upload(scene.plan, scene.uploads)
    [q] = scene.plan.unmaskers_of(2)
    bent = np.uint32(1 << 16)
    if liar == "q":
        unmasker, honest = scene.federation.unmaskers[q], scene.federation.unmaskers[q]._summed

        def lying(cut: Cut, plan: RoundPlan) -> Pads:
            pads = honest(cut, plan)
            pads.values[:] += bent
            return pads

        unmasker._summed = lying  # type: ignore[method-assign]
    outcomes = scene.federation.cut(scene.plan)
    if liar == "p":
        [true] = [o for o in outcomes if o.manifest.shard == 2]
        outcomes = [signed_with(true, true.values - bent) if o is true else o for o in outcomes]
    scene.federation.publish(scene.plan, outcomes)
    verdict = scene.federation.decide()
    assert verdict.lost_shards == ()
    true_sum = sum(parts_of(scene, 2).values(), np.uint32(0))
    [found] = [o for o in outcomes if o.manifest.shard == 2]
    assert np.array_equal(found.values, true_sum - bent)
    scene.federation.conclude(verdict)  # every member steps by it


@pytest.mark.parametrize(("limit", "rounds"), [(None, 10), (16.0, 1)])
def test_a_false_sum_also_sets_the_next_limit_until_honest_values_round_to_nothing(
    limit: float | None, rounds: int
) -> None:
    """R follows the largest committed value, unless it is configured."""
    federation = Federation(CASE.change(encoding=FixedPoint(limit), rounds=12))
    began = float(federation.members[0].replica.limit[0])
    for _ in range(rounds + 1):
        plan = federation.plan()
        federation.begin(plan)
        uploads = federation.contribute(plan, federation._train)
        ours = {k: member.uncovered([u for u in uploads if u.member == k]) for k, member in federation.members.items()}
        federation.upload(plan, uploads)
        outcomes = federation.cut(plan)
        edge = np.full_like(outcomes[0].values, (1 << 30) - 1)  # as if all were at the limit, wherever that is
        federation.publish(plan, [signed_with(outcomes[0], edge), *outcomes[1:]])
        federation.conclude(federation.decide())
    sent = any(part.part.symbols.any() for parts in ours.values() for part in parts if part.shard == 2)
    assert sent is (limit is not None)
    assert (float(federation.members[0].replica.limit[0]) == began) is (limit is not None)


def test_a_member_that_spoils_two_rounds_lets_the_smallest_sum_be_four_ninths() -> None:
    """Nobody can name it, a third sits out, and C has two thirds of the rest."""
    federation = Federation(CASE.change(members=9, shards=3, rounds=4))
    assert federation.plan().least_contributors == 6
    for _ in range(2):
        spoil(federation, 8)
    resting = federation.plan()
    assert (len(resting.participants), resting.least_contributors) == (6, 4)
    assert resting.least_apart == 3  # of the nine


# ── a hostile coordinator ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_coordinator_that_pairs_a_peer_with_itself_or_leaves_masks_out_is_refused() -> None:
    scene = Round()
    member = Federation(CASE).members[0]
    plan = scene.plan
    for forged in (
        replace(plan, unmaskers=()),
        replace(plan, unmaskers=plan.assignment),
        replace(plan, mask_keys=()),
        replace(plan, unmaskers=plan.unmaskers * 2),
    ):
        with pytest.raises(Refused) as refused:
            member.begin(forged)
        assert refused.value.reason is Reason.WRONG_PLAN


def test_a_pair_that_would_see_too_much_is_below_the_floor() -> None:
    """All shards at peer 1 with pads at peer 2: two friends would see everything."""
    scene = Round()
    recipe, plan = scene.federation.recipe, scene.plan
    friends = replace(plan, assignment=(1,) * 7, unmaskers=(2,) * 7)
    assert share_of(friends, recipe, {1, 2}) == 1.0
    assert share_of(friends, recipe, {1}) == share_of(friends, recipe, {2}) == 0.0
    floor = Floor(max_share=0.5, min_contributors=1)
    floor.check(plan, recipe, 0)
    with pytest.raises(FloorError, match="coalition 1 and 2"):
        floor.check(friends, recipe, 0)
    floor.check(friends, recipe, 1)  # it is one of the two itself


def test_an_organisation_with_both_duties_is_below_the_floor() -> None:
    scene = Round()
    recipe, plan = scene.federation.recipe, scene.plan
    named = tuple(replace(entry, organisation="clinic" if entry.peer in (2, 3) else "") for entry in plan.roster)
    whole = Floor(max_organisation_share=0.1, min_contributors=1)
    with pytest.raises(FloorError, match="organisation clinic"):
        whole.check(replace(plan, roster=named), recipe, 0)
    apart = tuple(replace(entry, organisation="clinic" if entry.peer in (2, 5) else "") for entry in plan.roster)
    whole.check(replace(plan, roster=apart), recipe, 0)


def test_plans_written_again_do_not_bring_one_pair_more_than_the_floor_allows() -> None:
    """A lost round, then another cut of the same state: what a pair holds of both is held to one limit."""
    scene = Round(CASE)
    member = scene.federation.members[0]
    member.floor = Floor(max_share=0.2, min_contributors=1)
    member.begin(scene.plan)
    assert len(member.contribute(CASE.train(0, 0, member.look()))) == 7
    turned = replace(scene.plan, epoch=1, assignment=(1, 2, 3, 4, 5, 6, 0), unmaskers=(2, 3, 4, 5, 6, 0, 1))
    member.begin(turned)
    sent = {upload.shard for upload in member.contribute(CASE.train(0, 0, member.look()))}
    assert member.unsent == (0, 1, 2, 3, 4)  # pairs that have one shard already; of 5 and 6 it is one of the two itself
    assert sent == {5, 6}
    member.begin(replace(scene.plan, epoch=2))
    assert len(member.contribute(CASE.train(0, 0, member.look()))) == 7  # the same pairs again learn nothing more


def test_forged_keys_are_noticed_over_the_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator shows a key of its own as everybody's unmasker's: no member sends anything under it."""
    mine = MaskKey(0).public.hex()
    forge_plans(monkeypatch, lambda plan: replace(plan, mask_keys=(mine,) * len(plan.mask_keys)))
    config = settings("members=4", "rounds=1", "method=eris+masked")
    with town(tmp_path, config, round=6.0) as place:
        nodes = [place.node(name) for name in place.names]
        for node in nodes:
            place.start(node.settings.name, node.run)
        place.wait()
        assert set(place.coordinator.coordinator.lost_reasons) <= {"too-few", "not published", "unmask", "wrong-pads"}
        assert place.coordinator.coordinator.lost_reasons
    for node in nodes:  # no contribution arrived anywhere
        assert all(not shard.staging.complete for shard in node.links.aggregator._aggregator._shards.values())


def signed_keys(federation: Federation) -> Callable[[int, bytes], bool]:
    """Return what knows the keys that peers made themselves, as their signatures would tell."""
    made = {(peer, member._key.public) for peer, member in federation.members.items()}
    return lambda peer, key: (peer, key) in made


def test_a_key_that_its_unmasker_did_not_sign_is_used_by_nobody() -> None:
    """The coordinator shows its own key as that of one unmasker, and everybody else's as they are."""
    for checked in (True, False):
        federation = Federation(CASE)
        plan = federation.plan()
        [q] = plan.unmaskers_of(2)
        keys = [*plan.mask_keys]
        keys[q] = MaskKey(0).public.hex()
        for peer, member in federation.members.items():
            member.begin(replace(plan, mask_keys=tuple(keys)))
            member._knows_key = signed_keys(federation) if checked else member._knows_key
            if checked or peer == q:
                with pytest.raises(Refused, match=r"has not signed|not this member.s current one"):
                    member.contribute(CASE.train(0, peer, member.look()))
            else:  # who believes any key sends what the coordinator can read
                assert member.contribute(CASE.train(0, peer, member.look()))


def test_q_takes_no_pads_off_under_a_key_that_its_member_did_not_sign() -> None:
    """Else a coordinator that stands in for a member would have a set unmasked that is one smaller."""
    scene = Round()
    [q] = scene.plan.unmaskers_of(2)
    stranger = next(peer for peer in scene.plan.participants if peer != q)
    honest = signed_keys(scene.federation)
    unmasker = scene.federation.unmaskers[q]
    unmasker._knows_key = lambda peer, key: peer != stranger and honest(peer, key)
    assert scene.refusal(scene.cut(2)) is Reason.BAD_SIGNATURE
    unmasker._knows_key = honest
    assert scene.ask(scene.cut(2)) is not None


def test_coordinator_and_member_together_shrink_a_set_no_further_than_its_minimum() -> None:
    """It calls honest members gone, and the accomplice knows its own part: at least four others still hide each."""
    scene = Round()
    [q] = scene.plan.unmaskers_of(2)
    unmasker, everybody = scene.federation.unmaskers[q], scene.plan.participants
    unmasker.without(set(everybody) - {0, 1})
    assert scene.refusal(scene.cut(2, everybody[:4])) is Reason.TOO_FEW
    answer = unmasker.unmask(scene.cut(2, everybody[:5]), 0.0)  # at once: the others are gone, as far as q was told
    assert answer is not None
    assert len(everybody[:5]) == scene.plan.least_contributors
    for more in (everybody[:6], everybody):  # and no second set, though all are here again
        assert scene.refusal(scene.cut(2, more)) is Reason.CONFLICT


# ── a hostile member, and the wire ───────────────────────────────────────────────────────────────────────────────────


def test_a_member_cannot_frame_another_nor_send_two_contributions() -> None:
    scene = Round()
    home = scene.federation.aggregators[scene.plan.assignment[2]]
    theirs = next(u for u in scene.uploads if u.shard == 2 and u.member == 5)
    with pytest.raises(Refused) as refused:
        home.receive(theirs, sender=4)
    assert refused.value.reason is Reason.NOT_A_MEMBER
    home.receive(theirs, sender=5)
    held = home._shards[2].total.values.copy()
    symbols = theirs.part.symbols.copy()
    symbols[0] += np.uint32(1)
    other = replace(theirs, part=replace(theirs.part, symbols=symbols))
    with pytest.raises(Refused) as refused:
        home.receive(replace(other, nonce=bytes(16)), sender=5)
    assert refused.value.reason is Reason.CONFLICT
    home.receive(other, sender=5)  # under the nonce of the first it is taken for that one: nothing is added
    assert np.array_equal(home._shards[2].total.values, held)


def test_a_member_beyond_the_limit_costs_the_shard_and_is_an_alarm() -> None:
    """Nobody can tell who it was: that is the price of hiding everybody."""
    scene = Round()
    liar = next(u for u in scene.uploads if u.shard == 2 and u.member == 5)
    liar.part.symbols[:1] += np.uint32(1 << 31)
    scene.federation.upload(scene.plan, scene.uploads)
    outcomes = {o.shard: o for o in scene.federation.cut(scene.plan) if isinstance(o, Withheld)}
    assert {shard: outcome.reason for shard, outcome in outcomes.items()} == {2: Reason.OUT_OF_RANGE}


def captured(change: Callable[[Upload, RoundPlan, MaskKey], Upload] = masked) -> np.ndarray:
    """Return the words of values that one aggregator receives in a round, from the bytes that came in."""
    case = CASE.change(n=120_000, members=5, shards=1, rounds=1, buffers=1)
    federation = Federation(case)
    plan = federation.plan()
    received: list[bytes] = []
    read = Aggregator._read

    def reading(self: Aggregator, shard: int, member: int, payload: memoryview) -> Contents:
        received.append(bytes(payload))
        return read(self, shard, member, payload)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("eris.protocol.member.masked", change)
        patch.setattr(Aggregator, "_read", reading)
        federation.begin(plan)
        for upload in federation.contribute(plan, federation._train):
            header = upload.header()
            frame = Header(Kind.CONTRIBUTION, total=header.total, length=header.total, nonce=header.nonce)
            assert upload_header(Header.decode(frame.encode()), plan).nonce == upload.nonce
            federation.upload(plan, [upload])
    size = int(federation.recipe.layout(0).trainable.sizes[0])
    assert len(received) == 5
    return np.concatenate([np.frombuffer(each, "<u4", size) for each in received])


def chi_square(words: np.ndarray) -> float:
    """How far from uniform the high bytes are: 255 degrees of freedom, above 330 in one of a thousand."""
    counts, expected = np.bincount(words >> 24, minlength=256), words.size / 256
    return float(((counts - expected) ** 2 / expected).sum())


def test_the_high_bytes_of_what_p_receives_are_uniform_and_without_pads_they_are_not() -> None:
    """Low bytes would pass without any pad; so the mutation must fail."""
    assert chi_square(captured()) < 360
    without = captured(lambda upload, plan, key: replace(upload, checks=masking.check_words(), nonce=bytes(16)))
    assert chi_square(without) > 1e5


def test_two_contributions_of_one_member_never_share_a_pad() -> None:
    """The difference of two masked shards, or of the same values under two plans, is as uniform as each of them."""
    scene, other = Round(), Round()
    for one, two in zip(scene.uploads, other.uploads, strict=True):
        assert one.nonce != two.nonce
        assert np.mean(one.part.symbols == two.part.symbols) < 0.2


def test_other_values_of_one_member_in_one_round_have_another_pad() -> None:
    """Under the same keys, plan and shard: the difference of two messages is not that of their values."""
    scene = Round()
    key = scene.federation.members[3]._key
    [upload] = [u for u in scene.uploads if u.member == 3 and u.shard == 2]
    zeros, ones = (
        replace(upload, part=replace(upload.part, symbols=np.full_like(upload.part.symbols, value))) for value in (0, 1)
    )
    first, second = masked(zeros, scene.plan, key), masked(ones, scene.plan, key)
    assert np.mean(second.part.symbols - first.part.symbols == 1) < 0.1


def test_an_honest_round_beside_all_this_publishes() -> None:
    scene = Round()
    scene.federation.upload(scene.plan, scene.uploads)
    outcomes = scene.federation.cut(scene.plan)
    assert len(outcomes) == 7
    assert all(isinstance(outcome, Published) for outcome in outcomes)
