"""Bytes as a peer would write them, damaged in every way, and a link that reads them without a socket or a thread."""

from __future__ import annotations

import random
import struct

from eris.transport.identity import PeerIdentity
from eris.transport.link import LinkClosed, LinkLimits
from eris.transport.stream_link import StreamLink
from eris.wire.frame import HEADER_BYTES, LONGEST_CHUNK

LIMITS = LinkLimits(HEADER_BYTES, LONGEST_CHUNK)
_LENGTHS = (32, 40, 48, 56)  # where total, offset, length and symbols stand in a header
_EDGES = (0, 1, 2**16, 2**26, 2**26 + 1, 2**31, 2**32 - 1, 2**32, 2**63, 2**64 - 1)


class _Script:
    """A stream whose other side has written everything beforehand; what we write is kept."""

    def __init__(self, data: bytes) -> None:
        self._rest = memoryview(data)
        self.written = bytearray()
        self.wire_sent = self.wire_received = 0
        self.kernel = None

    def write(self, data: memoryview, patience: object) -> None:
        self.written += data

    def flush(self, patience: object) -> None: ...

    def read_into(self, view: memoryview, patience: object) -> int:
        count = min(view.nbytes, self._rest.nbytes)
        view[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def finish(self) -> None: ...

    wake = shut = finish


def scripted(data: bytes, peer: str = "mallory") -> tuple[StreamLink, bytearray]:
    """Return a link on which `data` arrives and then the end, and what is answered on it."""
    stream = _Script(data)
    return StreamLink(stream, PeerIdentity(peer, "test", "00"), LIMITS), stream.written


class Recorder:
    """A link for the sending side: keeps the bytes."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.frames: list[int] = []  # where each frame begins
        self.peer, self.limits = PeerIdentity("nobody", "test", "00"), LIMITS

    def send(self, header: bytes, *buffers: object, deadline: float | None = None, more: bool = False) -> None:
        self.frames.append(len(self.data))
        self.data += header
        for buffer in buffers:
            self.data += memoryview(buffer).cast("B")

    def receive_header(self, **_: object) -> bytes:
        raise LinkClosed("nobody answers here", clean=True)


def mutate(data: bytes, frames: list[int], chance: random.Random) -> bytes:
    """Damage a stream of valid frames in one to three ways."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 3))):
        if not changed:
            break
        chance.choice((_flip, _cut, _repeat, _edit_length, _splice, _flip_in_header))(changed, frames, chance)
    return bytes(changed)


def _flip(data: bytearray, frames: list[int], chance: random.Random) -> None:
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _flip_in_header(data: bytearray, frames: list[int], chance: random.Random) -> None:
    place = chance.choice(frames) + chance.randrange(HEADER_BYTES)
    if place < len(data):
        data[place] ^= 1 << chance.randrange(8)


def _cut(data: bytearray, frames: list[int], chance: random.Random) -> None:
    del data[chance.randrange(len(data)) :]


def _repeat(data: bytearray, frames: list[int], chance: random.Random) -> None:
    start = chance.choice(frames)
    data[start:start] = data[start : start + chance.randrange(1, 2 * HEADER_BYTES)]


def _splice(data: bytearray, frames: list[int], chance: random.Random) -> None:
    start = chance.randrange(len(data))
    data[start : start + chance.randrange(16)] = chance.randbytes(chance.randrange(16))


def _edit_length(data: bytearray, frames: list[int], chance: random.Random) -> None:
    place = chance.choice(frames) + chance.choice(_LENGTHS)
    if place + 8 > len(data):
        return
    (value,) = struct.unpack_from("<Q", data, place)
    near = (value + chance.randrange(-4, 5)) % 2**64
    struct.pack_into("<Q", data, place, chance.choice((near, near, chance.choice(_EDGES))))
