"""Calls between peers and a coordinator over real gRPC with mutual TLS."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eris.errors import ConfigError, Reason, Refused
from eris.local.spec import ModelSpec
from eris.protocol.messages import Idle, Wanted, Withheld
from eris.transport.authority import Authority
from eris.transport.board import Board
from eris.transport.calls import (
    ControlTraffic,
    DialAnswer,
    Done,
    JoinAnswer,
    JoinRequest,
    LeaveRequest,
    NewsRequest,
    Overview,
    ReportRequest,
    RoundsAnswer,
    RoundsRequest,
    StatusRequest,
    StopRequest,
)
from eris.transport.control_client import ControlClient
from eris.transport.control_server import ControlServer
from eris.transport.credentials import Credentials
from eris.transport.identity import PeerIdentity, Refusal
from eris.transport.link import LinkClosed, LinkRefused, LinkTimeout
from eris.transport.probe import probe
from eris.wire.schema import LONGEST_DOCUMENT, encode
from eris.wire.version import VERSION

LOCAL = ("127.0.0.1", 0)
JOIN = JoinRequest("", ModelSpec.flat(10), 1.0, "", 0, "", ("127.0.0.1", 1), "", False, "0" * 64, 0, -1, (0, 4))
REFUSE, FAIL = Idle("01" * 32), Idle("02" * 32)


class Echo:
    """A service that says who asked for what."""

    def __init__(self) -> None:
        self.health, self.calls = True, 0
        self.asked: list[tuple[str, str, Any]] = []
        self.there: list[tuple[str, bool]] = []

    def _note(self, call: str, caller: PeerIdentity, request: Any) -> None:
        self.calls += 1
        self.asked.append((call, caller.name, request))

    def join(self, caller: PeerIdentity, request: JoinRequest) -> JoinAnswer:
        self._note("join", caller, request)
        return JoinAnswer(0, True, b"", "", True, "", None, b"")

    def report(self, caller: PeerIdentity, request: ReportRequest) -> Wanted:
        if request == REFUSE:
            raise Refused(Reason.WRONG_ROUND, "the round is 2", fix="ask for the plan", round=1)
        if request == FAIL:
            raise ZeroDivisionError("a secret of the coordinator")
        self._note("report", caller, request)
        return Wanted((3, 5))

    def fetch(self, caller: PeerIdentity, request: RoundsRequest) -> RoundsAnswer:
        time.sleep(request.since)
        self._note("fetch", caller, request)
        return RoundsAnswer(())

    def status(self, caller: PeerIdentity, request: StatusRequest) -> Overview:
        self._note("status", caller, request)
        times = {"time": 0.0, "control": ControlTraffic(), "round": 0, "rounds": 0, "started": False}
        words = {"version": "", "run": "run", "ended": "", "waiting": "", "lost": {}, "disagreements": (), "peers": ()}
        return Overview(federation=caller.name, digest=caller.fingerprint, **times, **words)

    def leave(self, caller: PeerIdentity, request: LeaveRequest) -> Done:
        self._note("leave", caller, request)
        return Done()

    def stop(self, caller: PeerIdentity, request: StopRequest) -> Done:
        self._note("stop", caller, request)
        return Done()

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


def test_every_call_reaches_the_service_with_its_caller(client: ControlClient, service: Echo) -> None:
    notice = Withheld("ab" * 32, 1, 2, Reason.TOO_FEW, (0, 300))
    client.join(JOIN)
    assert client.report(notice) == Wanted((3, 5))
    assert client.fetch(RoundsRequest(0), RoundsAnswer) == RoundsAnswer(())
    client.status()
    client.leave(for_good=True)
    client.stop()
    said = [("join", JOIN), ("report", notice), ("fetch", RoundsRequest(0)), ("status", StatusRequest())]
    said += [("status", StatusRequest())]  # what it is that she ends
    signed = {call: request for call, _, request in service.asked if call in ("leave", "stop")}
    assert signed["leave"].leave.claim.name == "alice"
    assert signed["stop"].claim.run == "run"
    asked = [one for one in service.asked if one[0] not in signed]
    assert asked == [(call, "alice", request) for call, request in said]


def test_an_answer_to_another_question_is_refused(client: ControlClient) -> None:
    with pytest.raises(Refused, match="answered with a RoundsAnswer"):
        client.fetch(RoundsRequest(0), DialAnswer)


def next_version(data: bytes) -> bytes:
    return data[:1] + bytes([VERSION + 1]) + data[2:]


def test_a_peer_of_the_next_version_is_told_so_by_name(client: ControlClient, service: Echo, caplog: Any) -> None:
    for path, data in (("Join", encode(JOIN)), ("Report", encode(FAIL)), ("Next", encode(NewsRequest("", -1, 0.0)))):
        with pytest.raises(Refused) as caught:
            client._send(f"/eris.Control/{path}", next_version(data), 5.0)
        assert caught.value.reason is Reason.WRONG_VERSION
        assert f"of wire version {VERSION + 1} met version {VERSION}" in caught.value.what
        assert caught.value.fix == f"update the side with version {VERSION}"
    assert "alice.cardio" in caplog.text
    assert service.calls == 0


def test_a_peer_of_the_first_version_is_told_so_in_words_it_can_read(client: ControlClient) -> None:
    """It wrote JSON, knows no such reason, and shows the words of an invalid argument as they come."""
    call = client._open().unary_unary("/eris.Control/Join")
    with pytest.raises(client._grpc.RpcError) as caught:
        call(b'{"federation":"town"}', timeout=5.0)
    assert caught.value.code() is client._grpc.StatusCode.INVALID_ARGUMENT
    said = json.loads(caught.value.details())
    assert list(said) == sorted(said)  # the one spelling it reads
    assert "a join request of wire version 1 met version 3" in said["what"]


def test_a_coordinator_of_another_version_is_told_apart_by_its_answer(
    client: ControlClient, service: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = client._send
    monkeypatch.setattr(client, "_send", lambda *call: next_version(send(*call)))
    with pytest.raises(Refused, match=f"an? overview of wire version {VERSION + 1} met version {VERSION}"):
        client.status()


def test_health_is_what_the_usual_tools_ask(client: ControlClient, service: Echo) -> None:
    assert client.healthy()
    service.health = False
    assert not client.healthy()


def test_news_come_in_order_and_once(server: ControlServer, client: ControlClient) -> None:
    assert client.news(0.0) == []
    server.board.post(b"plan 0")
    server.board.post(b"verdict 0")
    assert [b.bulletin for b in client.news(5.0)] == [b"plan 0", b"verdict 0"]
    assert client.news(0.0) == []
    posting = threading.Timer(0.2, server.board.post, (b"plan 1",))
    posting.start()
    started = time.monotonic()
    assert [b.bulletin for b in client.news(10.0)] == [b"plan 1"]
    assert 0.1 < time.monotonic() - started < 5.0
    posting.join()


def test_news_longer_than_a_document_are_heard_page_by_page_as_one(
    server: ControlServer, client: ControlClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for round in range(64):
        server.board.post(round.to_bytes(1) + b"x" * 30_000)
    lost = iter([False, True])

    def broken(path: str, data: bytes, seconds: float, send: Any = client._send) -> bytes:
        if next(lost, False):
            raise LinkClosed("the connection broke", clean=False)
        return send(path, data, seconds)

    monkeypatch.setattr(client, "_send", broken)
    with pytest.raises(LinkClosed):
        client.news(5.0)
    assert [b.bulletin[0] for b in client.news(5.0)] == list(range(64))  # also those of the page before it broke
    assert client.traffic.calls == 1 + 4
    server.board.post(b"x" * (LONGEST_DOCUMENT - 1000))
    server.board.post(b"verdict")
    assert [len(b.bulletin) for b in client.news(5.0)] == [LONGEST_DOCUMENT - 1000, 7]


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
            first.board.post(b"plan %d" % round)
        assert len(client.news(1.0)) == 5
        first.close(grace=0.0)
        with ControlServer(own, first.address, service) as second:
            second.board.post(b"plan 5")
            assert [b.bulletin for b in news_from(client)] == [b"plan 5"]


def test_a_board_that_is_renewed_is_heard_from_its_beginning_and_who_waits_hears_the_last_of_the_old(
    server: ControlServer, client: ControlClient
) -> None:
    server.board.post(b"plan 0")
    assert len(client.news(1.0)) == 1
    before, heard = client.board, list[bytes]()
    waiting = threading.Thread(target=lambda: heard.extend(b.bulletin for b in client.news(10.0)))
    waiting.start()
    time.sleep(0.3)
    with server.board.together():
        server.board.post(b"verdict 0")
        server.board.renew()
    waiting.join(5.0)
    assert heard == [b"verdict 0"]
    assert client.board == before
    server.board.post(b"plan 1")
    assert [(b.sequence, b.bulletin) for b in client.news(10.0)] == [(0, b"plan 1")]
    assert client.board == server.board.identity != before


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
        client.report(REFUSE)
    assert caught.value.reason is Reason.WRONG_ROUND
    assert "the round is 2" in caught.value.what
    assert caught.value.what.count("refused") == 1
    assert caught.value.fix == "ask for the plan"
    assert "alice.cardio" in caplog.text


def test_a_failure_of_the_coordinator_stays_with_it(client: ControlClient, caplog: Any) -> None:
    with pytest.raises(LinkClosed) as caught:
        client.report(FAIL)
    assert "secret" not in str(caught.value)
    assert "a secret of the coordinator" in caplog.text


def test_what_is_wrong_with_a_request_is_named(client: ControlClient) -> None:
    fields = msgspec.msgpack.decode(encode(JOIN)[2:])
    fields[3] = "heavy"
    with pytest.raises(Refused, match="not a join request: weight") as caught:
        client._send("/eris.Control/Join", encode(JOIN)[:2] + msgspec.msgpack.encode(fields), 5.0)
    assert caught.value.reason is Reason.MALFORMED


def test_bytes_that_are_no_document_are_refused(client: ControlClient) -> None:
    with pytest.raises(Refused) as caught:
        client._send("/eris.Control/Join", b"no document", 5.0)
    assert caught.value.reason is Reason.MALFORMED
    with pytest.raises(LinkClosed, match="UNIMPLEMENTED"):
        client._send("/eris.Control/Nothing", b"{}", 5.0)
    with pytest.raises(LinkClosed, match="RESOURCE_EXHAUSTED"):
        client._send("/eris.Control/Join", bytes(2 << 20), 5.0)


def test_an_answer_that_takes_too_long_is_a_timeout(client: ControlClient) -> None:
    with pytest.raises(LinkTimeout) as caught:
        client.fetch(RoundsRequest(1), RoundsAnswer, seconds=0.3)
    assert caught.value.kind == "deadline"


def test_nobody_there(alice: Credentials) -> None:
    with socket.create_server(LOCAL) as listening:
        nobody = listening.getsockname()
    with ControlClient(alice, nobody) as client, pytest.raises(LinkClosed, match="eris doctor"):
        client.status(seconds=5.0)


def test_strangers_learn_which_step_failed(server: ControlServer, tmp_path: Path, service: Echo) -> None:
    stranger = Credentials(Authority.create(tmp_path / "other", "cardio").issue("alice"))
    with ControlClient(stranger, server.address) as client, pytest.raises(LinkRefused) as caught:
        client.join(JOIN, seconds=5.0)
    assert (caught.value.reason, caught.value.by_us) == (Refusal.UNKNOWN_CA, True)
    assert service.calls == 0


def test_another_peer_cannot_play_the_coordinator(federation: Any, alice: Credentials, service: Echo) -> None:
    with (
        ControlServer(federation.credentials("mallory"), LOCAL, service) as server,
        ControlClient(alice, server.address) as client,
        pytest.raises(LinkRefused) as caught,
    ):
        client.join(JOIN, seconds=5.0)
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
    before = client.status().digest
    federation.authority.issue("alice", replace=True)
    federation.authority.issue("coordinator")
    after = client.status().digest
    assert after == alice.identity.fingerprint != before
    with ControlClient(alice, server.address) as fresh:
        assert fresh.status().digest == after


def test_files_that_another_thread_noticed_first_are_used_all_the_same(
    federation: Any, server: ControlServer, client: ControlClient, alice: Credentials
) -> None:
    """Links and the coordinator's clock look at the same files: whoever looks first must not keep it to himself."""
    before = client.status().digest
    federation.authority.issue("alice", replace=True)
    federation.authority.issue("coordinator", replace=True)
    assert alice.refresh()
    assert server._credentials.refresh()
    assert client.status().digest == alice.identity.fingerprint != before
    answers = probe(server.address, alice, expected="coordinator")
    assert answers.fingerprint == server._credentials.identity.fingerprint


def test_proxies_of_the_environment_are_not_asked(
    server: ControlServer, alice: Credentials, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(LOCAL) as proxy:
        for name in ("grpc_proxy", "https_proxy", "http_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(name, "http://{}:{}".format(*proxy.getsockname()))
        for name in ("no_grpc_proxy", "no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        with ControlClient(alice, server.address) as client:
            assert client.status().federation == "alice"
        proxy.setblocking(False)
        with pytest.raises(BlockingIOError):  # nobody came
            proxy.accept()


def test_bytes_are_counted_on_both_sides(server: ControlServer, client: ControlClient) -> None:
    client.join(replace(JOIN, checkpoints=tuple(range(70_000, 70_200))))
    there, here = server.traffic, client.traffic
    assert (there.calls, there.received, there.sent) == (1, here.sent, here.received)
    assert here.sent == len(encode(replace(JOIN, checkpoints=tuple(range(70_000, 70_200)))))


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
        board.post(b"plan %d" % number)
    assert [b.sequence for b in board.after(-1, seconds=0)] == [2, 3, 4]
    assert [b.sequence for b in board.after(3, seconds=0)] == [4]
    assert board.after(4, seconds=0) == []
    board.close()
    assert board.after(4, seconds=30.0) == []


def test_a_caller_that_wants_all_threads_leaves_some_for_the_others(
    federation: Any, server: ControlServer, client: ControlClient, service: Echo
) -> None:
    for call in (lambda: client.news(1.0), lambda: client.fetch(RoundsRequest(1), RoundsAnswer)):
        ends: list[object] = []
        threads = [threading.Thread(target=_kept, args=(call, ends)) for _ in range(8)]  # as many as there are
        for thread in threads:
            thread.start()
        _wait_until(lambda ends=ends: len(ends) == 4)
        assert all("RESOURCE_EXHAUSTED" in str(end) for end in ends)
        with ControlClient(federation.credentials("bob"), server.address) as bob:
            assert bob.status().federation == "bob"
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
