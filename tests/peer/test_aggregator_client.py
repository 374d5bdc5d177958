"""A client outlives whatever goes wrong on one delivery."""

from __future__ import annotations

import errno
import queue
import threading
import time
from typing import Any

import pytest

from eris.errors import DiskError
from eris.peer import aggregator_client, framing
from eris.peer.aggregator_client import AggregatorClient, Delivery, ShardResult
from eris.transport.calls import PeerRecord
from eris.transport.link import LinkClosed, LinkLimits
from eris.transport.link_listener import LinkListener
from eris.transport.stream_link import StreamLink
from eris.transport.tls_link import Plaintext, dial
from eris.wire import HEADER_BYTES
from tests.protocol.test_rounds import world

LIMITS = LinkLimits(HEADER_BYTES, 1 << 20, connect=5.0, handshake=5.0, idle=5.0)


class OneRecord:
    """An address book that knows one peer."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address

    def place(self, peer: int) -> PeerRecord:
        return PeerRecord(peer, f"peer-{peer}", self.address, b"")

    def roster(self) -> dict[str, str]:
        return {}


def sent_off(client: AggregatorClient, results: queue.Queue[ShardResult], plan: Any, *, seconds: float) -> ShardResult:
    """Send a client off for shard 1 and return what came of it."""
    client.go(Delivery(plan, (), (1,), time.monotonic() + seconds))
    return results.get(timeout=10.0)


@pytest.mark.parametrize(
    "error", [DiskError("the disk is full"), OSError(errno.EMFILE, "Too many open files"), UnicodeError("a..b")]
)
def test_a_delivery_that_fails_costs_one_link_and_not_the_client(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made, results, asked = world(2), queue.Queue[ShardResult](), list[StreamLink]()
    plan = made.coordinator.plan(0.0)

    def ask(link: StreamLink, *_: object, **__: object) -> None:
        asked.append(link)
        raise error if len(asked) == 1 else LinkClosed("the other side has left", clean=True)

    monkeypatch.setattr(framing, "ask_for_shard", ask)
    with LinkListener(Plaintext("peer-1"), ("127.0.0.1", 0), limits=LIMITS) as listener:
        book: Any = OneRecord(listener.address)
        client = AggregatorClient(1, book, Plaintext("peer-0"), made.recipe, LIMITS, results.put)
        try:
            first = sent_off(client, results, plan, seconds=0.01)
            second = sent_off(client, results, plan, seconds=0.01)
        finally:
            client.close()
    assert first == second == ShardResult(plan.digest, 1, 1)
    assert asked[0] is not asked[1]  # who knows in the middle of which frame it was left
    assert "the delivery failed" in caplog.text


def test_a_name_that_no_host_can_have_is_told_to_whoever_asks_for_a_snapshot() -> None:
    book: Any = OneRecord(("a..b", 7444))
    client = AggregatorClient(1, book, Plaintext("peer-0"), world(2).recipe, LIMITS, lambda result: None)
    try:
        with pytest.raises(LinkClosed, match="cannot find host"):
            client.snapshot({}, time.monotonic() + 5.0)
    finally:
        client.close()


def test_a_client_that_is_closed_while_it_dials_keeps_no_link(monkeypatch: pytest.MonkeyPatch) -> None:
    made, results, made_links = world(2), queue.Queue[ShardResult](), queue.Queue[StreamLink]()
    dialled, closed = threading.Event(), threading.Event()

    def late(*arguments: Any, **options: Any) -> StreamLink:
        link = dial(*arguments, **options)
        dialled.set()
        closed.wait(10.0)
        made_links.put(link)
        return link

    monkeypatch.setattr(aggregator_client, "dial", late)
    with LinkListener(Plaintext("peer-1"), ("127.0.0.1", 0), limits=LIMITS) as listener:
        book: Any = OneRecord(listener.address)
        client = AggregatorClient(1, book, Plaintext("peer-0"), made.recipe, LIMITS, results.put)
        client.go(Delivery(made.coordinator.plan(0.0), (), (1,), time.monotonic() + 10.0))
        assert dialled.wait(10.0)
        client.close()
        closed.set()
        link = made_links.get(timeout=10.0)
        until = time.monotonic() + 10.0
        while not link.closed and time.monotonic() < until:
            time.sleep(0.01)
    assert link.closed
