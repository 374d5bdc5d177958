"""Structural similarity: means, deviations and their correlation in windows that weigh the middle most.

The usual constants: a Gaussian window of 11 × 11 with a deviation of 1.5, K₁ = 0.01, K₂ = 0.03, values up to one; the
mean over all places where the window fits, and over channels.

>>> picture = np.random.default_rng(0).random((1, 16, 16))
>>> round(float(ssim(picture, picture)), 12)
1.0
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from eris.audit.likeness.pictures import Picture, Scores, require_pictures
from eris.errors import InputError

__all__ = ["ssim"]

_SIDE, _DEVIATION = 11, 1.5
_C1, _C2 = 0.01**2, 0.03**2


def ssim(original: Picture, recovered: Picture) -> Scores:
    """Return the mean structural similarity of each pair of pictures, at most 1."""
    require_pictures(original, recovered)
    if min(original.shape[-2:]) < _SIDE:
        raise InputError(f"pictures of {original.shape[-2:]} pixels", fix=f"use pictures of at least {_SIDE} × {_SIDE}")
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
