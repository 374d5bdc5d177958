"""Norms of a whole update, the same bits on every machine.

A library's dot product changes its order of summation with threads and instruction set. Here squares are added
elementwise into one row of float64, and the row is folded in halves: correctly rounded operations in a fixed order.
"""

from __future__ import annotations

import math

import numpy as np

from eris.local.spec import Vector

__all__ = ["max_norm", "norm"]

_ROW = 1 << 15  # stays in the cache; a power of two, so that it folds to one number


def norm(vector: Vector) -> float:
    """Return the ℓ2 norm (float64 throughout: a float32 square would overflow at 10¹⁹); NaN or inf if a value is.

    >>> round(norm(np.array([3e30, 4e30], np.float32)) / 1e30, 6)
    5.0
    """
    row = np.zeros(_ROW)
    for first in range(0, vector.size, _ROW):
        piece = vector[first : first + _ROW].astype(np.float64)
        piece *= piece
        row[: piece.size] += piece
    while row.size > 1:
        row = row[: row.size // 2] + row[row.size // 2 :]
    return math.sqrt(row[0])


def max_norm(vector: Vector) -> float:
    """Return the largest magnitude, 0 for an empty vector; NaN or inf if a value is."""
    return max(float(vector.max()), -float(vector.min())) if vector.size else 0.0
