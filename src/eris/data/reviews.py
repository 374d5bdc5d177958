"""Movie reviews (IMDB): the authors' folder of files, one JSON list, or JSON lines."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from eris.data.columns import Columns, Found, find, json_lines
from eris.errors import DataError

__all__ = ["read_review_folder", "read_review_lines", "read_review_list"]

_BLOCK = 12_500


def read_review_folder(folder: Path) -> Found:
    """Read `aclImdb`: {train,test}/{neg,pos}/ID_RATING.txt, negative reviews first, in order of their ids."""
    roots = [path.parent.parent for path in sorted(folder.rglob("neg")) if path.parent.name == "train"]
    if not roots:
        raise DataError("no train/neg folder")
    return {split: _labelled(roots[0] / split) for split in ("train", "test")}


def read_review_list(folder: Path) -> Found:
    """Read `reviews.json`, a list of {t: text, s: 0 or 1} in blocks test/neg, train/neg, test/pos, train/pos."""
    rows = json.loads(find(folder, "reviews.json").read_bytes())
    blocks = [rows[start : start + _BLOCK] for start in range(0, len(rows), _BLOCK)]
    if [len(block) for block in blocks] != [_BLOCK] * 4:
        raise DataError(f"reviews.json has {len(rows)} reviews instead of {4 * _BLOCK}")
    return {"train": _columns(blocks[1] + blocks[3]), "test": _columns(blocks[0] + blocks[2])}


def read_review_lines(folder: Path) -> Found:
    """Read `train.jsonl` and `test.jsonl` with the keys text and label."""
    found: Found = {}
    for split in ("train", "test"):
        rows = json_lines(find(folder, f"{split}.jsonl"))
        found[split] = _columns([{"t": row["text"], "s": row["label"]} for row in rows])
    return found


def _columns(rows: list[dict[str, str]]) -> Columns:
    return {"texts": [str(row["t"]) for row in rows], "labels": np.array([int(row["s"]) for row in rows], np.int64)}


def _labelled(folder: Path) -> Columns:
    texts: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(("neg", "pos")):
        files = sorted((folder / name).glob("*.txt"), key=lambda path: int(path.stem.split("_")[0]))
        texts += [path.read_text(encoding="utf-8") for path in files]
        labels += [label] * len(files)
    return {"texts": texts, "labels": np.array(labels, np.int64)}
