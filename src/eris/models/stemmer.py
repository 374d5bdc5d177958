"""Porter's stemmer with the extensions that the usual ROUGE implementation relies on.

M. F. Porter, *An algorithm for suffix stripping* (1980). The extensions treat short words more gently (dies → die),
know a dozen irregular forms, and rewrite a few more endings (-fulli, -logi, -alli twice).

>>> [stem(word) for word in ("relational", "hopping", "skies", "dying", "happy")]
['relat', 'hop', 'sky', 'die', 'happi']
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

__all__ = ["stem"]

Condition = Callable[[str], bool]

_IRREGULAR = {
    "sky": "sky",
    "skies": "sky",
    "dying": "die",
    "lying": "lie",
    "tying": "tie",
    "news": "news",
    "innings": "inning",
    "inning": "inning",
    "outings": "outing",
    "outing": "outing",
    "cannings": "canning",
    "canning": "canning",
    "howe": "howe",
    "proceed": "proceed",
    "exceed": "exceed",
    "succeed": "succeed",
}

_SECOND = {
    "ational": "ate", "tional": "tion", "enci": "ence", "anci": "ance", "izer": "ize", "bli": "ble", "alli": "al",
    "entli": "ent", "eli": "e", "ousli": "ous", "ization": "ize", "ation": "ate", "ator": "ate", "alism": "al",
    "iveness": "ive", "fulness": "ful", "ousness": "ous", "aliti": "al", "iviti": "ive", "biliti": "ble",
    "fulli": "ful",
}  # fmt: skip
_THIRD = {"icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic", "ful": "", "ness": ""}
_FOURTH = (
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate", "iti",
    "ous", "ive", "ize",
)  # fmt: skip


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """Return the stem of a word in lower case."""
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if len(word) <= 2:
        return word
    for step in (_plural, _past, _final_y, _double_suffix, _adjective, _suffix, _final_e, _final_double_l):
        word = step(word)
    return word


def _shape(word: str) -> str:
    """Write a word as consonants (c) and vowels (v); y is a vowel after a consonant."""
    letters = ""
    for letter in word:
        vowel = letter in "aeiou" or (letter == "y" and letters.endswith("c"))
        letters += "v" if vowel else "c"
    return letters


def _measure(word: str) -> int:
    return len(re.findall("v+c+", _shape(word)))


def _has_vowel(word: str) -> bool:
    return "v" in _shape(word)


def _ends_double(word: str) -> bool:
    return len(word) >= 2 and word[-1] == word[-2] and _shape(word)[-1] == "c"


def _ends_short(word: str) -> bool:
    shape = _shape(word)
    return (shape.endswith("cvc") and word[-1] not in "wxy") or shape == "vc"


def _plural(word: str) -> str:
    if word.endswith("ies"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("sses"):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _past(word: str) -> str:
    if word.endswith("ied"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for ending in ("ed", "ing"):
        if word.endswith(ending) and _has_vowel(base := word.removesuffix(ending)):
            return _mended(base)
    return word


def _mended(base: str) -> str:
    """Give back the letter that -ed or -ing took or doubled."""
    if base.endswith(("at", "bl", "iz")):
        return base + "e"
    if _ends_double(base):
        return base if base[-1] in "lsz" else base[:-1]
    return base + "e" if _measure(base) == 1 and _ends_short(base) else base


def _final_y(word: str) -> str:
    base = word[:-1]
    return base + "i" if word.endswith("y") and len(base) > 1 and _shape(base)[-1] == "c" else word


def _double_suffix(word: str) -> str:
    if word.endswith("alli") and _measure(word[:-4]) > 0:
        return _double_suffix(word[:-2])
    if word.endswith("logi"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    return _replaced(word, _SECOND)


def _adjective(word: str) -> str:
    return _replaced(word, _THIRD)


def _replaced(word: str, endings: dict[str, str]) -> str:
    """Replace the longest ending that fits, if what stands before it has a syllable."""
    fitting = [ending for ending in endings if word.endswith(ending)]
    if not fitting:
        return word
    ending = max(fitting, key=len)
    base = word.removesuffix(ending)
    return base + endings[ending] if _measure(base) > 0 else word


def _suffix(word: str) -> str:
    fitting = [ending for ending in _FOURTH if word.endswith(ending)]
    if not fitting:
        return word
    ending = max(fitting, key=len)
    base = word.removesuffix(ending)
    allowed = _measure(base) > 1 and (ending != "ion" or base.endswith(("s", "t")))
    return base if allowed else word


def _final_e(word: str) -> str:
    base = word[:-1]
    if not word.endswith("e"):
        return word
    return base if _measure(base) > 1 or (_measure(base) == 1 and not _ends_short(base)) else word


def _final_double_l(word: str) -> str:
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word
