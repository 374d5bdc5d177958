"""Allows one process per folder: a second one would write between the first one's lines, and speak in its name."""

from __future__ import annotations

import os
from pathlib import Path

from eris.errors import ConfigError

__all__ = ["FolderClaim"]


class FolderClaim:
    """Claims a folder until `release`, or until this process ends, however it ends.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> first = FolderClaim(folder)
    >>> FolderClaim(folder)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    eris.errors.ConfigError: another process works in this folder [path=...]: end it first, or give another folder
    >>> first.release()
    >>> FolderClaim(folder).release()
    """

    def __init__(self, folder: Path) -> None:
        self._file = (folder / "lock").open("ab")
        if not _lock(self._file.fileno()):
            self._file.close()
            raise ConfigError(
                "another process works in this folder", fix="end it first, or give another folder", path=folder
            )

    def release(self) -> None:
        """Let another process claim the folder."""
        self._file.close()


def _lock(file: int) -> bool:
    if os.name != "posix":
        return True
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
