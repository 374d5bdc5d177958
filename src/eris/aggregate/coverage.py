"""Keep track of which bytes of a message have arrived, in chunks and in any order."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

__all__ = ["Coverage"]


class Coverage:
    """The stretches of [0, size) that have arrived, disjoint and in order; neighbours are merged.

    >>> arrived = Coverage(10)
    >>> arrived.add(4, 6)
    >>> arrived.add(0, 4)
    >>> arrived.stretches, arrived.complete, arrived.overlaps(5, 8), arrived.overlaps(6, 8)
    ([(0, 6)], False, True, False)
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._starts: list[int] = []
        self._stops: list[int] = []

    def __len__(self) -> int:
        """Return the number of stretches."""
        return len(self._starts)

    @property
    def stretches(self) -> list[tuple[int, int]]:
        """The stretches that have arrived."""
        return list(zip(self._starts, self._stops, strict=True))

    @property
    def complete(self) -> bool:
        """Whether nothing is missing."""
        return not self.size or (self._starts == [0] and self._stops == [self.size])

    def overlaps(self, start: int, stop: int) -> bool:
        """Return whether any byte of [start, stop) has already arrived."""
        first = bisect_right(self._stops, start)
        return start < stop and first < len(self._starts) and self._starts[first] < stop

    def common(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return the stretches of [start, stop) that have already arrived."""
        first, last = bisect_right(self._stops, start), bisect_left(self._starts, stop)
        pairs = zip(self._starts[first:last], self._stops[first:last], strict=True)
        return [(max(start, begin), min(stop, end)) for begin, end in pairs]

    def add(self, start: int, stop: int) -> None:
        """Record that [start, stop) has arrived."""
        if start == stop:
            return
        first, last = bisect_left(self._stops, start), bisect_right(self._starts, stop)
        if first < last:
            start, stop = min(start, self._starts[first]), max(stop, self._stops[last - 1])
        self._starts[first:last], self._stops[first:last] = [start], [stop]
