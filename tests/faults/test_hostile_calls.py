"""A member with a valid certificate that calls the coordinator with damaged documents; connections that say nothing.

Everything is refused by name or does what that member may do to itself; the others play on.
"""

from __future__ import annotations

import contextlib
import logging
import random
import socket
import ssl
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eris.errors import Refused
from eris.transport.calls import NewsRequest, StatusRequest
from eris.transport.control_client import ControlClient
from eris.transport.credentials import CERTIFICATE, KEY, ROOT, Credentials
from eris.transport.link import LinkClosed, LinkTimeout
from eris.wire.schema import encode
from tests.faults.script import mutate
from tests.faults.test_hostile_bytes import ROOM, peak_memory
from tests.peer.town import Town, settings, town

HOSTILE = "dogwood"
CALLS = 1_000
NEWS = "/eris.Control/Next"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"  # how HTTP/2 begins


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Town]:
    with town(tmp_path, settings("members=4", "aggregators=3", "rounds=100000"), round=20.0) as made:
        yield made


def play(place: Town) -> tuple[dict[str, Any], list[tuple[str, bytes]]]:
    """Let all play, and return what the hostile member had to say while it was honest."""
    nodes, said = {name: place.node(name) for name in place.names}, {}
    client = nodes[HOSTILE].line.control
    honest = client._send

    def send(path: str, data: bytes, seconds: float) -> bytes:
        said.setdefault((path, data[:5]), data)  # each kind of document once
        return honest(path, data, seconds)

    client._send = send  # type: ignore[method-assign]
    # Rounds without a pause would leave this process no time to attack itself.
    nodes["amber"].fault_points.listener = lambda point, _: time.sleep(0.2 if point == "plan" else 0.0)
    for name, node in nodes.items():
        place.start(name, node.run)
    wait_until(lambda: round_of(place) > 3)
    said = {key: data for key, data in said.items() if key[0] != NEWS}
    news = encode(NewsRequest(place.coordinator.board.identity, -1, 0.0))
    calls = [(path, data) for (path, _), data in said.items()] + [
        (NEWS, news),
        ("/eris.Control/Status", encode(StatusRequest())),
    ]
    assert {"Join", "Report", "Fetch", "Next", "Status"} == {path.rpartition("/")[2] for path, _ in calls}
    return nodes, calls


def round_of(place: Town) -> int:
    coordinator = place.coordinator.coordinator
    return coordinator.round if coordinator is not None else -1


def wait_until(true: Any, seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until
        time.sleep(0.02)


def attack(client: ControlClient, calls: list[tuple[str, bytes]], chance: random.Random, count: int) -> Counter[str]:
    seen: Counter[str] = Counter()
    for _ in range(count):
        path, data = chance.choice(calls)
        try:
            client._send(path, mutate(data, [0], chance), 0.5 if path == NEWS else 5.0)
            seen["harmless"] += 1
        except Refused as refusal:
            seen[refusal.reason.value] += 1
        except LinkTimeout:
            assert path == NEWS  # it may wait as long as it likes
            seen["waited"] += 1
    return seen


def test_damaged_calls_are_refused_by_name_and_the_others_play_on(
    place: Town, caplog: pytest.LogCaptureFixture
) -> None:
    nodes, calls = play(place)
    caplog.set_level(logging.ERROR, logger="eris")
    with ControlClient(Credentials(place.credentials[HOSTILE]), place.coordinator.address) as client:
        attack(client, calls, random.Random(1), 200)  # everything that is made once is made now
        before, round = peak_memory(), round_of(place)
        seen = attack(client, calls, random.Random(2), CALLS)
        assert peak_memory() - before < ROOM
    assert seen["malformed"] > CALLS // 2
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]  # not one call failed
    assert round_of(place) > round
    place.coordinator._run.end("enough")
    honest = [name for name in place.names if name != HOSTILE]
    place.wait(*honest)
    assert len({nodes[name].model_digest() for name in honest}) == 1


def test_who_says_nothing_holds_nobody_up(place: Town) -> None:
    nodes, _ = play(place)
    wait_until(lambda: round_of(place) > 1)  # everything that is made once is made now
    folder, before = Path(place.credentials[HOSTILE]), peak_memory()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(folder / CERTIFICATE, folder / KEY)
    context.set_alpn_protocols(["h2"])
    with contextlib.ExitStack() as stack:
        for number in range(100):
            line = stack.enter_context(socket.create_connection(place.coordinator.address, 5.0))
            if number % 4 == 1:
                line.sendall(b"\x16\x03\x01\x02\x00\x01")  # the beginning of a handshake
            elif number % 4 == 2:
                line.sendall(b"GET / HTTP/1.1\r\n")
            elif number % 4 == 3:
                shaken = stack.enter_context(context.wrap_socket(line))
                shaken.sendall(PREFACE[: number % len(PREFACE)])
        held = round_of(place)
        with ControlClient(Credentials(place.credentials["amber"]), place.coordinator.address) as client:
            began = time.monotonic()
            assert client.status().round >= held
            assert time.monotonic() - began < 2.0
        wait_until(lambda: round_of(place) > held + 2)
    assert peak_memory() - before < ROOM
    place.coordinator._run.end("enough")
    place.wait()
    assert len({node.model_digest() for node in nodes.values()}) == 1


def test_a_document_without_end_is_refused_at_its_length(place: Town) -> None:
    """A client that keeps to no limit of its own: what is sent is refused before it is taken in."""
    own = Credentials(place.credentials[HOSTILE])
    with ControlClient(own, place.coordinator.address) as client:
        grpc, root, key, chain = client._grpc, *(own.read(file) for file in (ROOT, KEY, CERTIFICATE))
        name = ("grpc.ssl_target_name_override", "coordinator.town")
        secure = grpc.ssl_channel_credentials(root, key, chain)
        where = "{}:{}".format(*place.coordinator.address)
        with grpc.secure_channel(where, secure, [name, ("grpc.max_send_message_length", -1)]) as channel:
            assert channel.unary_unary("/eris.Control/Status")(encode(StatusRequest()), timeout=5.0)
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary("/eris.Control/Status")(bytes(64 << 20), timeout=20.0)
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "larger than max" in caught.value.details()
        with pytest.raises((LinkClosed, Refused)):
            client._send("/eris.Control/Status", b"{" * 1000, 5.0)
        assert client.status().round == 0
