"""Make text from another party safe to show on a terminal or in a log: no control characters."""

from __future__ import annotations

import unicodedata
from typing import Any

__all__ = ["printable", "printable_words"]

_OBEYED = frozenset(
    {"Cc", "Cf", "Cs", "Zl", "Zp"}
)  # control characters, text directions and joiners, surrogates, line breaks


def printable(text: str, *, lines: bool = False) -> str:
    """Return a text with everything that a terminal would obey replaced; with `lines`, line breaks are kept.

    >>> printable("acme" + chr(27) + "[2J" + chr(0x202E) + chr(10) + "error: none")
    'acme�[2J��error: none'
    """
    if text.isascii() and text.isprintable():
        return text
    kept = "\n" if lines else ""
    return "".join("�" if unicodedata.category(c) in _OBEYED and c not in kept else c for c in text)


def printable_words(value: Any) -> Any:
    """Return plain data (dicts, lists, strings, numbers) with every string in it made printable."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable_words(key): printable_words(item) for key, item in value.items()}
    return [printable_words(item) for item in value] if isinstance(value, list | tuple) else value
