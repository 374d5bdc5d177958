"""Recover the inputs of a whole batch from the gradient of a linear layer followed by ReLU (the idea of SPEAR).

The gradient of the weight is G = Σᵢ δᵢ xᵢᵀ, of rank b for a batch of b inputs, and δᵢ is zero where the ReLU was off
for input i: about half of the time. In any factorisation G = L R the true columns δ lie in the column space of L, and
are the sparse vectors in it. b − 1 rows of L that all happen to be off for input i have δᵢ as their common null vector;
so rows are drawn until every input has been found. The bias's gradient Σᵢ δᵢ gives the lengths.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from eris.seeds import Seed

__all__ = ["recovered_inputs"]

Matrix = NDArray[np.float64]

_ZERO = 1e-5  # of the largest entry
_DRAWS = 1 << 10  # null vectors computed at a time
_SPARE = 3  # zeros required beyond the b − 1 that are there by construction
_OFF = 0.35  # the least share of units that are off for one input; for two inputs at once it is about a quarter


def recovered_inputs(weight: Matrix, bias: Matrix, batch: int, seed: Seed, *, draws: int = 200_000) -> Matrix | None:
    """Return the inputs (batch × columns) of a layer from its gradients, in no order; None if not all were found.

    Args:
        weight: the gradient of the weight; rows of units that were not seen may be left out of it and of the bias.
        bias: the gradient of the bias.
        batch: the number of inputs, which is the rank of the weight's gradient.
        seed: of the draws.
        draws: the most null vectors to try.
    """
    left, sizes, _ = np.linalg.svd(weight, full_matrices=False)
    if len(sizes) < batch or batch > len(weight) or sizes[batch - 1] <= 1e-9 * sizes[0]:
        return None
    factor = left[:, :batch] * sizes[:batch]
    directions = _sparse_directions(factor, batch, seed, draws)
    if directions is None:
        return None
    deltas = factor @ directions.T  # units × batch, up to scale
    lengths, *_ = np.linalg.lstsq(deltas, bias, rcond=None)
    found: Matrix = np.linalg.pinv(deltas * lengths) @ weight
    return found


def _sparse_directions(factor: Matrix, batch: int, seed: Seed, draws: int) -> Matrix | None:
    """Return as many independent directions as inputs, those that make the factor's columns sparsest."""
    if batch == 1:
        return np.ones((1, 1))
    alive = factor[np.abs(factor).max(axis=1) > _ZERO * np.abs(factor).max()]
    found: list[tuple[int, Matrix]] = []
    for start in range(0, draws, _DRAWS):
        for direction, zeros in _null_vectors(alive, batch, seed.child("rows", start), dead=len(factor) - len(alive)):
            if not any(abs(direction @ known) > 1 - 1e-6 for _, known in found):
                found.append((zeros, direction))
        chosen = _independent(sorted(found, key=lambda pair: -pair[0]), batch)
        if chosen is not None:
            return chosen
    return None


def _null_vectors(rows: Matrix, batch: int, seed: Seed, *, dead: int) -> list[tuple[Matrix, int]]:
    """Draw b − 1 rows many times; return those null vectors that vanish on more rows than the drawn ones.

    `dead` units were off for all inputs; they have no row here, but count among the units that are off for an input.
    """
    if len(rows) < batch:
        return []
    order = np.argsort(seed.generator().random((_DRAWS, len(rows))), axis=1)[:, : batch - 1]
    picked = rows[order]
    vectors = np.linalg.svd(picked)[2][:, -1]
    products = np.abs(vectors @ rows.T)
    zeros = (products < _ZERO * np.abs(rows).max()).sum(axis=1) + dead
    least = max(batch - 1 + _SPARE, int(_OFF * (len(rows) + dead)))
    return [(vectors[place], int(zeros[place])) for place in np.flatnonzero(zeros >= least)]


def _independent(ranked: list[tuple[int, Matrix]], batch: int) -> Matrix | None:
    chosen: list[Matrix] = []
    for _, direction in ranked:
        if np.linalg.matrix_rank(np.array([*chosen, direction]), tol=1e-4) > len(chosen):
            chosen.append(direction)
        if len(chosen) == batch:
            return np.array(chosen)
    return None
