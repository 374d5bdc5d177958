"""Masked rounds through four roles: the plain fixed-point run, bit for bit, and nothing else for the aggregator."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from eris.aggregate.encoding import FixedPoint
from eris.errors import ConfigError, FloorError, Reason, Refused
from eris.privacy.ring_noise import RingNoise
from eris.protocol import steps
from eris.protocol.floor import Floor
from eris.protocol.messages import Published, Withheld
from eris.protocol.sums import Start
from eris.seeds import private_root
from tests.equivalence.case import Case
from tests.equivalence.federation import Federation

PLAIN = Case(n=61, members=7, shards=7, exponent=3, rounds=4, encoding=FixedPoint(), arrival=1)


MASKED = PLAIN.change(unmaskers=1)


def same(masked: Case, plain: Case) -> None:
    """Both ways end with the same bits: model, optimizer, references, R."""
    one, two = Federation(masked).run(), Federation(plain).run()
    assert np.array_equal(one.model, two.model)
    assert one.optimizer.keys() == two.optimizer.keys()
    assert all(np.array_equal(one.optimizer[name], two.optimizer[name]) for name in one.optimizer)
    assert np.array_equal(one.limit, two.limit)
    for peer, reference in one.references.items():
        assert np.array_equal(reference, two.references[peer])


@pytest.mark.parametrize("shards", [1, 2, 7])
@pytest.mark.parametrize("dsc", [False, True])
@pytest.mark.parametrize(
    "change", [{}, {"optimizer": "fedadam", "participation": 0.5}, {"weights": (3.0, 1.0, 2.0, 2.0, 1.0, 4.0, 1.0)}]
)
def test_masked_rounds_are_plain_ones_bit_for_bit(shards: int, dsc: bool, change: dict) -> None:
    case = PLAIN.change(shards=shards, **change)
    if dsc:
        case = case.change(gamma=0.25, sparsifier="rand_k")
    same(case.change(unmaskers=1), case)


@pytest.mark.parametrize("dsc", [{}, {"gamma": 0.25, "sparsifier": "rand_k"}])
def test_ten_of_ten(dsc: dict) -> None:
    """Ten members, each the aggregator of one shard and the unmasker of the next, as in the figures of the design."""
    case = PLAIN.change(members=10, shards=10, lost_links=0.03, **dsc)
    same(case.change(unmaskers=1), case)


@pytest.mark.parametrize("change", [{"unmaskers": 3}, {"schedule": "redraw"}, {"schedule": "rotate"}])
def test_more_unmaskers_and_moving_shards(change: dict) -> None:
    same(PLAIN.change(**{"unmaskers": 1, **change}), PLAIN.change(**{**change, "unmaskers": 0}))


@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize("dsc", [False, True])
@pytest.mark.parametrize("change", [{}, {"participation": 0.8, "lost_links": 0.05, "weights": (3, 1, 2, 2, 1, 4, 1)}])
def test_noise_in_masked_rounds_is_that_of_plain_ones_bit_for_bit(shares: bool, dsc: bool, change: dict) -> None:
    case = PLAIN.change(buffers=0, noise=RingNoise(0.8, 1.0, shares=shares), **change)
    if dsc:
        case = case.change(gamma=0.25, sparsifier="rand_k")
    same(case.change(unmaskers=1), case)
    quiet, noisy = Federation(case.change(noise=None)).run(), Federation(case).run()
    assert not np.array_equal(quiet.model, noisy.model)


def test_a_member_that_wants_noise_of_its_own_refuses_shares() -> None:
    for shares, enough in ((False, "gaussian_noise"), (True, "noise_shares")):
        federation = Federation(MASKED.change(buffers=0, noise=RingNoise(0.8, 1.0, shares=shares)))
        plan, other = federation.plan(), {"gaussian_noise", "noise_shares"} - {enough}
        Floor(min_contributors=1, transforms=(enough,)).check(plan, federation.recipe, 0)
        with pytest.raises(FloorError, match="the chain lacks"):
            Floor(min_contributors=1, transforms=tuple(other)).check(plan, federation.recipe, 0)


def test_a_limit_that_the_noise_does_not_fit_into_is_named() -> None:
    case = PLAIN.change(buffers=0, noise=RingNoise(5.0, 1.0), encoding=FixedPoint(1.0))
    with pytest.raises(ConfigError, match="tail of the noise") as refused:
        Federation(case).round()
    needed = float(refused.value.fix.split("server.limit = ")[1].split(",")[0])
    Federation(case.change(encoding=FixedPoint(needed))).round()


def test_noise_finer_than_the_grid_is_refused() -> None:
    case = PLAIN.change(buffers=0, noise=RingNoise(1e-6, 1e-3), encoding=FixedPoint(2.0**10))
    with pytest.raises(ConfigError, match="grid steps"):
        Federation(case).round()


def test_missing_contributions_and_shards_leave_the_bits_of_the_same_plain_run() -> None:
    case = PLAIN.change(lost_links=0.08, lost_shards=0.2, gamma=0.25, sparsifier="rand_k", rounds=6)
    same(case.change(unmaskers=1), case)


def opened(case: Case = MASKED):
    """A masked round whose members have made their uploads."""
    federation = Federation(case)
    plan = federation.plan()
    federation.begin(plan)
    return federation, plan, federation.contribute(plan, federation._train)


def outcomes_by_shard(federation, plan):
    found = federation.cut(plan)
    return {o.shard if isinstance(o, Withheld) else o.manifest.shard: o for o in found}


def test_what_an_aggregator_adds_up_is_not_what_members_sent_until_the_pads_are_off() -> None:
    federation, plan, uploads = opened(PLAIN.change(unmaskers=1, shards=1))
    plain, clear, cleartext = opened(PLAIN.change(shards=1))
    for hidden, open_one in zip(uploads, cleartext, strict=True):
        assert np.mean(hidden.part.symbols == open_one.part.symbols) < 0.05
        assert np.mean(hidden.buffers == open_one.buffers) < 0.3
        assert hidden.steps == 1.0  # how long a member trained is not told either
        assert len(hidden.nonce) == 16
    federation.upload(plan, uploads)
    plain.upload(clear, cleartext)
    [one], [two] = federation.cut(plan), plain.cut(clear)
    assert isinstance(one, Published)
    assert isinstance(two, Published)
    assert np.array_equal(one.values, two.values)
    assert np.array_equal(one.buffers, two.buffers)


def test_a_shard_that_is_not_unmasked_is_lost_by_name() -> None:
    federation, plan, uploads = opened()
    federation.upload(plan, uploads)
    silent = plan.unmaskers_of(2)[0]
    federation.unmaskers[silent].abstain(plan)
    outcomes = federation.cut(plan)
    federation.publish(plan, outcomes)
    verdict = federation.decide()
    assert {entry.shard for entry in verdict.shards if entry.lost} == {
        s for s in range(7) if plan.unmaskers_of(s)[0] == silent
    }
    assert {entry.lost for entry in verdict.shards if entry.lost} == {Reason.UNMASK.value}
    federation.conclude(verdict)
    federation.round()  # and the next one goes on


def test_a_cut_that_is_refused_for_good_costs_its_shard_and_no_time() -> None:
    """All were summed from this state before; without one of them q refuses, and nobody waits for its pads."""
    federation = Federation(MASKED)
    plan = federation.plan()
    federation.begin(plan)
    for unmasker in federation.unmaskers.values():
        unmasker._sums.note(Start.of(plan), plan.participants, *range(plan.shards))
    federation.upload(plan, [u for u in federation.contribute(plan, federation._train) if u.member != 3])
    federation.now = plan.deadlines.contribute
    assert federation._ticked() == []
    federation.unmask(plan)
    outcomes = federation._ticked()  # at the same moment
    assert [outcome.reason for outcome in outcomes if isinstance(outcome, Withheld)] == [Reason.UNMASK] * plan.shards
    assert len(outcomes) == plan.shards


def test_an_aggregator_does_not_wait_for_an_unmasker_that_is_away() -> None:
    federation, plan, uploads = opened()
    federation.upload(plan, uploads)
    home, [silent] = federation.aggregators[plan.assignment[3]], plan.unmaskers_of(3)
    home.tick(federation.now)
    home.without({silent}, away=False)
    assert home.tick(federation.now) == []
    home.without({silent})
    assert [o.reason for o in home.tick(federation.now) if isinstance(o, Withheld)] == [Reason.UNMASK]


@pytest.mark.parametrize("shard", [0, 4])
def test_pads_of_another_set_do_not_come_off(shard: int) -> None:
    """A member's contribution that is in the sum but not in the cut, or the other way round."""
    federation, plan, uploads = opened()
    federation.upload(plan, uploads)
    home, [q] = federation.aggregators[plan.assignment[shard]], plan.unmaskers_of(shard)
    home.tick(federation.now)
    cut = home.cut_of(shard)
    assert cut is not None
    fewer = replace(cut, contributors=cut.contributors[1:], nonces=cut.nonces[1:])
    answer = federation.unmaskers[q].unmask(fewer, federation.now + plan.deadlines.contribute)
    assert answer is not None
    home.take_off(replace(answer, cut=cut.digest), q)  # a liar says that it is for the honest cut
    assert [o.reason for o in home.tick(federation.now) if isinstance(o, Withheld)] == [Reason.WRONG_PADS]


def test_an_aggregator_takes_one_answer_from_each_unmasker_and_none_from_others() -> None:
    federation, plan, uploads = opened()
    federation.upload(plan, uploads)
    home, [q] = federation.aggregators[plan.assignment[1]], plan.unmaskers_of(1)
    home.tick(federation.now)
    cut = home.cut_of(1)
    assert cut is not None
    answer = federation.unmaskers[q].unmask(cut, federation.now)
    assert answer is not None
    short = replace(answer, pads=answer.pads._replace(values=answer.pads.values[:-1]))
    other = replace(answer, pads=answer.pads._replace(values=answer.pads.values + np.uint32(1)))
    stranger = next(peer for peer in range(7) if peer not in (q, home.peer))
    for wrong, sender, reason in (
        (answer, stranger, Reason.WRONG_SHARD),
        (replace(answer, unmasker=stranger), stranger, Reason.WRONG_SHARD),
        (replace(answer, cut="00" * 32), q, Reason.WRONG_PLAN),
        (short, q, Reason.WRONG_SIZE),
    ):
        with pytest.raises(Refused) as refused:
            home.take_off(wrong, sender)
        assert refused.value.reason is reason
    home.take_off(answer, q)
    home.take_off(answer, q)
    with pytest.raises(Refused, match="different pads"):
        home.take_off(other, q)
    [published] = home.tick(federation.now)
    assert isinstance(published, Published)


def test_plain_and_masked_contributions_are_not_mixed() -> None:
    federation, plan, uploads = opened()
    [clear] = [u for u in uploads if u.member == 2 and u.shard == 1]
    with pytest.raises(Refused, match="in every round of a run or in none"):
        federation.aggregators[plan.assignment[1]].receive(replace(clear, nonce=b""), 2)


def test_a_member_whose_key_the_plan_does_not_show_sends_nothing() -> None:
    federation = Federation(PLAIN.change(unmaskers=1))
    plan = federation.plan()
    member = federation.members[4]
    keys = tuple("" if k == 4 else key for k, key in enumerate(plan.mask_keys))
    member.begin(replace(plan, mask_keys=keys, unmaskers=tuple(k if k != 4 else 6 for k in plan.unmaskers)))
    with pytest.raises(Refused, match="current one"):
        member.contribute(PLAIN.train(0, 4, member.look()))


def test_too_few_for_a_masked_sum_are_withheld_before_anybody_is_asked() -> None:
    federation, plan, uploads = opened()
    federation.upload(plan, [u for u in uploads if u.member < 4])  # of seven, two thirds are five
    assert {type(o) for o in federation.cut(plan)} == {Withheld}
    assert all(o.reason is Reason.TOO_FEW for o in outcomes_by_shard(federation, plan).values() if o)


def test_fednova_needs_what_masking_does_not_tell() -> None:
    Federation(PLAIN.change(optimizer="fednova"))
    with pytest.raises(ConfigError, match="mean number of local steps"):
        Federation(PLAIN.change(optimizer="fednova", unmaskers=1))
    with pytest.raises(ConfigError, match="floats cannot be masked"):
        Federation(PLAIN.change(encoding=None, unmaskers=1))


@pytest.mark.parametrize("taken", [2.0, 3.0])
def test_local_steps_that_are_not_the_agreed_ones_are_refused_before_anything_is_sent(taken: float) -> None:
    """All take as many, so that nobody has to tell: one that took others would be averaged as if it had not."""
    federation = Federation(MASKED)
    made = replace(federation.recipe, steps=2.0)
    plan, member = federation.plan(), federation.members[3]
    member.begin(plan)
    result = replace(MASKED.train(0, 3, member.look()), steps=taken)
    send = partial(steps.contribute, made, 0, 3, result, member.private, member.replica.public, private_root(1, 3))
    if taken == made.steps:
        assert send()
    else:
        with pytest.raises(Refused, match="took 3 local steps, but all members must take 2"):
            send()


def test_two_aggregators_of_a_shard_get_one_sum_of_pads_or_none() -> None:
    same(PLAIN.change(unmaskers=1, replicas=2), PLAIN.change(replicas=2))
    federation, plan, uploads = opened(PLAIN.change(unmaskers=1, replicas=2))
    _, second = plan.aggregators_of(0)
    for upload in uploads:
        for owner in plan.aggregators_of(upload.shard):
            if (owner, upload.shard, upload.member) != (second, 0, 3):  # one link broke
                federation.aggregators[owner].receive(upload, upload.member)
    federation.publish(plan, federation.cut(plan))
    lost = [entry.lost for entry in federation.decide().shards]
    assert lost == [Reason.UNMASK.value, *[""] * 6]
    assert not federation.unmaskers[plan.unmaskers_of(0)[0]]._answers.get(0)


def test_where_one_of_two_aggregators_is_away_neither_the_other_nor_the_unmasker_waits() -> None:
    federation, plan, uploads = opened(PLAIN.change(unmaskers=1, replicas=2))
    federation.upload(plan, uploads)
    (first, second), [q] = plan.aggregators_of(3), plan.unmaskers_of(3)
    home, unmasker = federation.aggregators[first], federation.unmaskers[q]
    home.tick(federation.now)
    cut = home.cut_of(3)
    assert cut is not None
    for role in (home, unmasker):
        role.without({second}, away=False)  # it sends nothing, but may cut
    assert unmasker.unmask(cut, federation.now) is None
    assert not [o for o in home.tick(federation.now) if o.shard == 3]
    for role in (home, unmasker):
        role.without({second})
    with pytest.raises(Refused) as refused:
        unmasker.unmask(cut, federation.now)
    assert refused.value.reason is Reason.UNMASK
    assert [o.reason for o in home.tick(federation.now) if o.shard == 3] == [Reason.UNMASK]
