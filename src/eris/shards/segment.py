"""The segment: a stretch of the vector in blocks of equal length, each with an owner. Shard plans consist of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Coordinates", "Owners", "Segment"]

Coordinates = NDArray[np.int64]
Owners = NDArray[np.unsignedinteger]

_AT_ONCE = 1 << 20  # owners counted at a time: numpy widens each to eight bytes


@dataclass(frozen=True, eq=False)
class Segment:
    """A stretch [start, stop) of the vector; the last block may be shorter. `owners` names the shard of each block."""

    start: int
    stop: int
    block: int
    owners: Owners = field(repr=False)

    @property
    def whole_blocks(self) -> int:
        """Number of blocks of full length."""
        return (self.stop - self.start) // self.block

    @property
    def tail(self) -> int:
        """Length of the shorter block at the end, 0 if there is none."""
        return (self.stop - self.start) % self.block

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """How many blocks each shard owns, up to the last shard that owns any."""
        counts = np.zeros(int(self.owners.max(initial=0)) + 1, np.int64)
        for first in range(0, self.owners.size, _AT_ONCE):
            counts += np.bincount(self.owners[first : first + _AT_ONCE], minlength=counts.size)
        return counts

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many coordinates each shard owns, up to the last shard that owns any."""
        sizes = self.block * self.counts
        if self.tail:
            sizes[self.owners[-1]] -= self.block - self.tail
        return sizes

    @cached_property
    def _by_owner(self) -> tuple[Coordinates, list[int]]:
        """All block numbers ordered by owner (ascending for each), and where each owner begins: one sort for all.

        It is done in stretches, because a sort needs as much scratch as its result.
        """
        begins = [0, *np.cumsum(self.counts).tolist()]
        stretch = max(_AT_ONCE >> 4, 64 * self.counts.size)  # long enough that every owner gets a few at a time
        if self.owners.size <= stretch:
            return np.argsort(self.owners, kind="stable"), begins
        order, free = np.empty(self.owners.size, np.int64), begins[:-1]
        for first in range(0, self.owners.size, stretch):
            owners = self.owners[first : first + stretch]
            numbers, start = np.argsort(owners, kind="stable") + first, 0
            for owner, count in enumerate(np.bincount(owners).tolist()):
                order[free[owner] : free[owner] + count] = numbers[start : start + count]
                free[owner], start = free[owner] + count, start + count
        return order, begins

    @property
    def by_owner(self) -> Coordinates:
        """All block numbers, those of the first shard before those of the second, ascending within each."""
        return self._by_owner[0]

    def blocks_of(self, shard: int) -> Coordinates:
        """Return the numbers of the blocks that `shard` owns, ascending."""
        order, begins = self._by_owner
        if shard >= len(begins) - 1:
            return order[:0]
        return order[begins[shard] : begins[shard + 1]]

    def size_of(self, blocks: Coordinates) -> int:
        """Return how many coordinates these blocks hold."""
        return blocks.size * self.block - (self.block - self.tail if self._ends_short(blocks) else 0)

    def gather(self, vector: NDArray[Any], blocks: Coordinates, out: NDArray[Any]) -> None:
        """Copy the values of these blocks, in order, to `out`."""
        source = vector[self.start : self.stop]
        if self.block == 1:
            np.take(source, blocks, out=out, mode="clip")  # "clip" spares numpy a buffer; all indices are valid
            return
        rows, whole = self._rows(source), blocks.size - self._ends_short(blocks)
        body = out[: whole * self.block].reshape(whole, self.block)
        np.take(rows, blocks[:whole], axis=0, out=body, mode="clip")
        out[body.size :] = source[rows.size : rows.size + out.size - body.size]

    def scatter(self, values: NDArray[Any], blocks: Coordinates, into: NDArray[Any]) -> None:
        """Copy values to the places of these blocks in the vector `into`."""
        target = into[self.start : self.stop]
        if self.block == 1:
            target[blocks] = values
            return
        rows, whole = self._rows(target), blocks.size - self._ends_short(blocks)
        body = values[: whole * self.block]
        rows[blocks[:whole]] = body.reshape(whole, self.block)
        target[rows.size : rows.size + values.size - body.size] = values[body.size :]

    def scatter_stretch(self, values: NDArray[Any], blocks: Coordinates, stretch: slice, into: NDArray[Any]) -> None:
        """Copy those values of these blocks that lie in a stretch of the vector to `into`, which is that stretch."""
        start, stop = max(stretch.start, self.start) - self.start, min(stretch.stop, self.stop) - self.start
        target = into[self.start + start - stretch.start : self.start + stop - stretch.start]
        whole = -(-start // self.block), max(-(-start // self.block), min(stop // self.block, self.whole_blocks))
        first, low, high, last = np.searchsorted(blocks, [start // self.block, *whole, -(-stop // self.block)]).tolist()
        if low < high:
            edge, count = whole[0] * self.block - start, whole[1] - whole[0]
            rows = target[edge : edge + count * self.block].reshape(count, self.block)
            rows[blocks[low:high] - whole[0]] = values[low * self.block : high * self.block].reshape(-1, self.block)
        for number in (*range(first, low), *range(high, last)):  # blocks that the stretch cuts, and a short last one
            begin = int(blocks[number]) * self.block
            here = slice(max(begin, start), min(begin + self.block, stop))
            shift = number * self.block - begin
            target[here.start - start : here.stop - start] = values[here.start + shift : here.stop + shift]

    def _rows(self, stretch: NDArray[Any]) -> NDArray[Any]:
        """Return the blocks of full length as the rows of a matrix, without a copy."""
        return stretch[: self.whole_blocks * self.block].reshape(self.whole_blocks, self.block)

    def _ends_short(self, blocks: Coordinates) -> bool:
        return blocks.size > 0 and int(blocks[-1]) == self.whole_blocks
