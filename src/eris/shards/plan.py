"""The shard plan: the map coordinate → shard, disjoint, complete, and small enough to keep.

A plan is a list of segments. A segment cuts its stretch of the vector into blocks of equal length (the last may be
shorter) and names an owner for every block. That one shape serves all plans: coordinate by coordinate (blocks of 1), in
blocks, contiguous (one block per shard), per tensor (one segment per tensor). Nothing here is as long as the vector
unless the block length is 1.

>>> plan = contiguous(10, shards=3)
>>> plan.sizes.tolist(), plan.coordinates(1).tolist()
([4, 3, 3], [4, 5, 6])
>>> vector = np.arange(10, dtype=np.float32)
>>> np.array_equal(plan.reassemble(plan.split(vector)), vector)
True
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from eris.errors import PlanError
from eris.seeds import Seed
from eris.shards.apportion import deal, largest_remainder
from eris.shards.segment import Coordinates, Segment
from eris.shards.shuffle import shuffled

__all__ = [
    "Coordinates",
    "Segment",
    "ShardPlan",
    "contiguous",
    "largest_remainder",
    "per_tensor",
    "scattered",
]

Array = TypeVar("Array", bound=NDArray[Any])

_WORDS = (np.float32, np.uint32, np.uint64)  # types that travel: values and buffers as floats, or in fixed point


@dataclass(frozen=True, eq=False)
class ShardPlan:
    """Which shard owns each of the n coordinates in a round."""

    n: int
    shards: int
    segments: tuple[Segment, ...]

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Number of coordinates of each shard."""
        sizes: NDArray[np.int64] = self._before[-1]
        return sizes

    @cached_property
    def _starts(self) -> list[int]:
        return [segment.start for segment in self.segments]

    @cached_property
    def _before(self) -> NDArray[np.int64]:
        """How many values of each shard (a column) come before each segment (a row)."""
        sizes = np.zeros((len(self.segments) + 1, self.shards), np.int64)
        for row, segment in zip(sizes[1:], self.segments, strict=True):
            row[: segment.counts.size] = segment.sizes
        return np.cumsum(sizes, axis=0)

    def coordinates(self, shard: int) -> Coordinates:
        """Return the coordinates of a shard in ascending order (a table as long as the shard)."""
        return self.coordinates_at(shard, np.arange(self.sizes[self._valid(shard)], dtype=np.int64))

    def coordinates_at(self, shard: int, positions: Coordinates) -> Coordinates:
        """Return the coordinates at these ascending positions of the shard."""
        _require_within(positions, int(self.sizes[self._valid(shard)]), f"positions in shard {shard}")
        out = np.empty(positions.size, np.int64)
        for segment, blocks, place in self._pieces(shard):
            first, last = np.searchsorted(positions, [place.start, place.stop])
            block, within = np.divmod(positions[first:last] - place.start, segment.block)
            out[first:last] = segment.start + blocks[block] * segment.block + within
        return out

    def positions_of(self, shard: int, coordinates: Coordinates) -> Coordinates:
        """Return the positions, inside the shard, of these ascending coordinates; it must own all of them."""
        _require_within(coordinates, self.n, "coordinates")
        out = np.full(coordinates.size, -1, np.int64)
        for segment, blocks, place in self._pieces(self._valid(shard)):
            first, last = np.searchsorted(coordinates, [segment.start, segment.stop])
            block, within = np.divmod(coordinates[first:last] - segment.start, segment.block)
            number = np.minimum(np.searchsorted(blocks, block), blocks.size - 1)
            out[first:last] = np.where(blocks[number] == block, place.start + number * segment.block + within, -1)
        if (out < 0).any():
            raise PlanError(
                f"coordinate {int(coordinates[np.argmin(out)])} is not in this shard", shard=shard,
                fix="ask only for coordinates that owners_of gives to the shard",
            )  # fmt: skip
        return out

    def owners_of(self, coordinates: Coordinates) -> NDArray[np.int64]:
        """Return the shard of each of these ascending coordinates."""
        _require_within(coordinates, self.n, "coordinates")
        out = np.empty(coordinates.size, np.int64)
        for segment in self.segments:
            first, last = np.searchsorted(coordinates, [segment.start, segment.stop])
            out[first:last] = segment.owners[(coordinates[first:last] - segment.start) // segment.block]
        return out

    def grouped(self, coordinates: Coordinates) -> list[NDArray[np.int64]]:
        """Return, for each shard, the places in the array of those ascending coordinates that it owns.

        The last answer is kept if the array is read-only: all roles of a peer cut the same mask in a round.
        """
        groups: list[NDArray[np.int64]]
        known, groups = self.__dict__.get("_last_grouped", (None, []))
        if known is not coordinates:
            groups = self._grouped(coordinates)
            if not coordinates.flags.writeable:
                self.__dict__["_last_grouped"] = coordinates, groups
        return groups

    def _grouped(self, coordinates: Coordinates) -> list[NDArray[np.int64]]:
        owners = self.owners_of(coordinates).astype(np.uint16 if self.shards <= 2**16 else np.int64, copy=False)
        order = np.argsort(owners, kind="stable")  # sixteen bits at most: a radix sort, linear
        stops = np.cumsum(np.bincount(owners, minlength=self.shards)).tolist()
        return [order[start:stop] for start, stop in zip([0, *stops], stops, strict=False)]

    def gather(self, vector: Array, shard: int, *, out: Array | None = None) -> Array:
        """Copy a shard's values (of any dtype) out of the vector, in ascending order of their coordinates."""
        _require_length(vector, self.n, "vector")
        size = int(self.sizes[self._valid(shard)])
        values = np.empty(size, vector.dtype) if out is None else _require_length(out, size, "out")
        for segment, blocks, place in self._pieces(shard):
            segment.gather(vector, blocks, values[place])
        return values  # type: ignore[return-value]

    def scatter(self, values: Array, shard: int, into: Array) -> None:
        """Copy a shard's values to their places in the vector `into`; every other coordinate stays as it is."""
        _require_length(into, self.n, "into")
        self._require_size(values, shard)
        for segment, blocks, place in self._pieces(shard):
            segment.scatter(values[place], blocks, into)

    def scatter_stretch(self, values: Array, shard: int, stretch: slice, into: Array) -> None:
        """Copy what a shard holds of one stretch of the vector to `into`, which is as long as the stretch."""
        if stretch == slice(0, self.n):
            self.scatter(values, shard, into)
            return
        _require_length(into, stretch.stop - stretch.start, "into")
        self._require_size(values, shard)
        first = max(0, bisect_right(self._starts, stretch.start) - 1)
        for number in range(first, bisect_left(self._starts, stretch.stop)):
            segment, start = self.segments[number], int(self._before[number, shard])
            segment.scatter_stretch(values[start:], segment.blocks_of(shard), stretch, into)

    def split(self, vector: Array, *, out: Array | None = None) -> list[Array]:
        """Cut the vector into its shards with one copy: all are views of one buffer (`out`, if given)."""
        if vector.dtype not in _WORDS:
            raise PlanError(f"the vector has dtype {vector.dtype}", fix="pass float32 values, or ring values")
        buffer: Array = np.empty(self.n, vector.dtype) if out is None else out  # type: ignore[assignment]
        stops = np.cumsum(self.sizes).tolist()
        parts: list[Array] = [buffer[a:b] for a, b in zip([0, *stops], stops, strict=False)]  # type: ignore[misc]
        if self._at_once:
            _require_length(vector, self.n, "vector")
            for segment in self.segments:
                segment.gather(vector, segment.by_owner, buffer)
        else:
            for shard, part in enumerate(parts):
                self.gather(vector, shard, out=part)
        return parts

    @property
    def _at_once(self) -> bool:
        """Whether one copy moves all shards: the plan has a single segment with its blocks in the order of shards."""
        return len(self.segments) < 2 and not any(segment.tail for segment in self.segments)

    def reassemble(self, parts: Sequence[Array], *, out: Array | None = None) -> Array:
        """Put all shards back together."""
        if len(parts) != self.shards:
            raise PlanError(
                f"{len(parts)} shards are given, but the plan has {self.shards}", fix="pass every shard once"
            )
        for shard, values in enumerate(parts):  # check all before writing any, so that nothing is half changed
            self._require_size(values, shard)
        vector: Array = np.empty(self.n, parts[0].dtype) if out is None else out  # type: ignore[assignment]
        if self._at_once:
            for segment in self.segments:
                segment.scatter(np.concatenate(parts), segment.by_owner, vector)
        else:
            for shard, values in enumerate(parts):
                self.scatter(values, shard, vector)
        return vector

    def _valid(self, shard: int) -> int:
        if not 0 <= shard < self.shards:
            raise PlanError(f"there is no shard {shard}", fix=f"shards are 0 … {self.shards - 1}")
        return shard

    def _require_size(self, values: NDArray[Any], shard: int) -> None:
        _require_length(values, int(self.sizes[self._valid(shard)]), f"values of shard {shard}")

    def _pieces(self, shard: int) -> Iterable[tuple[Segment, Coordinates, slice]]:
        """Yield, segment by segment, the blocks of the shard and where their values stand inside it."""
        start = 0
        for segment in self.segments:
            blocks = segment.blocks_of(shard)
            if blocks.size:
                stop = start + segment.size_of(blocks)
                yield segment, blocks, slice(start, stop)
                start = stop


def _require_length(array: Array, n: int, what: str) -> Array:
    if array.ndim != 1 or array.size != n or not array.flags.c_contiguous:
        raise PlanError(f"{what} has shape {array.shape}, but the plan needs ({n},)", fix="pass a contiguous 1-d array")
    return array


def _require_within(ascending: Coordinates, bound: int, what: str) -> None:
    if ascending.size and not (ascending[0] >= 0 and ascending[-1] < bound):
        raise PlanError(f"{what} lie outside 0 … {bound - 1}", fix="pass ascending numbers from that range")


def contiguous(n: int, shards: int, *, capacities: Sequence[float] | None = None) -> ShardPlan:
    """Return a plan in which shard i is the i-th interval of the vector.

    `n` coordinates are cut into `shards`, in proportion to `capacities` (one weight per shard; by default equal).
    """
    sizes = largest_remainder(_checked_n(n), _checked_capacities(shards, capacities)).tolist()
    segments, start = [], 0
    for size, run in groupby(range(shards), key=sizes.__getitem__):  # neighbours of one size share a segment
        owners = np.array(list(run), _owner_type(shards))
        if size:
            segments.append(Segment(start, start + size * owners.size, size, owners))
        start += size * owners.size
    return ShardPlan(n, shards, tuple(segments))


def scattered(
    n: int, shards: int, seed: Seed, *, block: int = 1, capacities: Sequence[float] | None = None
) -> ShardPlan:
    """Return a plan that shuffles blocks (by default single coordinates) over the shards.

    Args:
        n: length of the vector.
        shards: how many.
        seed: public.
        block: coordinates that stay together.
        capacities: one weight for each shard; without, sizes differ by at most one block.
    """
    weights = _checked_capacities(shards, capacities)
    units = _units(_checked_n(n), block)
    owners = shuffled(largest_remainder(units, weights), seed, _owner_type(shards))
    return ShardPlan(n, shards, (Segment(0, n, block, owners),) if n else ())


def per_tensor(
    tensor_sizes: Sequence[int],
    shards: int,
    seed: Seed,
    *,
    block: int = 1,
    capacities: Sequence[float] | None = None,
) -> ShardPlan:
    """Return a plan that spreads every tensor evenly over the shards, at random within the tensor.

    What does not divide evenly is carried over to the next tensor, so that small tensors (above all biases) are dealt
    out in turn and no aggregator collects all of them.

    Args:
        tensor_sizes: length of each tensor, in the order of the vector.
        shards: how many.
        seed: public.
        block: coordinates that stay together.
        capacities: one weight for each shard; by default all are equal.
    """
    weights = _checked_capacities(shards, capacities)
    units = [_units(_checked_n(size), block) for size in tensor_sizes]
    segments, start = [], 0
    for number, (size, counts) in enumerate(zip(tensor_sizes, deal(units, weights), strict=True)):
        if size:
            owners = shuffled(counts, seed.child(number), _owner_type(shards))
            segments.append(Segment(start, start + size, block, owners))
        start += size
    return ShardPlan(start, shards, tuple(segments))


def _owner_type(shards: int) -> type[np.unsignedinteger]:
    return np.uint8 if shards <= 2**8 else np.uint16 if shards <= 2**16 else np.uint32


def _units(n: int, block: int) -> int:
    if block < 1:
        raise PlanError(f"block size is {block}", fix="use a block size ≥ 1")
    return -(-n // block)


def _checked_n(n: int) -> int:
    if n < 0:
        raise PlanError(f"vector length is {n}", fix="use n ≥ 0")
    return n


def _checked_capacities(shards: int, capacities: Sequence[float] | None) -> Sequence[float]:
    if shards < 1:
        raise PlanError(f"number of shards is {shards}", fix="use at least one aggregator")
    if capacities is None:
        return [1.0] * shards
    if len(capacities) != shards:
        raise PlanError(f"{len(capacities)} capacities are given for {shards} shards", fix="give one for each shard")
    return capacities
