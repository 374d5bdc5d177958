"""The first words on a link, and what becomes of words nobody should say."""

from __future__ import annotations

import struct
import time

import pytest

from eris.transport import greeting
from eris.transport.identity import PeerIdentity, Refusal
from eris.transport.link import LinkClosed, LinkRefused, LinkTimeout
from eris.transport.memory_link import _MemoryStream, _Pipe
from eris.transport.patience import Patience
from eris.wire.version import VERSION

BOB = PeerIdentity("bob")


def hear(words: bytes, *, close: bool = True) -> None:
    """Let a dialler hear these bytes from an acceptor."""
    there, back = _Pipe(1 << 16), _Pipe(1 << 16)
    mine, theirs = _MemoryStream(there, back), _MemoryStream(back, there)
    patience = Patience(deadline=time.monotonic() + 0.3, kind="handshake")
    theirs.write(memoryview(words), patience)
    if close:
        theirs.finish()
    greeting.greet_acceptor(mine, BOB, lambda _: None, patience)


def word(kind: int, body: bytes = b"", *, version: int = VERSION, magic: bytes = b"ERIS") -> bytes:
    return struct.pack("<4sBBH", magic, version, kind, len(body)) + body


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
def test_another_version_is_told_so(version: int) -> None:
    with pytest.raises(LinkRefused, match=f"theirs={version}, ours={VERSION}") as caught:
        hear(word(1, version=version))
    assert (caught.value.reason, caught.value.by_us) == (Refusal.WRONG_VERSION, True)


def test_the_side_of_the_other_version_hears_it_too() -> None:
    there, back = _Pipe(1 << 16), _Pipe(1 << 16)
    mine, theirs = _MemoryStream(there, back), _MemoryStream(back, there)
    patience = Patience(deadline=time.monotonic() + 0.3, kind="handshake")
    theirs.write(memoryview(word(1, version=VERSION + 1)), patience)
    with pytest.raises(LinkRefused):
        greeting.greet_acceptor(mine, BOB, lambda _: None, patience)
    with pytest.raises(LinkRefused) as caught:
        greeting._require_welcome(theirs, BOB, patience)
    assert (caught.value.reason, caught.value.by_us) == (Refusal.WRONG_VERSION, False)


@pytest.mark.parametrize("refusal", list(Refusal))
def test_every_reason_reaches_the_other_side_as_one_word(refusal: Refusal) -> None:
    with pytest.raises(LinkRefused) as caught:
        hear(word(2, refusal.value.encode()))
    assert (caught.value.reason, caught.value.by_us) == (refusal, False)
    assert caught.value.fix
    assert len(refusal.value) <= 64


def test_a_word_of_a_later_version_is_still_a_refusal() -> None:
    with pytest.raises(LinkRefused) as caught:
        hear(word(2, b"wrong-moon-phase"))
    assert caught.value.reason is Refusal.BAD_CERTIFICATE


@pytest.mark.parametrize("words", [word(1, magic=b"HTTP"), word(2, bytes(65)), b"HTTP/1.1 200 OK\r\n\r\n"])
def test_other_protocols_are_refused(words: bytes) -> None:
    with pytest.raises(LinkRefused) as caught:
        hear(words)
    assert (caught.value.reason, caught.value.by_us) == (Refusal.NOT_TLS, True)


@pytest.mark.parametrize("length", [0, 3, 8])
def test_half_a_greeting_ends(length: int) -> None:
    words = word(2, b"busy")[:length]
    with pytest.raises(LinkClosed):
        hear(words)
    with pytest.raises(LinkTimeout) as caught:
        hear(words, close=False)
    assert caught.value.kind == "handshake"
