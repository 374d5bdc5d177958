"""Receive contributions in chunks, in any order, from many members at once.

A contribution is atomic. Its bytes are staged until all have arrived, then read and checked to be finite; only then is
it handed over, whole. One that is not complete when the shard is cut costs nothing but its bytes.

If contributions can be added up in any order (`fold`), each is handed on as soon as it is complete and its bytes are
freed; all that stays is a mark by which to recognise it: a digest, or what its sender says of itself. Only
contributions in flight are staged then.

A receiver asks for `room`, lets the socket fill it in place, and says `filled`. Chunks may come again: the same bytes
are harmless, different ones are refused, and so are bytes for a contribution that is already complete.

>>> staging = Staging([0, 1], size=8)
>>> values = np.array([1.5, 2.5], np.float32)
>>> staging.write(1, 4, values.tobytes()[4:], total=8), staging.write(1, 0, values.tobytes()[:4], total=8)
(False, True)
>>> staging.cut()
(1,)
>>> [contribution] = staging.contributions({1: np.float32(0.5)})
>>> contribution.values.tolist()
[1.5, 2.5]

The memory for a chunk belongs to one caller at a time; if several links share a staging area, a lock must serialise all
calls (but not the filling itself).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from eris.aggregate.coverage import Coverage
from eris.aggregate.rule import Contribution
from eris.errors import DiskError, InputError, Reason, Refused
from eris.local.spec import Vector
from eris.shards.plan import Coordinates
from eris.storage.buffer_pool import BufferPool
from eris.storage.spill import Bytes, Room

__all__ = ["Contents", "FoldOne", "Reader", "Staging", "all_finite", "float32_values"]

DEFAULT_BUDGET = 1 << 30
_MOST_STRETCHES = 4096  # a sender that scatters single bytes must not make the bookkeeping outgrow its message


class Contents(NamedTuple):
    """The contents of a complete message."""

    values: NDArray[Any]  # float32, or ring values
    positions: Coordinates | None = None  # inside the shard, ascending; None: every coordinate
    buffers: NDArray[Any] = np.empty(0, np.float32)
    checks: NDArray[Any] = np.empty(0, np.uint32)  # words behind a masked contribution, under the same pad
    figures: NDArray[Any] = np.empty(0, np.uint64)  # sums and counts of what the member scored


Reader = Callable[[int, Bytes], Contents]
FoldOne = Callable[[int, Contents], None]
"""Adds one member's complete contribution to a sum; it must not keep the arrays, whose memory will be reused."""


def float32_values(member: int, payload: Bytes) -> Contents:
    """Read a message that is nothing but float32 values, without copying them."""
    if payload.size % 4:
        raise Refused(
            Reason.WRONG_SIZE, f"{payload.size} bytes are not a whole number of float32 values", member=member
        )
    return Contents(payload.view("<f4"))


@dataclass
class _Arriving:
    """One member's message so far."""

    payload: Bytes = field(repr=False)
    coverage: Coverage
    given: dict[tuple[int, int], Bytes] = field(default_factory=dict)  # memory handed out but not yet filled
    contents: Contents | None = None


class Staging:
    """The contributions to one shard in one round.

    `size` is the exact length of a message in bytes if it is known beforehand (it is, unless indices travel); otherwise
    `limit` is the longest one accepted. `read` turns a member's complete bytes into `Contents`; `fold`, if given,
    takes them at once, and `mark` returns what a member's message is then recognised by (by default its digest).

    `members` may contribute. More than `budget` bytes are spilled to a file in `folder`; buffers come from `pool`.
    """

    def __init__(
        self,
        members: Iterable[int],
        *,
        size: int | None = None,
        limit: int | None = None,
        read: Reader = float32_values,
        fold: FoldOne | None = None,
        mark: Callable[[int], bytes] | None = None,
        budget: int = DEFAULT_BUDGET,
        folder: Path | None = None,
        pool: BufferPool | None = None,
    ) -> None:
        if size is None and limit is None:
            raise InputError("staging needs the size or the limit of a message", fix="give one of them in bytes")
        self.members, self.size, self.limit = frozenset(members), size, limit
        self.space = Room(budget, folder, pool=pool)
        self._read, self._fold, self._arriving, self._cut = read, fold, dict[int, _Arriving](), False
        self._mark = mark
        self._folded: dict[int, bytes] = {}  # member → mark of what was handed on
        self._complete: set[int] = set()

    @property
    def complete(self) -> tuple[int, ...]:
        """Members whose contribution is complete, read and finite, in ascending order."""
        return tuple(sorted(self._complete))

    def has_all(self, members: Set[int]) -> bool:
        """Whether the contributions of these members are all complete."""
        return len(members) <= len(self._complete) and members <= self._complete

    def room(self, member: int, start: int, stop: int, *, total: int) -> memoryview:
        """Return memory to receive bytes [start, stop) of a member's message of `total` bytes into."""
        entry = self._entry(member, start, stop, total)
        if any(start < end and begin < stop for begin, end in entry.given):
            raise Refused(Reason.CONFLICT, "the same bytes are already on their way", member=member)
        again = entry.coverage.overlaps(start, stop)  # what has arrived must not be overwritten before it is compared
        entry.given[start, stop] = np.empty(stop - start, np.uint8) if again else entry.payload[start:stop]
        return entry.given[start, stop].data

    def filled(self, member: int, start: int, stop: int) -> bool:
        """Record that the memory for [start, stop) is filled; return whether the contribution is now complete."""
        entry = self._arriving.get(member)
        chunk = None if entry is None else entry.given.pop((start, stop), None)
        if entry is None or chunk is None:  # forgotten or cut while the bytes were on their way
            raise Refused(Reason.LATE, "the contribution was dropped before it was complete", member=member)
        _merge(entry, chunk, start, stop, member)
        if entry.contents is not None:
            raise Refused(Reason.DUPLICATE, "this contribution is already complete", member=member)
        entry.coverage.add(start, stop)
        if len(entry.coverage) > _MOST_STRETCHES:
            self.forget(member)
            raise Refused(
                Reason.MALFORMED, "the chunks are too scattered", fix="send the chunks in order", member=member
            )
        if entry.coverage.complete:
            self._finish(member, entry)
        return entry.coverage.complete

    def write(self, member: int, start: int, data: bytes | memoryview, *, total: int) -> bool:
        """Copy a chunk in, if there is no socket to receive from; return whether the contribution is complete.

        `total` is the length of the whole contribution in bytes, `start` where the chunk belongs.
        """
        stop = start + len(data)
        self.room(member, start, stop, total=total)[:] = data
        return self.filled(member, start, stop)

    def adopt(self, member: int, payload: Bytes) -> None:
        """Take a whole message without copying it; the caller must not change it afterwards."""
        self._check(member, 0, payload.size, payload.size, self.size)
        if member in self._arriving or member in self._folded:
            raise Refused(Reason.CONFLICT, "the same bytes are already on their way", member=member)
        entry = self._arriving[member] = _Arriving(payload, Coverage(payload.size))
        self.space.count(payload)
        entry.coverage.add(0, payload.size)
        self._finish(member, entry)

    def forget(self, member: int) -> None:
        """Drop what a member has sent so far, unless it is complete (after a broken link it starts over)."""
        entry = self._arriving.get(member)
        if entry is not None and entry.contents is None:
            del self._arriving[member]
            self.space.give_back(entry.payload)

    def cut(self) -> tuple[int, ...]:
        """Accept no more, free what is incomplete, and return whose contributions are complete."""
        self._cut = True
        for member in list(self._arriving):
            self.forget(member)
        return self.complete

    def payload(self, member: int) -> Bytes:
        """Return the bytes of a complete contribution, as they came."""
        return self._arriving[member].payload

    def contributions(self, weights: Mapping[int, np.float32]) -> list[Contribution]:
        """Return the complete contributions in ascending member id."""
        return [Contribution(m, weights[m], read.values, read.positions) for m, read in self._contents()]

    def buffers(self, weights: Mapping[int, np.float32]) -> list[Contribution]:
        """Return the dense buffers that came with the complete contributions."""
        return [Contribution(m, weights[m], read.buffers) for m, read in self._contents()]

    def figures(self) -> list[NDArray[Any]]:
        """Return the figures of those who contributed."""
        return [read.figures for _, read in self._contents()]

    def _contents(self) -> list[tuple[int, Contents]]:
        entries = sorted(self._arriving.items())
        return [(member, entry.contents) for member, entry in entries if entry.contents is not None]

    def _entry(self, member: int, start: int, stop: int, total: int) -> _Arriving:
        entry = self._arriving.get(member)
        self._check(member, start, stop, total, self.size if entry is None else entry.payload.size)
        if entry is None:
            entry = self._arriving[member] = _Arriving(self._take(total, member), Coverage(total))
        return entry

    def _take(self, size: int, member: int) -> Bytes:
        """Return room for a message; a full disk costs that message, not the peer."""
        try:
            return self.space.take(size, most=self.limit if self.size is None else None)
        except DiskError as error:
            raise Refused(Reason.NO_ROOM, error.what, fix=error.fix, member=member, **error.where) from error

    def _check(self, member: int, start: int, stop: int, total: int, expected: int | None) -> None:
        if member not in self.members:
            raise Refused(Reason.NOT_A_MEMBER, "this peer does not contribute in this round", member=member)
        if self._cut and member not in self._arriving and member not in self._folded:
            raise Refused(Reason.LATE, "the shard was cut before this contribution was complete", member=member)
        if expected not in (None, total) or not 0 <= start <= stop <= total:
            what = f"received bytes {start} to {stop} of {total}, but {expected} are expected"
            raise Refused(Reason.WRONG_SIZE, what, member=member)
        if self.limit is not None and total > self.limit:
            raise Refused(
                Reason.WRONG_SIZE,
                f"the message has {total} bytes, but at most {self.limit} are accepted",
                member=member,
            )

    def _finish(self, member: int, entry: _Arriving) -> None:
        if self._fold is not None:
            self._hand_on(member, entry, self._fold)
            return
        try:
            contents = self._read(member, entry.payload)
            _require_finite(contents, member)
            kept = self._kept(contents.values, entry.payload, member)
        except Refused:
            self.forget(member)
            raise
        entry.contents = contents._replace(values=kept)
        self._complete.add(member)

    def _hand_on(self, member: int, entry: _Arriving, fold: FoldOne) -> None:
        """Hand a complete contribution to `fold`, once; the same again is harmless, a different one is refused."""
        mark = self._mark(member) if self._mark is not None else blake3(entry.payload.data).digest()
        before = self._folded.get(member)
        try:
            if before is None:
                fold(member, self._read(member, entry.payload))
                self._folded[member] = mark
                self._complete.add(member)
        finally:
            self.forget(member)
        if before is not None and before != mark:
            raise Refused(Reason.CONFLICT, "this contribution was sent before with different bytes", member=member)
        if before is not None:
            raise Refused(Reason.DUPLICATE, "this contribution is already complete", member=member)

    def _kept(self, values: Vector, payload: Bytes, member: int) -> Vector:
        """Count decoded values (unless they are a view of the payload) against the same budget."""
        if np.may_share_memory(values, payload):
            return values
        place: Vector = self._take(values.nbytes, member).view(np.float32)
        place[:] = values
        return place


def all_finite(values: Vector) -> bool:
    """Return whether no value is infinite or NaN; a finite sum of squares proves it in one fast pass."""
    if not values.size:
        return True
    with np.errstate(over="ignore", invalid="ignore"):
        if math.isfinite(np.dot(values, values)):
            return True
    return bool(np.isfinite(values).all())  # the squares may merely have overflowed


def _require_finite(contents: Contents, member: int) -> None:
    if not (all_finite(contents.values) and all_finite(contents.buffers)):
        raise Refused(Reason.NON_FINITE, "a value is not finite", fix="look for a diverging loss", member=member)


def _merge(entry: _Arriving, chunk: Bytes, start: int, stop: int, member: int) -> None:
    """Compare a chunk with what has already arrived, then copy in what is new."""
    there = entry.coverage.common(start, stop)
    for begin, end in there:
        if not np.array_equal(chunk[begin - start : end - start], entry.payload[begin:end]):
            raise Refused(Reason.CONFLICT, "this contribution was sent before with different bytes", member=member)
    if there and not entry.coverage.complete:
        entry.payload[start:stop] = chunk
