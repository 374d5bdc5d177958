"""Parquet files as the Hugging Face hub holds them; needs pyarrow."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from eris.data.columns import Columns, Found, find_all
from eris.data.pictures import decoded
from eris.errors import DataError, MissingExtra

__all__ = ["read_parquet"]

_TEXTS = ("text", "document", "article")
_SUMMARIES = ("summary", "highlights")
_PICTURES = ("image", "img")


def read_parquet(folder: Path) -> Found:
    """Read the train and test splits, by folder (train/0000.parquet) or by name (train-00000-of-00001.parquet)."""
    files = find_all(folder, "*.parquet")
    return {split: _columns(_rows([path for path in files if _split(path) == split])) for split in ("train", "test")}


def _split(path: Path) -> str:
    return path.parent.name if path.parent.name in ("train", "test") else path.stem.split("-")[0]


def _rows(files: list[Path]) -> dict[str, list[Any]]:
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError as error:
        raise MissingExtra("pyarrow", "hub", "reading parquet files") from error
    if not files:
        raise DataError("the train or the test split has no parquet file")
    columns: dict[str, list[Any]] = {}
    for path in files:
        for name, values in parquet.read_table(path).to_pydict().items():
            columns.setdefault(name, []).extend(values)
    return columns


def _columns(rows: dict[str, list[Any]]) -> Columns:
    columns: Columns = {}
    for name, values in rows.items():
        if name == "label":
            columns["labels"] = np.array(values, np.int64)
        elif name in _TEXTS:
            columns["texts"] = [str(value) for value in values]
        elif name in _SUMMARIES:
            columns["summaries"] = [str(value) for value in values]
        elif name in _PICTURES:
            columns["pixels"] = np.stack([_picture(value["bytes"]) for value in values])
    return columns


def _picture(content: bytes) -> Any:
    grey = content[:8] == b"\x89PNG\r\n\x1a\n" and content[25] == 0  # the colour type in a PNG's header
    return decoded(content, "L" if grey else "RGB")
