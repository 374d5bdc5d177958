"""Dealing out by rank: the same as a stable sort of all words, for every number of units, shards and ties."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eris.seeds import Seed, public_root
from eris.shards.apportion import Counts
from eris.shards.segment import Owners, Segment
from eris.shards.shuffle import shuffled

SEED = public_root(3)


def _by_sorting(sizes: Counts, seed: Seed) -> Owners:
    units = int(sizes.sum())
    owners = np.empty(units, np.uint16)
    owners[np.argsort(seed.words(units), kind="stable")] = np.repeat(np.arange(sizes.size), sizes)
    return owners


@given(sizes=st.lists(st.integers(0, 400), min_size=1, max_size=12), seed=st.integers(0, 99))
def test_is_a_stable_sort_cut_in_pieces(sizes: list[int], seed: int) -> None:
    counts = np.array(sizes, np.int64)
    assert np.array_equal(shuffled(counts, public_root(seed), np.uint16), _by_sorting(counts, public_root(seed)))


@pytest.mark.parametrize("shards", [2, 10, 3_000])
def test_is_a_stable_sort_when_words_are_drawn_in_pieces(shards: int) -> None:
    counts = np.full(shards, 200_000 // shards + 1, np.int64)
    assert np.array_equal(shuffled(counts, SEED, np.uint16), _by_sorting(counts, SEED))


@settings(max_examples=50)
@given(
    words=st.lists(st.sampled_from([0, 1, 2**48, 2**63, 2**64 - 1]), min_size=6, max_size=300),
    cuts=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_equal_words_rank_by_position(words: list[int], cuts: tuple[float, float]) -> None:
    drawn = np.array(words, np.uint64)

    class Repeating(Seed):
        def words(self, count: int, *, start: int = 0) -> np.ndarray:
            return drawn[start : start + count]

    seed = Repeating("repeating", bytes(16))
    first, second = sorted(int(cut * drawn.size) for cut in cuts)
    counts = np.array([first, second - first, drawn.size - second], np.int64)
    assert np.array_equal(shuffled(counts, seed, np.uint16), _by_sorting(counts, seed))


@pytest.mark.parametrize("shards", [3, 200, 2_000])
def test_the_blocks_of_a_long_segment_are_found_in_stretches(shards: int) -> None:
    owners = SEED.integers(shards, count=300_000).astype(np.uint16)
    segment = Segment(0, owners.size, 1, owners)
    for shard in (0, shards // 2, shards - 1):
        assert np.array_equal(segment.blocks_of(shard), np.flatnonzero(owners == shard))
