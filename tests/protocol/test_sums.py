"""Sums from one state: no combination of them may be made of few members, and nothing is forgotten."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eris.aggregate.encoding import FixedPoint
from eris.errors import Reason
from eris.protocol.sums import MOST_SUMS, Sums, fewest
from eris.protocol.verdict import ShardVerdict, UnmaskedSum, Verdict
from tests.equivalence.case import Case
from tests.equivalence.federation import Federation

MEMBERS = 7
Sets = st.lists(st.frozensets(st.integers(0, MEMBERS - 1), min_size=1), min_size=1, max_size=3)


def by_hand(sets) -> int:
    """The least number of members in a combination, tried by solving for every small group of members."""
    rows = np.array([[member in each for member in range(MEMBERS)] for each in sets], float)
    for size in range(1, MEMBERS + 1):
        for group in combinations(range(MEMBERS), size):
            outside = np.delete(rows, group, axis=1)
            if np.linalg.matrix_rank(outside) < np.linalg.matrix_rank(rows):
                return size
    return 0


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


def test_what_is_allowed_and_what_is_not(tmp_path: Path) -> None:
    sums, everybody = Sums(tmp_path / "sums.jsonl"), tuple(range(9))
    assert sums.allows("s", 0, 1, everybody, 3)
    sums.note("s", 0, 1, everybody)
    assert sums.allows("s", 0, 1, everybody, 3)
    assert not sums.allows("s", 0, 1, everybody[1:], 3)
    assert not sums.allows("s", 0, 1, everybody[2:], 3)
    assert sums.allows("s", 0, 1, everybody[3:], 3)
    assert sums.allows("s", 0, 2, everybody[1:], 3)  # other coordinates
    assert not sums.allows("s", 5, 2, everybody[1:], 3)  # of another draw: perhaps the same ones
    assert sums.allows("t", 0, 1, everybody[1:], 3)
    again = Sums(tmp_path / "sums.jsonl")
    assert not again.allows("s", 0, 1, everybody[1:], 3)


def test_after_a_few_sums_there_are_no_more() -> None:
    sums = Sums()
    for turn in range(MOST_SUMS):
        members = tuple(range(10 * turn, 10 * turn + 10))
        assert sums.allows("s", 0, 0, members, 3)
        sums.note("s", 0, 0, members, kept=False)
    assert not sums.allows("s", 0, 0, tuple(range(90, 99)), 3)


def test_a_sum_that_follows_from_the_others_is_no_further_one() -> None:
    """Everybody, and everybody without each third: the last of these four is known from the first three."""
    sums, everybody = Sums(), tuple(range(9))
    without = [tuple(member for member in everybody if member % 3 != third) for third in range(3)]
    for members in (everybody, *without[:2]):
        assert sums.allows("s", 0, 0, members, 3)
        sums.note("s", 0, 0, members)
    assert sums.allows("s", 0, 0, without[2], 3)
    assert not sums.allows("s", 0, 0, (0, 1, 2, 3, 4, 5), 2)


def test_few_may_be_shown_by_weight_though_they_are_many_by_heads() -> None:
    sums, everybody = Sums(), tuple(range(9))
    weights = {0: 6.0} | dict.fromkeys(range(1, 9), 1.0)

    def hides(members: tuple[int, ...]) -> bool:
        given = [weights[member] for member in members]
        return sum(given) ** 2 / sum(each * each for each in given) >= 2

    sums.note("s", 0, 0, everybody)
    assert sums.allows("s", 0, 0, everybody[3:], 3)
    assert not sums.allows("s", 0, 0, everybody[3:], 3, hides)  # leaves 0, 1 and 2, and 0 weighs six of eight
    assert sums.allows("s", 0, 0, everybody[:6], 3, hides)


def test_a_line_that_was_torn_was_never_answered(tmp_path: Path) -> None:
    path = tmp_path / "sums.jsonl"
    Sums(path).note("s", 0, 0, (0, 1, 2))
    path.write_text(path.read_text() + '{"state":"s","draw":0,"sh')
    assert not Sums(path).allows("s", 0, 0, (0, 1), 2)


def ended(previous: str, *committed: int, shards: int = 4, unmasked: tuple[UnmaskedSum, ...] = ()) -> Verdict:
    """A round that ended so, after a chain."""
    entries = tuple(
        ShardVerdict(k, k, "aa" * 32, (0, 1), manifest="bb" * 32)
        if k in committed
        else ShardVerdict(k, k, lost="unmask")
        for k in range(shards)
    )
    return Verdict("run", 0, 3, "cc" * 32, previous, entries, unmasked=unmasked)


@pytest.mark.parametrize(("moved", "anew"), [((), False), ((1,), False), ((1, 3), True), ((0, 1, 2, 3), True)])
def test_a_round_that_moves_less_than_half_of_the_model_makes_no_other_state(
    tmp_path: Path, moved: tuple[int, ...], anew: bool
) -> None:
    """A bit of one shard would make another digest, and hardly another update."""
    sums, everybody = Sums(tmp_path / "sums.jsonl"), tuple(range(9))
    sums.note("dd" * 32, 0, 2, everybody)
    verdict = ended("dd" * 32, *moved)
    sums.judged(verdict, 0, lambda shard: 0.25)
    for each in (sums, Sums(tmp_path / "sums.jsonl")):  # and one that comes back
        assert each.allows(verdict.digest, 0, 2, everybody[1:], 3) is anew
        assert each.allows(verdict.digest, 0, 2, everybody, 3)


def test_several_short_steps_are_one_long_one() -> None:
    sums, everybody, chain = Sums(), tuple(range(9)), "dd" * 32
    sums.note(chain, 0, 2, everybody)
    for shard, anew in ((1, False), (1, False), (3, True)):  # the same shard again moves nothing else
        verdict = ended(chain, shard)
        sums.judged(verdict, 0, lambda shard: 0.25)
        chain = verdict.digest
        assert sums.allows(chain, 0, 2, everybody[1:], 3) is anew


def test_what_others_unmasked_of_lost_shards_is_known_from_the_verdict_and_kept(tmp_path: Path) -> None:
    everybody, path = tuple(range(9)), tmp_path / "sums.jsonl"
    sums = Sums(path)
    verdict = ended("dd" * 32, unmasked=(UnmaskedSum(2, everybody[1:]),))
    sums.judged(verdict, 0, lambda shard: 0.25)
    for each in (sums, Sums(path)):
        assert not each.allows(verdict.digest, 0, 2, everybody, 3)
        assert each.allows(verdict.digest, 0, 1, everybody, 3)


def test_what_was_answered_is_told_after_a_restart_too(tmp_path: Path) -> None:
    path, members = tmp_path / "sums.jsonl", (0, 1, 2, 3)
    Sums(path).note("dd" * 32, 0, 2, members, plan="ee" * 32)
    again = Sums(path)
    assert not again.is_told("ee" * 32)
    assert again.told("ff" * 32) == ()
    assert again.told("ee" * 32) == (UnmaskedSum(2, members),)
    assert again.is_told("ee" * 32)
    again.note("dd" * 32, 0, 2, members, plan="ff" * 32)  # the same set in the next round is told again
    assert Sums(path).told("ff" * 32) == (UnmaskedSum(2, members),)


@pytest.mark.parametrize(("left_out", "heaviest", "allowed"), [(1, 1.0, False), (3, 1.0, True), (3, 6.0, False)])
def test_a_lost_round_is_not_summed_again_without_a_few(left_out: int, heaviest: float, allowed: bool) -> None:
    """All shards are unmasked but reach nobody; in the next round some members are kept out.

    Three are enough to hide one another, but not if one of them weighs six of their eight parts.
    """
    case = Case(members=9, shards=2, exponent=3, encoding=FixedPoint(), unmaskers=1, weights=(heaviest, *[1.0] * 8))
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
