"""Write an audit's results as JSON files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eris.atomic_file import write_atomically
from eris.plain_json import sayable

__all__ = ["write_json"]


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write plain data as indented JSON, atomically; values that JSON cannot express, such as NaN, become null."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (json.dumps(sayable(data), indent=2, allow_nan=False) + "\n").encode())
