"""Encode parts and published shards as payload bytes, and decode published shards.

An upload is the symbols (raw little-endian if they fill whole bytes, otherwise without gaps), the scales, the positions
if they cannot be redrawn, then the dense buffers, then the figures that go with shard 0, then the check words if it is
masked. A published shard is its values, then its buffers: float32, or in fixed point 32-bit and 64-bit integers.
Nothing in a payload says how long the pieces are: header, plan and code do, on both sides (docs/wire.md).

Encoding returns pieces instead of one string, so that float32 values leave from their array without a copy. `Expected`
reads uploads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.aggregate.encoding import FLOATS, Words
from eris.errors import InputError, Reason, Refused
from eris.local.spec import Vector
from eris.shards.plan import Coordinates, ShardPlan
from eris.transforms.packed import Code, Part
from eris.wire.bits import Bytes, pack, packed_size

__all__ = [
    "CHECK_TYPE",
    "FIGURE_TYPE",
    "Payload",
    "decode_published",
    "encode_part",
    "encode_published",
    "encode_upload",
    "floats",
    "native",
    "payload_length",
    "typed",
]

Payload = list[memoryview]  # pieces, to be sent one after another
CHECK_TYPE = np.dtype("<u4")  # of the words behind a masked contribution
FIGURE_TYPE = np.dtype("<u8")  # of the sums that members share
_NO_CHECKS: NDArray[Any] = np.empty(0, np.uint32)
_NO_FIGURES: NDArray[Any] = np.empty(0, np.uint64)


def payload_length(payload: Sequence[memoryview]) -> int:
    """Return the length in bytes."""
    return sum(piece.nbytes for piece in payload)


def encode_upload(
    part: Part,
    buffers: NDArray[Any],
    plan: ShardPlan,
    checks: NDArray[Any] = _NO_CHECKS,
    figures: NDArray[Any] = _NO_FIGURES,
) -> Payload:
    """Write one member's contribution to one shard.

    Args:
        part: the packed values for the shard.
        buffers: the shard's dense buffers.
        plan: the plan over the trainable coordinates.
        checks: check words, if the contribution is masked.
        figures: the member's figures, if they go with this shard.
    """
    behind = _little(buffers, buffers.dtype), _little(figures, FIGURE_TYPE), _little(checks, CHECK_TYPE)
    return encode_part(part, plan) + _pieces(*behind)


def encode_part(part: Part, plan: ShardPlan) -> Payload:
    """Write symbols, scales, and the positions where they travel: `part.payload_bytes` in all."""
    pieces = _pieces(_encode_symbols(part.symbols, part.code), _little(part.scales, "<f4"))
    if not part.explicit:
        return pieces
    if part.coordinates is None:
        raise InputError("a part is marked explicit but has no coordinates", fix="give them, or let them be redrawn")
    return pieces + _pieces(_encode_positions(plan.positions_of(part.shard, part.coordinates), part.size))


def encode_published(values: NDArray[Any], buffers: NDArray[Any]) -> Payload:
    """Write a published shard: dense values, or those on the shared support, then the buffers."""
    return _pieces(_little(values, values.dtype), _little(buffers, buffers.dtype))


def decode_published(
    payload: Bytes, *, count: int, buffers: int, words: Words = FLOATS
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Read a published shard: `count` values, then `buffers` more, of the types in `words`.

    Nothing is copied unless the bytes are not aligned for their type.
    """
    if payload.size != words.payload(count, buffers):
        raise Refused(
            Reason.WRONG_SIZE, f"received {payload.size} bytes, but {count} values and {buffers} buffers are expected"
        )
    end = words.payload(count, 0)
    return native(payload[:end], words.values), native(payload[end:], words.buffers)


def floats(payload: Bytes) -> Vector:
    """Read float32 values."""
    return typed(payload, np.dtype("<f4")).astype(np.float32, copy=False)


def native(payload: Bytes, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Read values in the byte order of this machine."""
    return typed(payload, dtype).astype(dtype.newbyteorder("="), copy=False)


def typed(payload: Bytes, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a typed view; a copy only where the bytes do not begin on a boundary of the type."""
    values = payload.view(dtype)
    return values if values.flags.aligned else payload.copy().view(dtype)


def _encode_symbols(symbols: NDArray[Any], code: Code) -> NDArray[Any]:
    if code.bits == 8 * code.dtype.itemsize:
        return _little(symbols, code.dtype)
    return pack(symbols, bits=code.bits)


def _encode_positions(positions: Coordinates, size: int) -> NDArray[Any]:
    """Write a list of 32-bit positions or a bitmap of the shard, whichever is shorter (the list if equal)."""
    if 4 * positions.size <= packed_size(size, 1):
        return positions.astype("<u4")
    present = np.zeros(size, np.bool_)
    present[positions] = True
    return np.packbits(present, bitorder="little")


def _little(array: NDArray[Any], dtype: str | np.dtype[Any]) -> NDArray[Any]:
    """Return the array itself if it is contiguous and little-endian, as it always is here; else a copy that is."""
    return np.ascontiguousarray(array, np.dtype(dtype).newbyteorder("<"))


def _pieces(*arrays: NDArray[Any]) -> Payload:
    return [array.view(np.uint8).data for array in arrays if array.size]
