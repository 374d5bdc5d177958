"""Two peers that nobody can dial, joined by a relay that sees ciphertext; over real sockets."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from eris.errors import ConfigError
from eris.transport.link import LinkClosed, LinkLimits, LinkRefused, LinkTimeout
from eris.transport.link_listener import LinkListener
from eris.transport.relay import HELLO, Answer, RelayLimits, RelayServer, Request, Verb
from eris.transport.route import Proxy, RelayDoor, at_relay, by_relay, connect_by
from eris.transport.socket_stream import connect
from eris.transport.stream_link import StreamLink
from eris.transport.tls_link import dial
from tests.transport.proxies import connect_proxy

LOCAL = ("127.0.0.1", 0)
HEADER = bytes(16)
QUICK = RelayLimits(request=1.0, meet=1.0, ping=0.2)


@pytest.fixture
def relay(federation: Any) -> Iterator[RelayServer]:
    with RelayServer(federation.credentials("relay"), LOCAL, listed=["alice", "bob"], limits=QUICK) as server:
        yield server


@contextlib.contextmanager
def waiting(relay: RelayServer, credentials: Any, limits: LinkLimits) -> Iterator[LinkListener]:
    """A peer that opens no port: all that reaches it comes by the relay."""
    with LinkListener(credentials, None, limits=limits) as listener:
        door = RelayDoor(relay.address, credentials, listener.take, connect=2.0)
        try:
            assert door.open.wait(5.0)
            yield listener
        finally:
            door.close()


def call(relay: RelayServer, credentials: Any, name: str, limits: LinkLimits) -> StreamLink:
    return dial(partial(by_relay, relay.address, name, credentials), credentials, expected=name, limits=limits)


def test_peers_speak_tls_end_to_end_through_the_relay(federation, relay, limits):
    alice, bob = federation.credentials("alice"), federation.credentials("bob")
    secret = b"nobody else shall read this" * 1000
    with waiting(relay, bob, limits) as listener, call(relay, alice, "bob", limits) as mine:
        theirs = listener.accept(5.0)
        assert (mine.peer.name, theirs.peer.name) == ("bob", "alice")
        mine.send(HEADER, secret)
        assert theirs.receive_header() == HEADER
        got = bytearray(len(secret))
        theirs.receive_into(memoryview(got))
        assert got == secret
        assert relay.streams == 1
        theirs.close()
    deadline = time.monotonic() + 5
    while relay.streams and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (relay.streams, relay.carried > len(secret)) == (0, True)


def test_the_relay_carries_ciphertext(federation, relay, limits, monkeypatch):
    """What passes through the relay's hands does not contain what was said."""
    seen = bytearray()
    carry = RelayServer._carry

    async def tapped(self, source, target, carried):
        loop = __import__("asyncio").get_running_loop()
        receive = loop.sock_recv_into

        async def copying(connection, room):
            count = await receive(connection, room)
            seen.extend(room[:count])
            return count

        monkeypatch.setattr(loop, "sock_recv_into", copying, raising=False)
        await carry(self, source, target, carried)

    monkeypatch.setattr(RelayServer, "_carry", tapped)
    said = os.urandom(64)
    alice, bob = federation.credentials("alice"), federation.credentials("bob")
    with waiting(relay, bob, limits) as listener, call(relay, alice, "bob", limits) as mine:
        theirs = listener.accept(5.0)
        mine.send(HEADER, said)
        theirs.receive_header()
        theirs.receive_into(memoryview(bytearray(64)))
        theirs.close()
    assert len(seen) > 1000
    assert said not in seen


def test_many_links_at_once_with_much_to_carry(federation, relay, limits):
    alice, bob = federation.credentials("alice"), federation.credentials("bob")
    data = os.urandom(4 << 20)

    def serve(listener: LinkListener) -> None:
        link = listener.accept(10.0)
        with link:
            link.receive_header()
            room = bytearray(len(data))
            link.receive_into(memoryview(room))
            link.send(HEADER, bytes(room))
            with contextlib.suppress(LinkClosed):
                link.receive_header()

    with waiting(relay, bob, limits) as listener:
        servers = [threading.Thread(target=serve, args=(listener,)) for _ in range(8)]
        for server in servers:
            server.start()
        links = [call(relay, alice, "bob", limits) for _ in servers]
        for link in links:
            link.send(HEADER, data)
        for link in links:
            link.receive_header()
            room = bytearray(len(data))
            link.receive_into(memoryview(room))
            assert room == data
            link.close()
        for server in servers:
            server.join()


def test_only_listed_peers_are_carried(federation, relay, limits):
    stranger = federation.credentials("mallory")  # a certificate of the CA, but not on the relay's list
    with pytest.raises(LinkClosed, match="does not carry this peer"):
        by_relay(relay.address, "bob", stranger, 2.0)


def test_a_certificate_without_its_key_is_not_enough(federation, relay):
    alice, mallory = federation.credentials("alice"), federation.credentials("mallory")
    wire = connect(relay.address, 2.0)._socket
    nonce = HELLO.unpack(wire.recv(HELLO.size))[2]
    claim = Request(Verb.WAIT, "alice", b"", alice.identity.certificate)
    forged = Request(
        Verb.WAIT, "alice", b"", alice.identity.certificate, mallory.sign("relay", claim.signed_bytes(nonce))
    )
    wire.sendall(forged.encode())
    assert wire.recv(1) == bytes([Answer.NOT_LISTED])
    wire.close()
    assert relay.waiting == []


def test_a_signature_serves_once(federation, relay):
    alice = federation.credentials("alice")
    first, second = (connect(relay.address, 2.0)._socket for _ in range(2))
    nonce = HELLO.unpack(first.recv(HELLO.size))[2]
    second.recv(HELLO.size)
    request = Request(Verb.WAIT, "alice", b"", alice.identity.certificate)
    signature = alice.sign("relay", request.signed_bytes(nonce))
    spoken = Request(Verb.WAIT, "alice", b"", alice.identity.certificate, signature).encode()
    for wire, answer in ((first, Answer.WELCOME), (second, Answer.NOT_LISTED)):
        wire.sendall(spoken)
        assert wire.recv(1) == bytes([answer])
    for wire in (first, second):
        wire.close()


@pytest.mark.parametrize(
    "garbage", [b"", b"\0\0", b"\xff\xff", b"\5\0hello", b"\1\0\7", b"GET / HTTP/1.1\r\n\r\n", bytes(300)]
)
def test_garbage_ends_its_own_connection_only(federation, relay, limits, garbage):
    with connect(relay.address, 2.0)._socket as wire:
        wire.recv(HELLO.size)
        with contextlib.suppress(OSError):  # the relay does not wait for the rest of it
            wire.sendall(garbage)
            wire.shutdown(socket.SHUT_WR)
            assert wire.recv(2) in (b"", bytes([Answer.MALFORMED]))
    alice, bob = federation.credentials("alice"), federation.credentials("bob")
    with waiting(relay, bob, limits) as listener, call(relay, alice, "bob", limits):
        listener.accept(5.0).close()


def test_who_is_not_there_is_said_by_name(federation, relay):
    with pytest.raises(LinkClosed, match="says that bob is not waiting there"):
        by_relay(relay.address, "bob", federation.credentials("alice"), 2.0)


def test_a_called_peer_that_does_not_come(federation, relay):
    deaf = at_relay(relay.address, Verb.WAIT, b"", federation.credentials("bob"), 2.0)
    with pytest.raises(LinkClosed, match="called bob, but it did not come"):
        by_relay(relay.address, "bob", federation.credentials("alice"), 5.0)
    deaf.shut()


def test_a_ticket_is_for_whom_it_names(federation, relay):
    """Mallory-in-the-list cannot take another peer's call: the ticket would have to be its own."""
    bob = at_relay(relay.address, Verb.WAIT, b"", federation.credentials("bob"), 2.0)
    caught: list[BaseException] = []

    def dialling() -> None:
        try:
            by_relay(relay.address, "bob", federation.credentials("alice"), 5.0)
        except LinkClosed as error:
            caught.append(error)

    thread = threading.Thread(target=dialling)
    thread.start()
    ticket = b""
    while not ticket:
        said = bob._socket.recv(17)
        ticket = said[-16:] if len(said) == 17 else b""
    with pytest.raises(LinkClosed, match=r"did not come|refused"):
        at_relay(relay.address, Verb.MEET, ticket, federation.credentials("alice"), 2.0)
    thread.join()
    bob.shut()
    assert caught


def test_the_wrong_peer_behind_the_relay_is_noticed(federation, limits):
    """A relay that joins us with somebody else is found out by TLS, not believed."""
    relay_credentials, eve = federation.credentials("relay"), federation.credentials("eve")
    crooked = RelayServer(relay_credentials, LOCAL, listed=["alice", "eve"], limits=QUICK)
    with crooked, waiting(crooked, eve, limits):
        crooked._waiting["bob"] = crooked._waiting["eve"]
        crooked._tickets = _Crooked(crooked._tickets)
        with pytest.raises(LinkRefused, match="wrong-name"):
            call(crooked, federation.credentials("alice"), "bob", limits)
        del crooked._waiting["bob"]


class _Crooked(dict):
    """Lets eve answer for bob."""

    def pop(self, key, *default):
        found = super().pop(key, *default)
        return ("eve", found[1]) if found and found[0] == "bob" else found


def test_who_comes_back_takes_its_own_place(federation, relay, limits):
    bob = federation.credentials("bob")
    old = at_relay(relay.address, Verb.WAIT, b"", bob, 2.0)
    with waiting(relay, bob, limits) as listener, call(relay, federation.credentials("alice"), "bob", limits):
        listener.accept(5.0).close()
    old.shut()


def test_a_relay_that_comes_back_is_found_again(federation, limits):
    credentials, bob = federation.credentials("relay"), federation.credentials("bob")
    first = RelayServer(credentials, LOCAL, listed=["alice", "bob"], limits=QUICK)
    with LinkListener(bob, LOCAL, limits=limits) as listener:
        door = RelayDoor(first.address, bob, listener.take, connect=2.0)
        assert door.open.wait(5.0)
        first.close()
        deadline = time.monotonic() + 10
        while door.open.is_set() and time.monotonic() < deadline:
            time.sleep(0.01)
        with RelayServer(credentials, first.address, listed=["alice", "bob"], limits=QUICK) as second:
            assert door.open.wait(10.0)
            with call(second, federation.credentials("alice"), "bob", limits):
                listener.accept(5.0).close()
            door.close()


def test_a_waiter_that_is_cut_off_is_forgotten(federation, relay):
    wire = at_relay(relay.address, Verb.WAIT, b"", federation.credentials("bob"), 2.0)
    assert relay.waiting == ["bob"]
    wire.shut()
    deadline = time.monotonic() + 5
    while relay.waiting and time.monotonic() < deadline:
        time.sleep(0.01)
    assert relay.waiting == []


def test_a_silent_caller_is_dropped(relay):
    wire = connect(relay.address, 2.0)._socket
    wire.recv(HELLO.size)
    wire.settimeout(5.0)
    assert wire.recv(1) == b""
    wire.close()


# ── through a proxy ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_link_through_a_proxy(federation, limits):
    alice, bob = federation.credentials("alice"), federation.credentials("bob")
    proxied = connect_proxy(authorization="Basic YW5uYTpwYXNzIHdvcmQ=")
    with proxied as (proxy, asked), LinkListener(bob, LOCAL, limits=limits) as listener:
        way = partial(connect_by, listener.address, proxy=proxy)
        with dial(way, alice, expected="bob", limits=limits) as mine:
            theirs = listener.accept(5.0)
            mine.send(HEADER, b"hello")
            theirs.receive_header()
            theirs.close()
        assert asked == [f"127.0.0.1:{listener.address[1]}"]


def test_a_relay_behind_a_proxy(federation, relay, limits):
    with connect_proxy() as (proxy, asked), waiting(relay, federation.credentials("bob"), limits) as listener:
        wire = by_relay(relay.address, "bob", federation.credentials("alice"), 5.0, proxy)
        wire.shut()
        assert asked == [f"127.0.0.1:{relay.address[1]}"]
        del listener


def test_a_proxy_that_refuses_is_quoted_without_its_escapes(relay):
    with (
        connect_proxy(allowed="elsewhere") as (proxy, _),
        pytest.raises(LinkClosed, match=r"the proxy refused 127.0.0.1:\d+: 407 Proxy Authentication \[31mRequired"),
    ):
        connect_by(relay.address, 2.0, proxy)


def test_what_is_no_proxy_is_told_in_time():
    with socket.create_server(LOCAL) as silent:
        proxy = Proxy("127.0.0.1", silent.getsockname()[1])
        with pytest.raises(LinkTimeout, match="the connect time is over"):
            connect_by(("127.0.0.1", 9), 0.5, proxy)


@pytest.mark.parametrize("url", ["", "https://a:1", "http://a", "http://a:x", "socks5://a:1"])
def test_a_proxy_is_spelled_one_way(url):
    with pytest.raises(ConfigError, match="proxy"):
        Proxy.parse(url)


def test_a_password_is_not_shown():
    assert "secret" not in repr(Proxy.parse("http://anna:secret@proxy:3128"))
