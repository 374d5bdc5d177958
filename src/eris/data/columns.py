"""What a reader finds in a folder: for each split its columns, as they were published.

Pictures have ``pixels`` and ``labels``; texts have ``texts`` with ``labels`` or ``summaries``. ``ids`` may come along.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from eris.errors import DataError
from eris.seeds import public_root

__all__ = [
    "Column",
    "Columns",
    "Found",
    "Reader",
    "content_digest",
    "divided",
    "find",
    "find_all",
    "json_lines",
    "sha256_of",
]

Column = NDArray[Any] | list[str]
Columns = dict[str, Column]
Found = dict[str, Columns]
Reader = Callable[[Path], Found]
"""Reads one published layout below a folder; raises `DataError` if it is not there."""


def find(folder: Path, *names: str) -> Path:
    """Return the one file below `folder` with one of these names (patterns allowed)."""
    for name in names:
        if matches := sorted(path for path in folder.rglob(name) if path.is_file()):
            return matches[0]
    raise DataError(f"there is no {' or '.join(names)}")


def find_all(folder: Path, pattern: str) -> list[Path]:
    """Return the files below `folder` that match, in order of their names."""
    if matches := sorted(path for path in folder.rglob(pattern) if path.is_file()):
        return matches
    raise DataError(f"there is no {pattern}")


def json_lines(path: Path) -> list[dict[str, Any]]:
    """Read JSON lines; only a newline ends a line (texts hold other separators)."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]


def divided(columns: Columns, test_share: float, name: str, *, groups: NDArray[np.int64] | None = None) -> Found:
    """Divide a set that has no official test split, by a fixed public seed; a group always stays together.

    Args:
        columns: of the whole set.
        test_share: how much of it becomes the test split.
        name: of the set; the seed depends on it.
        groups: each sample's group; by default, every sample is its own.
    """
    count = len(next(iter(columns.values())))
    keys = np.arange(count) if groups is None else groups
    names = np.unique(keys)
    chosen = names[public_root(0).child("test-split", name).subset(len(names), round(test_share * len(names)))]
    test = np.isin(keys, chosen)
    return {"train": _rows(columns, np.flatnonzero(~test)), "test": _rows(columns, np.flatnonzero(test))}


def content_digest(found: Found) -> str:
    """Return the blake3 of all columns: equal for two sources that give the same samples in the same order."""
    digest = blake3()
    for split in sorted(found):
        for name in sorted(found[split]):
            column = found[split][name]
            digest.update(f"{split}/{name}/{len(column)}".encode())
            digest.update(_bytes(column))
    return digest.hexdigest()


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _rows(columns: Columns, places: NDArray[np.int64]) -> Columns:
    return {
        name: column[places] if isinstance(column, np.ndarray) else [column[place] for place in places]
        for name, column in columns.items()
    }


def _bytes(column: Column) -> bytes:
    if isinstance(column, np.ndarray):
        little = column.dtype.newbyteorder("<")
        return np.ascontiguousarray(column, little).tobytes()
    return json.dumps(column, ensure_ascii=True, separators=(",", ":")).encode()
