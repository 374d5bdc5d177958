"""Arrays too long for memory: they lie in a file, and the kernel keeps in memory what is being worked on.

A file is reserved whole before it is used, so a full disk shows at once and not in the middle of a round. It has no
name: whatever way its last user ends, nothing is left of it.

>>> vector = mapped(4096).view(np.float32)
>>> vector[5:8] = 1.5
>>> release(vector)
>>> float(vector.sum())
4.5
"""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.errors import DiskError

__all__ = ["Bytes", "is_mapped", "mapped", "release", "require_room"]

Bytes = NDArray[np.uint8]


def mapped(size: int, folder: Path | None = None) -> Bytes:
    """Return `size` bytes of zeros in a file of this folder (without one: where temporary files go)."""
    try:
        with tempfile.TemporaryFile(dir=folder, prefix="eris-") as file:
            _reserve(file.fileno(), size)
            return np.frombuffer(mmap.mmap(file.fileno(), size), np.uint8)
    except (OSError, ValueError) as error:
        raise _no_room(f"{size:,} bytes cannot be kept on disk ({error})", folder) from error


def is_mapped(array: NDArray[Any]) -> bool:
    """Whether an array, or what it is a view of, lies in a file."""
    return _file_of(array) is not None


def release(array: NDArray[Any]) -> None:
    """Take what is mapped out of this process's memory again; the values stay. Arrays in memory are left alone."""
    file = _file_of(array)
    if file is None or not array.size or not hasattr(file, "madvise"):
        return
    start = _address(array) - _address(np.frombuffer(file, np.uint8, 1))
    first = start - start % mmap.PAGESIZE
    file.madvise(mmap.MADV_DONTNEED, first, start + array.nbytes - first)


def require_room(needed: int, folder: Path | None, *, what: str) -> None:
    """Refuse to begin what would not fit on the disk."""
    place = (folder or Path(tempfile.gettempdir())).absolute()
    free = shutil.disk_usage(next(path for path in (place, *place.parents) if path.exists())).free
    if needed > free:
        raise _no_room(f"{what} needs {needed / 1e9:.1f} GB on disk, {free / 1e9:.1f} GB are free", place)


def _no_room(what: str, folder: Path | None) -> DiskError:
    fix = "make room there, give another folder, or let more stay in memory"
    return DiskError(what, fix=fix, folder=folder or tempfile.gettempdir())


def _reserve(descriptor: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    else:
        os.truncate(descriptor, size)


def _file_of(array: NDArray[Any]) -> mmap.mmap | None:
    owner: Any = array
    while type(owner) is np.ndarray:  # nearly always to the end: most vectors lie in memory
        owner = owner.base
    while owner is not None and not isinstance(owner, mmap.mmap):
        owner = owner.obj if isinstance(owner, memoryview) else getattr(owner, "base", None)
    return owner


def _address(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])
