"""Staging: any chunks in any order give the same bits; what does not fit is refused with a typed reason."""

import tracemalloc
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eris.aggregate import Contents, Staging, WeightedMean, all_finite
from eris.aggregate.coverage import Coverage
from eris.errors import InputError, Reason, Refused
from eris.local.spec import Vector
from eris.storage.buffer_pool import BufferPool

WEIGHTS = {k: np.float32(0.25) for k in range(4)}


def values_of(member: int, n: int = 50) -> Vector:
    return np.random.default_rng(member).standard_normal(n, dtype=np.float32)


def refused(staging: Staging, member: int, start: int, data: bytes, total: int) -> Reason:
    with pytest.raises(Refused) as caught:
        staging.write(member, start, data, total=total)
    return caught.value.reason


@st.composite
def arrivals(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Chunks of four members' messages of 200 bytes in any order, some of them overlapping."""
    chunks = []
    for member in range(4):
        cuts = sorted({0, 200, *draw(st.lists(st.integers(0, 200), max_size=8))})
        for start, stop in pairwise(cuts):
            chunks.append((member, max(0, start - draw(st.integers(0, 5))), stop))
    return draw(st.permutations(chunks))


class TestWhatArrives:
    @settings(max_examples=60, deadline=None)
    @given(chunks=arrivals(), budget=st.sampled_from([0, 500, 1 << 20]))
    def test_any_chunks_in_any_order_give_the_same_bits(self, chunks: list[tuple[int, int, int]], budget: int) -> None:
        staging = Staging(range(4), size=200, budget=budget)
        for member, start, stop in chunks:
            if member not in staging.complete:  # overlaps may complete it before its last chunk
                staging.write(member, start, values_of(member).tobytes()[start:stop], total=200)
        assert staging.cut() == (0, 1, 2, 3)
        given_ = staging.contributions(WEIGHTS)
        assert [contribution.member for contribution in given_] == [0, 1, 2, 3]
        out, direct = np.empty(50, np.float32), np.zeros(50, np.float32)
        WeightedMean().fold(given_, out)
        for member in range(4):
            direct += WEIGHTS[member] * values_of(member)
        assert np.array_equal(out, direct)

    def test_a_socket_can_receive_in_place(self) -> None:
        staging, data = Staging([3], size=200), values_of(3).tobytes()
        room = staging.room(3, 0, 200, total=200)
        assert not room.readonly
        room[:] = data
        assert staging.filled(3, 0, 200)
        assert np.shares_memory(staging.contributions({3: np.float32(1)})[0].values, staging.payload(3))

    @pytest.mark.parametrize("budget", [1 << 30, 0])
    def test_uploads_of_ever_other_lengths_do_not_fill_the_shelf(self, budget: int, tmp_path: Path) -> None:
        limit, pool = 3_000_000, BufferPool(tmp_path)
        for total in range(8, limit + 1, limit // 97):
            staging = Staging([3], limit=limit, budget=budget, pool=pool)
            staging.write(3, 0, b"1234", total=total)
            assert staging.space.in_memory + staging.space.spilled == total
            staging.forget(3)
            assert staging.space.in_memory + staging.space.spilled == 0
        kept = [memory.size for shelved in (pool._free, pool._files) for free in shelved.values() for memory in free]
        assert kept
        assert sum(kept) <= 3 * limit  # all powers of two below it, and itself
        assert max(kept) <= limit

    def test_a_whole_message_is_taken_where_it_lies(self) -> None:
        staging, data = Staging([3, 4], size=200), np.frombuffer(values_of(3).tobytes(), np.uint8)
        staging.adopt(3, data)
        assert staging.complete == (3,)
        assert np.shares_memory(staging.contributions({3: np.float32(1)})[0].values, data)
        assert refused(staging, 3, 0, data.tobytes(), 200) is Reason.DUPLICATE
        assert refused(staging, 3, 0, values_of(4).tobytes(), 200) is Reason.CONFLICT

    def test_a_whole_message_that_does_not_fit_is_refused(self) -> None:
        staging, wrong = Staging([3], size=200), np.full(50, np.nan, np.float32).view(np.uint8)
        for member, data, reason in (
            (4, wrong, Reason.NOT_A_MEMBER), (3, wrong[:196], Reason.WRONG_SIZE), (3, wrong, Reason.NON_FINITE),
        ):  # fmt: skip
            with pytest.raises(Refused) as caught:
                staging.adopt(member, data)
            assert caught.value.reason is reason
        assert staging.space.in_memory == 0
        staging.adopt(3, np.zeros(200, np.uint8))  # what was refused left nothing behind
        with pytest.raises(Refused, match="on their way"):
            staging.adopt(3, np.zeros(200, np.uint8))

    def test_an_empty_message_is_complete_at_once(self) -> None:
        staging = Staging([0], size=0)
        assert staging.write(0, 0, b"", total=0)
        assert refused(staging, 0, 0, b"", 0) is Reason.DUPLICATE

    def test_what_is_incomplete_at_the_cut_costs_nothing(self) -> None:
        staging = Staging([0, 1], size=200)
        staging.write(0, 0, values_of(0).tobytes(), total=200)
        staging.write(1, 0, values_of(1).tobytes()[:196], total=200)
        assert staging.space.in_memory == 400
        assert staging.cut() == (0,)
        assert staging.space.in_memory == 200
        assert [contribution.member for contribution in staging.contributions(WEIGHTS)] == [0]

    def test_a_broken_link_begins_again(self) -> None:
        staging = Staging([0], size=200)
        staging.write(0, 0, bytes(100), total=200)
        staging.forget(0)
        assert staging.write(0, 0, values_of(0).tobytes(), total=200)
        staging.forget(0)  # complete: final
        assert staging.complete == (0,)
        assert np.array_equal(staging.contributions(WEIGHTS)[0].values, values_of(0))

    def test_reads_values_positions_and_buffers(self) -> None:
        def read(member: int, payload: np.ndarray) -> Contents:
            floats = payload.view(np.float32)
            return Contents(floats[:2] * 2, np.array([1, 3]), floats[2:])

        staging = Staging([0], size=12, read=read)
        staging.write(0, 0, np.array([1, 2, 9], np.float32).tobytes(), total=12)
        [contribution], [buffers] = staging.contributions(WEIGHTS), staging.buffers(WEIGHTS)
        assert contribution.values.tolist() == [2, 4]
        assert contribution.positions is not None
        assert contribution.positions.tolist() == [1, 3]
        assert buffers.values.tolist() == [9]


class TestMemory:
    def test_spills_beyond_the_budget_and_keeps_the_bits(self, tmp_path: Path) -> None:
        n = 100_000
        staging = Staging(range(4), size=4 * n, budget=5 * n, folder=tmp_path)
        messages = [values_of(member, n).data.cast("B") for member in range(4)]
        tracemalloc.start()
        for member, data in enumerate(messages):
            for start in range(0, 4 * n, 30_000):
                staging.write(member, start, data[start : start + 30_000], total=4 * n)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert staging.space.in_memory == 4 * n
        assert staging.space.spilled == 12 * n
        assert peak < 5 * n
        for contribution in staging.contributions(WEIGHTS):
            assert np.array_equal(contribution.values, values_of(contribution.member, n))

    def test_decoded_values_are_under_the_budget_too(self) -> None:
        staging = Staging([0], size=4, budget=4, read=lambda _, payload: Contents(payload.astype(np.float32)))
        staging.write(0, 0, bytes([1, 2, 3, 4]), total=4)
        assert staging.space.spilled == 16
        assert staging.contributions(WEIGHTS)[0].values.tolist() == [1, 2, 3, 4]

    def test_leaves_no_file_behind(self, tmp_path: Path) -> None:
        staging = Staging([0], size=200, budget=0, folder=tmp_path)
        staging.write(0, 0, values_of(0).tobytes(), total=200)
        assert list(tmp_path.iterdir()) == []

    def test_a_folder_without_room_is_named(self, tmp_path: Path) -> None:
        staging = Staging([0], size=200, budget=0, folder=tmp_path / "missing")
        with pytest.raises(Refused, match="cannot be kept on disk") as caught:
            staging.write(0, 0, bytes(200), total=200)
        assert caught.value.reason is Reason.NO_ROOM
        assert "missing" in str(caught.value)

    def test_refuses_a_negative_budget(self) -> None:
        with pytest.raises(InputError, match="budget is -1"):
            Staging([0], size=1, budget=-1)

    def test_refuses_messages_of_any_length(self) -> None:
        with pytest.raises(InputError, match="staging needs the size or the limit"):
            Staging([0])


class TestRefusals:
    def setup_method(self) -> None:
        self.data = values_of(0).tobytes()
        self.staging = Staging([0, 1], size=200)

    def test_the_same_again_is_a_duplicate(self) -> None:
        self.staging.write(0, 0, self.data, total=200)
        assert refused(self.staging, 0, 0, self.data, 200) is Reason.DUPLICATE
        assert refused(self.staging, 0, 40, self.data[40:80], 200) is Reason.DUPLICATE

    def test_the_same_chunk_of_an_incomplete_one_is_harmless(self) -> None:
        assert not self.staging.write(0, 0, self.data[:100], total=200)
        assert not self.staging.write(0, 0, self.data[:100], total=200)
        assert self.staging.write(0, 50, self.data[50:], total=200)
        assert np.array_equal(self.staging.contributions(WEIGHTS)[0].values, values_of(0))

    @pytest.mark.parametrize("complete", [True, False])
    def test_other_bytes_are_a_conflict_and_change_nothing(self, complete: bool) -> None:
        self.staging.write(0, 0, self.data if complete else self.data[:100], total=200)
        assert refused(self.staging, 0, 50, bytes(60), 200) is Reason.CONFLICT
        if not complete:
            self.staging.write(0, 100, self.data[100:], total=200)
        assert np.array_equal(self.staging.contributions(WEIGHTS)[0].values, values_of(0))

    def test_a_complete_one_stays_as_it_is_after_the_cut(self) -> None:
        self.staging.write(0, 0, self.data, total=200)
        self.staging.cut()
        assert refused(self.staging, 0, 0, self.data, 200) is Reason.DUPLICATE
        assert refused(self.staging, 0, 0, bytes(200), 200) is Reason.CONFLICT

    def test_late(self) -> None:
        room = self.staging.room(0, 0, 200, total=200)
        self.staging.cut()
        room[:] = self.data
        with pytest.raises(Refused) as caught:
            self.staging.filled(0, 0, 200)
        assert caught.value.reason is Reason.LATE
        assert refused(self.staging, 1, 0, self.data, 200) is Reason.LATE

    def test_memory_handed_out_twice_is_refused(self) -> None:
        self.staging.room(0, 0, 100, total=200)
        with pytest.raises(Refused) as caught:
            self.staging.room(0, 50, 200, total=200)
        assert caught.value.reason is Reason.CONFLICT

    def test_filling_what_was_not_handed_out_is_refused(self) -> None:
        self.staging.write(0, 0, self.data[:4], total=200)
        with pytest.raises(Refused):
            self.staging.filled(0, 4, 200)

    @pytest.mark.parametrize(("start", "length", "total"), [(0, 196, 196), (0, 204, 204), (100, 101, 200)])
    def test_wrong_size(self, start: int, length: int, total: int) -> None:
        assert refused(self.staging, 0, start, bytes(length), total) is Reason.WRONG_SIZE

    def test_wrong_size_on_the_way(self) -> None:
        staging = Staging([0], limit=300)
        staging.write(0, 0, self.data[:100], total=200)
        assert refused(staging, 0, 100, self.data[100:], 204) is Reason.WRONG_SIZE

    def test_too_long_is_refused_before_anything_is_allocated(self) -> None:
        staging = Staging([0], limit=300)
        assert refused(staging, 0, 0, b"", 1 << 40) is Reason.WRONG_SIZE
        assert staging.space.in_memory == 0

    def test_no_float32_values(self) -> None:
        assert refused(Staging([0], limit=300), 0, 0, bytes(7), 7) is Reason.WRONG_SIZE

    def test_not_a_member(self) -> None:
        assert refused(self.staging, 2, 0, self.data, 200) is Reason.NOT_A_MEMBER

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_non_finite_is_refused_and_may_be_sent_again(self, bad: float) -> None:
        values = values_of(0)
        values[17] = bad
        assert refused(self.staging, 0, 0, values.tobytes(), 200) is Reason.NON_FINITE
        assert self.staging.complete == ()
        assert self.staging.space.in_memory == 0
        assert self.staging.write(0, 0, self.data, total=200)

    def test_non_finite_buffers_are_refused(self) -> None:
        staging = Staging([0], size=8, read=lambda _, p: Contents(p.view("f4")[:1], None, p.view("f4")[1:]))
        assert refused(staging, 0, 0, np.array([1, np.nan], np.float32).tobytes(), 8) is Reason.NON_FINITE

    def test_scattered_single_bytes_are_refused(self) -> None:
        staging = Staging([0], size=40_000)
        for start in range(0, 2 * 4_096, 2):
            staging.write(0, start, b"x", total=40_000)
        assert refused(staging, 0, 10_000, b"x", 40_000) is Reason.MALFORMED
        assert staging.space.in_memory == 0


def test_huge_but_finite_values_are_finite() -> None:
    assert all_finite(np.full(10, 3e38, np.float32))
    assert not all_finite(np.array([3e38, np.inf], np.float32))
    assert all_finite(np.empty(0, np.float32))


class TestCoverage:
    @settings(max_examples=100, deadline=None)
    @given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)).map(sorted), max_size=20))
    def test_agrees_with_a_set_of_bytes(self, stretches: list[list[int]]) -> None:
        coverage, there = Coverage(40), set[int]()
        for start, stop in stretches:
            new = set(range(start, stop))
            assert coverage.overlaps(start, stop) == bool(new & there)
            assert {i for a, b in coverage.common(start, stop) for i in range(a, b)} == new & there
            coverage.add(start, stop)
            there |= new
            assert {i for a, b in coverage.stretches for i in range(a, b)} == there
            assert coverage.complete == (len(there) == 40)
            assert all(b < c for (_, b), (c, _) in pairwise(coverage.stretches))


class TestFoldingOnArrival:
    """Where the order does not matter, a contribution is added up when it is complete, and its bytes go."""

    def setup_method(self) -> None:
        self.total = np.zeros(50, np.uint32)
        self.staging = self.folding(range(4))

    def folding(self, members, n: int = 50, total: np.ndarray | None = None, **options) -> Staging:
        into = self.total if total is None else total

        def fold(member: int, contents: Contents) -> None:
            np.add(into, contents.values, out=into)

        def read(member: int, payload: np.ndarray) -> Contents:
            return Contents(payload.view(np.uint32))

        return Staging(members, size=4 * n, read=read, fold=fold, **options)

    @settings(max_examples=40, deadline=None)
    @given(chunks=arrivals())
    def test_any_chunks_in_any_order_add_up_to_the_same(self, chunks: list[tuple[int, int, int]]) -> None:
        total = np.zeros(50, np.uint32)
        staging = self.folding(range(4), total=total)
        for member, start, stop in chunks:
            if member not in staging.complete:
                staging.write(member, start, values_of(member).tobytes()[start:stop], total=200)
        assert staging.cut() == (0, 1, 2, 3)
        assert np.array_equal(total, sum(values_of(member).view(np.uint32) for member in range(4)))
        assert staging.space.in_memory == 0

    def test_nothing_is_added_before_all_of_it_is_there(self) -> None:
        data = values_of(0).tobytes()
        assert not self.staging.write(0, 0, data[:196], total=200)
        assert not self.total.any()
        self.staging.forget(0)
        assert not self.staging.write(0, 4, data[4:], total=200)  # begins again
        assert self.staging.write(0, 0, data[:4], total=200)
        assert np.array_equal(self.total, values_of(0).view(np.uint32))

    @pytest.mark.parametrize("cut", [False, True])
    def test_the_same_again_is_a_duplicate_another_a_conflict_and_neither_is_added(self, cut: bool) -> None:
        data = values_of(0).tobytes()
        self.staging.write(0, 0, data, total=200)
        before = self.total.copy()
        if cut:
            self.staging.cut()
        assert refused(self.staging, 0, 0, data, 200) is Reason.DUPLICATE
        assert not self.staging.write(0, 0, data[:100], total=200)  # in chunks: known again by the last one
        assert refused(self.staging, 0, 100, data[100:], 200) is Reason.DUPLICATE
        assert refused(self.staging, 0, 0, values_of(1).tobytes(), 200) is Reason.CONFLICT
        with pytest.raises(Refused, match="on their way"):
            self.staging.adopt(0, np.frombuffer(data, np.uint8))
        assert np.array_equal(self.total, before)
        assert self.staging.complete == (0,)
        assert self.staging.space.in_memory == 0

    def test_what_cannot_be_read_is_not_added_and_may_be_sent_again(self) -> None:
        def read(member: int, payload: np.ndarray) -> Contents:
            raise Refused(Reason.MALFORMED, "not today")

        staging = Staging([0], size=200, read=read, fold=lambda member, contents: None)
        assert refused(staging, 0, 0, bytes(200), 200) is Reason.MALFORMED
        assert (staging.complete, staging.space.in_memory) == ((), 0)

    def test_memory_does_not_grow_with_the_members(self) -> None:
        """Of 20 members one after another: 20 messages are staged for floats, one for whole numbers."""
        n, members = 250_000, 20

        def peak(staging: Staging) -> int:
            data = np.ones(n, np.float32).data.cast("B")
            tracemalloc.start()
            for member in range(members):
                staging.write(member, 0, data, total=4 * n)
            _, most = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert len(staging.cut()) == members
            return most

        floats = peak(Staging(range(members), size=4 * n))
        whole = peak(self.folding(range(members), n, total=np.zeros(n, np.uint32)))
        assert floats > members * 4 * n
        assert whole < 2 * 4 * n
