from __future__ import annotations

from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eris.errors import PlanError
from eris.shards.apportion import deal, largest_remainder

weights = st.lists(st.floats(0, 1e6) | st.integers(0, 9).map(float), min_size=1, max_size=12).filter(any)
totals = st.integers(0, 10_000)


def by_the_book(total: int, shares: list[float]) -> list[int]:
    """Largest remainder in exact fractions, the textbook way."""
    whole = sum(map(Fraction, shares))
    ideal = [total * Fraction(share) / whole for share in shares]
    counts = [floor(value) for value in ideal]
    by_remainder = sorted(range(len(shares)), key=lambda a: (counts[a] - ideal[a], a))
    for a in by_remainder[: total - sum(counts)]:
        counts[a] += 1
    return counts


@given(total=totals | st.integers(0, 2**62), shares=weights)
def test_largest_remainder_is_exact(total: int, shares: list[float]) -> None:
    assert largest_remainder(total, shares).tolist() == by_the_book(total, shares)


def test_rounding_does_not_disturb_a_tie() -> None:
    # In float64, 3 · (4/12) falls on the wrong side of 1 for some weights; in whole numbers it cannot.
    assert largest_remainder(30, [0.1] * 10).tolist() == [3] * 10
    assert largest_remainder(1_300_000_000, [0.1, 0.2, 0.7]).sum() == 1_300_000_000
    assert largest_remainder(49, [1.0] * 49).tolist() == [1] * 49


@given(rounds=st.lists(totals, max_size=12), shares=weights)
def test_deal_makes_good_what_it_owes(rounds: list[int], shares: list[float]) -> None:
    dealt = [counts.tolist() for counts in deal(rounds, shares)]
    assert [sum(counts) for counts in dealt] == rounds
    whole = sum(map(Fraction, shares))
    for a, share in enumerate(shares):
        mine = [counts[a] for counts in dealt]
        assert all(count >= 0 for count in mine)
        assert abs(sum(mine) - sum(rounds) * Fraction(share) / whole) < 2
        if not share:
            assert not any(mine)


@given(rounds=st.lists(st.integers(0, 40), max_size=30), shards=st.integers(1, 12))
def test_deal_in_equal_shares_stays_within_one_at_every_moment(rounds: list[int], shards: int) -> None:
    so_far = np.zeros(shards, np.int64)
    for counts in deal(rounds, [1.0] * shards):
        so_far += counts
        assert so_far.max() - so_far.min() <= 1
        assert counts.max() - counts.min() <= 2


def test_single_units_go_round_in_turn() -> None:
    first_four = [int(np.flatnonzero(counts)[0]) for counts in deal([1] * 4, [1.0] * 4)]
    assert sorted(first_four) == [0, 1, 2, 3]


@pytest.mark.parametrize("shares", [[], [0.0, 0.0], [-1.0, 2.0], [float("nan")], [float("inf")], [[1.0]]])
def test_impossible_weights_are_refused(shares: list[float]) -> None:
    with pytest.raises(PlanError, match="capacities are"):
        largest_remainder(3, shares)
