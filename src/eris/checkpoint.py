"""Save what a run needs to resume, atomically.

A checkpoint is one safetensors file: vectors, and facts as JSON in its header, under one BLAKE3 digest. It is written
under a temporary name, synced and only then renamed; the newest two are kept. So the last complete checkpoint survives
a process that dies at any moment, and if it is damaged, the one before it is used.

>>> import tempfile
>>> import numpy as np
>>> folder = Path(tempfile.mkdtemp())
>>> save_checkpoint(folder, 3, {"model": np.ones(2, np.float32)}, {"run": "a"}).name
'round-000003.safetensors'
>>> load_checkpoint(folder).facts["run"]
'a'
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from blake3 import blake3
from numpy.typing import NDArray

from eris.atomic_file import write_atomically
from eris.errors import CheckpointError
from eris.local.tensor_file import Arrays, array_pieces, file_pieces, read_arrays

__all__ = ["Checkpoint", "load_checkpoint", "save_checkpoint"]

GENERATIONS = 2


@dataclass(frozen=True)
class Checkpoint:
    """State after `round` rounds."""

    round: int
    arrays: dict[str, NDArray[Any]] = field(repr=False)
    facts: dict[str, Any]


def save_checkpoint(directory: Path, round: int, arrays: Arrays, facts: Mapping[str, Any]) -> Path:
    """Write a checkpoint; delete all but the newest two, and whatever processes that died while writing left behind.

    Checkpoints of later rounds are deleted too: the run has gone back to before them.

    Args:
        directory: the folder of the run's checkpoints.
        round: how many rounds are done.
        arrays: what to keep, by name.
        facts: everything else to keep, as JSON.
    """
    text = json.dumps({**facts, "round": round}, sort_keys=True)
    header = {"facts": text, "digest": _digest(arrays, text)}
    directory.mkdir(parents=True, exist_ok=True)
    path = _path(directory, round)
    for draft in directory.glob(".round-*"):
        draft.unlink()
    write_atomically(path, file_pieces(arrays, header))
    kept = _newest_first(directory)
    for other in [*(later for later in kept if later > path), *[old for old in kept if old <= path][GENERATIONS:]]:
        other.unlink()
    return path


def load_checkpoint(directory: Path, *, round: int | None = None, above: int | None = None) -> Checkpoint:
    """Return the newest intact checkpoint, or that of one round; arrays of more than `above` bytes stay in the file."""
    damaged = []
    for path in _newest_first(directory):
        if round is not None and path != _path(directory, round):
            continue
        try:
            return _load(path, above)
        except CheckpointError as error:
            damaged.append(str(error))
    if damaged:
        what = f"every checkpoint is damaged ({'; '.join(damaged)})"
        raise CheckpointError(what, fix="bring them back from a backup, or start the run afresh", path=directory)
    raise CheckpointError("there is no checkpoint", fix="start the run afresh", path=directory)


def _load(path: Path, above: int | None) -> Checkpoint:
    try:
        arrays, header = read_arrays(path, above=above)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path.name} cannot be read: {error}") from None
    text = header.get("facts", "")
    if header.get("digest") != _digest(arrays, text):
        raise CheckpointError(f"{path.name} is damaged: its digest does not match")
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
