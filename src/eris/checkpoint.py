"""What must be kept to go on later, atomically.

A checkpoint is one safetensors file: vectors, and facts as JSON in its header, under one BLAKE3 digest. It is written
beside the others, synced, and only then given its name; the newest two stay. Whatever moment a process dies at, the
last complete checkpoint is there; a damaged one is passed over for the one before it.

>>> import tempfile
>>> import numpy as np
>>> folder = Path(tempfile.mkdtemp())
>>> save_checkpoint(folder, 3, {"model": np.ones(2, np.float32)}, {"run": "a"}).name
'round-000003.safetensors'
>>> load_checkpoint(folder).facts["run"]
'a'
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from blake3 import blake3
from numpy.typing import NDArray

from eris.errors import CheckpointError, DiskError
from eris.local.tensor_file import Arrays, array_pieces, file_pieces, read_arrays

__all__ = ["Checkpoint", "is_full", "load_checkpoint", "save_checkpoint", "write_atomically"]

GENERATIONS = 2


@dataclass(frozen=True)
class Checkpoint:
    """State after `round` rounds."""

    round: int
    arrays: dict[str, NDArray[Any]] = field(repr=False)
    facts: dict[str, Any]


def save_checkpoint(directory: Path, round: int, arrays: Arrays, facts: Mapping[str, Any]) -> Path:
    """Write a checkpoint and let go of all but the newest two."""
    text = json.dumps({**facts, "round": round}, sort_keys=True)
    header = {"facts": text, "digest": _digest(arrays, text)}
    directory.mkdir(parents=True, exist_ok=True)
    path = _path(directory, round)
    write_atomically(path, file_pieces(arrays, header))
    for old in _newest_first(directory)[GENERATIONS:]:
        old.unlink()
    return path


def load_checkpoint(directory: Path, *, round: int | None = None, above: int | None = None) -> Checkpoint:
    """Return the newest checkpoint that is whole, or that of a round; arrays longer than `above` stay in its file."""
    damaged = []
    for path in _newest_first(directory):
        if round is not None and path != _path(directory, round):
            continue
        try:
            return _load(path, above)
        except CheckpointError as error:
            damaged.append(str(error))
    if damaged:
        raise CheckpointError("no checkpoint is whole", fix="; ".join(damaged), path=directory)
    raise CheckpointError("there is no checkpoint", fix="start the run anew", path=directory)


def write_atomically(path: Path, data: bytes | Iterable[bytes | memoryview]) -> None:
    """Write a file, of one piece or many, so that its name always stands for a whole one, even if the machine stops."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    written = 0
    try:
        with temporary.open("wb") as file:
            for piece in [data] if isinstance(data, bytes) else data:
                written += file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        room = f"{len(data)} bytes" if isinstance(data, bytes) else f"more than {written} bytes"
        fix = f"make room for {room} there, or give another folder; what was written before is still whole"
        kind = DiskError if is_full(error) else CheckpointError
        raise kind(f"{path} cannot be written: {error.strerror}", fix=fix) from error
    _sync_folder(path.parent)


def is_full(error: OSError) -> bool:
    """Return whether a disk, a quota or the largest size of a file was in the way.

    >>> is_full(OSError(errno.ENOSPC, "No space left on device")), is_full(FileNotFoundError())
    (True, False)
    """
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _load(path: Path, above: int | None) -> Checkpoint:
    try:
        arrays, header = read_arrays(path, above=above)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path.name} cannot be read: {error}") from None
    text = header.get("facts", "")
    if header.get("digest") != _digest(arrays, text):
        raise CheckpointError(f"{path.name} is damaged: its digest does not fit")
    facts = json.loads(text)
    return Checkpoint(int(facts["round"]), arrays, facts)


def _digest(arrays: Arrays, facts: str) -> str:
    hasher = blake3(facts.encode())
    for name in sorted(arrays):
        hasher.update(name.encode())
        for piece in array_pieces(arrays[name]):
            hasher.update(piece)
    return str(hasher.hexdigest())


def _path(directory: Path, round: int) -> Path:
    return directory / f"round-{round:06d}.safetensors"


def _newest_first(directory: Path) -> list[Path]:
    return sorted(directory.glob("round-*.safetensors"), reverse=True)


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
