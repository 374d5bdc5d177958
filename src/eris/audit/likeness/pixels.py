"""Scores that compare pixel with pixel.

>>> black, grey = np.zeros((1, 8, 8)), np.full((1, 8, 8), 0.1)
>>> round(float(mse(black, grey)), 12), round(float(psnr(black, grey)), 9)
(0.01, 20.0)
"""

from __future__ import annotations

import numpy as np

from eris.audit.likeness.pictures import Picture, Scores, require_pictures

__all__ = ["mse", "psnr"]


def mse(original: Picture, recovered: Picture) -> Scores:
    """Return the mean squared difference of each pair of pictures."""
    require_pictures(original, recovered)
    difference = original.astype(np.float64) - recovered
    return np.asarray((difference * difference).mean(axis=(-3, -2, -1)))


def psnr(original: Picture, recovered: Picture) -> Scores:
    """Return −10 log₁₀ of the mean squared difference: decibels for values up to one, infinite for equal pictures."""
    with np.errstate(divide="ignore"):
        return np.asarray(-10 * np.log10(mse(original, recovered)))
