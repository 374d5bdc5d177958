"""
The map coordinate → shard: disjoint, complete, and small enough to keep.

A plan is a list of segments. A segment cuts its stretch of the vector into blocks of equal length (the last may be
shorter) and names an owner for every block. That one shape serves all plans: coordinate by coordinate (block 1), in
blocks, contiguous (one block for a shard), per tensor (a segment for a tensor). Nothing here is as long as the vector
unless the block length is 1.

>>> plan = contiguous(10, shards=3)
>>> plan.sizes.tolist(), plan.coordinates(1).tolist()
([4, 3, 3], [4, 5, 6])
>>> vector = np.arange(10, dtype=np.float32)
>>> np.array_equal(plan.reassemble(plan.split(vector)), vector)
True
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from eris.errors import PlanError
from eris.local.spec import Vector
from eris.seeds import Seed

__all__ = [
    "Coordinates",
    "Segment",
    "ShardPlan",
    "contiguous",
    "largest_remainder",
    "per_tensor",
    "scattered",
]

Coordinates = NDArray[np.int64]
Owners = NDArray[np.unsignedinteger]
Array = TypeVar("Array", bound=NDArray[Any])


@dataclass(frozen=True)
class Segment:
    """A stretch [start, stop) of the vector in blocks of equal length; `owners` names the shard of each block."""

    start: int
    stop: int
    block: int
    owners: Owners

    @cached_property
    def _by_owner(self) -> tuple[Coordinates, Coordinates]:
        """All block numbers ordered by owner (ascending within one), and the owners in that order: one sort for all."""
        order = np.argsort(self.owners, kind="stable")
        return order, self.owners[order].astype(np.int64, copy=False)

    def blocks_of(self, shard: int) -> Coordinates:
        """Return the numbers of the blocks that `shard` owns, ascending."""
        order, owners = self._by_owner
        first, last = np.searchsorted(owners, [shard, shard + 1])
        return order[first:last]

    @property
    def whole_blocks(self) -> int:
        """Number of blocks of full length."""
        return (self.stop - self.start) // self.block

    def size_of(self, blocks: Coordinates) -> int:
        """Return how many coordinates these blocks hold."""
        tail = (self.stop - self.start) % self.block
        short = tail > 0 and blocks.size > 0 and int(blocks[-1]) == self.whole_blocks
        return blocks.size * self.block - (self.block - tail if short else 0)


@dataclass(frozen=True)
class ShardPlan:
    """Which shard owns each of the n coordinates in a round."""

    n: int
    shards: int
    segments: tuple[Segment, ...]

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Number of coordinates of each shard."""
        sizes = np.zeros(self.shards, np.int64)
        for segment in self.segments:
            sizes += segment.block * np.bincount(segment.owners, minlength=self.shards)
            if tail := (segment.stop - segment.start) % segment.block:
                sizes[segment.owners[-1]] -= segment.block - tail
        return sizes

    def coordinates(self, shard: int) -> Coordinates:
        """Return the coordinates of a shard in ascending order (a table as long as the shard)."""
        return self.coordinates_at(shard, np.arange(self.sizes[self._valid(shard)], dtype=np.int64))

    def coordinates_at(self, shard: int, positions: Coordinates) -> Coordinates:
        """Return which coordinates stand at these ascending positions of the shard."""
        out = np.empty(positions.size, np.int64)
        for segment, blocks, place in self._pieces(self._valid(shard)):
            first, last = np.searchsorted(positions, [place.start, place.stop])
            block, within = np.divmod(positions[first:last] - place.start, segment.block)
            out[first:last] = segment.start + blocks[block] * segment.block + within
        return out

    def positions_of(self, shard: int, coordinates: Coordinates) -> Coordinates:
        """Return where these ascending coordinates, all owned by `shard`, stand inside it."""
        out = np.empty(coordinates.size, np.int64)
        for segment, blocks, place in self._pieces(self._valid(shard)):
            first, last = np.searchsorted(coordinates, [segment.start, segment.stop])
            block, within = np.divmod(coordinates[first:last] - segment.start, segment.block)
            out[first:last] = place.start + np.searchsorted(blocks, block) * segment.block + within
        return out

    def owners_of(self, coordinates: Coordinates) -> NDArray[np.int64]:
        """Return the shard of each of these ascending coordinates."""
        out = np.empty(coordinates.size, np.int64)
        for segment in self.segments:
            first, last = np.searchsorted(coordinates, [segment.start, segment.stop])
            out[first:last] = segment.owners[(coordinates[first:last] - segment.start) // segment.block]
        return out

    def gather(self, vector: Array, shard: int, *, out: Array | None = None) -> Array:
        """Copy a shard's values (of any dtype) out of the vector, in ascending order of their coordinates."""
        _require_length(vector, self.n, "vector")
        size = int(self.sizes[self._valid(shard)])
        values = np.empty(size, vector.dtype) if out is None else _require_length(out, size, "out")
        for segment, blocks, place in self._pieces(shard):
            _gather_segment(vector[segment.start : segment.stop], segment, blocks, values[place])
        return values  # type: ignore[return-value]

    def scatter(self, values: Array, shard: int, into: Array) -> None:
        """Copy a shard's values to their places in the vector; every other coordinate stays as it is."""
        _require_length(into, self.n, "into")
        _require_length(values, int(self.sizes[self._valid(shard)]), f"values of shard {shard}")
        for segment, blocks, place in self._pieces(shard):
            _scatter_segment(values[place], segment, blocks, into[segment.start : segment.stop])

    def split(self, vector: Vector) -> list[Vector]:
        """Cut the vector into its shards: one copy, all of them views of one buffer."""
        buffer, start, parts = np.empty(self.n, np.float32), 0, []
        for shard, size in enumerate(self.sizes.tolist()):
            parts.append(self.gather(vector, shard, out=buffer[start : start + size]))
            start += size
        return parts

    def reassemble(self, parts: Sequence[Vector], *, out: Vector | None = None) -> Vector:
        """Put all shards back together: one copy."""
        if len(parts) != self.shards:
            raise PlanError(f"{len(parts)} shards are given, the plan has {self.shards}", fix="pass every shard once")
        vector = np.empty(self.n, np.float32) if out is None else out
        for shard, values in enumerate(parts):
            self.scatter(values, shard, vector)
        return vector

    def _valid(self, shard: int) -> int:
        if not 0 <= shard < self.shards:
            raise PlanError(f"there is no shard {shard}", fix=f"shards are 0 … {self.shards - 1}")
        return shard

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
        raise PlanError(f"{what} has shape {array.shape}, the plan needs ({n},)", fix="pass a contiguous 1-d array")
    return array


def _gather_segment(source: NDArray[Any], segment: Segment, blocks: Coordinates, out: NDArray[Any]) -> None:
    if segment.block == 1:
        np.take(source, blocks, out=out, mode="clip")
        return
    whole, body = _whole(source, segment, blocks)
    np.take(body, blocks[:whole], axis=0, out=out[: whole * segment.block].reshape(whole, segment.block), mode="clip")
    out[whole * segment.block :] = source[body.size : body.size + out.size - whole * segment.block]


def _scatter_segment(values: NDArray[Any], segment: Segment, blocks: Coordinates, into: NDArray[Any]) -> None:
    if segment.block == 1:
        into[blocks] = values
        return
    whole, body = _whole(into, segment, blocks)
    body[blocks[:whole]] = values[: whole * segment.block].reshape(whole, segment.block)
    into[body.size : body.size + values.size - whole * segment.block] = values[whole * segment.block :]


def _whole(stretch: NDArray[Any], segment: Segment, blocks: Coordinates) -> tuple[int, NDArray[Any]]:
    """Return how many of the blocks have full length, and the stretch's full blocks as rows."""
    count = segment.whole_blocks
    ends_short = blocks.size > 0 and int(blocks[-1]) == count
    return blocks.size - ends_short, stretch[: count * segment.block].reshape(count, segment.block)


def largest_remainder(total: int, weights: Sequence[float]) -> NDArray[np.int64]:
    """
    Share `total` out in proportion to `weights`, exactly: floors first, then one each to the largest remainders.

    >>> largest_remainder(10, [1, 1, 1]).tolist()
    [4, 3, 3]
    """
    shares = np.asarray(weights, np.float64)
    if shares.size == 0 or not np.isfinite(shares).all() or (shares < 0).any() or shares.sum() <= 0:
        raise PlanError(f"capacities are {list(weights)}", fix="give finite capacities ≥ 0 with a positive sum")
    ideal = total * (shares / shares.sum())
    sizes: NDArray[np.int64] = np.floor(ideal).astype(np.int64)
    order = np.argsort(-(ideal - sizes), kind="stable")
    sizes[order[: total - int(sizes.sum())]] += 1
    return sizes


def contiguous(n: int, shards: int, *, capacities: Sequence[float] | None = None) -> ShardPlan:
    """Shard i is the i-th interval of the vector."""
    sizes = largest_remainder(_checked_n(n), _checked_capacities(shards, capacities))
    stops = np.cumsum(sizes).tolist()
    segments = [
        Segment(stop - size, stop, size, np.array([shard], _owner_type(shards)))
        for shard, (size, stop) in enumerate(zip(sizes.tolist(), stops, strict=True))
        if size
    ]
    return ShardPlan(n, shards, tuple(segments))


def scattered(
    n: int, shards: int, seed: Seed, *, block: int = 1, capacities: Sequence[float] | None = None
) -> ShardPlan:
    """Shuffle blocks (single coordinates by default) over the shards; sizes differ by at most one block."""
    weights = _checked_capacities(shards, capacities)
    units = _units(_checked_n(n), block)
    owners = _shuffled(largest_remainder(units, weights), seed, _owner_type(shards))
    return ShardPlan(n, shards, (Segment(0, n, block, owners),) if n else ())


def per_tensor(
    tensor_sizes: Sequence[int],
    shards: int,
    seed: Seed,
    *,
    block: int = 1,
    capacities: Sequence[float] | None = None,
) -> ShardPlan:
    """
    Spread every tensor evenly over the shards, at random inside it.

    What does not divide evenly is carried over to the next tensor, so that small tensors (biases above all) are dealt
    out in turn and no aggregator collects all of them.
    """
    weights = _checked_capacities(shards, capacities)
    share = np.asarray(weights, np.float64) / np.sum(weights)
    owed = np.zeros(shards)
    segments, start = [], 0
    for number, size in enumerate(tensor_sizes):
        units = _units(_checked_n(size), block)
        owed += units * share
        counts = np.maximum(np.floor(owed), 0).astype(np.int64)
        counts = _fit(counts, owed, units)
        owed -= counts
        if size:
            owners = _shuffled(counts, seed.child(number), _owner_type(shards))
            segments.append(Segment(start, start + size, block, owners))
        start += size
    return ShardPlan(start, shards, tuple(segments))


def _fit(counts: NDArray[np.int64], owed: NDArray[np.float64], units: int) -> NDArray[np.int64]:
    """Add to those owed most, or take from those owed least, until the counts sum to `units`."""
    while (missing := units - int(counts.sum())) != 0:
        lacking = owed - counts
        if missing > 0:
            counts[np.argsort(-lacking, kind="stable")[: min(missing, counts.size)]] += 1
        else:
            givers = np.flatnonzero(counts > 0)
            counts[givers[np.argsort(lacking[givers], kind="stable")[: min(-missing, givers.size)]]] -= 1
    return counts


def _shuffled(sizes: NDArray[np.int64], seed: Seed, dtype: type[np.unsignedinteger]) -> Owners:
    """
    Assign exactly sizes[a] units to each owner a, every arrangement equally likely.

    A unit's owner follows from the rank of its random word. Ranks need only the A−1 words at the boundaries, so nothing
    is sorted; equal words at a boundary (one case in 10¹² or rarer) fall back to the full stable order.
    """
    units = int(sizes.sum())
    words = seed.words(units)
    bounds = np.cumsum(sizes)[:-1]
    bounds = bounds[bounds < units]
    if bounds.size == 0:
        first = int(np.flatnonzero(sizes)[0]) if units else 0
        return np.full(units, first, dtype)
    thresholds = np.partition(words, bounds)[bounds]
    owners: Owners = np.searchsorted(thresholds, words, side="right").astype(dtype)
    if not np.array_equal(np.bincount(owners, minlength=sizes.size), sizes):
        owners[np.argsort(words, kind="stable")] = np.repeat(np.arange(sizes.size, dtype=dtype), sizes)
    return owners


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
