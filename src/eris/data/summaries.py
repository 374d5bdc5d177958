"""News with summaries: JSON lines of the whole sets, and the samples that packages carry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from eris.data.columns import Columns, Found, divided, find, json_lines

__all__ = ["read_scored_pairs", "read_summary_lines", "read_xsum_sample"]

_KEYS = {"texts": ("document", "article", "text"), "summaries": ("summary", "highlights")}


def read_summary_lines(folder: Path) -> Found:
    """Read `train.jsonl` and `test.jsonl` with document/article/text and summary/highlights."""
    return {split: _columns(json_lines(find(folder, f"{split}.jsonl"))) for split in ("train", "test")}


def read_xsum_sample(folder: Path) -> Found:
    """Read 1,000 articles of the official test split, four fifths of which become the train split."""
    return divided(_columns(json_lines(find(folder, "XSum/test.jsonl"))), 0.2, "xsum")


def read_scored_pairs(folder: Path) -> Found:
    """Read 555 pairs on 300 articles; all pairs of an article are in the same split, and `ids` number the articles."""
    columns = _columns(json.loads(find(folder, "CNN_DailyMail_555.json").read_bytes()))
    _, articles = np.unique(np.array(columns["texts"]), return_inverse=True)
    numbers = articles.astype(np.int64)
    return divided({**columns, "ids": numbers}, 0.2, "cnn_dailymail", groups=numbers)


def _columns(rows: list[dict[str, Any]]) -> Columns:
    return {
        column: [str(next(row[key] for key in keys if key in row)) for row in rows] for column, keys in _KEYS.items()
    }
