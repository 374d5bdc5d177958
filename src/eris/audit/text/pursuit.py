"""Recover tokens from scattered entries of a gradient whose rows are sums of few inputs from a known list.

Matrix completion ignores that the row space is spanned by inputs from a known list: every token at every place. Using
the list takes fewer seen entries. The token that explains most of all rows, on their seen entries, is chosen; the rows
are fitted again; and so on until every place has one (simultaneous orthogonal matching pursuit). Finally each place is
chosen once more, with the others fixed.
"""

from __future__ import annotations

import numpy as np

from eris.audit.text.row_space import Mask, Matrix
from eris.audit.text.victim import TextVictim, Tokens

__all__ = ["pursued_tokens"]

_SWEEPS = 3
_RIDGE = 1e-6


def pursued_tokens(victim: TextVictim, values: Matrix, mask: Mask, length: int) -> Tokens:
    """Return one token for each place.

    Args:
        victim: the attacked model.
        values: the gradient of its spanning weights.
        mask: which entries were seen.
        length: the number of tokens.
    """
    seen = mask.any(axis=1)
    values, weights = values[seen], mask[seen].astype(np.float64)
    sizes = np.sqrt((values**2).sum(axis=1) / np.maximum(weights.sum(axis=1), 1))
    values = values / np.where(sizes > 0, sizes, 1.0)[:, None]
    inputs = np.stack([victim.inputs_at(place).numpy().astype(np.float64) for place in range(length)])
    chosen: dict[int, int] = {}
    while len(chosen) < length:
        left = _left(values, weights, inputs, chosen)
        gains = {place: _gain(left, weights, inputs[place]) for place in range(length) if place not in chosen}
        place = max(gains, key=lambda one: gains[one].max())
        chosen[place] = int(gains[place].argmax())
    for _ in range(_SWEEPS):
        before = dict(chosen)
        for place in range(length):
            del chosen[place]
            chosen[place] = int(_gain(_left(values, weights, inputs, chosen), weights, inputs[place]).argmax())
        if chosen == before:
            break
    return np.array([chosen[place] for place in range(length)])


def _gain(left: Matrix, weights: Matrix, inputs: Matrix) -> Matrix:
    """Return how much of all rows each token explains at a place."""
    gain: Matrix = ((left @ inputs.T) ** 2 / np.maximum(weights @ (inputs**2).T, 1e-12)).sum(axis=0)
    return gain


def _left(values: Matrix, weights: Matrix, inputs: Matrix, chosen: dict[int, int]) -> Matrix:
    """Return what the chosen tokens leave unexplained of every row, on its seen entries."""
    if not chosen:
        return values
    basis = np.stack([inputs[place, token] for place, token in chosen.items()])
    gram = np.einsum("rc,jc,sc->jrs", basis, weights, basis, optimize=True)
    ridge = _RIDGE * np.trace(gram, axis1=1, axis2=2)[:, None, None] + 1e-12
    fitted = np.linalg.solve(gram + ridge * np.eye(len(basis)), (values @ basis.T)[..., None])[..., 0]
    left: Matrix = values - weights * (fitted @ basis)
    return left
