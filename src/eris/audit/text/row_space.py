"""The space that a linear layer's inputs span, from its gradient or from some entries of it.

The gradient of a weight is Σᵢ δᵢ zᵢᵀ over all tokens i: every row of it lies in the span of the inputs zᵢ. As many
whole rows as there are tokens reveal that span. Where only scattered entries are seen, the rank is still the number of
tokens, and alternating least squares completes the matrix: it takes about twice as many entries as degrees of freedom,
r (rows + columns − r).

>>> generator = np.random.default_rng(0)
>>> whole = generator.standard_normal((40, 3)) @ generator.standard_normal((3, 30))
>>> mask = generator.random(whole.shape) < 0.4
>>> basis = row_space(np.where(mask, whole, 0), mask, rank=3)
>>> bool(np.abs(whole - whole @ basis.T @ basis).max() < 1e-6)
True
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Mask", "Matrix", "completed_rows", "degrees_of_freedom", "row_space"]

Matrix = NDArray[np.float64]
Mask = NDArray[np.bool_]

_STEPS = 300
_CONVERGED = 1e-9


def degrees_of_freedom(rows: int, columns: int, rank: int) -> int:
    """Return the number of degrees of freedom of a matrix of that rank."""
    return rank * (rows + columns - rank)


def row_space(values: Matrix, mask: Mask, rank: int) -> Matrix | None:
    """Return an orthonormal basis of the row space (rank × columns), or None where too little is seen for it.

    Whole rows are used directly; where there are too few, scattered entries are completed.
    """
    whole = mask.all(axis=1)
    if whole.sum() >= rank:
        return _leading(values[whole], rank)
    seen = mask.any(axis=1)
    if not seen.any() or mask.sum() < degrees_of_freedom(int(seen.sum()), mask.shape[1], rank):
        return None
    return _leading(completed_rows(values[seen], mask[seen], rank), rank)


def completed_rows(values: Matrix, mask: Mask, rank: int, *, steps: int = _STEPS) -> Matrix:
    """Return the matrix of that rank nearest to the seen entries, by alternating least squares."""
    sizes = np.sqrt((np.where(mask, values, 0) ** 2).sum(axis=1) / np.maximum(mask.sum(axis=1), 1))
    scale = np.where(sizes > 0, sizes, 1.0)[:, None]  # normalise rows: their lengths say nothing about the space
    known = np.where(mask, values / scale, 0.0)
    right = _leading(known / np.maximum(mask.mean(), 1e-9), rank)
    weights, ridge, before = mask.astype(np.float64), 1e-2, np.inf
    for _ in range(steps):
        left = _solved(known, weights, right, ridge)
        right = _solved(known.T, weights.T, left.T, ridge).T
        ridge = max(0.7 * ridge, 1e-10)
        missed = float((weights * (left @ right - known) ** 2).sum() / weights.sum())
        if missed < _CONVERGED**2 or (abs(before - missed) < 1e-6 * missed and ridge <= 1e-10):
            break
        before = missed
    completed: Matrix = scale * (left @ right)
    return completed


def _solved(known: Matrix, weights: Matrix, basis: Matrix, ridge: float) -> Matrix:
    """Return every row's coefficients on the basis, fitted to its weighted entries."""
    gram = np.einsum("rc,jc,sc->jrs", basis, weights, basis, optimize=True) + ridge * np.eye(len(basis))
    solved: Matrix = np.linalg.solve(gram, (known @ basis.T)[..., None])[..., 0]
    return solved


def _leading(matrix: Matrix, rank: int) -> Matrix:
    basis: Matrix = np.linalg.svd(matrix, full_matrices=False)[2][:rank]
    return basis
