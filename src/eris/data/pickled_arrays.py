"""Read arrays from untrusted pickles.

Not even numpy's own types are allowed: a crafted dtype or buffer makes numpy itself unsafe. Stand-ins take the pickled
description and check it.
"""

from __future__ import annotations

import io
import pickle
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["read_pickled_arrays"]

_DTYPES: dict[str, np.dtype[Any]] = {"u1": np.dtype("u1"), "f4": np.dtype("<f4")}


def read_pickled_arrays(content: bytes, kind: Literal["u1", "f4"], *, encoding: str = "ASCII") -> Any:
    """Return what a pickle holds: containers, numbers, strings and arrays of one kind (bytes or float32), nothing else.

    Arrays come as stand-ins for `numpy.asarray`. Anything else raises `pickle.UnpicklingError`.

    `encoding` is that of strings in pickles of Python 2.
    """
    return _ArraysOnly(content, kind, encoding).load()


class _ArraysOnly(pickle.Unpickler):
    """Build arrays from a pickle and nothing else."""

    def __init__(self, content: bytes, kind: str, encoding: str) -> None:
        super().__init__(io.BytesIO(content), encoding=encoding)
        self._kind = kind

    def find_class(self, module: str, name: str) -> Any:
        """Return the stand-in for what a pickled array refers to."""
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return _PickledArray
        if module == "numpy" and name in ("ndarray", "dtype"):
            return partial(_ElementType, self._kind)
        raise pickle.UnpicklingError(f"it refers to {module}.{name}, which is not allowed")


class _ElementType:
    """The one dtype that is allowed."""

    def __init__(self, kind: str, code: object = None, *_: object) -> None:
        if code not in (kind, kind.encode()):
            raise pickle.UnpicklingError(f"it holds an array of {code!r}")
        self.dtype = _DTYPES[kind]

    def __setstate__(self, state: tuple[object, ...]) -> None:
        """Leave out the flags; the byte order must be the usual one."""
        if state[1] not in ("<", "|", b"<", b"|"):
            raise pickle.UnpicklingError(f"it holds an array with the byte order {state[1]!r}")


class _PickledArray:
    """A pickle's description of an array; `numpy.asarray` makes it one."""

    def __init__(self, *_: object) -> None:
        self._array: NDArray[Any] = np.zeros(0, np.uint8)

    def __setstate__(self, state: tuple[int, tuple[int, ...], object, bool, bytes]) -> None:
        """Take shape and bytes."""
        _, shape, kind, by_column, content = state
        if not isinstance(kind, _ElementType) or not isinstance(content, bytes):
            raise pickle.UnpicklingError("it holds an array of another type")
        self._array = np.frombuffer(content, kind.dtype).reshape(shape, order="F" if by_column else "C")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self._array
