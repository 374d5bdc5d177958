"""Parts and published shards as payload bytes, and back.

An upload is the symbols (raw little-endian where they fill whole bytes, else without gaps), the scales, the indices
where they cannot be redrawn, then the dense buffers. A published shard is its float32 values, then its buffers.
Nothing in a payload says how long the pieces are: header, plan and code do, on both sides (docs/wire.md).

Encoding gives pieces instead of one string: float32 values leave from the array they are in, without a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.errors import InputError, Reason, Refused
from eris.local.spec import Vector
from eris.shards.plan import Coordinates, ShardPlan
from eris.transforms.packed import Code, Part
from eris.wire.bits import pack, packed_size, unpack

__all__ = [
    "Payload",
    "decode_part",
    "decode_published",
    "decode_upload",
    "encode_part",
    "encode_published",
    "encode_upload",
    "payload_length",
    "upload_length",
]

Bytes = NDArray[np.uint8]
Payload = list[memoryview]  # pieces, to be sent one after another


def payload_length(payload: Sequence[memoryview]) -> int:
    """Return the length in bytes."""
    return sum(piece.nbytes for piece in payload)


def encode_upload(part: Part, buffers: Vector, plan: ShardPlan) -> Payload:
    """Write one member's contribution to one shard; `plan` is the one over the trainable coordinates."""
    return encode_part(part, plan) + _pieces(_little(buffers, "<f4"))


def upload_length(plan: ShardPlan, shard: int, code: Code, *, kept: int | None, scales: int, buffers: int) -> int:
    """Return the exact length of an index-free upload that keeps so many coordinates (None: all of the shard)."""
    count = int(plan.sizes[shard]) if kept is None else kept
    return packed_size(count, code.bits) + 4 * scales + 4 * buffers


def decode_upload(
    payload: Bytes,
    *,
    shard: int,
    plan: ShardPlan,
    code: Code,
    count: int,
    buffers: int,
    coordinates: Coordinates | None = None,
    explicit: bool = False,
    mask_key: bytes = b"",
) -> tuple[Part, Vector]:
    """Read an upload; `coordinates` are the redrawn ones (None: all of the shard), `buffers` their expected number."""
    split = payload.size - 4 * buffers
    if split < 0:
        raise Refused(Reason.WRONG_SIZE, f"{payload.size} bytes do not even hold {buffers} buffers", shard=shard)
    part = decode_part(
        payload[:split],
        shard=shard,
        plan=plan,
        code=code,
        count=count,
        coordinates=coordinates,
        explicit=explicit,
        mask_key=mask_key,
    )
    return part, _floats(payload[split:])


def encode_part(part: Part, plan: ShardPlan) -> Payload:
    """Write symbols, scales, and the indices where they travel; `part.payload_bytes` in all."""
    pieces = _pieces(_encode_symbols(part.symbols, part.code), _little(part.scales, "<f4"))
    if not part.explicit:
        return pieces
    if part.coordinates is None:
        raise InputError("an explicit part has no coordinates", fix="give them, or let the receiver redraw them")
    return pieces + _pieces(_encode_positions(plan.positions_of(part.shard, part.coordinates), part.size))


def decode_part(
    payload: Bytes,
    *,
    shard: int,
    plan: ShardPlan,
    code: Code,
    count: int,
    coordinates: Coordinates | None = None,
    explicit: bool = False,
    mask_key: bytes = b"",
) -> Part:
    """Read a part of `count` symbols; refuse whatever the sender cannot have meant."""
    size = int(plan.sizes[shard])
    expected = coordinates.size if coordinates is not None else size
    if count > size if explicit else count != expected:
        raise Refused(Reason.WRONG_SIZE, f"{count} values, {expected} are expected", shard=shard)
    symbols_end, index_start = packed_size(count, code.bits), payload.size - _index_bytes(count, size, explicit)
    if index_start < symbols_end or (index_start - symbols_end) % 4:
        raise Refused(Reason.WRONG_SIZE, f"{payload.size} bytes do not fit {count} {code.name} values", shard=shard)
    symbols = _decode_symbols(payload[:symbols_end], code, count)
    scales = _floats(payload[symbols_end:index_start])
    if explicit:
        coordinates = plan.coordinates_at(shard, _decode_positions(payload[index_start:], count, size))
    elif coordinates is None and scales.size > 1:  # only then does a code look at coordinates
        coordinates = plan.coordinates(shard)
    return Part(shard, size, coordinates, symbols, scales, code, explicit, mask_key)


def encode_published(values: Vector, buffers: Vector) -> Payload:
    """Write a published shard: dense values, or those on the shared support, then the buffers."""
    return _pieces(_little(values, "<f4"), _little(buffers, "<f4"))


def decode_published(payload: Bytes, *, count: int, buffers: int) -> tuple[Vector, Vector]:
    """Read a published shard of `count` values without copying them."""
    if payload.size != 4 * (count + buffers):
        raise Refused(Reason.WRONG_SIZE, f"{payload.size} bytes, {count} values and {buffers} buffers are expected")
    return _floats(payload[: 4 * count]), _floats(payload[4 * count :])


def _encode_symbols(symbols: NDArray[Any], code: Code) -> NDArray[Any]:
    if code.bits == 8 * code.dtype.itemsize:
        return _little(symbols, code.dtype)
    return pack(symbols, bits=code.bits)


def _decode_symbols(packed: Bytes, code: Code, count: int) -> NDArray[Any]:
    if code.bits != 8 * code.dtype.itemsize:
        return unpack(packed, bits=code.bits, count=count, dtype=code.dtype)
    return _aligned(packed, code.dtype.newbyteorder("<"))


def _index_bytes(count: int, size: int, explicit: bool) -> int:
    return min(4 * count, packed_size(size, 1)) if explicit else 0


def _encode_positions(positions: Coordinates, size: int) -> NDArray[Any]:
    """Write a list of 32-bit positions or a bitmap of the shard, whichever is shorter (the list if equal)."""
    if 4 * positions.size <= packed_size(size, 1):
        return positions.astype("<u4")
    present = np.zeros(size, np.bool_)
    present[positions] = True
    return np.packbits(present, bitorder="little")


def _decode_positions(index: Bytes, count: int, size: int) -> Coordinates:
    if 4 * count <= packed_size(size, 1):
        positions = _aligned(index, np.dtype("<u4")).astype(np.int64)
        if positions.size and (int(positions[-1]) >= size or (np.diff(positions) <= 0).any()):
            raise Refused(Reason.MALFORMED, "positions are not ascending inside the shard")
        return positions
    present = np.unpackbits(index, bitorder="little")
    positions = np.flatnonzero(present).astype(np.int64, copy=False)
    if positions.size != count or (count and int(positions[-1]) >= size):
        raise Refused(Reason.MALFORMED, f"the bitmap marks {positions.size} positions, {count} values came")
    return positions


def _floats(payload: Bytes) -> Vector:
    values: Vector = _aligned(payload, np.dtype("<f4"))
    return values.astype(np.float32, copy=False)


def _aligned(payload: Bytes, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a typed view; a copy only where the bytes do not begin on a boundary of the type."""
    starts_on_boundary = payload.__array_interface__["data"][0] % dtype.alignment == 0
    return (payload if starts_on_boundary else payload.copy()).view(dtype)


def _little(array: NDArray[Any], dtype: str | np.dtype[Any]) -> NDArray[Any]:
    """Return the array itself if it is contiguous and little-endian, as it always is here; else a copy that is."""
    return np.ascontiguousarray(array, np.dtype(dtype).newbyteorder("<"))


def _pieces(*arrays: NDArray[Any]) -> Payload:
    return [array.view(np.uint8).data for array in arrays if array.size]
