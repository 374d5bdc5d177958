"""Write files atomically: a reader sees all of the old bytes or all of the new ones.

>>> import tempfile
>>> path = Path(tempfile.mkdtemp()) / "file"
>>> write_atomically(path, b"old")
>>> write_atomically(path, [b"new ", b"bytes"])
>>> path.read_bytes()
b'new bytes'
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from eris.errors import CheckpointError, DiskError

__all__ = ["is_full", "write_atomically", "writing"]


def write_atomically(path: Path, data: bytes | Iterable[bytes | memoryview], *, mode: int = 0o644) -> None:
    """Replace the file at `path` with `data` (one piece or several); a machine that stops midway leaves the old file.

    The file never has wider permissions than `mode`, not even for a moment.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    written = 0
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            for piece in [data] if isinstance(data, bytes) else data:
                written += file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        room = f"{len(data)} bytes" if isinstance(data, bytes) else f"more than {written} bytes"
        there = f"make room for {room} there, or use another folder" if is_full(error) else "use another folder"
        fix = f"{there}; what was written before is intact"
        raise _unwritten(path, error, fix) from error
    finally:
        with contextlib.suppress(OSError):  # if all went well, it has been renamed
            draft.unlink()


@contextmanager
def writing(path: Path, *, fix: str) -> Iterator[None]:
    """Turn a failed write to an open file into an error that names the file and says what to do (`fix`)."""
    try:
        yield
    except OSError as error:
        raise _unwritten(path, error, fix) from error


def _unwritten(path: Path, error: OSError, fix: str) -> DiskError | CheckpointError:
    kind = DiskError if is_full(error) else CheckpointError
    return kind(f"{path} cannot be written: {error.strerror}", fix=fix)


def is_full(error: OSError) -> bool:
    """Return whether the disk was full, or a quota or the file-size limit was reached.

    >>> is_full(OSError(errno.ENOSPC, "No space left on device")), is_full(FileNotFoundError())
    (True, False)
    """
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _sync_folder(folder: Path) -> None:
    """Make the new name as durable as the bytes."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
