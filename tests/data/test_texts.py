import json

import numpy as np
import pytest

from eris.data.columns import divided
from eris.data.reviews import read_review_folder, read_review_lines, read_review_list
from eris.data.summaries import read_scored_pairs, read_summary_lines, read_xsum_sample
from eris.errors import DataError


def test_reviews_as_their_authors_publish_them(tmp_path):
    for split in ("train", "test"):
        for label, name in enumerate(("neg", "pos")):
            folder = tmp_path / "aclImdb" / split / name
            folder.mkdir(parents=True)
            for number in (0, 2, 10):
                (folder / f"{number}_{1 + 8 * label}.txt").write_text(f"{split} {name} {number} é", encoding="utf-8")
    found = read_review_folder(tmp_path)
    assert found["train"]["texts"][:3] == ["train neg 0 é", "train neg 2 é", "train neg 10 é"]
    assert found["test"]["labels"].tolist() == [0, 0, 0, 1, 1, 1]


def test_reviews_in_one_list_are_put_back_into_the_official_splits(tmp_path):
    order = [("test", 0), ("train", 0), ("test", 1), ("train", 1)]
    rows = [{"t": f"{split} {label} {i}", "s": label} for split, label in order for i in range(12_500)]
    (tmp_path / "reviews.json").write_text(json.dumps(rows))
    found = read_review_list(tmp_path)
    for split in ("train", "test"):
        assert all(text.startswith(split) for text in found[split]["texts"])
        assert np.bincount(found[split]["labels"]).tolist() == [12_500, 12_500]
    (tmp_path / "reviews.json").write_text(json.dumps(rows[:-1]))
    with pytest.raises(DataError, match="49999"):
        read_review_list(tmp_path)


def test_json_lines(tmp_path):
    for split in ("train", "test"):
        rows = [{"text": "good\u2028film", "label": 1, "article": "long", "highlights": "short"}]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n")
    assert read_review_lines(tmp_path)["train"]["texts"] == ["good\u2028film"]
    found = read_summary_lines(tmp_path)
    assert found["test"] == {"texts": ["long"], "summaries": ["short"]}


def test_xsum_sample_is_divided_once_and_for_all(tmp_path):
    (tmp_path / "data" / "XSum").mkdir(parents=True)
    lines = [json.dumps({"id": str(i), "document": f"d{i}", "summary": f"s{i}"}) for i in range(50)]
    (tmp_path / "data" / "XSum" / "test.jsonl").write_text("\n".join(lines))
    found = read_xsum_sample(tmp_path)
    assert (len(found["train"]["texts"]), len(found["test"]["texts"])) == (40, 10)
    assert set(found["train"]["texts"]).isdisjoint(found["test"]["texts"])
    assert found == read_xsum_sample(tmp_path)
    assert all(text[1:] == summary[1:] for text, summary in zip(*found["train"].values(), strict=True))


def test_pairs_of_one_article_stay_in_one_split(tmp_path):
    rows = [{"text": f"article {i % 10}", "summary": f"summary {i}", "scores": []} for i in range(30)]
    (tmp_path / "CNN_DailyMail_555.json").write_text(json.dumps(rows))
    found = read_scored_pairs(tmp_path)
    assert len(set(found["test"]["texts"])) == 2
    assert set(found["train"]["texts"]).isdisjoint(found["test"]["texts"])
    assert len(found["train"]["texts"]) + len(found["test"]["texts"]) == 30


def test_division_keeps_every_row():
    columns = {"labels": np.arange(40), "texts": [str(i) for i in range(40)]}
    found = divided(columns, 0.25, "x")
    assert sorted([*found["train"]["labels"], *found["test"]["labels"]]) == list(range(40))
    assert len(found["test"]["texts"]) == 10
