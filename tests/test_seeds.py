from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eris.errors import InputError
from eris.seeds import Seed, private_root, private_root_from_os, public_root

RUN = public_root(7)


class TestGoldenValues:
    """What a release may never change: all peers of a federation, whatever their platform, must draw the same."""

    def test_keys(self) -> None:
        assert RUN.key.hex() == "39dfed5e4643d2c36c932dfee2436aba"
        assert RUN.child("round", 3).child("plan").key.hex() == "ee096a2372d288c157a215b7259c5616"
        assert private_root(7, peer=0).key.hex() == "129c79150b02370fd830ce49b108e05e"

    def test_words(self) -> None:
        words = ["54029d19588e1e41", "10a028ed6b814433", "9c0eedcf554ee582", "d226c71943ae1396"]
        assert [f"{word:016x}" for word in RUN.words(4).tolist()] == words

    def test_integers(self) -> None:
        assert RUN.child("x").integers(1000, count=8).tolist() == [651, 327, 16, 882, 757, 168, 986, 571]
        assert RUN.child("x").integers(2**32, count=2).tolist() == [2799112343, 1405725785]

    def test_uniforms(self) -> None:
        assert [value.hex() for value in RUN.uniforms(2).tolist()] == ["0x1.500a746562386p-2", "0x1.0a028ed6b8140p-4"]

    def test_permutation(self) -> None:
        assert RUN.permutation(10).tolist() == [6, 1, 0, 8, 5, 2, 7, 3, 9, 4]

    def test_subsets(self) -> None:
        assert RUN.subset(100, 7).tolist() == [0, 6, 32, 59, 60, 82, 84]
        assert RUN.subset(10, 8).tolist() == [1, 2, 4, 5, 6, 7, 8, 9]
        assert RUN.subset(2**32, 3).tolist() == [278931693, 1409457433, 2618224079]

    def test_torch_seed(self) -> None:
        assert RUN.torch_seed() == 3026786790662410016


class TestWords:
    @given(number=st.integers(0, 1_000), label=st.integers())
    def test_are_those_of_philox_4x64_10(self, number: int, label: int) -> None:
        seed = RUN.child(label)
        assert int(seed.words(1, start=number)[0]) == _philox_word(int.from_bytes(seed.key, "little"), number)

    @given(start=st.integers(0, 50), count=st.integers(0, 50))
    def test_random_access(self, start: int, count: int) -> None:
        assert np.array_equal(RUN.words(count, start=start), RUN.words(100)[start : start + count])

    def test_far_access(self) -> None:
        far = 2**61 + 3
        assert np.array_equal(RUN.words(5, start=far)[1:], RUN.words(4, start=far + 1))

    def test_drawing_twice_gives_the_same(self) -> None:
        assert np.array_equal(RUN.words(10), RUN.words(10))

    def test_every_bit_is_fair(self) -> None:
        words = RUN.child("bits").words(20_000)
        ones = [int(((words >> np.uint64(bit)) & np.uint64(1)).sum()) for bit in range(64)]
        assert max(abs(count - 10_000) for count in ones) < 5 * np.sqrt(5_000)  # five standard deviations


class TestAddresses:
    def test_a_path_is_walked_step_by_step_or_at_once(self) -> None:
        assert RUN.child("round", 3) == RUN.child("round").child(3)

    def test_integers_of_numpy_are_integers(self) -> None:
        assert RUN.child(np.int64(3)) == RUN.child(3)
        assert RUN.child(np.uint8(3)) == RUN.child(3)

    def test_a_number_is_not_its_text(self) -> None:
        assert RUN.child(3).key != RUN.child("3").key

    def test_labels_do_not_run_together(self) -> None:
        assert RUN.child("a", "b").key != RUN.child("ab").key
        assert RUN.child("a/b").key != RUN.child("a", "b").key

    def test_a_label_that_is_no_integer_is_refused(self) -> None:
        with pytest.raises(TypeError):
            RUN.child(1.5)  # type: ignore[arg-type]

    def test_all_addresses_differ(self) -> None:
        keys = {RUN.child("round", t).child(purpose).key for t in range(50) for purpose in ("plan", "mask", "graph")}
        assert len(keys) == 150

    def test_neighbouring_addresses_are_uncorrelated(self) -> None:
        draws = np.stack([RUN.child(k).uniforms(4_000) for k in range(12)])
        correlation = np.corrcoef(draws) - np.eye(12)
        assert np.abs(correlation).max() < 5 / np.sqrt(4_000)

    def test_seeds_travel_to_worker_processes(self) -> None:
        seed = private_root(7, peer="ward-3")
        assert pickle.loads(pickle.dumps(seed)) == seed


class TestRoots:
    def test_public_and_private_roots_of_one_seed_differ(self) -> None:
        keys = [public_root(7).key, *(private_root(7, peer).key for peer in range(20))]
        assert len(set(keys)) == 21

    def test_seed_and_peer_do_not_run_together(self) -> None:
        assert private_root(1, peer=23).key != private_root(12, peer=3).key

    def test_a_private_root_from_the_system_is_new_every_time(self) -> None:
        first, second = private_root_from_os("ward-3"), private_root_from_os("ward-3")
        assert first.key != second.key
        assert first.private

    def test_children_inherit_who_knows_them(self) -> None:
        assert private_root(7, peer=0).child("round", 1).private
        assert not RUN.child("round", 1).private

    def test_noise_from_the_public_root_is_refused(self) -> None:
        with pytest.raises(InputError, match="noise must come from a private seed"):
            RUN.child("round", 1).require_private("noise")
        seed = private_root(7, peer=0)
        assert seed.require_private("noise") is seed

    @pytest.mark.parametrize("seed", [RUN, private_root(7, peer=0), private_root_from_os(3)])
    def test_the_key_is_never_shown(self, seed: Seed) -> None:
        shown = f"{seed!r} {seed!s} {[seed]}"
        assert seed.key.hex() not in shown
        assert repr(seed.key) not in shown
        assert seed.path in shown


class TestIntegers:
    @given(bound=st.integers(1, 2**32))
    def test_are_the_exact_high_part_of_word_times_bound(self, bound: int) -> None:
        expected = [word * bound >> 64 for word in RUN.words(20).tolist()]
        assert RUN.integers(bound, count=20).tolist() == expected

    def test_are_uniform(self) -> None:
        counts = np.bincount(RUN.child("dice").integers(6, count=60_000), minlength=6)
        assert _chi_square(counts) < 25.7  # 5 degrees of freedom, one in 10⁴

    @pytest.mark.parametrize("bound", [0, -1, 2**32 + 1])
    def test_refuse_an_impossible_bound(self, bound: int) -> None:
        with pytest.raises(InputError, match="bound of random integers"):
            RUN.integers(bound, count=1)


class TestPermutation:
    @given(n=st.integers(0, 200))
    def test_has_everything_once(self, n: int) -> None:
        assert sorted(RUN.permutation(n).tolist()) == list(range(n))

    def test_every_order_is_equally_likely(self) -> None:
        orders = [tuple(RUN.child("order", i).permutation(3).tolist()) for i in range(6_000)]
        counts = np.unique(orders, axis=0, return_counts=True)[1]
        assert counts.size == 6
        assert _chi_square(counts) < 25.7


class TestSubset:
    @given(n=st.integers(0, 300), data=st.data())
    def test_is_ascending_distinct_and_of_the_right_size(self, n: int, data: st.DataObject) -> None:
        k = data.draw(st.integers(0, n))
        subset = RUN.subset(n, k)
        assert subset.dtype == np.int64
        assert subset.size == k
        assert (np.diff(subset) > 0).all()
        assert k == 0 or (subset[0] >= 0 and subset[-1] < n)

    @pytest.mark.parametrize(("n", "k"), [(5, 2), (5, 3), (6, 1), (6, 5)])
    def test_every_subset_is_equally_likely(self, n: int, k: int) -> None:
        drawn = [tuple(RUN.child(n, k, i).subset(n, k).tolist()) for i in range(5_000)]
        counts = np.unique(drawn, axis=0, return_counts=True)[1]
        degrees = {10: 33.7, 6: 25.7}  # choices: chi-square exceeded once in 10⁴
        assert counts.size in degrees
        assert _chi_square(counts) < degrees[counts.size]

    def test_does_not_depend_on_how_many_words_are_drawn_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        expected = RUN.subset(1_000, 400)
        monkeypatch.setattr("eris.seeds.math.log1p", lambda x: 0.0)  # too few draws: the second batch must not matter
        assert np.array_equal(RUN.subset(1_000, 400), expected)

    def test_of_a_very_long_vector_is_quick_and_small(self) -> None:
        assert RUN.subset(1_300_000_000, 1_000).size == 1_000

    @pytest.mark.parametrize(("n", "k"), [(3, 4), (3, -1), (-1, -1)])
    def test_refuses_the_impossible(self, n: int, k: int) -> None:
        with pytest.raises(InputError, match="cannot choose"):
            RUN.subset(n, k)


def test_uniforms_fill_the_unit_interval() -> None:
    values = RUN.uniforms(10_000)
    assert 0 <= values.min() < values.max() < 1
    assert _chi_square(np.histogram(values, bins=20, range=(0, 1))[0]) < 50.8  # 19 degrees of freedom
    assert (values * 2.0**53 == np.floor(values * 2.0**53)).all()


def test_torch_seed_fits_a_signed_integer() -> None:
    assert all(0 <= RUN.child(i).torch_seed() < 2**63 for i in range(100))


def test_generator_starts_afresh_each_time() -> None:
    assert RUN.generator().standard_normal() == RUN.generator().standard_normal()


def _philox_word(key: int, number: int) -> int:
    """Word `number` of Philox 4×64-10 in plain integers; the first block has counter 1, as in numpy."""
    mask = 2**64 - 1
    c0, c1, c2, c3 = number // 4 + 1, 0, 0, 0
    k0, k1 = key & mask, key >> 64
    for _ in range(10):
        high0, low0 = divmod(0xD2E7470EE14C6C93 * c0, 2**64)
        high1, low1 = divmod(0xCA5A826395121157 * c2, 2**64)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B97F4A7C15) & mask, (k1 + 0xBB67AE8584CAA73B) & mask
    return (c0, c1, c2, c3)[number % 4]


def _chi_square(counts: np.ndarray) -> float:
    expected = counts.sum() / counts.size
    return float(((counts - expected) ** 2 / expected).sum())
