"""Rules: the same bits whatever the order, the cut and the form; the wrong ways to fold are shown to differ."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from eris.aggregate import RULES, Contribution, Median, Rule, TrimmedMean, WeightedMean
from eris.aggregate.ordered import BLOCK
from eris.errors import ErisError, InputError
from eris.seeds import public_root
from eris.shards.plan import scattered

Matrix = NDArray[np.float32]
FLOAT32 = st.floats(-(2.0**40), 2.0**40, width=32)


def matrix(members: int, n: int, seed: int = 0, exponents: int = 40) -> Matrix:
    """Values over 2^±exponents, so that rounding shows."""
    generator = np.random.default_rng(seed)
    scale = np.exp2(generator.integers(-exponents, exponents + 1, (members, n)))
    return (generator.standard_normal((members, n)) * scale).astype(np.float32)


def weights(members: int, seed: int = 0) -> NDArray[np.float32]:
    shares = np.random.default_rng(seed).random(members) + 0.01
    return (shares / shares.sum()).astype(np.float32)


def contributions(values: Matrix, shares: NDArray[np.float32] | None = None) -> list[Contribution]:
    shares = weights(len(values)) if shares is None else shares
    return [Contribution(k, shares[k], np.ascontiguousarray(row)) for k, row in enumerate(values)]


def fold(rule: Rule, given: Sequence[Contribution], n: int) -> NDArray[np.float32]:
    out = np.full(n, np.nan, np.float32)
    rule.fold(given, out)
    return out


def slow_mean(values: Matrix, shares: NDArray[np.float32]) -> NDArray[np.float32]:
    out = np.zeros(values.shape[1], np.float32)
    for i in range(values.shape[1]):
        total = np.float32(0)
        for k in range(values.shape[0]):
            total = np.float32(total + np.float32(shares[k] * values[k, i]))
        out[i] = total
    return out


def slow_median(values: Matrix) -> NDArray[np.float32]:
    out = np.zeros(values.shape[1], np.float32)
    for i in range(values.shape[1]):
        column = sorted(float(value) for value in values[:, i])
        low, high = column[(len(column) - 1) // 2], column[len(column) // 2]
        out[i] = low if len(column) % 2 else np.float32(np.float32(low / 2) + np.float32(high / 2))
    return out


def slow_trimmed_mean(values: Matrix, drop: int) -> NDArray[np.float32]:
    out = np.zeros(values.shape[1], np.float32)
    for i in range(values.shape[1]):
        column = sorted(float(value) for value in values[:, i])
        kept = column[drop : len(column) - drop]
        total = np.float32(kept[0])
        for value in kept[1:]:
            total = np.float32(total + np.float32(value))
        out[i] = np.float32(total / np.float32(len(kept)))
    return out


@pytest.mark.parametrize("members", [1, 2, 9, 10])
class TestAgainstPlainLoops:
    def test_mean(self, members: int) -> None:
        values, shares = matrix(members, 300), weights(members)
        assert np.array_equal(fold(WeightedMean(), contributions(values, shares), 300), slow_mean(values, shares))

    def test_median(self, members: int) -> None:
        values = matrix(members, 300)
        assert np.array_equal(fold(Median(), contributions(values), 300), slow_median(values))

    @pytest.mark.parametrize("beta", [0.0, 0.1, 0.3, 0.49])
    def test_trimmed_mean(self, members: int, beta: float) -> None:
        values = matrix(members, 300)
        drop = int(beta * members)
        folded = fold(TrimmedMean(beta), contributions(values), 300)
        assert np.array_equal(folded, slow_trimmed_mean(values, drop))


@pytest.mark.parametrize("name", sorted(RULES))
class TestEveryRule:
    @settings(max_examples=30, deadline=None)
    @given(data=st.data(), members=st.integers(1, 12), n=st.integers(1, 60), seed=st.integers(0, 1_000))
    def test_shards_of_any_cut_give_the_bits_of_the_whole(
        self, name: str, data: st.DataObject, members: int, n: int, seed: int
    ) -> None:
        rule, values = RULES[name](), matrix(members, n, seed)
        shards = data.draw(st.sampled_from([1, 2, 7, n]))
        plan = scattered(n, shards, public_root(seed))
        whole = fold(rule, contributions(values), n)
        parts = []
        for shard in range(shards):
            cut = np.stack([plan.gather(row, shard) for row in values])
            parts.append(fold(rule, contributions(cut), cut.shape[1]))
        assert np.array_equal(plan.reassemble(parts), whole)

    @settings(max_examples=30, deadline=None)
    @given(data=st.data(), members=st.integers(1, 12))
    def test_order_of_arrival_changes_nothing(self, name: str, data: st.DataObject, members: int) -> None:
        given_in_order = contributions(matrix(members, 50))
        arrived = data.draw(st.permutations(given_in_order))
        assert np.array_equal(fold(RULES[name](), arrived, 50), fold(RULES[name](), given_in_order, 50))

    @pytest.mark.parametrize("n", [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 5])
    def test_blocks_do_not_show(self, name: str, n: int) -> None:
        values = matrix(5, n)
        whole = fold(RULES[name](), contributions(values), n)
        first, last = values[:, : n // 3], values[:, n // 3 :]
        halves = [fold(RULES[name](), contributions(part), part.shape[1]) for part in (first, last)]
        assert np.array_equal(np.concatenate(halves), whole)

    def test_leaves_the_contributions_alone(self, name: str) -> None:
        values = matrix(6, 100)
        before = values.copy()
        fold(RULES[name](), contributions(values), 100)
        assert np.array_equal(values, before)

    def test_an_empty_shard_is_fine(self, name: str) -> None:
        assert fold(RULES[name](), contributions(matrix(3, 0)), 0).size == 0

    def test_negative_zero_never_comes_out(self, name: str) -> None:
        folded = fold(RULES[name](), contributions(np.full((3, 4), -0.0, np.float32)), 4)
        assert not np.signbit(folded).any()

    @pytest.mark.parametrize(
        ("change", "what"),
        [
            (lambda given: [], "nothing to fold"),
            (lambda given: [*given, given[0]], "contributes twice"),
            (lambda given: [*given, Contribution(9, np.float32(0.1), np.zeros(3, np.float32))], "3 values"),
            (lambda given: [*given, Contribution(9, np.float32(0.1), np.zeros(4))], "float64"),
        ],
    )
    def test_refuses_before_it_writes(self, name: str, change: object, what: str) -> None:
        assert callable(change)
        out = np.full(4, 7, np.float32)
        with pytest.raises(ErisError, match=what):
            RULES[name]().fold(change(contributions(matrix(3, 4))), out)
        assert out.tolist() == [7, 7, 7, 7]

    @pytest.mark.parametrize("weight", [-0.1, np.nan, np.inf, 1.5, 2.0**32])
    def test_refuses_weights_that_are_not_normalised(self, name: str, weight: float) -> None:
        wrong = Contribution(5, np.float32(weight), np.zeros(4, np.float32))
        with pytest.raises(InputError, match="weight is") as caught:
            fold(RULES[name](), [*contributions(matrix(3, 4)), wrong], 4)
        assert caught.value.where == {"member": 5}


class TestMean:
    def test_a_weight_that_rounds_to_zero_counts_nothing(self) -> None:
        values = np.array([[1, 2], [30, 40]], np.float32)
        given_ = [Contribution(0, np.float32(1), values[0]), Contribution(1, np.float32(0), values[1])]
        assert fold(WeightedMean(), given_, 2).tolist() == [1, 2]

    @settings(max_examples=40, deadline=None)
    @given(
        rows=st.lists(st.lists(FLOAT32, min_size=4, max_size=4), min_size=2, max_size=10),
        seed=st.integers(0, 99),
    )
    def test_renaming_members_changes_little(self, rows: list[list[float]], seed: int) -> None:
        """A.6.5: at most (K−1)·2⁻²³·Σ|w_k v_k|, because then the order of the sum changes."""
        values, shares = np.array(rows, np.float32), weights(len(rows), seed)
        order = np.random.default_rng(seed).permutation(len(rows))
        folded = fold(WeightedMean(), contributions(values, shares), 4)
        renamed = fold(WeightedMean(), contributions(values[order], shares[order]), 4)
        products = np.abs((shares[:, None] * values).astype(np.float64))
        bound = (len(rows) - 1) * 2.0**-23 * products.sum(axis=0)
        assert (np.abs(folded.astype(np.float64) - renamed) <= bound).all()

    @settings(max_examples=40, deadline=None)
    @given(data=st.data(), n=st.integers(1, 3 * BLOCK), members=st.integers(1, 5), seed=st.integers(0, 99))
    def test_sparse_contributions_are_dense_ones_with_zeros(
        self, data: st.DataObject, n: int, members: int, seed: int
    ) -> None:
        generator, shares = np.random.default_rng(seed), weights(members)
        given_, dense = [], np.zeros((members, n), np.float32)
        for member in range(members):
            kept = np.flatnonzero(generator.random(n) < data.draw(st.sampled_from([0.0, 0.01, 0.5, 1.0])))
            values = matrix(1, kept.size, seed + member)[0]
            dense[member, kept] = values
            sparse = data.draw(st.booleans())
            given_.append(
                Contribution(member, shares[member], values, kept)
                if sparse
                else Contribution(member, shares[member], dense[member])
            )
        expected = fold(WeightedMean(), contributions(dense, shares), n)
        assert np.array_equal(fold(WeightedMean(), given_, n), expected)

    def test_refuses_positions_outside_the_shard(self) -> None:
        wrong = Contribution(0, np.float32(1), np.ones(1, np.float32), np.array([4]))
        with pytest.raises(InputError, match="outside a shard of 4"):
            fold(WeightedMean(), [wrong], 4)


class TestRobustRules:
    def test_weights_buy_no_influence(self) -> None:
        values = matrix(5, 40)
        for rule in (Median(), TrimmedMean(0.2)):
            equal = fold(rule, contributions(values, np.full(5, 0.2, np.float32)), 40)
            assert np.array_equal(fold(rule, contributions(values, weights(5)), 40), equal)

    def test_the_median_of_huge_values_does_not_overflow(self) -> None:
        huge = np.full((4, 3), 3e38, np.float32)
        assert np.array_equal(fold(Median(), contributions(huge), 3), huge[0])

    def test_one_wild_member_moves_neither_far(self) -> None:
        values = np.ones((5, 3), np.float32)
        values[2] = 1e30
        for rule in (Median(), TrimmedMean(0.2)):
            assert fold(rule, contributions(values), 3).tolist() == [1, 1, 1]
        assert fold(WeightedMean(), contributions(values), 3)[0] > 1e28

    def test_sparse_contributions_cannot_be_ranked(self) -> None:
        sparse = Contribution(1, np.float32(0.5), np.ones(1, np.float32), np.array([2]))
        for rule in (Median(), TrimmedMean(0.2)):
            with pytest.raises(InputError, match="sparse"):
                fold(rule, [*contributions(matrix(1, 4)), sparse], 4)


class TestWrongWaysToFold:
    """What the explicit loop in ascending member id is for: the obvious shortcuts give other bits."""

    values, shares = matrix(10, 4_096, exponents=3), weights(10)

    def right(self) -> NDArray[np.float32]:
        return fold(WeightedMean(), contributions(self.values, self.shares), self.values.shape[1])

    def test_a_sum_over_an_axis_depends_on_the_shape(self) -> None:
        products = self.shares[:, None] * self.values
        by_column = np.concatenate([np.ascontiguousarray(products[:, i : i + 1]).sum(axis=0) for i in range(4_096)])
        assert not np.array_equal(by_column, self.right())

    def test_a_matrix_product_differs(self) -> None:
        assert not np.array_equal(self.shares @ self.values, self.right())

    def test_the_order_of_arrival_differs(self) -> None:
        total = np.zeros(4_096, np.float32)
        for member in reversed(range(10)):
            total += self.shares[member] * self.values[member]
        assert not np.array_equal(total, self.right())

    def test_a_wider_accumulator_differs(self) -> None:
        wide = (self.shares.astype(np.float64)[:, None] * self.values).sum(axis=0).astype(np.float32)
        assert not np.array_equal(wide, self.right())

    def test_a_rule_that_clips_whole_norms_is_not_separable(self) -> None:
        """A.6.4: over shards it sees part of a norm and clips something else."""

        def clipped_mean(values: Matrix) -> NDArray[np.float32]:
            norms = np.sqrt((values.astype(np.float64) ** 2).sum(axis=1))
            factors = np.minimum(1, 50 / norms).astype(np.float32)
            return fold(WeightedMean(), contributions(factors[:, None] * values, self.shares), values.shape[1])

        plan = scattered(4_096, 4, public_root(1))
        parts = [clipped_mean(np.stack([plan.gather(row, shard) for row in self.values])) for shard in range(4)]
        assert not np.allclose(plan.reassemble(parts), clipped_mean(self.values))
