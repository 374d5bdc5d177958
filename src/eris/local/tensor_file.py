"""Write and read named arrays in one file, in the safetensors format, piece by piece.

The safetensors library builds the whole file in memory, which doubles what is needed. The format is simple: the length
of a header (8 bytes, little-endian), the header (JSON: dtype, shape and place of each array, and free text), the bytes.

>>> b"".join(file_pieces({"a": np.ones(2, np.float32)}, {"made": "today"}))[8:].startswith(b'{"__metadata__":')
True
"""

from __future__ import annotations

import json
import mmap
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.storage.mapped import release
from eris.storage.stretch import stretches

__all__ = ["Arrays", "array_pieces", "file_pieces", "read_arrays"]

Arrays = Mapping[str, NDArray[Any]]

_NAMES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip
_TYPES = {name: np.dtype(kind).newbyteorder("<") for kind, name in _NAMES.items()}


def file_pieces(arrays: Arrays, metadata: Mapping[str, str]) -> Iterator[bytes | memoryview]:
    """Yield a whole file, piece by piece; pages of mapped arrays are released on the way."""
    ordered = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))  # so that every array is aligned
    table: dict[str, Any] = {"__metadata__": dict(metadata)}
    start = 0
    for name in ordered:
        array = arrays[name]
        stop = start + array.nbytes
        table[name] = {"dtype": _NAMES[array.dtype.name], "shape": list(array.shape), "data_offsets": [start, stop]}
        start = stop
    header = json.dumps(table, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    yield struct.pack("<Q", len(header)) + header
    for name in ordered:
        yield from array_pieces(arrays[name])


def array_pieces(array: NDArray[Any]) -> Iterator[memoryview]:
    """Yield the bytes of an array in order, little-endian."""
    flat = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1)
    for place in stretches(flat.size):
        yield flat[place].view(np.uint8).data
        release(flat[place])


def read_arrays(path: Path, *, above: int | None = None) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Return the arrays of a file, and its free text; arrays of more than `above` bytes are mapped, read-only.

    Raises ValueError if the file is damaged or has another format.
    """
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8)) if path.stat().st_size >= 8 else (0,)
        header = json.loads(file.read(length)) if 0 < length < path.stat().st_size else None
        if not isinstance(header, dict):
            raise ValueError("there is no header")
        content = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)[8 + length :]
    metadata = header.pop("__metadata__", {})
    try:
        arrays = {name: _view(content, **entry) for name, entry in header.items()}
    except (KeyError, TypeError) as error:
        raise ValueError(f"the header is damaged: {error!r}") from None
    return {name: a if above is not None and a.nbytes > above else a.copy() for name, a in arrays.items()}, metadata


def _view(content: NDArray[np.uint8], *, dtype: str, shape: list[int], data_offsets: list[int]) -> NDArray[Any]:
    start, stop = data_offsets
    return content[start:stop].view(_TYPES[dtype]).reshape(shape)
