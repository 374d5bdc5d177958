"""CIFAR-10 as its authors publish it (Python batches, binary batches) and as sheets of pictures.

The Python batches are pickles. They are read by an unpickler that can build numpy arrays of bytes and nothing else.
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eris.data.columns import Columns, Found, find
from eris.data.pickled_arrays import read_pickled_arrays
from eris.data.pictures import decoded
from eris.errors import DataError

__all__ = ["read_cifar_batches", "read_cifar_binaries", "read_cifar_sheets"]

_TRAIN = [f"data_batch_{number}" for number in range(1, 6)]
_BATCHES = {"train": _TRAIN, "test": ["test_batch"]}
_ROW = 1 + 3 * 32 * 32


def read_cifar_batches(folder: Path) -> Found:
    """Read `data_batch_1` … `data_batch_5` and `test_batch`, the version for Python."""
    return {split: _joined([_batch(find(folder, name)) for name in names]) for split, names in _BATCHES.items()}


def read_cifar_binaries(folder: Path) -> Found:
    """Read `data_batch_1.bin` … `data_batch_5.bin` and `test_batch.bin`."""
    return {
        split: _joined([_binary(find(folder, f"{name}.bin")) for name in names]) for split, names in _BATCHES.items()
    }


def read_cifar_sheets(folder: Path) -> Found:
    """Read lossless sheets, one picture in each row of 1,024 pixels, with labels beside them."""
    found: Found = {}
    for split, names in _BATCHES.items():
        sheets = [decoded(find(folder, f"{name}.png").read_bytes(), "RGB") for name in names]
        pixels = np.concatenate([sheet.reshape(-1, 32, 32, 3) for sheet in sheets])
        labels = json.loads(find(folder, f"{split}_labels.json", f"{split}_lables.json").read_bytes())
        found[split] = {"pixels": pixels, "labels": np.array(labels, np.int64)}
    return found


def _joined(parts: list[tuple[NDArray[np.uint8], NDArray[np.int64]]]) -> Columns:
    planes = np.concatenate([pixels for pixels, _ in parts])
    pixels = np.ascontiguousarray(planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
    return {"pixels": pixels, "labels": np.concatenate([labels for _, labels in parts])}


def _binary(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    content = np.fromfile(path, np.uint8)
    if content.size % _ROW:
        raise DataError(f"{path.name} is damaged: {content.size} bytes are not a multiple of {_ROW}")
    rows = content.reshape(-1, _ROW)
    return rows[:, 1:], rows[:, 0].astype(np.int64)


def _batch(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    try:
        batch = read_pickled_arrays(path.read_bytes(), "u1", encoding="bytes")
        pixels, labels = np.asarray(batch[b"data"], np.uint8), np.asarray(batch[b"labels"], np.int64)
    except (pickle.UnpicklingError, EOFError, KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise DataError(f"{path.name} is damaged or not a CIFAR batch: {error}") from error
    if pixels.shape != (len(labels), _ROW - 1):
        raise DataError(f"{path.name} is damaged: pictures {pixels.shape}, {len(labels)} labels")
    return pixels, labels
