"""Finds which step towards a gRPC server fails (address, port, TLS, CA, dates, name), which gRPC does not say."""

from __future__ import annotations

import contextlib
import time

from eris.transport.credentials import Credentials
from eris.transport.identity import PeerIdentity
from eris.transport.link import LinkRefused, LinkTimeout
from eris.transport.patience import Patience
from eris.transport.route import Proxy, connect_by
from eris.transport.socket_stream import Address
from eris.transport.tls_stream import TlsStream

__all__ = ["probe"]


def probe(
    address: Address, credentials: Credentials, *, expected: str, seconds: float = 5.0, proxy: Proxy | None = None
) -> PeerIdentity:
    """Return who answers at a gRPC address, or raise the `LinkError` that says why nobody suitable does.

    Args:
        expected: the name that the server's certificate must carry.
        seconds: for the connection, and again for the handshake.
        proxy: the HTTP proxy to go through, if any.
    """
    wire = connect_by(address, seconds, proxy)
    try:
        patience = Patience(deadline=time.monotonic() + seconds, kind="handshake", peer=expected)
        stream = TlsStream(wire, credentials.new_context(server_side=False, protocols=("h2",)), server_side=False)
        peer = credentials.identify(stream.handshake(patience))
        if refusal := credentials.refusal(peer, expected=expected):
            raise LinkRefused(refusal, by_us=True, peer=peer)
        if refusal := credentials.refusal(credentials.identity):  # gRPC hangs up without naming this cause
            raise LinkRefused(refusal, by_us=False, peer=peer)
        with contextlib.suppress(
            LinkTimeout
        ):  # a server that refuses us says so now; one that does not greets in HTTP/2
            stream.read_into(memoryview(bytearray(64)), Patience(deadline=time.monotonic() + 1.0))
        return peer
    finally:
        wire.shut()
