"""How summaries are scored."""

from __future__ import annotations

import importlib.util

import pytest

pytest.importorskip("rouge_score")

from eris.errors import MissingExtra
from eris.models.language import Summarisation, rouge1


@pytest.mark.parametrize(
    ("candidate", "reference", "expected"),
    [
        ("the cat sat", "the cat sat", 1.0),
        ("the cat", "dogs run", 0.0),
        ("", "something", 0.0),
        ("", "", 0.0),
        ("cats cats cats", "cat", 0.5),
        ("The POLICE, hunting!", "police hunt", 0.8),
    ],
)
def test_by_hand(candidate, reference, expected):
    assert rouge1(candidate, reference) == pytest.approx(expected)


def test_without_the_library_a_sentence_says_which_extra(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr("eris.models.language.find_spec", lambda name: None if name == "rouge_score" else find(name))
    with pytest.raises(MissingExtra, match=r"ROUGE-1 of summaries needs the package rouge-score.*eris-fl\[text\]"):
        Summarisation(None)
    Summarisation(None, generate=0)  # nothing to score, nothing needed
