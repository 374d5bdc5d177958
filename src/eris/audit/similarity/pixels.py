"""Scores that compare two pictures pixel by pixel, or window by window.

A picture is an array of values in [0, 1], channels × height × width.

>>> black, grey = np.zeros((1, 8, 8)), np.full((1, 8, 8), 0.1)
>>> round(float(mse(black, grey)), 12), round(float(psnr(black, grey)), 9)
(0.01, 20.0)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from eris.errors import InputError

__all__ = ["Picture", "Scores", "mse", "pattern_distance", "psnr", "require_pictures", "ssim"]

Picture = NDArray[np.floating[Any]]
Scores = NDArray[np.float64]

_SIDE, _DEVIATION = 11, 1.5  # of the Gaussian window of `ssim`
_C1, _C2 = 0.01**2, 0.03**2


def require_pictures(*pictures: Picture) -> None:
    """Refuse pictures that a score would misjudge: with unequal shapes, as bytes, out of range, or not finite."""
    shapes = {picture.shape for picture in pictures}
    if len(shapes) != 1:
        raise InputError(
            f"the pictures have different shapes, {sorted(shapes)}", fix="compare pictures of the same shape"
        )
    for picture in pictures:
        if picture.ndim < 3 or picture.shape[-3] not in (1, 3) or not np.issubdtype(picture.dtype, np.floating):
            raise InputError(f"a picture is {picture.dtype}{picture.shape}", fix="use floats, (… ×) 1 or 3 × H × W")
        if picture.size and not (np.isfinite(picture).all() and picture.min() >= 0 and picture.max() <= 1):
            raise InputError("a picture has values outside of [0, 1]", fix="undo its normalisation and clip it")


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
    """Return one minus the correlation of each pair of pictures, so that brightness and contrast do not count.

    By squared difference a pale recovery is nearer to any pale picture than to its original, although it still shows
    it. A flat picture shows nothing: its distance is one.
    """
    require_pictures(original, recovered)
    axes = (-3, -2, -1)
    x, y = (part - part.mean(axis=axes, keepdims=True) for part in (original.astype(np.float64), recovered))
    lengths = np.sqrt((x * x).sum(axis=axes) * (y * y).sum(axis=axes))
    products = (x * y).sum(axis=axes)
    return np.asarray(1 - np.where(lengths > 0, products / np.where(lengths > 0, lengths, 1), 0))


def ssim(original: Picture, recovered: Picture) -> Scores:
    """Return the mean structural similarity of each pair of pictures, at most 1.

    It compares means, standard deviations and correlation in windows, with the usual constants: a Gaussian window of
    11 × 11 with a deviation of 1.5, K₁ = 0.01, K₂ = 0.03, values up to one. The result is the mean over all places
    where the window fits, and over channels.

    >>> picture = np.random.default_rng(0).random((1, 16, 16))
    >>> round(float(ssim(picture, picture)), 12)
    1.0
    """
    require_pictures(original, recovered)
    if min(original.shape[-2:]) < _SIDE:
        raise InputError(
            f"the pictures have {original.shape[-2:]} pixels", fix=f"use pictures of at least {_SIDE} × {_SIDE}"
        )
    x, y = original.astype(np.float64), recovered.astype(np.float64)
    mean_x, mean_y = _blurred(x), _blurred(y)
    variance_x, variance_y = _blurred(x * x) - mean_x**2, _blurred(y * y) - mean_y**2
    covariance = _blurred(x * y) - mean_x * mean_y
    level = (2 * mean_x * mean_y + _C1) / (mean_x**2 + mean_y**2 + _C1)
    structure = (2 * covariance + _C2) / (variance_x + variance_y + _C2)
    return np.asarray((level * structure).mean(axis=(-3, -2, -1)))


def _blurred(values: Scores) -> Scores:
    """Average over the window, where it fits: along rows, then along columns."""
    offsets = np.arange(_SIDE) - _SIDE // 2
    weights = np.exp(-(offsets**2) / (2 * _DEVIATION**2))
    weights /= weights.sum()
    rows = sliding_window_view(values, _SIDE, axis=-1) @ weights
    return np.asarray(sliding_window_view(rows, _SIDE, axis=-2) @ weights)
