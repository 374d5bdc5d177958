"""One way to write a frozen dataclass as bytes, so that all peers compute the same digest of it."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from functools import cache
from typing import Any

from blake3 import blake3

__all__ = ["canonical_bytes", "digest_of", "digest_of_bytes", "plain", "sayable", "spelled"]

_SPELLING = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)  # made once: `dumps` makes anew
_AS_THEY_ARE = frozenset({int, float, str, bool, type(None)})


def plain(value: Any) -> Any:
    """Return a value of dicts, lists, strings and numbers that says the same (bytes as hex)."""
    if type(value) in _AS_THEY_ARE:
        return value
    if isinstance(value, tuple | list):
        if _AS_THEY_ARE.issuperset(map(type, value)):  # by far the most: the contributors of many shards
            return list(value)
        return [plain(item) for item in value]
    if names := _fields_of(value.__class__):
        # Most fields are plain: asking here instead of calling ourselves halves the time.
        return {name: item if type(item := getattr(value, name)) in _AS_THEY_ARE else plain(item) for name in names}
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    return value


@cache
def _fields_of(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else ()


def canonical_bytes(value: Any) -> bytes:
    """Return sorted, compact JSON; floats as their shortest exact form, never NaN."""
    return spelled(plain(value))


def spelled(value: Any) -> bytes:
    """Return the canonical bytes of what is plain data already."""
    return _SPELLING.encode(value).encode()


def digest_of(value: Any) -> str:
    """Return the BLAKE3 digest (hex) of the canonical bytes."""
    return digest_of_bytes(canonical_bytes(value))


def digest_of_bytes(data: bytes) -> str:
    """Return the BLAKE3 digest (hex) of bytes that are canonical."""
    return str(blake3(data).hexdigest())


def sayable(value: Any) -> Any:
    """Return plain data with null where JSON has no word, for people and programs; digests never meet such values.

    >>> sayable({"low": float("nan"), "values": (1.0, 2.0)})
    {'low': None, 'values': [1.0, 2.0]}
    """
    if isinstance(value, Mapping):
        return {key: sayable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [sayable(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
