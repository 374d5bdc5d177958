"""Sums from one state: no combination of them may be made of few members, and nothing is forgotten."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eris.aggregate.encoding import FixedPoint
from eris.errors import Reason
from eris.protocol.sums import MOST_SUMS, Start, Sums, fewest
from eris.protocol.verdict import ShardVerdict, UnmaskedSum, Verdict
from tests.equivalence.case import Case
from tests.equivalence.federation import Federation

MEMBERS = 7
Sets = st.lists(st.frozensets(st.integers(0, MEMBERS - 1), min_size=1), min_size=1, max_size=3)


def by_hand(sets) -> int:
    """The least number of members in a combination, tried by solving for every small group of members; and in bits."""
    rows = np.array([[member in each for member in range(MEMBERS)] for each in sets], int)
    in_bits = [int(np.count_nonzero(np.array(taken) @ rows % 2)) for taken in product((0, 1), repeat=len(rows))]
    fewest_bits = min(filter(None, in_bits), default=MEMBERS)
    for size in range(1, fewest_bits):
        for group in combinations(range(MEMBERS), size):
            outside = np.delete(rows, group, axis=1)
            if np.linalg.matrix_rank(outside) < np.linalg.matrix_rank(rows):
                return size
    return fewest_bits


@settings(max_examples=150)
@given(Sets)
def test_the_fewest_members_of_any_combination(sets) -> None:
    assert fewest(sets) == by_hand(sets)


def test_sets_that_differ_enough_two_by_two_may_not_do_so_three_by_three() -> None:
    sets = [{1, 2, 3, 4}, {4, 5, 6, 7}, set(range(1, 8))]
    assert min(len(one ^ two) for one, two in combinations(sets, 2)) == 3
    assert fewest(sets[:2]) == 4
    assert fewest(sets[::2]) == fewest(sets[1:]) == 3
    assert fewest(sets) == 1


PLAN = "ee" * 32


def after(chain: str, round: int = 3, draw: int = 0) -> Start:
    return Start(round, chain, draw)


def test_lowest_bits_are_shown_where_values_are_not() -> None:
    """Nine members are in two of three sets each, and one is in all: 2³¹ times all three sums is its last bit."""
    pairs = [{1, 2, 3}, {4, 5, 6}, {7, 8, 9}]
    sets = [{0}.union(*(pairs[k] for k in (0, 1, 2) if k != left_out)) for left_out in range(3)]
    values = np.random.default_rng(4).integers(0, 1 << 32, (10, 50), dtype=np.uint32)
    sums = [np.sum(values[sorted(each)], axis=0, dtype=np.uint32) for each in sets]
    assert np.array_equal(np.sum(sums, axis=0, dtype=np.uint32) << 31, values[0] << 31)
    assert fewest(sets) == 1


def test_what_is_allowed_and_what_is_not(tmp_path: Path) -> None:
    sums, everybody, start = Sums(tmp_path / "sums.jsonl"), tuple(range(9)), after("s")
    assert sums.allows(start, 1, everybody, 3)
    sums.answer(start, 1, everybody, PLAN)
    assert sums.allows(start, 1, everybody, 3)
    assert not sums.allows(start, 1, everybody[1:], 3)
    assert not sums.allows(start, 1, everybody[2:], 3)
    assert sums.allows(start, 1, everybody[3:], 3)
    assert sums.allows(start, 2, everybody[1:], 3)  # other coordinates
    assert not sums.allows(after("s", draw=5), 2, everybody[1:], 3)  # of another draw: perhaps the same ones
    assert sums.allows(after("t", round=4), 1, everybody[1:], 3)
    again = Sums(tmp_path / "sums.jsonl")
    assert not again.allows(start, 1, everybody[1:], 3)


def test_a_round_that_is_played_again_counts_with_the_first_time_whatever_came_before_it() -> None:
    """Another epoch writes other verdicts about the same steps: another chain leads to the same model, or nearly."""
    sums, everybody = Sums(), tuple(range(9))
    sums.note(after("s"), everybody, 1)
    assert not sums.allows(after("t"), 1, everybody[1:], 3)
    assert sums.allows(after("t"), 1, everybody, 3)


def test_after_a_few_sums_there_are_no_more() -> None:
    sums = Sums()
    for turn in range(MOST_SUMS):
        members = tuple(range(10 * turn, 10 * turn + 10))
        assert sums.allows(after("s"), 0, members, 3)
        sums.note(after("s"), members, 0)
    assert not sums.allows(after("s"), 0, tuple(range(90, 99)), 3)


def test_a_sum_that_follows_from_the_others_is_no_further_one() -> None:
    """Everybody, and everybody without each third: the last of these four is known from the first three."""
    sums, everybody = Sums(), tuple(range(9))
    without = [tuple(member for member in everybody if member % 3 != third) for third in range(3)]
    for members in (everybody, *without[:2]):
        assert sums.allows(after("s"), 0, members, 3)
        sums.note(after("s"), members, 0)
    assert sums.allows(after("s"), 0, without[2], 3)
    assert not sums.allows(after("s"), 0, (0, 1, 2, 3, 4, 5), 2)


@settings(max_examples=150)
@given(st.data())
def test_no_combination_shows_fewer_than_a_third_of_the_largest_sum(data) -> None:
    """However many participants later plans have: members sit out after alarms, and some leave."""
    everybody = tuple(range(data.draw(st.integers(6, 12))))
    sums, known = Sums(), [everybody]
    sums.note(after("s"), everybody, 0)
    for _ in range(3):
        gone = data.draw(st.frozensets(st.sampled_from(everybody), max_size=len(everybody) // 2))
        here = [member for member in everybody if member not in gone]
        late = data.draw(st.frozensets(st.sampled_from(here), max_size=len(here) // 3))
        members = tuple(member for member in here if member not in late)
        if sums.allows(after("s"), 0, members, max(2, len(here) // 3)):
            sums.note(after("s"), members, 0)
            known.append(members)
    assert fewest(known) >= min(len(everybody) // 3, *map(len, known))


def test_a_third_is_of_those_drawn_though_a_third_of_them_sits_out() -> None:
    """Of thirty: a sum over all, one over the first twenty, and one over the last sixteen would show six of them."""
    sums, everybody = Sums(), tuple(range(30))
    plan = Federation(Case(members=30, shards=1, exponent=3, encoding=FixedPoint(), unmaskers=1)).plan()
    resting = replace(plan, participants=everybody[:20])
    assert plan.least_apart == resting.least_apart == 10
    for drawn in (plan, replace(plan, participation=0.5, participants=everybody[:15])):
        assert drawn.least_apart == len(drawn.participants) // 3
    for members in (everybody, everybody[:20]):
        sums.note(after("s"), members, 0)
    assert fewest([everybody, everybody[:20], everybody[14:]]) == 6
    assert not sums.allows(after("s"), 0, everybody[14:], resting.least_apart)
    assert not sums.allows(after("s"), 0, everybody[14:], 20 // 3)  # the largest sum says so even if the plan does not
    assert sums.allows(after("s"), 0, everybody[10:], resting.least_apart)


def test_few_may_be_shown_by_weight_though_they_are_many_by_heads() -> None:
    sums, everybody = Sums(), tuple(range(9))
    weights = {0: 6.0} | dict.fromkeys(range(1, 9), 1.0)

    def hides(members: tuple[int, ...]) -> bool:
        given = [weights[member] for member in members]
        return sum(given) ** 2 / sum(each * each for each in given) >= 2

    sums.note(after("s"), everybody, 0)
    assert sums.allows(after("s"), 0, everybody[3:], 3)
    assert not sums.allows(after("s"), 0, everybody[3:], 3, hides)  # leaves 0, 1 and 2, and 0 weighs six of eight
    assert sums.allows(after("s"), 0, everybody[:6], 3, hides)


def test_a_line_that_was_torn_was_never_answered(tmp_path: Path) -> None:
    path = tmp_path / "sums.jsonl"
    Sums(path).answer(after("s"), 0, (0, 1, 2), PLAN)
    path.write_text(path.read_text() + '{"round":3,"plan":"ff","sums":[[[0,1')
    again = Sums(path)
    assert not again.allows(after("s"), 0, (0, 1), 2)
    assert again.told(PLAN) == (UnmaskedSum(0, (0, 1, 2)),)


def test_what_others_published_is_known_after_a_restart_too(tmp_path: Path) -> None:
    """A shard's next unmasker may be any peer, and any peer may have been started again in between."""
    path, everybody = tmp_path / "sums.jsonl", tuple(range(9))
    sums = Sums(path)
    sums.note(after("s"), everybody, 2)
    sums.note(after("s", draw=7), everybody, 0, 3)
    sums.keep()
    written = path.read_text()
    for each in (sums, Sums(path)):
        assert not each.allows(after("t"), 2, everybody[1:], 3)
        assert not each.allows(after("t", draw=7), 3, everybody[1:], 3)
        each.note(after("t"), everybody, 2)
        each.keep()  # nothing new
    assert path.read_text() == written


def test_what_was_committed_while_a_peer_was_away_it_knows_from_the_verdict(tmp_path: Path) -> None:
    path, everybody = tmp_path / "sums.jsonl", tuple(range(9))
    sums = Sums(path)
    sums.judged(ended("dd" * 32, 0, 1, 2, 3, contributors=everybody), 0, lambda shard: 0.25)
    for each in (sums, Sums(path)):
        assert not each.allows(after("another"), 2, everybody[1:], 3)
        assert each.allows(after("another"), 2, everybody, 3)
        assert each.allows(after("another", round=4), 2, everybody[1:], 3)


def ended(
    previous: str,
    *committed: int,
    shards: int = 4,
    unmasked: tuple[UnmaskedSum, ...] = (),
    round: int = 3,
    epoch: int = 0,
    contributors: tuple[int, ...] = (),
) -> Verdict:
    """A round that ended so, after a chain."""
    members = contributors or (0, 1)
    entries = tuple(
        ShardVerdict(k, k, "aa" * 32, members, manifest="bb" * 32)
        if k in committed
        else ShardVerdict(k, k, lost="unmask")
        for k in range(shards)
    )
    return Verdict("run", epoch, round, "cc" * 32, previous, entries, unmasked=unmasked)


@pytest.mark.parametrize(("moved", "anew"), [((), False), ((1,), False), ((1, 3), True), ((0, 1, 2, 3), True)])
def test_a_round_that_moves_less_than_half_of_the_model_makes_no_other_state(
    tmp_path: Path, moved: tuple[int, ...], anew: bool
) -> None:
    """A bit of one shard would make another digest, and hardly another update."""
    sums, everybody = Sums(tmp_path / "sums.jsonl"), tuple(range(9))
    sums.answer(after("dd" * 32), 2, everybody, PLAN)
    verdict = ended("dd" * 32, *moved)
    sums.judged(verdict, 0, lambda shard: 0.25)
    for each in (sums, Sums(tmp_path / "sums.jsonl")):  # and one that comes back
        assert each.allows(after(verdict.digest, round=4), 2, everybody[1:], 3) is anew
        assert each.allows(after(verdict.digest, round=4), 2, everybody, 3)


@pytest.mark.parametrize("size", [0.0, 0.25])
def test_shards_that_are_committed_and_move_nothing_make_no_other_state(tmp_path: Path, size: float) -> None:
    sums, everybody = Sums(tmp_path / "sums.jsonl"), tuple(range(9))
    sums.note(after("dd" * 32), everybody, 2)
    verdict = ended("dd" * 32, 0, 1, 2, 3, contributors=everybody)
    sums.judged(verdict, 0, lambda shard: size if shard else 0.25)
    for each in (sums, Sums(tmp_path / "sums.jsonl")):
        assert each.allows(after(verdict.digest, round=4), 2, everybody[1:], 3) is (size > 0)


def test_several_short_steps_are_one_long_one() -> None:
    sums, everybody, chain = Sums(), tuple(range(9)), "dd" * 32
    sums.note(after(chain), everybody, 2)
    for round, shard, anew in ((3, 1, False), (4, 1, False), (5, 3, True)):  # the same shard again moves nothing else
        verdict = ended(chain, shard, round=round)
        sums.judged(verdict, 0, lambda shard: 0.25)
        chain = verdict.digest
        assert sums.allows(after(chain, round=round + 1), 2, everybody[1:], 3) is anew


def test_steps_that_were_taken_back_do_not_count_as_movement() -> None:
    """A quarter of the model moved, the run went back, another quarter moved: the model is a quarter away, not half."""
    sums, everybody, chain = Sums(), tuple(range(9)), "dd" * 32
    sums.note(after(chain), everybody, 2)
    sums.judged(ended(chain, 1), 0, lambda shard: 0.25)
    verdict = ended(chain, 3, epoch=1)
    sums.judged(verdict, 0, lambda shard: 0.25)
    assert not sums.allows(after(verdict.digest, round=4), 2, everybody[1:], 3)


def test_what_others_unmasked_of_lost_shards_is_known_from_the_verdict_and_kept(tmp_path: Path) -> None:
    everybody, path = tuple(range(9)), tmp_path / "sums.jsonl"
    sums = Sums(path)
    verdict = ended("dd" * 32, unmasked=(UnmaskedSum(2, everybody[1:]),))
    sums.judged(verdict, 0, lambda shard: 0.25)
    for each in (sums, Sums(path)):
        assert not each.allows(after(verdict.digest, round=4), 2, everybody, 3)
        assert each.allows(after(verdict.digest, round=4), 1, everybody, 3)


def test_what_was_answered_is_told_after_a_restart_too(tmp_path: Path) -> None:
    path, members = tmp_path / "sums.jsonl", (0, 1, 2, 3)
    Sums(path).answer(after("dd" * 32), 2, members, PLAN)
    again = Sums(path)
    assert not again.is_told(PLAN)
    assert again.told("ff" * 32) == ()
    assert again.told(PLAN) == (UnmaskedSum(2, members),)
    assert again.is_told(PLAN)
    again.answer(after("dd" * 32), 2, members, "ff" * 32)  # the same set in the next round is told again
    assert Sums(path).told("ff" * 32) == (UnmaskedSum(2, members),)


def test_an_unmasker_finds_its_answers_in_an_honest_verdict_only() -> None:
    """Of a committed shard the contributors must be those whose pads it gave out; of a lost one they must be told."""
    everybody, plan = tuple(range(9)), "cc" * 32
    sums = Sums()
    sums.answer(after("dd" * 32), 1, everybody, plan)
    sums.answer(after("dd" * 32), 2, everybody[1:], plan)
    assert sums.left_out(ended("dd" * 32)) == ()  # nothing was reported yet
    sums.told(plan)
    told = UnmaskedSum(2, everybody[1:])
    assert sums.left_out(ended("dd" * 32, 1, contributors=everybody, unmasked=(told,))) == ()
    assert sums.left_out(ended("dd" * 32, 1, contributors=everybody)) == (told,)
    assert sums.left_out(ended("dd" * 32, 1, 2, contributors=everybody)) == (told,)
    assert sums.left_out(ended("dd" * 32, unmasked=(told,))) == (UnmaskedSum(1, everybody),)


@pytest.mark.parametrize(
    ("left_out", "heaviest", "members", "allowed"),
    [(1, 1.0, 9, False), (3, 1.0, 9, True), (3, 6.0, 9, False), (3, 1.0, 12, False), (4, 1.0, 12, True)],
)
def test_a_lost_round_is_not_summed_again_without_a_few(
    left_out: int, heaviest: float, members: int, allowed: bool
) -> None:
    """All shards are unmasked but reach nobody; in the next round some members are kept out.

    Three of nine are enough to hide one another, but not if one of them weighs six of their eight parts. Of twelve they
    are not: with all friends but one among them, an aggregator would need fewer friends than for a sum by itself.
    """
    weights = (heaviest, *[1.0] * (members - 1))
    case = Case(members=members, shards=2, exponent=3, encoding=FixedPoint(), unmaskers=1, weights=weights)
    federation = Federation(case)
    federation.coordinator.rules = replace(federation.coordinator.rules, min_contributors=3)
    plan = federation.plan()
    federation.begin(plan)
    federation.upload(plan, federation.contribute(plan, federation._train))
    federation.cut(plan)
    verdict = federation.decide()
    assert len(verdict.lost_shards) == 2
    federation.conclude(verdict)
    plan = federation.plan()
    federation.begin(plan)
    uploads = federation.contribute(plan, federation._train)
    federation.upload(plan, [upload for upload in uploads if upload.member >= left_out])
    outcomes = federation.cut(plan)
    if allowed:
        assert all(hasattr(outcome, "manifest") for outcome in outcomes)
    else:
        assert {getattr(outcome, "reason", None) for outcome in outcomes} == {Reason.UNMASK}
