"""A peer's own randomness: drawn from the operating system at its first start, kept by its owner alone, never sent."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from eris.atomic_file import write_atomically
from eris.errors import ConfigError
from eris.seeds import Seed, private_root_from_os

__all__ = ["PRIVATE_ROOT", "private_root_in"]

PRIVATE_ROOT = "private-root"


def private_root_in(folder: Path, peer: str) -> Seed:
    """Return the private root kept in a peer's folder; the first call draws it.

    It must survive a restart: a peer that trained a round again with other batches would contradict itself.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> private_root_in(folder, "amber") == private_root_in(folder, "amber")
    True
    """
    path = folder / PRIVATE_ROOT
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, private_root_from_os(peer).key.hex().encode(), mode=0o600)
    if os.name == "posix" and path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError("others can read this peer's private root", fix=f"chmod 600 {path}", file=path)
    try:
        key = bytes.fromhex(path.read_text(encoding="ascii"))
    except (UnicodeDecodeError, ValueError):
        key = b""
    if len(key) != 16:
        raise ConfigError("the private root is damaged", fix="remove the file and leave the run first", file=path)
    return Seed(f"os/peer/{peer}", key, private=True)
