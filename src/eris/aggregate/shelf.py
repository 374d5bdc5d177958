"""Memory that is used again.

Every round needs the same arrays, and memory fresh from the kernel costs a pass of zeros before the first byte arrives:
a quarter of all processor time where a shard has millions of values. What is taken here returns by itself once nobody
holds it or a view of it any more; so a link that still reads or writes an old round's array keeps it to itself.

>>> shelf = Shelf()
>>> first = shelf.take(1 << 20)
>>> address, part = first.ctypes.data, first[8:]
>>> del first
>>> shelf.take(1 << 20).ctypes.data == address  # a view is held: that memory is not free
False
>>> del part
>>> shelf.take((1 << 20) - 100).ctypes.data == address
True
"""

from __future__ import annotations

import weakref
from collections import defaultdict, deque

import numpy as np
from numpy.typing import NDArray

from eris.local.spec import Vector

__all__ = ["Bytes", "Shelf"]

Bytes = NDArray[np.uint8]

_SMALL = 1 << 16  # bytes; below that the allocator of the language does as well
_STEPS = 32  # sizes between two powers of two: shards of nearly the same length share their memory


class Shelf:
    """Arrays of bytes of the last rounds, for the next one; safe to use from many threads."""

    def __init__(self) -> None:
        # Deques need no lock, and there must be none: an array may be let go in the middle of any line, even here.
        self._free: defaultdict[int, deque[Bytes]] = defaultdict(deque)

    def take(self, size: int) -> Bytes:
        """Return an array of `size` bytes, not initialised."""
        if size < _SMALL:
            return np.empty(size, np.uint8)
        free = self._free[_rounded(size)]
        try:
            memory = free.pop()
        except IndexError:
            memory = np.empty(_rounded(size), np.uint8)
        lent = np.frombuffer(memory.data, np.uint8, size)  # views of it keep it alive, so its end is the end of all
        weakref.finalize(lent, free.append, memory).atexit = False
        return lent

    def vector(self, size: int) -> Vector:
        """Return an array of `size` float32 values, not initialised."""
        return self.take(4 * size).view(np.float32)


def _rounded(size: int) -> int:
    step = (1 << (size - 1).bit_length()) // (2 * _STEPS)
    return -(-size // step) * step
