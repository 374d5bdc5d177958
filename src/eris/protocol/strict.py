"""Documents from outside become messages here, or are refused: every field there, of its type, and nothing else.

What a hostile peer writes must fail where it is read. A list where a digest belongs would otherwise fail much later, in
the thread that keeps the clock for everybody.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from eris.errors import Reason, Refused

__all__ = ["a_list", "a_mapping", "a_number", "a_real", "a_reason", "a_text", "a_truth", "read"]

T = TypeVar("T")
_LARGEST = 2**32 - 1  # what a frame's header can say of rounds, shards and peers
_LONGEST = 4096


def read(what: str, data: object, fields: Mapping[str, Callable[[Any], Any]]) -> dict[str, Any]:
    """Return the fields of a document, each read by its own reader.

    >>> read("receipt", {"shard": 3}, {"shard": a_number})
    {'shard': 3}
    >>> read("receipt", {"shard": "3"}, {"shard": a_number})
    Traceback (most recent call last):
    eris.errors.Refused: refused (malformed): not a receipt: shard
    """
    if not isinstance(data, Mapping) or data.keys() != fields.keys():
        raise Refused(Reason.MALFORMED, f"not a {what}: other fields")
    values = {}
    for name, reader in fields.items():
        try:
            values[name] = reader(data[name])
        except (TypeError, ValueError):
            raise Refused(Reason.MALFORMED, f"not a {what}: {name}") from None
    return values


def a_text(value: object) -> str:
    """Read a string of a sensible length."""
    if not isinstance(value, str) or len(value) > _LONGEST:
        raise ValueError(value)
    return value


def a_number(value: object) -> int:
    """Read a whole number that a header could carry."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _LARGEST:
        raise ValueError(value)
    return value


def a_real(value: object) -> float:
    """Read a finite number."""
    if not isinstance(value, float) or not math.isfinite(value):
        raise ValueError(value)
    return value


def a_truth(value: object) -> bool:
    """Read true or false."""
    if not isinstance(value, bool):
        raise ValueError(value)
    return value


def a_reason(value: object) -> Reason:
    """Read one of the reasons."""
    return Reason(a_text(value))


def a_list(item: Callable[[object], T]) -> Callable[[object], tuple[T, ...]]:
    """Return a reader of lists."""

    def reader(value: object) -> tuple[T, ...]:
        if not isinstance(value, list | tuple):
            raise ValueError(value)
        return tuple(item(one) for one in value)

    return reader


def a_mapping(item: Callable[[object], T]) -> Callable[[object], dict[int, T]]:
    """Return a reader of mappings from numbers, spelled as JSON keys are."""

    def reader(value: object) -> dict[int, T]:
        if not isinstance(value, Mapping):
            raise ValueError(value)
        return {_key(key): item(one) for key, one in value.items()}

    return reader


def _key(value: object) -> int:
    number = a_number(int(a_text(value)))
    if str(number) != value:
        raise ValueError(value)
    return number
