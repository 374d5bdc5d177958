"""Mean, deviation and 95 % interval of the results of several trainings.

>>> spread([0.9, 0.94, 0.98])["mean"], round(spread([0.9, 0.94, 0.98])["reach"], 3)
(0.94, 0.099)
>>> spread([0.9, None])["mean"] is None
True
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

__all__ = ["reach_of", "spread", "t_quantile"]


def spread(values: Sequence[float | None]) -> dict[str, Any]:
    """Return mean, deviation and reach; None where a training has no number, or a single one no deviation."""
    known = [float(value) for value in values if value is not None]
    if not known or len(known) < len(values):
        return {"mean": None, "std": None, "reach": None, "values": list(values)}
    std = statistics.stdev(known) if len(known) > 1 else None
    return {"mean": statistics.fmean(known), "std": std, "reach": reach_of(known), "values": known}


def reach_of(values: Sequence[float]) -> float | None:
    """Return half of the 95 % t-interval of a mean; None of a single value."""
    if len(values) < 2:
        return None
    return t_quantile(0.975, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))


def t_quantile(probability: float, freedom: int) -> float:
    """Return Student's t at a probability above one half.

    >>> [round(t_quantile(0.975, freedom), 3) for freedom in (1, 4, 7, 30)]
    [12.706, 2.776, 2.365, 2.042]
    """
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        if _within(middle, freedom) > 2 * probability - 1:
            high = middle
        else:
            low = middle
    return math.tan((low + high) / 2) * math.sqrt(freedom)


def _within(angle: float, freedom: int) -> float:
    """Return P[|t| ≤ √ν tan(angle)], a finite sum for whole ν."""
    term = 1.0 if freedom % 2 == 0 else math.cos(angle)
    total = term if freedom > 1 else 0.0
    for power in range(2 + freedom % 2, freedom - 1, 2):
        term *= math.cos(angle) ** 2 * (power - 1) / power
        total += term
    total *= math.sin(angle)
    return total if freedom % 2 == 0 else 2 / math.pi * (angle + total)
