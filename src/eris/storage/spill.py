"""Room for bytes: in memory up to a budget, beyond that in mapped files."""

from __future__ import annotations

from pathlib import Path

from eris.errors import InputError
from eris.storage.buffer_pool import BufferPool, Bytes
from eris.storage.mapped import is_mapped

__all__ = ["Bytes", "Room"]


class Room:
    """Hands out arrays of bytes, in memory up to a budget and then in files, and counts both.

    The `budget` is in bytes. Files are in `folder`, if one is given, and otherwise wherever `pool` has them.
    """

    def __init__(self, budget: int, folder: Path | None = None, *, pool: BufferPool | None = None) -> None:
        if budget < 0:
            raise InputError(f"the memory budget is {budget}", fix="use a number of bytes ≥ 0")
        self.budget, self.in_memory, self.spilled = budget, 0, 0
        self._pool = pool or BufferPool()
        self._disk = self._pool if folder is None else BufferPool(folder)

    def take(self, size: int, *, most: int | None = None) -> Bytes:
        """Return an array of `size` bytes, not initialised; give `most` if another peer chose the size, up to that."""
        if size and (self.in_memory + size > self.budget or self._pool.maps(size)):
            array = self._disk.take(size, on_disk=True, most=most)
            self.spilled += size
            return array
        self.in_memory += size
        return self._pool.take(size, most=most)

    def count(self, array: Bytes) -> None:
        """Count an array that the caller brought."""
        if is_mapped(array):
            self.spilled += array.size
        else:
            self.in_memory += array.size

    def give_back(self, array: Bytes) -> None:
        """Count an array as free again (references to it still keep it alive)."""
        if is_mapped(array):
            self.spilled -= array.size
        else:
            self.in_memory -= array.size
