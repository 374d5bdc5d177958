"""The unmasker gives out the pads of one set a shard, or of none; a sum without them is the plain one, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from eris.aggregate.encoding import FixedPoint
from eris.aggregate.fixed_point import add
from eris.errors import Reason, Refused
from eris.peer.fault_points import FaultPoints
from eris.peer.shared_unmasker import SharedUnmasker
from eris.privacy.masking import MaskKey, sum_checks
from eris.protocol.agreement import Agreement, effective_contributors
from eris.protocol.messages import Published, Upload
from eris.protocol.pairs import check_pairs, choose_unmaskers
from eris.protocol.round_plan import RoundPlan
from eris.protocol.unmasker import Cut, Pads, Unmasker, masked
from tests.equivalence.case import Case
from tests.equivalence.federation import Federation
from tests.protocol.world import sign_as, verify

CASE = Case(members=7, shards=4, exponent=3, gamma=0.25, sparsifier="rand_k", encoding=FixedPoint(), participation=0.9)
LATER = 1e6  # after every deadline
KEYS = {peer: MaskKey(0, X25519PrivateKey.from_private_bytes(bytes([peer + 1]) * 32)) for peer in range(7)}
PUBLIC = {peer: key.public for peer, key in KEYS.items()}


def with_keys(plan: RoundPlan, **changes) -> RoundPlan:
    """The same plan with an unmasker for each shard and everybody's keys."""
    plan = replace(plan, **changes)
    roster, owners = {entry.peer: entry for entry in plan.roster}, map(plan.aggregators_of, range(plan.shards))
    chosen = tuple(peer for those in owners for peer in choose_unmaskers(roster, those, 1, roster))
    return replace(plan, unmaskers=chosen, mask_keys=tuple(PUBLIC[peer].hex() for peer in roster))


def under_pads(upload: Upload, plan: RoundPlan) -> tuple[bytes, Pads]:
    """Return what a member would send instead of its whole numbers, and the nonce beside it."""
    copied = replace(
        upload, part=replace(upload.part, symbols=upload.part.symbols.copy()), buffers=upload.buffers.copy()
    )
    sent = masked(copied, plan, KEYS[upload.member])
    return sent.nonce, Pads(sent.part.symbols, sent.buffers, sent.checks)


@dataclass
class Scene:
    """A round whose members have made their uploads, with one shard to be unmasked."""

    shard: int = 1
    case: Case = CASE

    def __post_init__(self) -> None:
        self.federation = Federation(self.case)
        self.plain = self.federation.plan()
        self.federation.begin(self.plain)
        self.uploads = self.federation.contribute(self.plain, self.federation._train)
        self.sent: dict[tuple[str, int], tuple[bytes, Pads]] = {}  # plan and member → what that sends, once
        self.open(with_keys(self.plain))

    def open(self, plan: RoundPlan) -> None:
        self.plan, [self.q] = plan, plan.unmaskers_of(self.shard)
        self.unmasker = self.restarted()
        self.unmasker.begin(plan, 0.0)

    def restarted(self, agreement: Agreement | None = None) -> Unmasker:
        recipe = replace(self.federation.recipe, unmaskers=1)
        return Unmasker(self.q, recipe, KEYS[self.q], sign=sign_as(self.q), verify=verify, agreement=agreement)

    def folded(self, members: tuple[int, ...]) -> tuple[Pads, tuple[bytes, ...]]:
        """Return Σ y over some members, as their aggregator has it, and their nonces."""
        uploads = [u for u in self.uploads if u.shard == self.shard and u.member in members]
        given = [self.sent.setdefault((self.plan.digest, u.member), under_pads(u, self.plan)) for u in uploads]
        total = Pads(*(np.zeros_like(array) for array in given[0][1]))
        for _, one in given:
            for into, array in zip(total, one, strict=True):
                add(into, array)
        return total, tuple(nonce for nonce, _ in given)

    def cut(self, members: tuple[int, ...], **changes) -> Cut:
        home = self.plan.assignment[self.shard]
        made = replace(Cut(self.plan.digest, self.shard, home, members, self.folded(members)[1]), **changes)
        return replace(made, signature=sign_as(home)(made.signed_bytes))

    def refused(self, cut: Cut, now: float = LATER) -> Reason:
        with pytest.raises(Refused) as refusal:
            self.unmasker.unmask(cut, now)
        return refusal.value.reason


@pytest.mark.parametrize("left_out", [0, 1, 2])
@pytest.mark.parametrize("shard", range(4))
def test_the_unmasked_sum_is_the_plain_one(shard: int, left_out: int) -> None:
    scene = Scene(shard)
    members = scene.plan.participants[left_out:]
    total, _ = scene.folded(members)
    answer = scene.unmasker.unmask(scene.cut(members), LATER)
    assert answer is not None
    assert verify(scene.q, answer.signed_bytes, answer.signature)
    for into, pads in zip(total, answer.pads, strict=True):
        np.subtract(into, pads, out=into)
    assert sum_checks(total.checks, len(members))
    scene.federation.upload(scene.plain, [u for u in scene.uploads if u.member in members])
    plain = next(o for o in scene.federation.cut(scene.plain) if o.manifest.shard == shard)
    assert isinstance(plain, Published)
    assert plain.manifest.contributors == members
    assert np.array_equal(total.values, plain.values)
    assert np.array_equal(total.buffers, plain.buffers)


def test_what_the_aggregator_holds_is_not_the_sum_and_a_wrong_set_shows() -> None:
    scene = Scene()
    everybody = scene.plan.participants
    answer = scene.unmasker.unmask(scene.cut(everybody), LATER)
    assert answer is not None
    for members in (everybody[1:], everybody[:-1]):
        checks = scene.folded(members)[0].checks - answer.pads.checks
        assert not sum_checks(checks, len(members))
        assert not sum_checks(checks, len(everybody))
    high = scene.folded(everybody)[0].values >> 24
    assert np.unique(high).size > high.size // 4  # plain sums lie near zero


def test_one_set_a_shard_the_same_again_gets_the_same() -> None:
    scene = Scene()
    everybody = scene.plan.participants
    first, again = (scene.unmasker.unmask(scene.cut(everybody), LATER) for _ in range(2))
    assert first is not None
    assert again is not None
    assert all(np.array_equal(one, two) for one, two in zip(first.pads, again.pads, strict=True))
    assert scene.refused(scene.cut(everybody[1:])) is Reason.CONFLICT
    other = (bytes(16), *scene.cut(everybody).nonces[1:])
    assert scene.refused(scene.cut(everybody, nonces=other)) is Reason.CONFLICT


def test_a_set_that_was_refused_does_not_stand_in_the_way() -> None:
    scene = Scene()
    assert scene.refused(scene.cut(scene.plan.participants[:3])) is Reason.TOO_FEW
    assert scene.unmasker.unmask(scene.cut(scene.plan.participants), LATER) is not None


def test_before_the_deadline_only_the_whole_set() -> None:
    scene = Scene()
    most = scene.plan.participants[1:]
    assert len(most) >= scene.plan.least_contributors
    assert scene.unmasker.unmask(scene.cut(most), 1.0) is None
    assert scene.unmasker.unmask(scene.cut(most), scene.plan.deadlines.contribute) is not None


def test_two_thirds_and_not_fewer() -> None:
    scene = Scene()
    everybody = scene.plan.participants
    assert len(everybody) == 6
    assert scene.plan.least_contributors == 4
    assert scene.refused(scene.cut(everybody[:3])) is Reason.TOO_FEW
    assert scene.unmasker.unmask(scene.cut(everybody[:4]), LATER) is not None


def test_weights_that_hide_nobody_are_refused() -> None:
    scene = Scene(case=CASE.change(weights=(1e6, *[1.0] * 6), participation=1.0))
    assert effective_contributors(scene.plan, scene.plan.participants) < 1.1
    assert scene.refused(scene.cut(scene.plan.participants)) is Reason.TOO_FEW


def test_after_a_restart_it_abstains() -> None:
    scene = Scene()
    scene.unmasker = scene.restarted()
    scene.unmasker.abstain(scene.plan)
    assert scene.refused(scene.cut(scene.plan.participants)) is Reason.RESTARTED
    scene.unmasker.begin(scene.plan, 0.0)  # the same plan again opens nothing
    assert scene.refused(scene.cut(scene.plan.participants)) is Reason.RESTARTED


def test_an_earlier_plan_shown_again_makes_nobody_forget_what_was_said() -> None:
    """An unmasker sits out what it cannot begin; that must not be a way to begin the open round once more."""
    scene = Scene()
    scene.open(with_keys(scene.plain, epoch=1))
    shared, everybody = SharedUnmasker(scene.unmasker, FaultPoints()), scene.plan.participants
    assert scene.unmasker.unmask(scene.cut(everybody), LATER) is not None
    for earlier in (with_keys(scene.plain), with_keys(scene.plain, epoch=1, attest=True)):
        shared.begin(earlier)
        shared.begin(scene.plan)
        assert scene.refused(scene.cut(everybody[1:])) in (Reason.CONFLICT, Reason.RESTARTED, Reason.WRONG_PLAN)
    scene.open(with_keys(scene.plain, epoch=1))
    scene.unmasker.abstain(scene.plan)
    shared = SharedUnmasker(scene.unmasker, FaultPoints())
    for plan in (with_keys(scene.plain), scene.plan):
        shared.begin(plan)
    assert scene.refused(scene.cut(everybody)) is Reason.RESTARTED


def test_a_forged_cut_is_refused() -> None:
    scene = Scene()
    honest, everybody = scene.cut(scene.plan.participants), scene.plan.participants
    stranger = next(k for k in range(7) if k not in everybody)
    for cut, reason in (
        (replace(honest, signature=sign_as(3)(honest.signed_bytes)), Reason.BAD_SIGNATURE),
        (replace(honest, contributors=everybody[1:], nonces=honest.nonces[1:]), Reason.BAD_SIGNATURE),
        (scene.cut(everybody, plan="00" * 32), Reason.WRONG_PLAN),
        (scene.cut(everybody, shard=99), Reason.WRONG_SHARD),
        (scene.cut(everybody, aggregator=scene.q), Reason.WRONG_SHARD),
        (scene.cut(everybody, contributors=tuple(sorted((*everybody[1:], stranger)))), Reason.MALFORMED),
        (scene.cut(everybody, nonces=honest.nonces[1:]), Reason.MALFORMED),
    ):
        assert scene.refused(cut) is reason
    assert scene.unmasker.unmask(honest, LATER) is not None


def test_a_plan_with_another_key_of_ours_or_an_earlier_one_is_refused() -> None:
    scene = Scene()
    fresh = scene.restarted()
    with pytest.raises(Refused, match="current one"):
        fresh.begin(replace(scene.plan, mask_keys=(*scene.plan.mask_keys[1:], scene.plan.mask_keys[0])), 0.0)
    later = replace(scene.plan, epoch=scene.plan.epoch + 1)
    scene.unmasker.begin(later, 0.0)
    with pytest.raises(Refused, match="a later plan was open"):
        scene.unmasker.begin(scene.plan, 0.0)


def test_a_plan_that_was_not_agreed_is_sat_out_with_every_key_kept() -> None:
    """Fewer participants than are drawn, or a lower minimum: q would take pads off for a set that it should refuse."""
    scene = Scene()
    names, rules = tuple(f"peer-{k}" for k in range(7)), scene.plain
    agreement = Agreement("equivalence", names, participation=rules.participation, min_contributors=3)
    agreed = replace(scene.plan, min_contributors=3)
    for forged in (
        replace(agreed, epoch=1, participants=agreed.participants[:3]),
        replace(agreed, epoch=1, min_contributors=1),
        replace(agreed, epoch=1, run="another"),
    ):
        scene.unmasker = scene.restarted(agreement)
        shared = SharedUnmasker(scene.unmasker, FaultPoints())
        scene.plan = forged
        with pytest.raises(Refused, match=r"participants|min_contributors|run"):
            scene.unmasker.begin(forged, 0.0)
        shared.begin(forged)
        assert scene.refused(scene.cut(forged.participants)) is Reason.RESTARTED
        scene.plan = replace(agreed, epoch=2)
        shared.begin(scene.plan)
        assert scene.unmasker.unmask(scene.cut(agreed.participants), LATER) is not None


def test_with_two_aggregators_it_waits_for_both_and_for_equal_cuts() -> None:
    for differ in (False, True):
        scene = Scene()
        plan = with_keys(scene.plain, witnesses=tuple((home + 1) % 7 for home in scene.plain.assignment))
        scene.open(plan)
        assert scene.q not in plan.aggregators_of(scene.shard)
        first, second = scene.cut(plan.participants), scene.cut(plan.participants[1:] if differ else plan.participants)
        witness = plan.witnesses[scene.shard]
        second = replace(second, aggregator=witness)
        second = replace(second, signature=sign_as(witness)(second.signed_bytes))
        assert scene.unmasker.unmask(first, LATER) is None
        if differ:
            assert scene.refused(second) is Reason.REPLICAS_DIFFER
            assert scene.refused(first) is Reason.REPLICAS_DIFFER
        else:
            assert scene.unmasker.unmask(second, LATER) is not None
            assert scene.unmasker.unmask(first, LATER) is not None


def test_the_unmasker_is_the_next_in_the_ring_and_of_another_organisation() -> None:
    plan = Scene().plan
    assert [plan.unmaskers_of(shard) for shard in range(4)] == [((home + 1) % 7,) for home in plan.assignment]
    names = {0: "a", 1: "a", 2: "b"}
    roster = {e.peer: replace(e, organisation=names.get(e.peer, "")) for e in plan.roster}
    assert choose_unmaskers(roster, (0,), 1, {1, 2, 3}) == (2,)
    assert choose_unmaskers(roster, (0,), 2, {1, 2, 3}) == (2, 3)
    assert choose_unmaskers(roster, (0, 2), 1, {1, 2, 3}) == (3,)
    assert choose_unmaskers(roster, (0,), 1, {1}) == (1,)  # nobody else is here
    assert choose_unmaskers(roster, (0,), 1, {0}) == ()


def test_a_plan_that_pairs_friends_is_refused() -> None:
    scene = Scene()
    recipe, plan = scene.unmasker.recipe, scene.plan
    check_pairs(plan, recipe)
    home = plan.assignment[0]
    friends = tuple(replace(e, organisation="a" if e.peer in (home, home + 1) else "") for e in plan.roster)
    without = tuple("" if k == scene.q else key for k, key in enumerate(plan.mask_keys))
    for wrong in (
        replace(plan, unmaskers=()),
        replace(plan, unmaskers=plan.unmaskers * 2),
        replace(plan, unmaskers=(home, *plan.unmaskers[1:])),
        replace(plan, roster=friends),
        replace(plan, mask_keys=without),
    ):
        with pytest.raises(Refused) as refused:
            check_pairs(wrong, recipe)
        assert refused.value.reason is Reason.WRONG_PLAN
    with pytest.raises(Refused, match="0 each were agreed"):
        check_pairs(plan, scene.federation.recipe)


def test_who_is_away_is_not_waited_for() -> None:
    scene = Scene()
    most = scene.plan.participants[1:]
    assert scene.unmasker.unmask(scene.cut(most), 1.0) is None
    scene.unmasker.without({scene.plan.participants[0]})
    assert scene.unmasker.unmask(scene.cut(most), 1.0) is not None
