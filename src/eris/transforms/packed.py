"""Packed vectors: what a compressor makes of a vector, and how it is cut into a part for each shard.

A packed vector has a *support* (which coordinates carry a value), a *symbol* for each of them, and a *code* that turns
symbols back into float32. The sender decodes its own message with the same code as the receiver, so both know the same
bits.

Random supports never travel: the receiver redraws them from a seed. Only data-dependent ones (top-k) are `explicit`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from eris.errors import PlanError
from eris.local.spec import Vector
from eris.shards.plan import Coordinates, ShardPlan

__all__ = ["Code", "Float32", "Packed", "Part"]

Memory = Callable[[int], NDArray[np.uint8]]  # gives so many bytes

NO_SCALES: Vector = np.empty(0, np.float32)


class Code(Protocol):
    """How one value is written: a symbol with a fixed number of bits, decoded with a few scales sent beside it."""

    @property
    def name(self) -> str:
        """A stable name; sender and receiver compare it."""
        ...

    @property
    def bits(self) -> int:
        """Bits a symbol takes on the wire."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy type of a symbol in memory: unsigned and below 2**bits, or a floating type of that many bits."""
        ...

    @property
    def scale_count(self) -> int:
        """How many float32 scales travel with every part."""
        ...

    def decode(self, symbols: NDArray[Any], scales: Vector, coordinates: Coordinates | None) -> Vector:
        """Return the float32 values; `coordinates` tells which (None: all of them, in order).

        Elementwise, so that a shard decodes to the bits of the whole. Symbols or scales that no sender makes raise
        Refused.
        """
        ...


@runtime_checkable
class CodeByCoordinate(Protocol):
    """A code whose scales belong to stretches of the vector."""

    def restricted(self, coordinates: Coordinates) -> Code:
        """Return the code of these coordinates standing alone, so that a shard needs no table of its coordinates."""
        ...


@dataclass(frozen=True, slots=True)
class Float32:
    """Values as they are."""

    name: str = "float32"
    bits: int = 32
    dtype: np.dtype[Any] = field(default_factory=lambda: np.dtype("<f4"))
    scale_count: int = 0

    def decode(self, symbols: NDArray[Any], scales: Vector, coordinates: Coordinates | None) -> Vector:
        """Return the symbols: they are the values."""
        del scales, coordinates
        return np.asarray(symbols, np.float32)


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a packed vector that goes to one shard."""

    shard: int
    size: int  # coordinates of the shard, kept or not
    coordinates: Coordinates | None  # of the whole vector, ascending; None: every coordinate of the shard
    symbols: NDArray[Any]
    scales: Vector
    code: Code
    explicit: bool = False
    mask_key: bytes = b""

    def values(self) -> Vector:
        """Return the float32 values, as the receiver will have them."""
        return self.code.decode(self.symbols, self.scales, self.coordinates)

    @property
    def index_bytes(self) -> int:
        """Bytes that say which coordinates are kept: 0 unless explicit, then a list of 4 bytes each or a bitmap."""
        return min(4 * self.symbols.size, -(-self.size // 8)) if self.explicit else 0

    @property
    def payload_bytes(self) -> int:
        """Exact size on the wire without the header: indices, bit-packed symbols, scales."""
        return self.index_bytes + -(-self.symbols.size * self.code.bits // 8) + 4 * self.scales.size


@dataclass(frozen=True, slots=True)
class Packed:
    """A compressed vector before it is cut into shards."""

    n: int
    support: Coordinates | None  # ascending; None: every coordinate
    symbols: NDArray[Any]
    scales: Vector = field(default_factory=lambda: NO_SCALES)
    code: Code = field(default_factory=Float32)
    explicit: bool = False
    mask_keys: tuple[bytes, ...] = ()  # one for each shard where member and aggregator share a secret mask

    def values(self) -> Vector:
        """Return the float32 value of every supported coordinate."""
        return self.code.decode(self.symbols, self.scales, self.support)

    def dense(self) -> Vector:
        """Return all n values, zero outside the support."""
        if self.support is None:
            return self.values()
        values = self.values()
        vector = np.zeros(self.n, values.dtype)
        vector[self.support] = values
        return vector

    def parts(self, plan: ShardPlan, *, memory: Memory | None = None) -> list[Part]:
        """Cut into one part for each shard. Symbols are copied once; if all travel, into one piece of `memory`."""
        if plan.n != self.n:
            raise PlanError(
                f"the packed vector has {self.n} values, but the plan is for {plan.n}", fix="use the round's plan"
            )
        if self.support is None:
            return self._dense_parts(plan, memory)
        return [
            self._part(plan, shard, self.support[kept], self.symbols[kept])
            for shard, kept in enumerate(plan.grouped(self.support))
        ]

    def _dense_parts(self, plan: ShardPlan, memory: Memory | None) -> list[Part]:
        kind, stops = self.symbols.dtype, np.cumsum(plan.sizes).tolist()
        room = np.empty(self.n, kind) if memory is None else memory(kind.itemsize * self.n).view(kind)
        places = enumerate(zip([0, *stops], stops, strict=False))
        return [self._dense_part(plan, shard, room[start:stop]) for shard, (start, stop) in places]

    def _dense_part(self, plan: ShardPlan, shard: int, room: NDArray[Any]) -> Part:
        part = self._part(plan, shard, None, plan.gather(self.symbols, shard, out=room))
        if self.scales.size > 1 and isinstance(self.code, CodeByCoordinate):
            return replace(part, code=self.code.restricted(plan.coordinates(shard)))
        return part

    def _part(self, plan: ShardPlan, shard: int, coordinates: Coordinates | None, symbols: NDArray[Any]) -> Part:
        key = self.mask_keys[shard] if self.mask_keys else b""
        size = int(plan.sizes[shard])
        return Part(shard, size, coordinates, symbols, self.scales, self.code, self.explicit, key)
