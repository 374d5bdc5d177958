"""Pack symbols of any number of bits, one after another without gaps.

Symbol i takes bits i·b … i·b + b − 1, counted from the lowest bit of the first byte upwards; the last byte is filled up
with zeros. Eight symbols take exactly b bytes, so the work is done on columns: the j-th symbol of every eight.

>>> pack(np.array([1, 2, 3, 7, 0], np.uint8), bits=3).tolist()
[209, 14]
>>> unpack(np.array([209, 14], np.uint8), bits=3, count=5, dtype=np.dtype(np.uint8)).tolist()
[1, 2, 3, 7, 0]
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.errors import InputError, Reason, Refused

__all__ = ["Bytes", "pack", "packed_size", "unpack"]

Bytes = NDArray[np.uint8]

_AT_ONCE = 1 << 15  # symbols; a multiple of eight


def packed_size(count: int, bits: int) -> int:
    """Return how many bytes `count` symbols take."""
    return -(-count * bits // 8)


def pack(symbols: NDArray[Any], *, bits: int) -> Bytes:
    """Write unsigned symbols of `bits` bits each without gaps."""
    if symbols.size and not (int(symbols.min()) >= 0 and int(symbols.max()) < 1 << bits):
        raise InputError(f"a symbol does not fit into {bits} bits", fix="use unsigned symbols below 2^bits")
    packed = np.zeros(-(-symbols.size // 8) * bits, np.uint8)
    for first in range(0, symbols.size, _AT_ONCE):
        columns = _in_eights(symbols[first : first + _AT_ONCE], _wide_enough(bits))
        start = first // 8 * bits
        _pack_columns(columns, bits, packed[start : start + columns.shape[1] * bits].reshape(-1, bits))
    return packed[: packed_size(symbols.size, bits)]


def unpack(packed: Bytes, *, bits: int, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Read `count` symbols of `bits` bits each into an array of `dtype`.

    A wrong length is refused, and so are padding bits that are not zero.
    """
    if packed.size != packed_size(count, bits):
        raise Refused(Reason.WRONG_SIZE, f"{packed.size} bytes cannot hold exactly {count} symbols of {bits} bits")
    if (spare := packed.size * 8 - count * bits) and int(packed[-1]) >> (8 - spare):
        raise Refused(Reason.MALFORMED, "the bits after the last symbol are not zero")
    symbols = np.empty(count, dtype)
    for first in range(0, count, _AT_ONCE):
        place = symbols[first : first + _AT_ONCE]
        start, eights = first // 8 * bits, -(-place.size // 8)
        rows = np.zeros((eights, bits), np.uint8)
        piece = packed[start : start + eights * bits]
        rows.reshape(-1)[: piece.size] = piece
        place[:] = _unpack_columns(rows, bits).reshape(-1)[: place.size]
    return symbols


def _in_eights(symbols: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return eight rows: row j holds the j-th symbol of every eight, the last eight filled up with zeros."""
    rows = np.zeros((8, -(-symbols.size // 8)), dtype)
    for number, row in enumerate(rows):
        own = symbols[number::8]
        row[: own.size] = own
    return rows


def _pack_columns(columns: NDArray[Any], bits: int, out: Bytes) -> None:
    """Put the bits of each symbol into the bytes they belong to; a symbol may straddle several.

    `columns` are the rows of `_in_eights`; `out` has a row of `bits` zero bytes for every eight symbols.
    """
    kind = columns.dtype.type
    for number, column in enumerate(columns):
        byte, shift = divmod(number * bits, 8)
        spread = column << kind(shift)
        for step in range(packed_size(1, shift + bits)):
            out[:, byte + step] |= (spread >> kind(8 * step)).astype(np.uint8)


def _unpack_columns(rows: Bytes, bits: int) -> NDArray[Any]:
    kind = _wide_enough(bits).type
    symbols, mask = np.empty((rows.shape[0], 8), kind), kind((1 << bits) - 1)
    for number in range(8):
        byte, shift = divmod(number * bits, 8)
        value = rows[:, byte].astype(kind)
        for step in range(1, packed_size(1, shift + bits)):
            value |= rows[:, byte + step].astype(kind) << kind(8 * step)
        symbols[:, number] = (value >> kind(shift)) & mask
    return symbols


def _wide_enough(bits: int) -> np.dtype[Any]:
    """Return the narrowest type that holds a symbol that begins anywhere in a byte."""
    return np.dtype(np.uint16 if bits <= 9 else np.uint32 if bits <= 25 else np.uint64)
