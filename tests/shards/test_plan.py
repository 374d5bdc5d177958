from __future__ import annotations

import hashlib
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eris.errors import PlanError
from eris.seeds import Seed, public_root
from eris.shards.plan import Segment, ShardPlan, contiguous, largest_remainder, per_tensor, scattered

SEED = public_root(11).child("plan")
Build = Callable[[int, int, Seed], ShardPlan]

KINDS: dict[str, Build] = {
    "contiguous": lambda n, shards, seed: contiguous(n, shards),
    "scattered": lambda n, shards, seed: scattered(n, shards, seed),
    "blocks of 3": lambda n, shards, seed: scattered(n, shards, seed, block=3),
    "blocks of 64": lambda n, shards, seed: scattered(n, shards, seed, block=64),
    "per tensor": lambda n, shards, seed: per_tensor(_tensors(n), shards, seed),
    "per tensor in blocks": lambda n, shards, seed: per_tensor(_tensors(n), shards, seed, block=4),
    "by capacity": lambda n, shards, seed: scattered(n, shards, seed, capacities=range(1, shards + 1)),
    "contiguous by capacity": lambda n, shards, seed: contiguous(n, shards, capacities=range(1, shards + 1)),
}
every_kind = pytest.mark.parametrize("build", KINDS.values(), ids=KINDS)


def _tensors(n: int) -> list[int]:
    """Cut n into tensors of very different sizes, an empty one among them."""
    sizes = [0]
    while n > 0:
        sizes.append(min(n, 1 + (len(sizes) * 7) % 23))
        n -= sizes[-1]
    return sizes


def _values(n: int) -> np.ndarray:
    """Return n different bit patterns, NaN and negative zero among them: a copy must not change any."""
    values = np.arange(n, dtype=np.float32)
    values[: min(n, 3)] = [np.nan, -0.0, np.inf][: min(n, 3)]
    return values


def _owner_map(plan: ShardPlan) -> np.ndarray:
    return plan.owners_of(np.arange(plan.n))


@every_kind
class TestEveryPlan:
    @given(n=st.integers(0, 400), shards=st.integers(1, 40), number=st.integers(0, 5))
    def test_is_disjoint_and_complete(self, build: Build, n: int, shards: int, number: int) -> None:
        plan = build(n, shards, SEED.child(number))
        pieces = [plan.coordinates(shard) for shard in range(shards)]
        assert np.array_equal(np.sort(np.concatenate(pieces)), np.arange(n))
        assert [piece.size for piece in pieces] == plan.sizes.tolist()
        assert all((np.diff(piece) > 0).all() for piece in pieces)
        owners = _owner_map(plan)
        assert all((owners[piece] == shard).all() for shard, piece in enumerate(pieces))

    @pytest.mark.parametrize("n", [0, 1, 5, 64, 131, 1000])
    @pytest.mark.parametrize("shards", [1, 2, 7, "n", "more than n"])
    def test_split_then_reassemble_is_the_identity(self, build: Build, n: int, shards: int | str) -> None:
        count = shards if isinstance(shards, int) else max(n, 1) + (shards != "n")
        plan, vector = build(n, count, SEED), _values(n)
        parts = plan.split(vector)
        assert plan.reassemble(parts).tobytes() == vector.tobytes()
        assert [part.tobytes() for part in parts] == [vector[plan.coordinates(a)].tobytes() for a in range(count)]

    @given(n=st.integers(0, 300), shards=st.integers(1, 12), data=st.data())
    def test_a_stretch_has_the_bits_of_the_whole(self, build: Build, n: int, shards: int, data: st.DataObject) -> None:
        plan, vector = build(n, shards, SEED), _values(n)
        parts = plan.split(vector)
        start, stop = sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n))))
        into = np.full(stop - start, -7, np.float32)
        for shard in data.draw(st.permutations(range(shards))):
            plan.scatter_stretch(parts[shard], shard, slice(start, stop), into)
        assert into.tobytes() == vector[start:stop].tobytes()

    @given(n=st.integers(1, 300), shards=st.integers(1, 12), data=st.data())
    def test_positions_and_coordinates_are_inverse(
        self, build: Build, n: int, shards: int, data: st.DataObject
    ) -> None:
        plan = build(n, shards, SEED)
        shard = data.draw(st.integers(0, shards - 1))
        size = int(plan.sizes[shard])
        positions = np.array(sorted(data.draw(st.sets(st.integers(0, size - 1)))) if size else [], np.int64)
        coordinates = plan.coordinates_at(shard, positions)
        assert np.array_equal(coordinates, plan.coordinates(shard)[positions])
        assert np.array_equal(plan.positions_of(shard, coordinates), positions)
        assert (plan.owners_of(coordinates) == shard).all()

    def test_scatter_touches_its_own_coordinates_only(self, build: Build) -> None:
        plan = build(131, 5, SEED)
        vector = np.full(131, 9.0, np.float32)
        plan.scatter(np.zeros(int(plan.sizes[2]), np.float32), 2, vector)
        assert np.array_equal(np.flatnonzero(vector == 0), plan.coordinates(2))

    def test_gather_takes_any_type_and_an_output(self, build: Build) -> None:
        plan, symbols = build(131, 5, SEED), np.arange(131).astype(np.uint8)
        out = np.empty(int(plan.sizes[3]), np.uint8)
        assert plan.gather(symbols, 3, out=out) is out
        assert np.array_equal(out, symbols[plan.coordinates(3)])

    def test_the_same_seed_gives_the_same_plan_and_another_seed_another(self, build: Build) -> None:
        first, again, other = (_owner_map(build(300, 4, SEED.child(k))) for k in (0, 0, 1))
        assert np.array_equal(first, again)
        drawn = build is not KINDS["contiguous"] and build is not KINDS["contiguous by capacity"]
        assert np.array_equal(first, other) != drawn

    def test_asking_for_what_is_not_there_is_refused(self, build: Build) -> None:
        plan = build(131, 5, SEED)
        elsewhere = plan.coordinates(1)[:1]
        for wrong in (-1, 5):
            with pytest.raises(PlanError, match=f"no shard {wrong}"):
                plan.coordinates(wrong)
        with pytest.raises(PlanError, match="not in this shard"):
            plan.positions_of(0, elsewhere)
        for outside in ([-1], [131], [0, 131]):
            with pytest.raises(PlanError, match="outside"):
                plan.owners_of(np.array(outside))
            with pytest.raises(PlanError, match="outside"):
                plan.positions_of(0, np.array(outside))
            with pytest.raises(PlanError, match="outside"):
                plan.coordinates_at(0, np.array(outside))


class TestSizes:
    @given(n=st.integers(0, 2_000), shards=st.integers(1, 50))
    def test_differ_by_at_most_one(self, n: int, shards: int) -> None:
        for plan in (contiguous(n, shards), scattered(n, shards, SEED), per_tensor(_tensors(n), shards, SEED)):
            assert plan.sizes.max() - plan.sizes.min() <= 1

    @given(n=st.integers(0, 2_000), shards=st.integers(1, 20), block=st.integers(1, 100))
    def test_in_blocks_differ_by_at_most_one_block(self, n: int, shards: int, block: int) -> None:
        sizes = scattered(n, shards, SEED, block=block).sizes
        assert sizes.max() - sizes.min() <= 2 * block - 1  # one block, and the shorter last one
        assert sizes.sum() == n

    @given(n=st.integers(0, 2_000), capacities=st.lists(st.integers(0, 20), min_size=1, max_size=9).filter(any))
    def test_follow_capacities_by_largest_remainder(self, n: int, capacities: list[int]) -> None:
        wanted = largest_remainder(n, capacities).tolist()
        assert scattered(n, len(capacities), SEED, capacities=capacities).sizes.tolist() == wanted
        assert contiguous(n, len(capacities), capacities=capacities).sizes.tolist() == wanted

    def test_more_shards_than_coordinates_leaves_some_empty(self) -> None:
        plan = scattered(3, 5, SEED)
        assert sorted(plan.sizes.tolist()) == [0, 0, 1, 1, 1]
        empty = int(np.flatnonzero(plan.sizes == 0)[0])
        assert plan.coordinates(empty).size == 0
        assert plan.gather(np.zeros(3, np.float32), empty).size == 0

    def test_many_shards_need_wider_owners(self) -> None:
        for shards in (256, 257, 1_001, 65_537):
            plan = scattered(shards, shards, SEED)
            assert plan.sizes.tolist() == [1] * shards


class TestScattered:
    @given(n=st.integers(0, 500), shards=st.integers(1, 30))
    def test_is_the_stable_order_of_the_words_cut_in_pieces(self, n: int, shards: int) -> None:
        plan = scattered(n, shards, SEED)
        owners = np.empty(n, np.int64)
        owners[SEED.permutation(n)] = np.repeat(np.arange(shards), plan.sizes)
        assert np.array_equal(_owner_map(plan), owners)

    def test_every_arrangement_is_equally_likely(self) -> None:
        drawn = [tuple(_owner_map(scattered(4, 2, SEED.child("chi", i))).tolist()) for i in range(6_000)]
        counts = np.unique(drawn, axis=0, return_counts=True)[1]
        assert counts.size == 6
        assert float(((counts - 1_000) ** 2 / 1_000).sum()) < 25.7  # 5 degrees of freedom, one in 10⁴

    def test_equal_words_at_a_boundary_still_give_exact_sizes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Seed, "words", lambda self, count, start=0: np.zeros(count, np.uint64))
        assert scattered(10, 3, SEED).sizes.tolist() == [4, 3, 3]

    def test_does_not_depend_on_how_many_words_are_drawn_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        whole = _owner_map(scattered(1_000, 7, SEED))
        monkeypatch.setattr("eris.shards.shuffle._AT_ONCE", 96)
        monkeypatch.setattr("eris.shards.segment._AT_ONCE", 50)
        again = scattered(1_000, 7, SEED)
        assert np.array_equal(_owner_map(again), whole)
        assert again.sizes.tolist() == [143] * 6 + [142]


class TestTinyTensors:
    BIASES = (10, 2, 84, 3, 1, 6, 1, 1, 2, 1)

    def test_no_aggregator_holds_all_biases(self) -> None:
        sizes = [size for bias in self.BIASES for size in (1_000, bias)]
        plan = per_tensor(sizes, 10, SEED)
        starts = np.cumsum([0, *sizes])
        held = np.zeros(10, int)
        for number, bias in enumerate(self.BIASES):
            start = starts[2 * number + 1]
            held += np.bincount(plan.owners_of(np.arange(start, start + bias)), minlength=10)
        assert held.sum() == sum(self.BIASES)
        assert held.max() <= sum(self.BIASES) / 10 + len(self.BIASES)
        assert held.max() < sum(self.BIASES) / 2

    def test_tensors_of_one_value_go_round(self) -> None:
        plan = per_tensor([1] * 20, 10, SEED)
        assert plan.sizes.tolist() == [2] * 10

    def test_every_large_tensor_is_spread_evenly(self) -> None:
        sizes = [1_000, 7, 333]
        plan = per_tensor(sizes, 4, SEED)
        for start, size in ((0, 1_000), (1_007, 333)):
            counts = np.bincount(plan.owners_of(np.arange(start, start + size)), minlength=4)
            assert counts.max() - counts.min() <= 2


class TestAgreement:
    """All machines must derive the same owner map: golden digests over kinds, sizes, blocks and capacities."""

    @pytest.mark.parametrize(
        ("plan", "digest"),
        [
            (scattered(1_000, 7, SEED), "5d7ecadce288af58"),
            (scattered(1_000, 7, SEED, block=16), "90ce863c63751801"),
            (scattered(1_000, 3, SEED, capacities=(0.1, 0.2, 0.7)), "63ce38721c10b22e"),
            (per_tensor((500, 10, 84, 10, 1, 395), 7, SEED), "389e5fee26e24e9e"),
            (contiguous(1_000, 7), "66a55d7b20157070"),
            (scattered(1_000, 300, SEED), "e2edf2968711f9bc"),
        ],
    )
    def test_golden_digest(self, plan: ShardPlan, digest: str) -> None:
        assert hashlib.sha256(_owner_map(plan).astype("<u4").tobytes()).hexdigest()[:16] == digest


class TestHuge:
    N = 1_300_000_000

    @pytest.mark.parametrize("kind", ["blocks", "tensors", "contiguous"])
    def test_a_billion_coordinates_need_no_table_of_n(self, kind: str) -> None:
        tracemalloc.start()
        try:
            plan = self._plan(kind)
            coordinates = np.arange(0, self.N, 12_345_678)
            owners = plan.owners_of(coordinates)
            for shard in range(10):
                mine = coordinates[owners == shard]
                assert np.array_equal(plan.coordinates_at(shard, plan.positions_of(shard, mine)), mine)
            assert plan.sizes.sum() == self.N
            assert plan.sizes.max() - plan.sizes.min() <= 3 * 1024
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < self.N / 10  # a table with one byte for each coordinate would be ten times this

    def _plan(self, kind: str) -> ShardPlan:
        if kind == "contiguous":
            return contiguous(self.N, 10)
        if kind == "blocks":
            return scattered(self.N, 10, SEED, block=1024)
        return per_tensor((self.N // 2, 2_048, self.N - self.N // 2 - 2_048), 10, SEED, block=1024)


class TestCopies:
    def test_split_makes_one_copy(self) -> None:
        plan, vector = scattered(1_000_000, 10, SEED, block=256), np.zeros(1_000_000, np.float32)
        plan.split(vector)  # the plan keeps its order of blocks from now on
        tracemalloc.start()
        try:
            parts = plan.split(vector)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 1.1 * vector.nbytes
        assert len({id(part.base) for part in parts}) == 1

    def test_reassemble_into_a_given_vector_copies_nothing_else(self) -> None:
        plan, vector = scattered(1_000_000, 10, SEED, block=256), np.zeros(1_000_000, np.float32)
        parts, out = plan.split(vector), np.empty_like(vector)
        tracemalloc.start()
        try:
            assert plan.reassemble(parts, out=out) is out
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 0.1 * vector.nbytes


class TestRefusals:
    @pytest.mark.parametrize(
        ("build", "message"),
        [
            (lambda: scattered(10, 0, SEED), "number of shards is 0"),
            (lambda: contiguous(10, -1), "number of shards is -1"),
            (lambda: scattered(-1, 2, SEED), "vector length is -1"),
            (lambda: per_tensor([3, -1], 2, SEED), "vector length is -1"),
            (lambda: scattered(10, 2, SEED, block=0), "block size is 0"),
            (lambda: scattered(10, 2, SEED, capacities=[1.0]), "1 capacities are given for 2 shards"),
            (lambda: contiguous(10, 2, capacities=[0.0, 0.0]), "capacities are"),
            (lambda: contiguous(10, 2, capacities=[1.0, float("nan")]), "capacities are"),
        ],
    )
    def test_impossible_plans(self, build: Callable[[], ShardPlan], message: str) -> None:
        with pytest.raises(PlanError, match=message):
            build()

    @pytest.mark.parametrize("vector", [np.zeros(9, "f4"), np.zeros((10, 1), "f4"), np.zeros(20, "f4")[::2]])
    def test_vectors_that_do_not_fit(self, vector: np.ndarray) -> None:
        with pytest.raises(PlanError, match="vector has shape"):
            contiguous(10, 2).split(vector)

    def test_a_wider_vector_is_not_rounded(self) -> None:
        with pytest.raises(PlanError, match="dtype float64"):
            contiguous(10, 2).split(np.zeros(10))  # type: ignore[arg-type]

    def test_a_wrong_part_changes_nothing(self) -> None:
        plan, out = contiguous(10, 2), np.full(10, 7.0, np.float32)
        good, wrong = np.zeros(5, np.float32), np.zeros(4, np.float32)
        with pytest.raises(PlanError, match="values of shard 1"):
            plan.reassemble([good, wrong], out=out)
        with pytest.raises(PlanError, match="1 shards are given"):
            plan.reassemble([good], out=out)
        assert (out == 7.0).all()


def test_a_plan_can_be_compared_and_shown() -> None:
    plan, again = contiguous(10, 3), contiguous(10, 3)
    assert plan == plan  # the arrays inside must not get in the way
    assert plan != again
    assert len({plan, again}) == 2
    assert "array" not in repr(plan)
    assert isinstance(plan.segments[0], Segment)
