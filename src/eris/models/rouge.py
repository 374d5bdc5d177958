"""ROUGE-1: how many words a summary shares with a reference.

>>> round(rouge1("Police hunted the bikers", "police are hunting a biker"), 3)
0.667
"""

from __future__ import annotations

import re
from collections import Counter

from eris.models.stemmer import stem

__all__ = ["rouge1"]


def rouge1(candidate: str, reference: str) -> float:
    """Return the F1 of stemmed words (letters and digits, lower case; up to three letters stay as they are)."""
    mine, theirs = _words(candidate), _words(reference)
    shared = sum((mine & theirs).values())
    if not shared:
        return 0.0
    precision, recall = shared / sum(mine.values()), shared / sum(theirs.values())
    return 2 * precision * recall / (precision + recall)


def _words(text: str) -> Counter[str]:
    found = re.findall("[a-z0-9]+", text.lower())
    return Counter(stem(word) if len(word) > 3 else word for word in found)
