"""Check the update that a task returns: one float32 vector, or an array that converts to one exactly.

Peers and the simulator both call this. Rounding is left to the task: if it were done here, nobody would notice that the
last digits are gone.

>>> as_update(np.array([0.5, 9.0, 0.25, 9.0])[::2], 2).tolist()
[0.5, 0.25]
>>> as_update(np.array([0.1]), 1)
Traceback (most recent call last):
...
eris.errors.TaskError: 1 of 1 values of the update (float64) are not exact in float32: round it yourself, with ...
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.errors import TaskError
from eris.local.spec import Vector

__all__ = ["as_update"]


def as_update(value: Any, n: int, *, peer: int | None = None, round: int | None = None) -> Vector:
    """Return `value` itself if it is a contiguous float32 vector of length n, or else an exact copy that is.

    Anything else is refused with the reason. Values that are not finite pass: they are checked elsewhere.

    `peer` and `round` are named in errors.
    """
    if isinstance(value, np.ndarray) and value.dtype == np.float32 and value.shape == (n,) and value.flags.c_contiguous:
        return value
    where = {key: place for key, place in (("peer", peer), ("round", round)) if place is not None}
    array = _array(value, where)
    if array.dtype.kind != "f" or array.shape != (n,):
        raise TaskError(
            f"the update is {array.dtype} {array.shape}, not float32 ({n},)",
            fix="return one value for each trainable and buffer value of the spec",
            **where,
        )
    return _exact(array, where)


def _array(value: Any, where: dict[str, int]) -> NDArray[Any]:
    try:
        return np.asarray(value)
    except Exception as error:
        raise TaskError(
            f"the update is a {type(value).__name__}, not an array: {error}", fix="return a numpy array", **where
        ) from error


def _exact(array: NDArray[Any], where: dict[str, int]) -> Vector:
    with np.errstate(all="ignore"):  # the comparison finds values that are too large or too small
        update = array.astype(np.float32)
    changed = int(np.count_nonzero((update != array) & ~np.isnan(array)))
    if changed:
        raise TaskError(
            f"{changed} of {array.size} values of the update ({array.dtype}) are not exact in float32",
            fix="round it yourself, with update.astype(numpy.float32), or train in float32",
            **where,
        )
    return update
