"""Frames: a header of 160 bytes, then payload.

A message travels in one frame or in several (chunks of its payload, in any order). Each carries the whole header, so
that a receiver can tell at once whether it wants the bytes and where they go. There is no checksum, because links are
TLS. docs/wire.md describes every byte.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from blake3 import blake3

from eris.errors import InputError, Reason, Refused
from eris.wire.version import VERSION, require_version

__all__ = ["CHUNK", "HEADER_BYTES", "LONGEST_CHUNK", "Header", "Kind", "frames", "run_tag"]

CHUNK = 1 << 20  # payload bytes of a frame, unless the sender wants otherwise
LONGEST_CHUNK = 1 << 26

_MAGIC = b"ERIS"
_LAYOUT = struct.Struct("<4sHBB IIII d QQQQ 16s16s32s32s")
HEADER_BYTES = _LAYOUT.size

_EXPLICIT, _COMPACT, _KEYED, _MASKED = 1, 2, 4, 8
_NO_KEY, _NO_DIGEST = bytes(16), bytes(32)


class Kind(IntEnum):
    """What a frame carries."""

    HELLO = 1  # document: who is speaking, for which federation
    CONTRIBUTION = 2  # one member's values for one shard
    RECEIPT = 3  # document
    REFUSAL = 4  # document: reason and what
    MANIFEST = 5  # document: an aggregator's signed statement
    PUBLISHED = 6  # v̄ of one shard
    FETCH = 7  # document: asks for a published shard or a snapshot by hash
    SNAPSHOT = 8  # model and public state
    CUT = 9  # document: whose contributions a masked sum holds
    UNMASKING = 10  # document: an unmasker's signed answer; then the sum of its pads


_KINDS = {int(kind): kind for kind in Kind}


class Header(NamedTuple):  # not a dataclass: four are made for every message
    """What stands before every payload."""

    kind: Kind
    total: int = 0  # bytes of the whole message's payload
    offset: int = 0  # where this frame's bytes stand in it
    length: int = 0  # how many there are
    symbols: int = 0  # values in the message, before buffers
    epoch: int = 0
    round: int = 0
    shard: int = 0
    member: int = 0  # who contributes
    steps: float = 1.0  # local steps τ_k
    explicit: bool = False  # indices travel with the values
    compact: bool = False  # published on the round's shared support only
    mask_key: bytes = b""  # 16 bytes where member and aggregator share a secret mask
    nonce: bytes = b""  # 16 bytes where a contribution is masked
    run: bytes = _NO_KEY  # run_tag of the run's name
    plan: bytes = _NO_DIGEST  # digest of the round plan
    chain: bytes = _NO_DIGEST  # digest of the last verdict

    def encode(self) -> bytes:
        """Return the 160 bytes."""
        return self.framing(self.total, self.offset, self.length)

    def framing(self, total: int, offset: int, length: int) -> bytes:
        """Return the 160 bytes for one chunk: `length` of the message's `total` payload bytes, from `offset` on."""
        if len(self.mask_key) not in (0, 16) or (len(self.run), len(self.plan), len(self.chain)) != (16, 32, 32):
            raise InputError("a header field has the wrong length", fix="mask key 0 or 16, run 16, digests 32 bytes")
        if len(self.nonce) not in (0, 16) or (self.nonce and self.mask_key):
            raise InputError("a nonce must have 16 bytes, and excludes a mask key", round=self.round, shard=self.shard)
        flags = _EXPLICIT * self.explicit | _COMPACT * self.compact
        flags |= _KEYED * bool(self.mask_key) | _MASKED * bool(self.nonce)
        key = self.mask_key or self.nonce or _NO_KEY
        try:
            return _LAYOUT.pack(
                _MAGIC, VERSION, self.kind, flags,
                self.epoch, self.round, self.shard, self.member, self.steps,
                total, offset, length, self.symbols,
                key, self.run, self.plan, self.chain,
            )  # fmt: skip
        except struct.error as error:
            raise InputError(f"a header field does not fit: {error}", round=self.round, shard=self.shard) from None

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview) -> Header:
        """Read 160 bytes; refuse (malformed) anything that an eris peer would not write."""
        if len(data) != HEADER_BYTES:
            raise _malformed(f"the header has {len(data)} bytes instead of {HEADER_BYTES}")
        return cls._decoded(bytes(data))

    @classmethod
    @lru_cache(maxsize=64)  # a header is looked at before its message is taken
    def _decoded(cls, data: bytes) -> Header:
        (
            magic, version, number, flags, epoch, round, shard, member, steps, total, offset, length, symbols,
            key, run, plan, chain,
        ) = _LAYOUT.unpack(data)  # fmt: skip
        if magic != _MAGIC:
            raise _malformed("this is not an eris frame", fix="check that the other side is an eris peer")
        if version != VERSION:
            require_version(version, "frame")
        kind = _KINDS.get(number)
        if kind is None or flags & ~(_EXPLICIT | _COMPACT | _KEYED | _MASKED):
            raise _malformed(f"the header has an unknown kind {number} or flags {flags:#x}")
        if flags & _KEYED and flags & _MASKED:
            raise _malformed("the header has both a mask key and a nonce")
        if not flags & (_KEYED | _MASKED) and key != _NO_KEY:
            raise _malformed("the header has a mask key without its flag")
        header = cls(
            kind, total, offset, length, symbols, epoch, round, shard, member, steps,
            bool(flags & _EXPLICIT), bool(flags & _COMPACT),
            key if flags & _KEYED else b"", key if flags & _MASKED else b"",
            run, plan, chain,
        )  # fmt: skip
        header._check_numbers()
        return header

    def _check_numbers(self) -> None:
        if self.length > LONGEST_CHUNK or self.offset + self.length > self.total:
            raise _malformed(f"bytes {self.offset} + {self.length} do not fit into a message of {self.total}")
        if self.length == 0 and self.total:
            raise _malformed("a chunk is empty, but its message is not")
        if self.symbols > 8 * self.total:
            raise _malformed(f"{self.symbols} values do not fit into {self.total} bytes")
        if not (math.isfinite(self.steps) and self.steps >= 0):
            raise _malformed(f"the number of local steps is {self.steps}")


def frames(
    header: Header, payload: Sequence[memoryview], *, chunk: int = CHUNK
) -> Iterator[tuple[bytes, list[memoryview]]]:
    """Cut a message into frames of at most `chunk` payload bytes: pairs of header bytes and pieces, nothing copied.

    `header` is the message's; `total`, `offset` and `length` are filled in for each frame.
    """
    total, offset = sum(piece.nbytes for piece in payload), 0
    for pieces in _chunks(payload, chunk):
        length = sum(piece.nbytes for piece in pieces)
        yield header.framing(total, offset, length), pieces
        offset += length


@lru_cache(maxsize=16)
def run_tag(run: str) -> bytes:
    """Return the 16 bytes that stand for a run's name in a header."""
    return bytes(blake3(run.encode()).digest(length=16))


def _chunks(payload: Sequence[memoryview], chunk: int) -> Iterator[list[memoryview]]:
    """Regroup pieces of any length into lists of `chunk` bytes; an empty payload is one empty chunk."""
    pieces: list[memoryview] = []
    room = chunk
    for piece in payload:
        while piece.nbytes >= room:
            yield [*pieces, piece[:room]]
            pieces, piece, room = [], piece[room:], chunk
        if piece.nbytes:
            pieces.append(piece)
            room -= piece.nbytes
    if pieces or not any(piece.nbytes for piece in payload):
        yield pieces


def _malformed(what: str, *, fix: str = "") -> Refused:
    return Refused(Reason.MALFORMED, what, fix=fix)
