"""The IDX files of MNIST and its kin, plain or gzipped."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eris.data.columns import Found, find
from eris.errors import DataError

__all__ = ["parse_idx", "read_idx_folder"]

_NAMES = {"train": "train", "test": "t10k"}


def read_idx_folder(folder: Path) -> Found:
    """Read `train-images-idx3-ubyte` and its three companions, wherever they lie below `folder`."""
    found: Found = {}
    for split, name in _NAMES.items():
        images = find(folder, f"{name}-images?idx3-ubyte", f"{name}-images?idx3-ubyte.gz")
        labels = find(folder, f"{name}-labels?idx1-ubyte", f"{name}-labels?idx1-ubyte.gz")
        found[split] = {"pixels": _read(images, 3), "labels": _read(labels, 1).astype(np.int64)}
    return found


def parse_idx(content: bytes, dimensions: int) -> NDArray[np.uint8]:
    """Read an IDX file of bytes.

    >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]), 1).tolist()
    [7, 9]
    """
    start = 4 + 4 * dimensions
    if len(content) < start or content[:4] != bytes([0, 0, 8, dimensions]):
        raise DataError(f"not an IDX file of bytes in {dimensions} dimensions")
    shape = tuple(int.from_bytes(content[4 + 4 * i : 8 + 4 * i], "big") for i in range(dimensions))
    if len(content) - start != math.prod(shape):
        raise DataError(f"the IDX file announces {shape} bytes but holds {len(content) - start}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _read(path: Path, dimensions: int) -> NDArray[np.uint8]:
    content = path.read_bytes()
    try:
        return parse_idx(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content, dimensions)
    except (DataError, OSError, EOFError) as error:
        raise DataError(f"{path.name} is damaged: {error}") from error
