"""Say what a setting may be, in the words of a configuration file, after a value was refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

__all__ = ["DEVICE", "STOP", "allowed_by", "allowed_values"]

# The two settings that are neither a number nor one of a few names: the pattern that checks each, and its description.
DEVICE = r"^(auto|cpu|mps|cuda(:[0-9]+)?)$"
STOP = r"^(rounds|fedavg-best|patience:[1-9][0-9]{0,8})$"
_PATTERNS = {
    DEVICE: "auto, cpu, cuda, cuda:1 (or another number) or mps",
    STOP: "rounds, patience:N (a whole number) or fedavg-best",
}

_KINDS = {
    "dict_type": "a table",
    "model_type": "a table",
    "dataclass_type": "a table",
    "tuple_type": "a list",
    "list_type": "a list",
    "string_type": "a string",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
}

_BOUNDS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "greater_than": lambda bound: f"a number greater than {bound['gt']:g}",
    "greater_than_equal": lambda bound: f"a number greater than or equal to {bound['ge']:g}",
    "less_than": lambda bound: f"a number less than {bound['lt']:g}",
    "less_than_equal": lambda bound: f"a number less than or equal to {bound['le']:g}",
    "literal_error": lambda bound: str(bound["expected"]),
    "too_short": lambda bound: f"a list with at least {_items(bound['min_length'])}",
    "too_long": lambda bound: f"a list with at most {_items(bound['max_length'])}",
    "string_too_short": lambda bound: f"a string with at least {_items(bound['min_length'], 'character')}",
    "string_too_long": lambda bound: f"a string with at most {_items(bound['max_length'], 'character')}",
    "string_pattern_mismatch": lambda bound: _PATTERNS.get(bound["pattern"], f"a match of {bound['pattern']}"),
    "value_error": lambda bound: str(bound["error"]),
}


def allowed_values(entries: Iterable[ErrorDetails]) -> str:
    """Say what a setting may be, given pydantic's errors about it: one entry for each branch of a union."""
    return "use " + ", or ".join(dict.fromkeys(map(_in_words, entries)))


def allowed_by(error: ValidationError, name: str) -> str:
    """Say what the field `name` of an options table may be."""
    return allowed_values(entry for entry in error.errors(include_url=False) if entry["loc"][:1] == (name,))


def _in_words(entry: ErrorDetails) -> str:
    kind, bound = entry["type"], entry.get("ctx", {})
    if kind in _KINDS:
        return _KINDS[kind]
    return _BOUNDS[kind](bound) if kind in _BOUNDS else entry["msg"]


def _items(count: int, what: str = "item") -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
