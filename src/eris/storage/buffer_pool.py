"""A pool of reusable memory.

Every round needs the same arrays, and the kernel zeroes fresh memory before the first byte arrives: a quarter of all
processor time if a shard has millions of values. An array taken from the pool returns to it once nobody holds it or a
view of it; so a link that still reads or writes an old round's array keeps it.

>>> pool = BufferPool()
>>> first = pool.take(1 << 20)
>>> address, part = first.ctypes.data, first[8:]
>>> del first
>>> pool.take(1 << 20).ctypes.data == address  # a view is held: that memory is not free
False
>>> del part
>>> pool.take((1 << 20) - 100).ctypes.data == address
True

Arrays longer than a bound are in mapped files instead; callers need not know.
"""

from __future__ import annotations

import weakref
from collections import defaultdict, deque
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eris.storage.mapped import Bytes, mapped

__all__ = ["BufferPool", "Bytes"]

Vector = NDArray[np.float32]

_SMALL = 1 << 16  # bytes; below that Python's own allocator does as well
_STEPS = 32  # sizes between two powers of two, so that shards of nearly the same length share memory


class BufferPool:
    """Hands out the arrays of past rounds again; safe to use from many threads.

    Arrays longer than `above` bytes are in files in `folder`; without a bound all are in memory.
    """

    def __init__(self, folder: Path | None = None, *, above: int | None = None) -> None:
        self.folder, self.above = folder, above
        # Deques need no lock, and there must be none: an array may be freed in the middle of any line, even here.
        self._free: defaultdict[int, deque[Bytes]] = defaultdict(deque)
        self._files: defaultdict[int, deque[Bytes]] = defaultdict(deque)

    def maps(self, size: int) -> bool:
        """Return whether an array of `size` bytes would be in a file."""
        return self.above is not None and size > self.above

    def take(self, size: int, *, on_disk: bool = False, most: int | None = None) -> Bytes:
        """Return an array of `size` bytes, not initialised.

        Give `most` if another peer chooses the size, up to that: few sizes are then used, so that a peer that tries
        them all cannot fill the pool.

        With `on_disk` it is in a file, however short.
        """
        room = None if most is None else _coarse(size, most)
        if size and (on_disk or self.maps(size)):
            return self._lent(size, room or size, self._files)
        if size < _SMALL:
            return np.empty(size, np.uint8)
        return self._lent(size, room or _rounded(size), self._free)

    def vector(self, size: int) -> Vector:
        """Return an array of `size` float32 values, not initialised."""
        return self.take(4 * size).view(np.float32)

    def zeros(self, size: int) -> Vector:
        """Return `size` zeros that the caller may keep: they never return to the pool."""
        return mapped(4 * size, self.folder).view(np.float32) if self.maps(4 * size) else np.zeros(size, np.float32)

    def _lent(self, size: int, room: int, arrays: defaultdict[int, deque[Bytes]]) -> Bytes:
        free = arrays[room]
        try:
            memory = free.pop()
        except IndexError:
            memory = np.empty(room, np.uint8) if arrays is self._free else mapped(room, self.folder)
        lent = np.frombuffer(memory.data, np.uint8, size)  # views keep it alive, so it ends when the last of them does
        weakref.finalize(lent, free.append, memory).atexit = False
        return lent


def _coarse(size: int, most: int) -> int:
    power = 1 << (size - 1).bit_length()
    return most if size <= most < power else power


def _rounded(size: int) -> int:
    step = (1 << (size - 1).bit_length()) // (2 * _STEPS)
    return -(-size // step) * step
