"""The greeting on a link, after TLS: each side says whether the other is welcome.

    magic "ERIS" | version u8 | kind u8 | length u16 little-endian | body (at most 64 bytes)

    kind 0  claim     body: a name; in plain text only, where no certificate tells it
    kind 1  welcome
    kind 2  refused   body: a `Refusal`'s word, and nothing about who or why else

The acceptor speaks first, because only then has it seen the dialler's certificate; in plain text both sides' claims
come before that, the dialler's first. The version is the wire's: a side that hears another one says so and hangs up.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable

from eris.transport.identity import PeerIdentity, Refusal
from eris.transport.link import LinkClosed, LinkError, LinkRefused
from eris.transport.patience import Patience
from eris.transport.stream_link import Stream
from eris.wire.version import VERSION

__all__ = ["VERSION", "claim", "greet_acceptor", "greet_dialler", "hear_claim"]

_HEAD = struct.Struct("<4sBBH")
_MAGIC = b"ERIS"
_CLAIM, _WELCOME, _REFUSED = range(3)
_LONGEST = 64

Judge = Callable[[PeerIdentity], Refusal | None]


def claim(stream: Stream, name: str, patience: Patience) -> None:
    """Send our name, without proof (plain text only)."""
    _say(stream, _CLAIM, name.encode(), patience)


def hear_claim(stream: Stream, patience: Patience) -> PeerIdentity:
    """Return who the other side claims to be (plain text only)."""
    kind, body, _ = _hear(stream, patience)
    if kind != _CLAIM:
        raise LinkRefused(Refusal.NOT_TLS, by_us=True)
    return PeerIdentity(body.decode("ascii", "replace"))


def greet_dialler(stream: Stream, peer: PeerIdentity, judge: Judge, patience: Patience) -> None:
    """Judge a dialler, then hear its judgement of us (acceptor); `judge` returns why it is refused, or None."""
    _judge(stream, peer, judge, patience)
    _require_welcome(stream, peer, patience)


def greet_acceptor(stream: Stream, peer: PeerIdentity, judge: Judge, patience: Patience) -> None:
    """Hear an acceptor's judgement of us, then judge it (dialler); `judge` returns why it is refused, or None."""
    _require_welcome(stream, peer, patience)
    _judge(stream, peer, judge, patience)


def _judge(stream: Stream, peer: PeerIdentity, judge: Judge, patience: Patience) -> None:
    refusal = judge(peer)
    if refusal is None:
        _say(stream, _WELCOME, b"", patience)
    else:
        _say(stream, _REFUSED, refusal.value.encode(), patience)
        raise LinkRefused(refusal, by_us=True, peer=peer)


def _require_welcome(stream: Stream, peer: PeerIdentity, patience: Patience) -> None:
    kind, body, version = _hear(stream, patience)
    if kind == _REFUSED:
        raise LinkRefused(_refusal(body), by_us=False, peer=peer)
    if version != VERSION:
        with contextlib.suppress(LinkError):  # so that it hears why, if it still listens
            _say(stream, _REFUSED, Refusal.WRONG_VERSION.value.encode(), patience)
        raise LinkRefused(Refusal.WRONG_VERSION, by_us=True, peer=peer, theirs=version, ours=VERSION)


def _refusal(body: bytes) -> Refusal:
    try:
        return Refusal(body.decode("ascii", "replace"))
    except ValueError:  # a word from a newer version
        return Refusal.BAD_CERTIFICATE


def _say(stream: Stream, kind: int, body: bytes, patience: Patience) -> None:
    stream.write(memoryview(_HEAD.pack(_MAGIC, VERSION, kind, len(body)) + body), patience)
    stream.flush(patience)


def _hear(stream: Stream, patience: Patience) -> tuple[int, bytes, int]:
    magic, version, kind, length = _HEAD.unpack(_read(stream, _HEAD.size, patience))
    if magic != _MAGIC or length > _LONGEST:
        raise LinkRefused(Refusal.NOT_TLS, by_us=True)
    return kind, _read(stream, length, patience), version


def _read(stream: Stream, length: int, patience: Patience) -> bytes:
    data = bytearray(length)
    view = memoryview(data)
    while view.nbytes:
        count = stream.read_into(view, patience)
        if not count:
            raise LinkClosed("the connection ended during the handshake", clean=False)
        view = view[count:]
    return bytes(data)
