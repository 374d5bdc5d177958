"""Links over TCP: TLS 1.3 with a certificate on both sides, or plain text that never leaves the machine.

The member dials and `LinkListener` (link_listener.py) accepts; both end up with a `StreamLink` whose peer is known and
welcome.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from eris.errors import ConfigError
from eris.transport import greeting
from eris.transport.identity import PeerIdentity, Refusal, refusal_of
from eris.transport.link import LinkLimits, LinkRefused
from eris.transport.names import check_name
from eris.transport.patience import Patience
from eris.transport.socket_stream import Address, SocketStream, Way, connect
from eris.transport.stream_link import Stream, StreamLink
from eris.transport.tls_stream import TlsStream

if TYPE_CHECKING:
    from eris.transport.credentials import Credentials

__all__ = ["Plaintext", "Roster", "Security", "accept", "dial"]

Roster = Mapping[str, str]  # name → fingerprint


@dataclass(frozen=True, slots=True)
class Plaintext:
    """An explicit request for no encryption and no proof of identity: loopback only, for tests and measurements."""

    name: str

    def __post_init__(self) -> None:
        check_name(self.name)


Security: TypeAlias = "Credentials | Plaintext"


def dial(
    place: Address | Way,
    security: Security,
    *,
    expected: str,
    limits: LinkLimits,
    fingerprint: str | None = None,
) -> StreamLink:
    """Connect to the peer `expected` and return the link.

    Args:
        place: an address, or a way to it: through a proxy, or by a relay (route.py).
        security: our credentials, or `Plaintext`.
        expected: the name that the other side must prove.
        limits: sizes and times of the link.
        fingerprint: the key that the roster pins for that name.
    """
    roster = None if fingerprint is None else {expected: fingerprint}
    wire = place(limits.connect) if callable(place) else connect(place, limits.connect)
    patience = Patience(deadline=time.monotonic() + limits.handshake, kind="handshake", peer=expected)
    with _released_on_error(wire):
        stream, peer = _secure(wire, security, patience, server_side=False)
        with _parting_on_refusal(stream):
            greeting.greet_acceptor(stream, peer, _judge(security, expected, roster), patience)
    return StreamLink(stream, peer, limits)


def accept(
    wire: SocketStream, security: Security, *, limits: LinkLimits, roster: Roster | None = None, busy: bool = False
) -> StreamLink:
    """Turn a connection that was just accepted into a link, if the dialler is welcome.

    Args:
        security: our credentials, or `Plaintext`.
        limits: sizes and times of the link.
        roster: name → fingerprint of those who are welcome; None: anybody of the federation.
        busy: refuse even those who are welcome, because there is no room.
    """
    patience = Patience(deadline=time.monotonic() + limits.handshake, kind="handshake", peer=wire.remote)
    with _released_on_error(wire):
        stream, peer = _secure(wire, security, patience, server_side=True)
        with _parting_on_refusal(stream):
            judge = (lambda _: Refusal.BUSY) if busy else _judge(security, None, roster)
            greeting.greet_dialler(stream, peer, judge, patience)
    return StreamLink(stream, peer, limits)


def _secure(
    wire: SocketStream, security: Security, patience: Patience, *, server_side: bool
) -> tuple[Stream, PeerIdentity]:
    if isinstance(security, Plaintext):
        return wire, _exchange_claims(wire, security, patience, server_side=server_side)
    security.refresh()
    stream = TlsStream(wire, security.context(server_side=server_side), server_side=server_side)
    with _parting_on_refusal(wire):
        return stream, security.identify(stream.handshake(patience))


def _exchange_claims(wire: SocketStream, security: Plaintext, patience: Patience, *, server_side: bool) -> PeerIdentity:
    if not wire.loopback:
        raise ConfigError(
            "plain text is not allowed over a network", fix="use certificates, or 127.0.0.1 on both sides"
        )
    if not server_side:
        greeting.claim(wire, security.name, patience)
        return greeting.hear_claim(wire, patience)
    peer = greeting.hear_claim(wire, patience)
    greeting.claim(wire, security.name, patience)
    return peer


def _judge(security: Security, expected: str | None, roster: Roster | None) -> greeting.Judge:
    if not isinstance(security, Plaintext):
        return lambda peer: security.refusal(peer, expected=expected, roster=roster)
    # Without keys a roster can only vouch for the name.
    names = None if roster is None else dict.fromkeys(roster, "plain")
    return lambda peer: refusal_of(replace(peer, fingerprint="plain"), now=0.0, expected=expected, roster=names)


@contextlib.contextmanager
def _released_on_error(wire: SocketStream) -> Iterator[None]:
    try:
        yield
    except BaseException:
        wire.shut()
        raise


@contextlib.contextmanager
def _parting_on_refusal(stream: Stream) -> Iterator[None]:
    """Say goodbye after a refusal: the other side has sent nothing that we left unread, so it hears the reason."""
    try:
        yield
    except LinkRefused:
        stream.finish()
        raise
