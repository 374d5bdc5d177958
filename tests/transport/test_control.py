"""Calls between peers and a coordinator over real gRPC with mutual TLS."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eris.errors import ConfigError, Reason, Refused
from eris.transport.authority import Authority
from eris.transport.board import Board
from eris.transport.control import Document
from eris.transport.control_client import ControlClient
from eris.transport.control_server import ControlServer
from eris.transport.credentials import Credentials
from eris.transport.identity import PeerIdentity, Refusal
from eris.transport.link import LinkClosed, LinkRefused, LinkTimeout
from eris.wire.document import LONGEST_DOCUMENT

LOCAL = ("127.0.0.1", 0)


class Echo:
    """A service that says who asked for what."""

    def __init__(self) -> None:
        self.health, self.calls = True, 0
        self.there: list[tuple[str, bool]] = []

    def _answer(self, call: str, caller: PeerIdentity, request: Document) -> Document:
        self.calls += 1
        return {"call": call, "caller": caller.name, "fingerprint": caller.fingerprint, "request": request}

    def join(self, caller: PeerIdentity, request: Document) -> Document:
        return self._answer("join", caller, request)

    def report(self, caller: PeerIdentity, request: Document) -> Document:
        if request.get("round") == 1:
            raise Refused(Reason.WRONG_ROUND, "the round is 2", fix="ask for the plan", round=1)
        if request.get("round") == 2:
            raise ZeroDivisionError("a secret of the coordinator")
        if request.get("round") == 3:
            return {"missing": request["hash"]}
        return self._answer("report", caller, request)

    def fetch(self, caller: PeerIdentity, request: Document) -> Document:
        time.sleep(request.get("seconds", 0))
        return self._answer("fetch", caller, request)

    def status(self, caller: PeerIdentity, request: Document) -> Document:
        return self._answer("status", caller, request)

    def leave(self, caller: PeerIdentity, request: Document) -> Document:
        return self._answer("leave", caller, request)

    def stop(self, caller: PeerIdentity, request: Document) -> Document:
        return self._answer("stop", caller, request)

    def heard(self, caller: PeerIdentity, *, waits: bool) -> None:
        if waits:
            self.there.append((caller.name, True))

    def lost(self, caller: PeerIdentity) -> None:
        self.there.append((caller.name, False))

    def healthy(self) -> bool:
        return self.health


@pytest.fixture
def service() -> Echo:
    return Echo()


@pytest.fixture
def server(federation: Any, service: Echo) -> Iterator[ControlServer]:
    with ControlServer(federation.credentials("coordinator"), LOCAL, service, capacity=8) as server:
        yield server


@pytest.fixture
def alice(federation: Any) -> Credentials:
    return federation.credentials("alice")


@pytest.fixture
def client(server: ControlServer, alice: Credentials) -> Iterator[ControlClient]:
    with ControlClient(alice, server.address) as client:
        yield client


def test_every_call_reaches_the_service_with_its_caller(client: ControlClient, alice: Credentials) -> None:
    for call in ("join", "report", "fetch", "status", "leave", "stop"):
        answer = getattr(client, call)({"round": 7})
        assert answer == {
            "call": call, "caller": "alice", "fingerprint": alice.identity.fingerprint, "request": {"round": 7},
        }  # fmt: skip


def test_health_is_what_the_usual_tools_ask(client: ControlClient, service: Echo) -> None:
    assert client.healthy()
    service.health = False
    assert not client.healthy()


def test_news_come_in_order_and_once(server: ControlServer, client: ControlClient) -> None:
    assert client.news(0.0) == []
    server.board.post("plan", {"round": 0})
    server.board.post("verdict", {"round": 0})
    assert [(b.kind, b.document) for b in client.news(5.0)] == [("plan", {"round": 0}), ("verdict", {"round": 0})]
    assert client.news(0.0) == []
    posting = threading.Timer(0.2, server.board.post, ("plan", {"round": 1}))
    posting.start()
    started = time.monotonic()
    assert [b.document for b in client.news(10.0)] == [{"round": 1}]
    assert 0.1 < time.monotonic() - started < 5.0
    posting.join()


def test_news_longer_than_a_document_are_heard_page_by_page_as_one(
    server: ControlServer, client: ControlClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for round in range(64):
        server.board.post("plan", {"round": round, "roster": "x" * 30_000})
    lost = iter([False, True])

    def broken(path: str, data: bytes, seconds: float, send: Any = client._send) -> bytes:
        if next(lost, False):
            raise LinkClosed("the connection broke", clean=False)
        return send(path, data, seconds)

    monkeypatch.setattr(client, "_send", broken)
    with pytest.raises(LinkClosed):
        client.news(5.0)
    assert [b.document["round"] for b in client.news(5.0)] == list(range(64))  # also those of the page before it broke
    assert client.traffic.calls == 1 + 4
    server.board.post("plan", {"round": 64, "roster": "x" * (LONGEST_DOCUMENT - 1000)})
    server.board.post("verdict", {"round": 64})
    assert [b.kind for b in client.news(5.0)] == ["plan", "verdict"]


def test_waiting_for_news_ends_empty_handed(client: ControlClient) -> None:
    started = time.monotonic()
    assert client.news(0.2) == []
    assert 0.19 < time.monotonic() - started < 3.0


def test_a_coordinator_that_came_back_is_heard_from_its_beginning(
    federation: Any, service: Echo, alice: Credentials
) -> None:
    own = federation.credentials("coordinator")
    with ControlServer(own, LOCAL, service) as first, ControlClient(alice, first.address) as client:
        for round in range(5):
            first.board.post("plan", {"round": round})
        assert len(client.news(1.0)) == 5
        first.close(grace=0.0)
        with ControlServer(own, first.address, service) as second:
            second.board.post("plan", {"round": 5})
            assert [b.document for b in news_from(client)] == [{"round": 5}]


def news_from(client: ControlClient) -> Any:
    deadline = time.monotonic() + 10.0
    while True:
        try:
            return client.news(1.0)
        except LinkClosed:  # the connection is being made anew
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_a_refusal_is_the_same_on_both_sides(client: ControlClient, caplog: Any) -> None:
    with pytest.raises(Refused) as caught:
        client.report({"round": 1})
    assert caught.value.reason is Reason.WRONG_ROUND
    assert "the round is 2" in caught.value.what
    assert caught.value.what.count("refused") == 1
    assert caught.value.fix == "ask for the plan"
    assert "alice.cardio" in caplog.text


def test_a_failure_of_the_coordinator_stays_with_it(client: ControlClient, caplog: Any) -> None:
    with pytest.raises(LinkClosed) as caught:
        client.report({"round": 2})
    assert "secret" not in str(caught.value)
    assert "a secret of the coordinator" in caplog.text


def test_what_is_missing_from_a_request_is_named(client: ControlClient) -> None:
    with pytest.raises(Refused, match="hash") as caught:
        client.report({"round": 3})
    assert caught.value.reason is Reason.MALFORMED


def test_bytes_that_are_no_document_are_refused(client: ControlClient) -> None:
    with pytest.raises(Refused) as caught:
        client._send("/eris.Control/Join", b'{"b": 1}', 5.0)
    assert caught.value.reason is Reason.MALFORMED
    with pytest.raises(LinkClosed, match="UNIMPLEMENTED"):
        client._send("/eris.Control/Nothing", b"{}", 5.0)
    with pytest.raises(LinkClosed, match="RESOURCE_EXHAUSTED"):
        client._send("/eris.Control/Join", bytes(2 << 20), 5.0)


def test_an_answer_that_takes_too_long_is_a_timeout(client: ControlClient) -> None:
    with pytest.raises(LinkTimeout) as caught:
        client.fetch({"seconds": 1}, seconds=0.3)
    assert caught.value.kind == "deadline"


def test_nobody_there(alice: Credentials) -> None:
    with socket.create_server(LOCAL) as listening:
        nobody = listening.getsockname()
    with ControlClient(alice, nobody) as client, pytest.raises(LinkClosed, match="eris doctor"):
        client.status(seconds=5.0)


def test_strangers_learn_which_step_failed(server: ControlServer, tmp_path: Path, service: Echo) -> None:
    stranger = Credentials(Authority.create(tmp_path / "other", "cardio").issue("alice"))
    with ControlClient(stranger, server.address) as client, pytest.raises(LinkRefused) as caught:
        client.join({}, seconds=5.0)
    assert (caught.value.reason, caught.value.by_us) == (Refusal.UNKNOWN_CA, True)
    assert service.calls == 0


def test_another_peer_cannot_play_the_coordinator(federation: Any, alice: Credentials, service: Echo) -> None:
    with (
        ControlServer(federation.credentials("mallory"), LOCAL, service) as server,
        ControlClient(alice, server.address) as client,
        pytest.raises(LinkRefused) as caught,
    ):
        client.join({}, seconds=5.0)
    assert (caught.value.reason, caught.value.by_us) == (Refusal.WRONG_NAME, True)
    assert service.calls == 0


def test_the_revoked_are_refused_at_the_next_call(
    federation: Any, client: ControlClient, service: Echo, caplog: Any
) -> None:
    client.status()
    federation.authority.revoke("alice")
    with pytest.raises(LinkRefused) as caught:
        client.status()
    assert (caught.value.reason, caught.value.by_us) == (Refusal.REVOKED, False)
    assert service.calls == 1
    assert "alice.cardio" in caplog.text


def test_renewed_certificates_are_used_without_a_restart(
    federation: Any, server: ControlServer, client: ControlClient, alice: Credentials
) -> None:
    before = client.status()["fingerprint"]
    federation.authority.issue("alice", replace=True)
    federation.authority.issue("coordinator")
    after = client.status()["fingerprint"]
    assert after == alice.identity.fingerprint != before
    with ControlClient(alice, server.address) as fresh:
        assert fresh.status()["fingerprint"] == after


def test_proxies_of_the_environment_are_not_asked(
    server: ControlServer, alice: Credentials, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(LOCAL) as proxy:
        for name in ("grpc_proxy", "https_proxy", "http_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(name, "http://{}:{}".format(*proxy.getsockname()))
        for name in ("no_grpc_proxy", "no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        with ControlClient(alice, server.address) as client:
            assert client.status()["caller"] == "alice"
        proxy.setblocking(False)
        with pytest.raises(BlockingIOError):  # nobody came
            proxy.accept()


def test_bytes_are_counted_on_both_sides(server: ControlServer, client: ControlClient) -> None:
    client.join({"padding": "x" * 1000})
    there, here = server.traffic, client.traffic
    assert (there.calls, there.received, there.sent) == (1, here.sent, here.received)
    assert 1000 < here.sent < 1100


def test_closing_answers_those_who_wait(federation: Any, service: Echo, alice: Credentials) -> None:
    server = ControlServer(federation.credentials("coordinator"), LOCAL, service)
    heard: list[object] = []
    with ControlClient(alice, server.address) as client:
        client.status()
        waiting = threading.Thread(target=lambda: heard.append(client.news(30.0)))
        waiting.start()
        time.sleep(0.2)
        server.close()
        waiting.join(5.0)
    assert heard == [[]]


def test_a_port_that_is_taken_is_named(server: ControlServer, federation: Any, service: Echo) -> None:
    with pytest.raises(ConfigError, match="cannot listen"):
        ControlServer(federation.credentials("coordinator"), server.address, service)


def test_a_board_keeps_only_the_newest() -> None:
    board = Board(keep=3)
    for number in range(5):
        board.post("plan", {"round": number})
    assert [b.sequence for b in board.after(-1, seconds=0)] == [2, 3, 4]
    assert [b.sequence for b in board.after(3, seconds=0)] == [4]
    assert board.after(4, seconds=0) == []
    board.close()
    assert board.after(4, seconds=30.0) == []


def test_a_caller_that_wants_all_threads_leaves_some_for_the_others(
    federation: Any, server: ControlServer, client: ControlClient, service: Echo
) -> None:
    for call in (lambda: client.news(1.0), lambda: client.fetch({"seconds": 1})):
        ends: list[object] = []
        threads = [threading.Thread(target=_kept, args=(call, ends)) for _ in range(8)]  # as many as there are
        for thread in threads:
            thread.start()
        _wait_until(lambda ends=ends: len(ends) == 4)
        assert all("RESOURCE_EXHAUSTED" in str(end) for end in ends)
        with ControlClient(federation.credentials("bob"), server.address) as bob:
            assert bob.status()["caller"] == "bob"
            assert bob.news(0.0) == []
        for thread in threads:
            thread.join()
        assert len(ends) == 8
        assert sum(isinstance(end, LinkClosed) for end in ends) == 4
    assert client.news(0.0) == []  # places are given back
    assert not [name for name, there in service.there if not there]


def _kept(call: Callable[[], object], ends: list[object]) -> None:
    try:
        ends.append(call())
    except LinkClosed as error:
        ends.append(error)


def test_a_caller_that_hangs_up_while_it_waits_for_news_is_noticed(client: ControlClient, service: Echo) -> None:
    assert client.news(0.0) == []
    assert service.there == [("alice", True)]
    waiting = threading.Thread(target=_hear_nothing, args=(client,), daemon=True)
    waiting.start()
    _wait_until(lambda: len(service.there) == 2)
    client.close()
    _wait_until(lambda: service.there[-1] == ("alice", False))
    waiting.join()


def _hear_nothing(client: ControlClient) -> None:
    with contextlib.suppress(Exception):  # the channel was closed under it
        client.news(30.0)


def _wait_until(true: Callable[[], bool], seconds: float = 5.0) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until
        time.sleep(0.01)
