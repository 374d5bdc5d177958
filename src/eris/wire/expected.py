"""Check and read uploads: what an upload to one shard must look like, and how to decode it.

A receiver knows this before the first byte arrives: the plan gives the shard, the compressor the code and (redrawn) the
coordinates. So the length is known exactly too, unless positions travel; anything else is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.aggregate.encoding import FLOATS
from eris.errors import Reason, Refused
from eris.shards.plan import Coordinates, ShardPlan
from eris.transforms.packed import Code, CodeByCoordinate, Part
from eris.wire.bits import Bytes, packed_size, unpack
from eris.wire.codec import CHECK_TYPE, FIGURE_TYPE, floats, native, typed

__all__ = ["Expected"]


@dataclass(frozen=True)
class Expected:
    """The form of the uploads to one shard in one round."""

    plan: ShardPlan  # over the trainable coordinates
    shard: int
    code: Code  # of the symbols
    buffers: int = 0  # dense values behind symbols, scales and positions
    coordinates: Coordinates | None = None  # redrawn; None: every coordinate of the shard
    explicit: bool = False  # positions travel
    buffer_type: np.dtype[Any] = FLOATS.buffers
    checks: int = 0  # words behind everything else of a masked contribution
    figures: int = 0  # words between buffers and checks

    @property
    def size(self) -> int:
        """Number of coordinates of the shard."""
        return int(self.plan.sizes[self.shard])

    @property
    def length(self) -> int | None:
        """Exact number of payload bytes; None where positions travel."""
        return None if self.explicit else self._length(self._count)

    @property
    def longest(self) -> int:
        """The most payload bytes an upload can have."""
        return self._length(self.size if self.explicit else self._count)

    def decode(self, payload: Bytes, *, symbols: int, mask_key: bytes = b"") -> tuple[Part, NDArray[Any]]:
        """Read an upload of `symbols` values into its part and its buffers; float32 values stay where they are.

        The part gets the `mask_key` of the upload's header.
        """
        if symbols > self.size if self.explicit else symbols != self._count:
            raise self._wrong(f"received {symbols} values, but {self._count} are expected")
        if payload.size != self._length(symbols):
            raise self._wrong(f"received {payload.size} bytes, but {self._length(symbols)} are expected")
        scales_start = packed_size(symbols, self.code.bits)
        positions_start = scales_start + 4 * self.code.scale_count
        buffers_stop = self._figures_stop(payload) - FIGURE_TYPE.itemsize * self.figures
        buffers_start = buffers_stop - self.buffer_type.itemsize * self.buffers
        part = Part(
            self.shard,
            self.size,
            self._kept(payload[positions_start:buffers_start], symbols),
            self._symbols(payload[:scales_start], symbols),
            floats(payload[scales_start:positions_start]),
            self._code,
            self.explicit,
            mask_key,
        )
        return part, native(payload[buffers_start:buffers_stop], self.buffer_type)

    def check_words(self, payload: Bytes) -> NDArray[Any]:
        """Return the words behind everything else; none unless contributions are masked."""
        return native(payload[self._figures_stop(payload) :], CHECK_TYPE)

    def figure_words(self, payload: Bytes) -> NDArray[Any]:
        """Return what a member scored; none unless figures go with this shard."""
        stop = self._figures_stop(payload)
        return native(payload[stop - FIGURE_TYPE.itemsize * self.figures : stop], FIGURE_TYPE)

    def _figures_stop(self, payload: Bytes) -> int:
        return payload.size - CHECK_TYPE.itemsize * self.checks

    @property
    def _count(self) -> int:
        return self.size if self.coordinates is None else self.coordinates.size

    @cached_property
    def _code(self) -> Code:
        """The code as the sender's part has it (see `Packed.parts`)."""
        dense = self.coordinates is None and not self.explicit
        if dense and self.code.scale_count > 1 and isinstance(self.code, CodeByCoordinate):
            return self.code.restricted(self.plan.coordinates(self.shard))
        return self.code

    def _length(self, symbols: int) -> int:
        positions = min(4 * symbols, packed_size(self.size, 1)) if self.explicit else 0
        behind = self.buffer_type.itemsize * self.buffers + CHECK_TYPE.itemsize * self.checks
        behind += FIGURE_TYPE.itemsize * self.figures
        return packed_size(symbols, self.code.bits) + 4 * self.code.scale_count + positions + behind

    def _symbols(self, packed: Bytes, count: int) -> NDArray[Any]:
        if self.code.bits != 8 * self.code.dtype.itemsize:
            return unpack(packed, bits=self.code.bits, count=count, dtype=self.code.dtype)
        return typed(packed, self.code.dtype.newbyteorder("<"))

    def _kept(self, positions: Bytes, count: int) -> Coordinates | None:
        if not self.explicit:
            return self.coordinates
        return self.plan.coordinates_at(self.shard, _decode_positions(positions, count, self.size))

    def _wrong(self, what: str) -> Refused:
        return Refused(Reason.WRONG_SIZE, what, shard=self.shard)


def _decode_positions(positions: Bytes, count: int, size: int) -> Coordinates:
    if 4 * count <= packed_size(size, 1):
        listed = typed(positions, np.dtype("<u4")).astype(np.int64)
        if listed.size and (int(listed[-1]) >= size or (np.diff(listed) <= 0).any()):
            raise Refused(Reason.MALFORMED, "positions are not ascending inside the shard")
        return listed
    marked = np.flatnonzero(np.unpackbits(positions, bitorder="little")).astype(np.int64, copy=False)
    if marked.size != count or (count and int(marked[-1]) >= size):
        raise Refused(Reason.MALFORMED, f"the bitmap marks {marked.size} positions, but the message has {count} values")
    return marked
