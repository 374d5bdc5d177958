"""Share arrays between processes of one machine, without pickling and without leaving anything behind.

An array is a file in the memory file system if that has room, otherwise in the temporary folder. Its name is removed as
soon as all workers have mapped it, so that even a killed run leaves nothing.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eris.atomic_file import is_full
from eris.errors import DiskError

__all__ = ["SharedBytes"]

_MEMORY_FILES = Path("/dev/shm")  # noqa: S108 - a place for shared memory, not a guessable name


@dataclass(frozen=True, eq=False)
class SharedBytes:
    """A stretch of bytes that several processes see."""

    path: Path  # gone once it is unlinked
    size: int
    _map: mmap.mmap

    @classmethod
    def create(cls, size: int) -> SharedBytes:
        """Make a stretch of zeros; other processes can `open` its path until `unlink` is called."""
        size = max(size, 1)
        descriptor, name = tempfile.mkstemp(prefix="eris-", dir=_roomy(size))
        try:
            _reserve(descriptor, size)
            return cls(Path(name), size, mmap.mmap(descriptor, size))
        except OSError as error:
            Path(name).unlink()
            if not is_full(error):
                raise
            fix = "make room there, name another folder with TMPDIR, or use fewer workers"
            raise DiskError(
                f"there is no room in {Path(name).parent} for {size} bytes that workers share", fix=fix
            ) from error
        finally:
            os.close(descriptor)

    @classmethod
    def open(cls, path: str, size: int) -> SharedBytes:
        """Map a stretch that another process made."""
        with Path(path).open("r+b") as file:
            return cls(Path(path), size, mmap.mmap(file.fileno(), size))

    def unlink(self) -> None:
        """Remove the name; processes that have mapped it keep it."""
        with contextlib.suppress(OSError):
            self.path.unlink()

    def array(self, dtype: type[np.generic], start: int, count: int) -> NDArray[np.generic]:
        """Return `count` values from byte `start` on, as a view."""
        return np.frombuffer(self._map, dtype, count, start)


def _roomy(size: int) -> Path | None:
    """Return the memory file system if it has room to spare; containers often give it very little."""
    try:
        free = os.statvfs(_MEMORY_FILES)
    except (AttributeError, OSError):
        return None
    return _MEMORY_FILES if free.f_bavail * free.f_frsize > 2 * size else None


def _reserve(descriptor: int, size: int) -> None:
    """Reserve the space now: an error here is better than a crash when writing to a full file system."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    else:
        os.ftruncate(descriptor, size)
