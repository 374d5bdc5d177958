"""How well scores order the included canaries above the others, for many tosses of the coins at once.

>>> scores, coins = np.array([3.0, 1.0, 2.0, 0.0]), np.array([[True, False, True, False]])
>>> area(scores, coins).tolist(), true_positive_rate(scores, coins, 0.01, keys=np.arange(4.0)).tolist()
([1.0], [1.0])
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.audit.canaries import Coins
from eris.audit.guesses import Scores

__all__ = ["area", "standardised", "true_positive_rate"]


def area(scores: Scores, coins: Coins) -> Scores:
    """Return the area under the ROC curve for each row of coins; equal scores count half, one class alone is ½."""
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    inside = coins.sum(axis=-1)
    outside = coins.shape[-1] - inside
    wins = (coins * ranks).sum(axis=-1) - inside * (inside + 1) / 2
    return np.where(inside * outside > 0, wins / np.maximum(inside * outside, 1), 0.5)


def true_positive_rate(scores: Scores, coins: Coins, false_positive_rate: float, keys: NDArray[Any]) -> Scores:
    """Return the share of included canaries found when at most this share of the others is called in."""
    order = np.lexsort((keys, -scores))
    ranked = coins[..., order]
    inside = ranked.sum(axis=-1)
    allowed = np.floor(false_positive_rate * (ranked.shape[-1] - inside) + 1e-9)
    found = (ranked & (np.cumsum(~ranked, axis=-1) <= allowed[..., None])).sum(axis=-1)
    return np.asarray(found / np.maximum(inside, 1))


def standardised(scores: Scores) -> Scores:
    """Return scores with mean 0 and deviation 1 along the last axis, so that members and rounds can be added.

    Scores that are all the same say nothing and become 0; missing ones stay missing.
    """
    with warnings.catch_warnings(), np.errstate(invalid="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        centred = scores - scores.mean(axis=-1, keepdims=True)
        deviation = np.sqrt((centred * centred).mean(axis=-1, keepdims=True))
    size = np.abs(scores).max(axis=-1, keepdims=True, initial=0.0)
    flat = deviation <= 1e-12 * size
    return np.where(flat, 0.0, centred / np.where(flat, 1.0, deviation))
