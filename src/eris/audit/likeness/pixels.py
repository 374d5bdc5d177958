"""Scores that compare pixel with pixel.

>>> black, grey = np.zeros((1, 8, 8)), np.full((1, 8, 8), 0.1)
>>> round(float(mse(black, grey)), 12), round(float(psnr(black, grey)), 9)
(0.01, 20.0)
"""

from __future__ import annotations

import numpy as np

from eris.audit.likeness.pictures import Picture, Scores, require_pictures

__all__ = ["mse", "pattern_distance", "psnr"]


def mse(original: Picture, recovered: Picture) -> Scores:
    """Return the mean squared difference of each pair of pictures."""
    require_pictures(original, recovered)
    difference = original.astype(np.float64) - recovered
    return np.asarray((difference * difference).mean(axis=(-3, -2, -1)))


def psnr(original: Picture, recovered: Picture) -> Scores:
    """Return −10 log₁₀ of the mean squared difference: decibels for values up to one, infinite for equal pictures."""
    with np.errstate(divide="ignore"):
        return np.asarray(-10 * np.log10(mse(original, recovered)))


def pattern_distance(original: Picture, recovered: Picture) -> Scores:
    """Return one less the correlation of each pair of pictures: brightness and contrast do not count.

    A pale recovery is nearer to any pale picture than to its original by squared difference, and still shows it. A flat
    picture shows nothing: its distance is one.
    """
    require_pictures(original, recovered)
    axes = (-3, -2, -1)
    x, y = (part - part.mean(axis=axes, keepdims=True) for part in (original.astype(np.float64), recovered))
    lengths = np.sqrt((x * x).sum(axis=axes) * (y * y).sum(axis=axes))
    products = (x * y).sum(axis=axes)
    return np.asarray(1 - np.where(lengths > 0, products / np.where(lengths > 0, lengths, 1), 0))
