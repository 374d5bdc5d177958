"""Texts as token numbers, tokenised when they are taken.

A classified text is cut to `length` tokens. A text with a summary becomes one row for a causal language model: article,
separator, summary, end; only the summary and the end are targets, the rest is marked with −100 and not learned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.data.dataset import Indices, Labels, Texts
from eris.errors import DataError

__all__ = ["IGNORED", "LabelledTokens", "SummaryTokens"]

IGNORED = -100
Tokens = NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class LabelledTokens:
    """Texts of a split as rows of `length` tokens, with their labels."""

    split: Texts
    tokenizer: Any
    length: int = 128

    def __len__(self) -> int:
        return len(self.split)

    def __repr__(self) -> str:
        return f"LabelledTokens({len(self)} × {self.length})"

    def take(self, indices: Indices) -> tuple[Tokens, Labels]:
        """Return token numbers and labels at these places."""
        if self.split.labels is None:
            raise DataError("texts without labels cannot be classified", fix="use a language model for summaries")
        texts = [self.split.texts[place] for place in indices]
        rows = self.tokenizer(texts, truncation=True, max_length=self.length)["input_ids"] if texts else []
        return _padded(rows, self.length, self.tokenizer.pad_token_id), self.split.labels[indices]


@dataclass(frozen=True, eq=False, repr=False)
class SummaryTokens:
    """Articles and summaries of a split as rows for a causal language model."""

    split: Texts
    tokenizer: Any
    article: int = 800
    summary: int = 128

    def __len__(self) -> int:
        return len(self.split)

    def __repr__(self) -> str:
        return f"SummaryTokens({len(self)} × ({self.article} + {self.summary}))"

    def take(self, indices: Indices) -> tuple[Tokens, Tokens]:
        """Return token numbers, and targets that are −100 outside the summary."""
        if self.split.summaries is None:
            raise DataError("texts without summaries cannot be summarised", fix="use a text classifier for labels")
        inputs, targets = [], []
        for place in indices:
            prompt = [*self._tokens(self.split.texts[place], self.article), int(self.tokenizer.sep_token_id)]
            answer = [*self._tokens(self.split.summaries[place], self.summary), int(self.tokenizer.eos_token_id)]
            inputs.append(prompt + answer)
            targets.append([IGNORED] * len(prompt) + answer)
        width = self.article + self.summary + 2
        return _padded(inputs, width, self.tokenizer.pad_token_id), _padded(targets, width, IGNORED)

    def _tokens(self, text: str, limit: int) -> list[int]:
        numbers: list[int] = self.tokenizer(text, add_special_tokens=False, truncation=True, max_length=limit)[
            "input_ids"
        ]
        return numbers


def _padded(rows: list[list[int]], width: int, filler: int) -> Tokens:
    padded = np.full((len(rows), width), filler, np.int64)
    for number, row in enumerate(rows):
        padded[number, : len(row)] = row
    return padded
