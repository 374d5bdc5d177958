"""Who may have a link and who may not, over real sockets."""

from __future__ import annotations

import contextlib
import errno
import gc
import logging
import socket
import ssl
import threading
import time
import tracemalloc
import weakref
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from eris.errors import ConfigError
from eris.transport import greeting
from eris.transport.authority import Authority
from eris.transport.certificates import issue_certificate, key_bytes, new_key, pem, read_certificate, read_key
from eris.transport.credentials import Credentials
from eris.transport.identity import PeerIdentity, Refusal
from eris.transport.link import LinkClosed, LinkError, LinkLimits, LinkRefused, LinkTimeout
from eris.transport.link_listener import LinkListener
from eris.transport.patience import Patience
from eris.transport.socket_stream import connect
from eris.transport.stream_link import StreamLink
from eris.transport.tls_link import Plaintext, accept, dial
from eris.transport.tls_stream import TlsStream

LOCAL = ("127.0.0.1", 0)
HEADER = bytes(16)


@pytest.fixture
def alice(federation: Any) -> Credentials:
    return federation.credentials("alice")


@pytest.fixture
def bob(federation: Any) -> Credentials:
    return federation.credentials("bob")


def exchange(left: StreamLink, right: StreamLink) -> None:
    left.send(HEADER, b"hello")
    assert right.receive_header() == HEADER
    payload = bytearray(5)
    right.receive_into(memoryview(payload))
    assert payload == b"hello"


def wait_for(caplog: pytest.LogCaptureFixture, *words: str) -> None:
    """Wait until one line of the listener's log has all the words."""
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline:
        if any(all(word in record.getMessage() for word in words) for record in caplog.records):
            return
        time.sleep(0.01)
    raise AssertionError(f"no line with {words} in {[record.getMessage() for record in caplog.records]}")


def refused(listener: LinkListener, dialler: Credentials, limits: LinkLimits, **options: Any) -> LinkRefused:
    with pytest.raises(LinkRefused) as caught:
        dial(listener.address, dialler, limits=limits, **{"expected": "bob", **options})
    with pytest.raises(LinkTimeout):
        listener.accept(0.05)
    return caught.value


def forge(folder: Path, authority: Authority, name: str, **options: Any) -> None:
    """Give a peer's folder a certificate the CA's own commands would never make."""
    key = read_key((folder / "key.pem").read_bytes(), where=folder)
    root = read_certificate((authority.folder / "ca.pem").read_bytes(), where=folder)
    signer = read_key((authority.folder / "ca-key.pem").read_bytes(), where=folder)
    certificate = issue_certificate(root, signer, name, key.public_key(), **options)
    (folder / "certificate.pem").write_bytes(pem(certificate))


def test_both_sides_know_each_other(alice: Credentials, bob: Credentials, limits: LinkLimits) -> None:
    with (
        LinkListener(bob, LOCAL, limits=limits, roster=lambda: {"alice": alice.identity.fingerprint}) as listener,
        dial(listener.address, alice, expected="bob", fingerprint=bob.identity.fingerprint, limits=limits) as left,
        listener.accept(5.0) as right,
    ):
        assert left.peer == bob.identity
        assert right.peer == alice.identity
        exchange(left, right)
        exchange(right, left)


def test_a_link_that_is_dropped_is_gone_at_once_with_its_buffers(
    alice: Credentials, bob: Credentials, limits: LinkLimits
) -> None:
    with LinkListener(bob, LOCAL, limits=limits) as listener:
        left, right = dial(listener.address, alice, expected="bob", limits=limits), listener.accept(5.0)
        exchange(left, right)
        right.close()
        with pytest.raises(LinkClosed):
            left.receive_header()
        left.close()
        dropped = weakref.ref(left._stream)
        gc.disable()  # it must not take the collector: a peer whose links break often would keep what they held
        try:
            del left
            assert dropped() is None
        finally:
            gc.enable()


def test_a_link_that_has_only_said_hello_costs_little_room(
    alice: Credentials, bob: Credentials, limits: LinkLimits
) -> None:
    links = []
    with LinkListener(bob, LOCAL, limits=limits) as listener:
        tracemalloc.start()
        try:
            for _ in range(8):
                left, right = dial(listener.address, alice, expected="bob", limits=limits), listener.accept(5.0)
                exchange(left, right)
                links += [left, right]
            taken, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            for link in links:
                link.close()
    assert taken / len(links) < 100 * 1024  # whoever dials again and again must not take a quarter megabyte each time


def test_a_link_at_rest_keeps_no_space_to_receive_in(alice: Credentials, bob: Credentials, limits: LinkLimits) -> None:
    links, long = [], bytes(100_000)
    with LinkListener(bob, LOCAL, limits=limits) as listener:
        links += [dial(listener.address, alice, expected="bob", limits=limits), listener.accept(5.0)]  # this thread's
        exchange(*links)
        tracemalloc.start()
        try:
            for _ in range(8):
                left, right = dial(listener.address, alice, expected="bob", limits=limits), listener.accept(5.0)
                exchange(left, right)
                exchange(right, left)
                left.send(HEADER, long)
                right.receive_header()
                right.receive_into(memoryview(bytearray(long)))
                links += [left, right]
            gc.collect()
            taken, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            for link in links:
                link.close()
    assert taken / 16 < 24 * 1024  # 100,000 of them on one machine; a record's space at each end would be 32 KiB


def test_only_tls_1_3_with_a_certificate_and_without_tickets(bob: Credentials) -> None:
    for server_side in (True, False):
        context = bob.context(server_side=server_side)
        assert context.minimum_version is ssl.TLSVersion.TLSv1_3
        assert context.verify_mode is ssl.CERT_REQUIRED
    assert bob.context(server_side=True).num_tickets == 0


def test_a_stranger_learns_one_word(tmp_path: Path, bob: Credentials, limits: LinkLimits, caplog: Any) -> None:
    stranger = Credentials(Authority.create(tmp_path / "other", "cardio").issue("alice"))
    believing = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    believing.check_hostname = False
    believing.load_verify_locations(bob.folder / "ca.pem")
    believing.load_cert_chain(stranger.folder / "certificate.pem", stranger.folder / "key.pem")
    with LinkListener(bob, LOCAL, limits=limits) as listener:
        told = raw_dial(listener, believing, limits)
        assert (told.reason, told.by_us) == (Refusal.UNKNOWN_CA, False)
        wait_for(caplog, "127.0.0.1", "we refused", "unknown-ca")


def raw_dial(listener: LinkListener, context: ssl.SSLContext, limits: LinkLimits) -> LinkRefused:
    wire, patience = connect(listener.address, limits.connect), Patience(deadline=time.monotonic() + 5.0)
    try:
        stream = TlsStream(wire, context, server_side=False)
        stream.handshake(patience)
        greeting.greet_acceptor(stream, PeerIdentity("bob"), lambda _: None, patience)
    except LinkRefused as refusal:
        return refusal
    finally:
        wire.shut()
    raise AssertionError("the dialler was welcome")


def test_another_federation_is_refused_by_the_dialler_too(
    tmp_path: Path, bob: Credentials, limits: LinkLimits, caplog: Any
) -> None:
    other = Credentials(Authority.create(tmp_path / "other", "neuro").issue("alice"))
    with LinkListener(bob, LOCAL, limits=limits) as listener:
        told = refused(listener, other, limits)
        assert (told.reason, told.by_us) == (Refusal.UNKNOWN_CA, True)
        wait_for(caplog, "the other side refused us", "unknown-ca")


def test_a_dialler_without_a_certificate_is_refused(bob: Credentials, limits: LinkLimits, caplog: Any) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(bob.folder / "ca.pem")
    with LinkListener(bob, LOCAL, limits=limits) as listener:
        told = raw_dial(listener, context, limits)
        assert (told.reason, told.by_us) == (Refusal.NO_CERTIFICATE, False)
        wait_for(caplog, "we refused", "no-certificate")


@pytest.mark.parametrize(
    ("start", "reason"), [(-30, Refusal.EXPIRED), (30, Refusal.NOT_YET_VALID)], ids=["expired", "of-the-future"]
)
def test_dates_are_checked(
    federation: Any, bob: Credentials, limits: LinkLimits, caplog: Any, start: int, reason: Refusal
) -> None:
    folder = federation.credentials("alice").folder
    forge(folder, federation.authority, "alice", start=datetime.now(UTC) + timedelta(days=start), days=10)
    with LinkListener(bob, LOCAL, limits=limits) as listener:
        told = refused(listener, Credentials(folder), limits)
        # TLS has no word of its own for "not yet".
        assert told.reason is (reason if reason is Refusal.EXPIRED else Refusal.BAD_CERTIFICATE)
        assert not told.by_us
        wait_for(caplog, "we refused", reason.value)


def test_an_expired_acceptor_is_refused(federation: Any, alice: Credentials, limits: LinkLimits, caplog: Any) -> None:
    folder = federation.credentials("bob").folder
    forge(folder, federation.authority, "bob", start=datetime.now(UTC) - timedelta(days=30), days=10)
    with LinkListener(Credentials(folder), LOCAL, limits=limits) as listener:
        told = refused(listener, alice, limits)
        assert (told.reason, told.by_us) == (Refusal.EXPIRED, True)
        wait_for(caplog, "refused us", "expired")


def test_the_revoked_are_refused_without_a_restart(
    federation: Any, alice: Credentials, bob: Credentials, limits: LinkLimits, caplog: Any
) -> None:
    with LinkListener(bob, LOCAL, limits=limits) as listener:
        with dial(listener.address, alice, expected="bob", limits=limits) as left, listener.accept(5.0) as right:
            federation.authority.revoke("alice")
            assert bob.refusal(right.peer) is None  # not looked at the files yet
            bob.refresh()
            assert bob.refusal(right.peer) is Refusal.REVOKED  # what a round does with links that stand
            assert bob.refusal(left.peer) is None
        told = refused(listener, alice, limits)
        assert (told.reason, told.by_us) == (Refusal.REVOKED, False)
        wait_for(caplog, "we refused", "revoked", "alice.cardio")


def test_a_revoked_acceptor_is_refused(
    federation: Any, alice: Credentials, bob: Credentials, limits: LinkLimits
) -> None:
    with LinkListener(bob, LOCAL, limits=limits) as listener:
        federation.authority.revoke("bob")
        told = refused(listener, alice, limits)
        assert (told.reason, told.by_us) == (Refusal.REVOKED, True)


def test_another_peer_than_the_dialled_one_is_refused(
    alice: Credentials, bob: Credentials, limits: LinkLimits, caplog: Any
) -> None:
    with LinkListener(bob, LOCAL, limits=limits) as listener:
        told = refused(listener, alice, limits, expected="carol")
        assert (told.reason, told.by_us) == (Refusal.WRONG_NAME, True)
        wait_for(caplog, "refused us", "wrong-name", "alice.cardio")


def test_a_name_with_another_key_is_refused(
    federation: Any, alice: Credentials, bob: Credentials, limits: LinkLimits, caplog: Any
) -> None:
    with LinkListener(bob, LOCAL, limits=limits, roster=lambda: {"alice": "00" * 32}) as listener:
        told = refused(listener, alice, limits)
        assert (told.reason, told.by_us) == (Refusal.WRONG_FINGERPRINT, False)
        wait_for(caplog, "we refused", "wrong-fingerprint", "alice.cardio")
        told = refused(listener, alice, limits, fingerprint="11" * 32)  # the acceptor's word comes first
        assert not told.by_us
    with LinkListener(bob, LOCAL, limits=limits) as listener:
        told = refused(listener, alice, limits, fingerprint="11" * 32)
        assert (told.reason, told.by_us) == (Refusal.WRONG_FINGERPRINT, True)


@pytest.mark.parametrize("roster", [{}, {"bob": "ab"}])
def test_whoever_is_not_on_the_roster_is_refused(
    alice: Credentials, bob: Credentials, limits: LinkLimits, roster: dict[str, str]
) -> None:
    with LinkListener(bob, LOCAL, limits=limits, roster=lambda: roster) as listener:
        told = refused(listener, alice, limits)
        assert (told.reason, told.by_us) == (Refusal.NOT_ON_ROSTER, False)


def test_an_unpinned_fingerprint_admits_nobody(alice: Credentials, bob: Credentials, limits: LinkLimits) -> None:
    with LinkListener(bob, LOCAL, limits=limits, roster=lambda: {"alice": ""}) as listener:
        assert refused(listener, alice, limits).reason is Refusal.WRONG_FINGERPRINT


def test_a_certificate_of_our_ca_for_another_federation_is_refused(
    federation: Any, bob: Credentials, limits: LinkLimits, monkeypatch: Any, caplog: Any
) -> None:
    folder = federation.credentials("alice").folder
    with monkeypatch.context() as patched:
        patched.setattr("eris.transport.certificates.federation_of", lambda _: "neuro")
        forge(folder, federation.authority, "alice")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(folder / "ca.pem")
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    with LinkListener(bob, LOCAL, limits=limits) as listener:
        told = raw_dial(listener, context, limits)
        assert (told.reason, told.by_us) == (Refusal.WRONG_FEDERATION, False)
        wait_for(caplog, "we refused", "wrong-federation")


def test_plain_text_is_not_answered_in_kind(
    bob: Credentials, alice: Credentials, limits: LinkLimits, caplog: Any
) -> None:
    with LinkListener(bob, LOCAL, limits=limits) as listener:
        with socket.create_connection(listener.address, timeout=5.0) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: bob\r\n\r\n")
            assert len(client.recv(4096)) < 16  # a TLS alert
            assert client.recv(4096) == b""
        wait_for(caplog, "we refused", "not-tls")
        with pytest.raises(LinkError):
            dial(listener.address, Plaintext("alice"), expected="bob", limits=limits)
        with dial(listener.address, alice, expected="bob", limits=limits), listener.accept(5.0):
            pass  # the listener goes on


def test_tls_1_2_is_refused(alice: Credentials, bob: Credentials, limits: LinkLimits, caplog: Any) -> None:
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname = False
    old.load_verify_locations(alice.folder / "ca.pem")
    old.load_cert_chain(alice.folder / "certificate.pem", alice.folder / "key.pem")
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with LinkListener(bob, LOCAL, limits=limits) as listener:
        told = raw_dial(listener, old, limits)
        assert (told.reason, told.by_us) == (Refusal.NOT_TLS, False)
        wait_for(caplog, "we refused", "not-tls")


def test_silent_connections_do_not_keep_others_out(alice: Credentials, bob: Credentials, limits: LinkLimits) -> None:
    patient = replace(limits, handshake=30.0)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(LinkListener(bob, LOCAL, limits=patient, half_open=4))
        silent = [stack.enter_context(socket.create_connection(listener.address, timeout=10.0)) for _ in range(6)]
        time.sleep(0.2)
        assert sum(thread.name.startswith("eris-handshake") for thread in threading.enumerate()) <= 4
        with (
            dial(listener.address, alice, expected="bob", limits=limits) as left,
            listener.accept(5.0) as right,
        ):
            exchange(left, right)
        assert silent[0].recv(1) == b""  # had its fair time, made room


def test_a_handshake_that_trickles_ends(bob: Credentials, limits: LinkLimits) -> None:
    hasty = replace(limits, handshake=0.4)
    with (
        LinkListener(bob, LOCAL, limits=hasty) as listener,
        socket.create_connection(listener.address, timeout=5.0) as client,
    ):
        started = time.monotonic()
        client.settimeout(0.02)
        for byte in b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(400):
            with contextlib.suppress(TimeoutError, OSError):
                client.sendall(bytes([byte]))
                if client.recv(100) == b"":
                    break
        assert time.monotonic() - started < 3.0


def test_dialling_someone_silent_ends(alice: Credentials, limits: LinkLimits) -> None:
    with socket.create_server(LOCAL) as silent, pytest.raises(LinkTimeout) as caught:
        dial(silent.getsockname(), alice, expected="bob", limits=replace(limits, handshake=0.2))
    assert caught.value.kind == "handshake"


def test_dialling_nobody_says_what_to_check(alice: Credentials, limits: LinkLimits) -> None:
    with socket.create_server(LOCAL) as listening:
        nobody = listening.getsockname()
    with pytest.raises(LinkClosed, match="eris doctor"):
        dial(nobody, alice, expected="bob", limits=limits)
    for host, port in (("nobody.invalid", 1), ("a..b", 1), ("x" * 70, 1), ("127.0.0.1", 1 << 80)):
        with pytest.raises(LinkClosed, match="cannot find host"):
            dial((host, port), alice, expected="bob", limits=limits)


def test_a_machine_that_can_open_no_socket_says_so_as_a_link_does(
    alice: Credentials, limits: LinkLimits, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket, "socket", full)
    with pytest.raises(LinkClosed, match="Too many open files"):
        dial(("127.0.0.1", 1), alice, expected="bob", limits=limits)


def test_a_way_that_swallows_packets_ends(alice: Credentials, limits: LinkLimits) -> None:
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.create_server(LOCAL, backlog=0))
        for _ in range(4):  # a full backlog drops what comes next
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        with pytest.raises(LinkTimeout) as caught:
            dial(full.getsockname(), alice, expected="bob", limits=replace(limits, connect=0.3))
        assert caught.value.kind == "connect"


@pytest.fixture
def ipv6() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")


@pytest.mark.usefixtures("ipv6")
def test_ipv6_alone_and_both_at_once(alice: Credentials, bob: Credentials, limits: LinkLimits) -> None:
    with (
        LinkListener(bob, ("::1", 0), limits=limits) as listener,
        dial(listener.address, alice, expected="bob", limits=limits) as left,
        listener.accept(5.0) as right,
    ):
        exchange(left, right)
    with LinkListener(bob, ("", 0), limits=limits) as listener:
        for host in ("::1", "127.0.0.1", "localhost"):
            address = (host, listener.address[1])
            with dial(address, alice, expected="bob", limits=limits) as left, listener.accept(5.0) as right:
                exchange(left, right)


def test_a_renewed_certificate_is_used_without_a_restart(
    federation: Any, alice: Credentials, bob: Credentials, limits: LinkLimits
) -> None:
    roster = {"alice": alice.identity.fingerprint}
    with LinkListener(bob, LOCAL, limits=limits, roster=lambda: roster) as listener:
        serials = []
        for _ in range(2):
            with dial(listener.address, alice, expected="bob", limits=limits) as left, listener.accept(5.0) as right:
                serials.append((left.peer.serial, right.peer.serial))
            federation.authority.issue("alice")
            federation.authority.issue("bob")
        assert not set(serials[0]) & set(serials[1])
        federation.authority.issue("alice", replace=True)  # a fresh key is another identity: the roster must learn it
        assert refused(listener, alice, limits).reason is Refusal.WRONG_FINGERPRINT
        roster["alice"] = alice.identity.fingerprint
        with dial(listener.address, alice, expected="bob", limits=limits), listener.accept(5.0):
            pass


def test_files_that_do_not_fit_together_are_not_taken_up(
    alice: Credentials, bob: Credentials, limits: LinkLimits, caplog: Any
) -> None:
    (alice.folder / "key.pem").write_bytes(key_bytes(new_key()))  # the certificate is still on its way
    with (
        LinkListener(bob, LOCAL, limits=limits) as listener,
        dial(listener.address, alice, expected="bob", limits=limits),
        listener.accept(5.0),
    ):
        wait_for(caplog, "not used yet")


def test_two_links_at_once(alice: Credentials, bob: Credentials, limits: LinkLimits) -> None:
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(LinkListener(bob, LOCAL, limits=limits))
        pairs = []
        for _ in range(2):
            left = stack.enter_context(dial(listener.address, alice, expected="bob", limits=limits))
            pairs.append((left, stack.enter_context(listener.accept(5.0))))
        threads = [threading.Thread(target=exchange, args=pair) for pair in pairs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(5.0)
        assert [right.traffic.frames_received for _, right in pairs] == [1, 1]


def test_damage_on_the_way_is_noticed(alice: Credentials, bob: Credentials, limits: LinkLimits) -> None:
    with (
        LinkListener(bob, LOCAL, limits=limits) as listener,
        dial(listener.address, alice, expected="bob", limits=limits) as left,
        listener.accept(5.0) as right,
    ):
        wire = left._stream._wire
        wire.write(memoryview(b"\x17\x03\x03\x00\x20" + bytes(32)), Patience(5.0))  # a record nobody encrypted
        with pytest.raises(LinkClosed, match="damaged") as caught:
            right.receive_header()
        assert not caught.value.clean


def test_plain_text_stays_on_loopback(limits: LinkLimits) -> None:
    with pytest.raises(ConfigError, match="plain text"):
        LinkListener(Plaintext("bob"), ("0.0.0.0", 0), limits=limits)
    with LinkListener(Plaintext("bob"), LOCAL, limits=limits, roster=lambda: {"alice": ""}) as listener:
        with pytest.raises(LinkRefused) as caught:
            dial(listener.address, Plaintext("eve"), expected="bob", limits=limits)
        assert caught.value.reason is Refusal.NOT_ON_ROSTER
        wire = connect(listener.address, 5.0)
        wire.__class__ = type("Far", (type(wire),), {"loopback": False})
        with pytest.raises(ConfigError, match="over a network"):
            accept(wire, Plaintext("bob"), limits=limits)


def test_more_links_than_anyone_takes_are_refused(alice: Credentials, bob: Credentials, limits: LinkLimits) -> None:
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(LinkListener(bob, LOCAL, limits=limits, waiting=1))
        stack.enter_context(dial(listener.address, alice, expected="bob", limits=limits))
        deadline = time.monotonic() + 5.0
        while listener._links.empty() and time.monotonic() < deadline:
            time.sleep(0.01)
        with pytest.raises(LinkRefused) as caught:
            dial(listener.address, alice, expected="bob", limits=limits)
        assert caught.value.reason is Refusal.BUSY


def test_closing_a_listener_ends_those_who_wait(bob: Credentials, limits: LinkLimits) -> None:
    listener = LinkListener(bob, LOCAL, limits=limits)
    errors: list[Exception] = []

    def wait() -> None:
        try:
            listener.accept(30.0)
        except LinkError as error:
            errors.append(error)

    threads = [threading.Thread(target=wait) for _ in range(2)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    started = time.monotonic()
    listener.close()
    for thread in threads:
        thread.join(5.0)
    assert [type(error) for error in errors] == [LinkClosed, LinkClosed]
    assert time.monotonic() - started < 3.0
    with socket.create_server(LOCAL) as taken, pytest.raises(ConfigError, match="cannot listen"):
        LinkListener(bob, taken.getsockname(), limits=limits)


def test_a_roster_that_fails_costs_one_link(
    alice: Credentials, bob: Credentials, limits: LinkLimits, caplog: Any
) -> None:
    rosters: list[Any] = [lambda: 1 / 0, lambda: None]
    with LinkListener(bob, LOCAL, limits=limits, roster=lambda: rosters.pop(0)()) as listener:
        with pytest.raises(LinkClosed):
            dial(listener.address, alice, expected="bob", limits=limits)
        wait_for(caplog, "connection from")
        with dial(listener.address, alice, expected="bob", limits=limits), listener.accept(5.0):
            pass


def test_secrets_stay_out_of_logs(alice: Credentials, bob: Credentials, limits: LinkLimits, caplog: Any) -> None:
    caplog.set_level(logging.DEBUG)
    with LinkListener(bob, LOCAL, limits=limits, roster=dict) as listener:
        refused(listener, alice, limits)
        wait_for(caplog, "not-on-roster")
    key = (alice.folder / "key.pem").read_text().splitlines()[1]
    assert key not in caplog.text
    assert key not in repr(alice) + repr(alice._now)
