"""From scores to guesses: the highest third is called in, the lowest third out, the rest is left open.

>>> [guess_counts(m) for m in (4, 8, 16, 32, 64, 128)]
[(2, 1), (3, 2), (6, 5), (11, 10), (22, 21), (43, 42)]
>>> guess(np.array([0.1, 3.0, -2.0, 0.5]), keys=np.arange(4.0)).tolist()
[0, 1, -1, 1]
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Guesses", "Scores", "guess", "guess_counts"]

Scores = NDArray[np.float64]
Guesses = NDArray[np.int8]


def guess_counts(canaries: int) -> tuple[int, int]:
    """Return how many are called in and how many out (the paper's rule)."""
    return min(canaries, int(canaries / 3 + 1)), max(0, canaries - int(2 * canaries / 3 + 1))


def guess(scores: Scores, keys: NDArray[Any]) -> Guesses:
    """Guess along the last axis: 1 in, −1 out, 0 open.

    Equal scores are ordered by random `keys`, never by position: included canaries must not be favoured by it. Where a
    score is missing (NaN, the member was away) nothing is guessed.
    """
    count = scores.shape[-1]
    called_in, called_out = guess_counts(count)
    order = np.lexsort((np.broadcast_to(keys, scores.shape), -scores), axis=-1)
    ranked = np.zeros(scores.shape, np.int8)
    ranked[..., :called_in], ranked[..., count - called_out :] = 1, -1
    guesses = np.empty(scores.shape, np.int8)
    np.put_along_axis(guesses, order, ranked, axis=-1)
    guesses[np.isnan(scores).any(axis=-1)] = 0
    return guesses
