"""Results as plain data, for people and programs.

>>> sayable({"low": float("nan"), "values": (1.0, 2.0)})
{'low': None, 'values': [1.0, 2.0]}
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eris.checkpoint import write_atomically

__all__ = ["sayable", "write_json"]


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write plain data for people and programs; what JSON has no word for becomes null."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (json.dumps(sayable(data), indent=2, allow_nan=False) + "\n").encode())


def sayable(value: Any) -> Any:
    """Return the same with null where JSON has no word."""
    if isinstance(value, Mapping):
        return {key: sayable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [sayable(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
