"""Arrays too long for memory, in files: the kernel keeps in memory only what is being worked on.

A file's space is reserved before it is used, so that a full disk shows at once and not in the middle of a round. The
file has no name, so nothing is left of it, however its last user ends.

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
    """Return `size` zero bytes in a file in `folder` (default: where temporary files go)."""
    try:
        with tempfile.TemporaryFile(dir=folder, prefix="eris-") as file:
            _reserve(file.fileno(), size)
            return np.frombuffer(mmap.mmap(file.fileno(), size), np.uint8)
    except (OSError, ValueError) as error:
        raise _no_room(f"{size:,} bytes cannot be kept on disk ({error})", folder) from error


def is_mapped(array: NDArray[Any]) -> bool:
    """Return whether an array, or the array it is a view of, is in a file."""
    return _file_of(array) is not None


def release(array: NDArray[Any]) -> None:
    """Release a mapped array's pages from this process's memory; its values stay. Other arrays are left alone."""
    file = _file_of(array)
    if file is None or not array.size or not hasattr(file, "madvise"):
        return
    start = _address(array) - _address(np.frombuffer(file, np.uint8, 1))
    first = start - start % mmap.PAGESIZE
    file.madvise(mmap.MADV_DONTNEED, first, start + array.nbytes - first)


def require_room(needed: int, folder: Path | None, *, what: str) -> None:
    """Refuse to begin if there is less than `needed` bytes on the disk of `folder`; `what` needs them."""
    place = (folder or Path(tempfile.gettempdir())).absolute()
    free = shutil.disk_usage(next(path for path in (place, *place.parents) if path.exists())).free
    if needed > free:
        raise _no_room(f"{what} needs {needed / 1e9:.1f} GB on disk, but only {free / 1e9:.1f} GB are free", place)


def _no_room(what: str, folder: Path | None) -> DiskError:
    fix = "make room there, use another folder, or keep more in memory"
    return DiskError(what, fix=fix, folder=folder or tempfile.gettempdir())


def _reserve(descriptor: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    else:
        os.truncate(descriptor, size)


def _file_of(array: NDArray[Any]) -> mmap.mmap | None:
    owner: Any = array
    while type(owner) is np.ndarray:  # nearly always to the end: most vectors are in memory
        owner = owner.base
    while owner is not None and not isinstance(owner, mmap.mmap):
        owner = owner.obj if isinstance(owner, memoryview) else getattr(owner, "base", None)
    return owner


def _address(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])
