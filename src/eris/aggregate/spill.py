"""Room for bytes: in memory up to a budget, beyond it in mapped temporary files."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np

from eris.aggregate.shelf import Bytes, Shelf
from eris.errors import InputError

__all__ = ["Bytes", "Room"]


class Room:
    """Hands out arrays of bytes; counts those in memory, maps the others from unnamed files that vanish with them."""

    def __init__(self, budget: int, folder: Path | None = None, *, shelf: Shelf | None = None) -> None:
        if budget < 0:
            raise InputError(f"the memory budget is {budget}", fix="use a number of bytes ≥ 0")
        self.budget, self.folder, self.in_memory, self.spilled = budget, folder, 0, 0
        self._shelf = shelf or Shelf()

    def take(self, size: int) -> Bytes:
        """Return an array of `size` bytes, not initialised."""
        if size and self.in_memory + size > self.budget:
            array = _mapped(size, self.folder)
            self.spilled += size
            return array
        self.in_memory += size
        return self._shelf.take(size)

    def give_back(self, array: Bytes) -> None:
        """Count an array as free again (whoever still holds it keeps it alive)."""
        if _is_mapped(array):
            self.spilled -= array.size
        else:
            self.in_memory -= array.size


def _mapped(size: int, folder: Path | None) -> Bytes:
    try:
        with tempfile.TemporaryFile(dir=folder, prefix="eris-staging-") as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)  # a full disk must show here, not as a bus error later
            return np.asarray(np.memmap(file, np.uint8, mode="r+", shape=(size,)))
    except OSError as error:
        raise InputError(
            f"a contribution of {size} bytes cannot be staged on disk ({error.strerror})",
            fix="raise the memory budget, or choose a folder with room",
            folder=folder or tempfile.gettempdir(),
        ) from error


def _is_mapped(array: Bytes) -> bool:
    return isinstance(array.base, np.memmap)
