"""What must be kept to go on later, atomically.

A checkpoint is one safetensors file: vectors, and facts as JSON in its header, under one BLAKE3 digest. It is written
beside the others, synced, and only then given its name; the newest two stay. Whatever moment a process dies at, the
last complete checkpoint is there; a damaged one is passed over for the one before it.

>>> import tempfile
>>> folder = Path(tempfile.mkdtemp())
>>> save_checkpoint(folder, 3, {"model": np.ones(2, np.float32)}, {"run": "a"}).name
'round-000003.safetensors'
>>> load_checkpoint(folder).facts["run"]
'a'
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from eris.errors import CheckpointError

__all__ = ["Checkpoint", "load_checkpoint", "save_checkpoint", "write_atomically"]

_GENERATIONS = 2

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Checkpoint:
    """State after `round` rounds."""

    round: int
    arrays: dict[str, NDArray[Any]] = field(repr=False)
    facts: dict[str, Any]


def save_checkpoint(directory: Path, round: int, arrays: Arrays, facts: Mapping[str, Any]) -> Path:
    """Write a checkpoint and let go of all but the newest two."""
    from safetensors.numpy import save

    text = json.dumps({**facts, "round": round}, sort_keys=True)
    header = {"facts": text, "digest": _digest(arrays, text)}
    directory.mkdir(parents=True, exist_ok=True)
    path = _path(directory, round)
    write_atomically(path, save({name: np.ascontiguousarray(value) for name, value in arrays.items()}, header))
    for old in _newest_first(directory)[_GENERATIONS:]:
        old.unlink()
    return path


def load_checkpoint(directory: Path, *, round: int | None = None) -> Checkpoint:
    """Return the newest checkpoint that is whole, or the one of a round."""
    damaged = []
    for path in _newest_first(directory):
        if round is not None and path != _path(directory, round):
            continue
        try:
            return _load(path)
        except CheckpointError as error:
            damaged.append(str(error))
    if damaged:
        raise CheckpointError("no checkpoint is whole", fix="; ".join(damaged), path=directory)
    raise CheckpointError("there is no checkpoint", fix="start the run anew", path=directory)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that its name always stands for a whole one, even if the machine stops."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        fix = f"make room for {len(data)} bytes there, or give another folder; what was written before is still whole"
        raise CheckpointError(f"{path} cannot be written: {error.strerror}", fix=fix) from error
    _sync_folder(path.parent)


def _load(path: Path) -> Checkpoint:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is not a mapping
    except (SafetensorError, OSError, ValueError) as error:
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
        hasher.update(np.ascontiguousarray(arrays[name]).view(np.uint8).data)
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
