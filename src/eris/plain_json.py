"""Prepare data for JSON that people and other programs read: what JSON cannot express becomes null."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

__all__ = ["sayable"]


def sayable(value: Any) -> Any:
    """Return plain data with None where JSON has no equivalent (NaN, infinity); no digest covers such values.

    >>> sayable({"low": float("nan"), "values": (1.0, 2.0)})
    {'low': None, 'values': [1.0, 2.0]}
    """
    if isinstance(value, Mapping):
        return {key: sayable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [sayable(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
