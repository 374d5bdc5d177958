"""Pick the values that a sparsifier keeps from a vector that comes in blocks and is never whole in memory."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from eris.local.spec import Vector
from eris.shards.plan import Coordinates
from eris.storage.mapped import release

__all__ = ["Blocks", "kept_of"]

Blocks = Iterable[tuple[slice, Vector]]  # stretches of a vector in order: where each lies, and its values


def kept_of(blocks: Blocks, n: int, mask: Coordinates | None, reference: Vector | None) -> Vector:
    """Return the values on the mask (None: all n), less the reference there: the bits of (vector − reference)[mask].

    >>> blocks = [(slice(0, 2), np.float32([1, 2])), (slice(2, 5), np.float32([3, 4, 5]))]
    >>> kept_of(blocks, 5, np.array([1, 2, 4]), np.ones(5, np.float32)).tolist()
    [1.0, 2.0, 4.0]
    """
    kept = np.empty(n if mask is None else mask.size, np.float32)
    for place, values in blocks:
        here = place if mask is None else _between(mask, place)
        inside = slice(None) if mask is None else mask[here] - place.start
        kept[here] = values[inside]
        if reference is not None:
            kept[here] -= reference[place][inside]
            release(reference[place])
    return kept


def _between(mask: Coordinates, place: slice) -> slice:
    return slice(*np.searchsorted(mask, [place.start, place.stop]).tolist())
