"""A courier outlives whatever goes wrong on one errand."""

from __future__ import annotations

import errno
import queue
import time
from typing import Any

import pytest

from eris.errors import DiskError
from eris.peer import letters
from eris.peer.book import Page
from eris.peer.courier import Courier, Errand, Result
from eris.transport.link import LinkClosed, LinkLimits
from eris.transport.listener import Listener
from eris.transport.stream_link import StreamLink
from eris.transport.tls_link import Plaintext
from eris.wire import HEADER_BYTES
from tests.protocol.test_rounds import world

LIMITS = LinkLimits(HEADER_BYTES, 1 << 20, connect=5.0, handshake=5.0, idle=5.0)


class OnePage:
    """An address book that knows one peer."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address

    def page(self, peer: int) -> Page:
        return Page(f"peer-{peer}", self.address, b"")

    def roster(self) -> dict[str, str]:
        return {}


def sent_off(courier: Courier, results: queue.Queue[Result], plan: Any, *, seconds: float) -> Result:
    """Send a courier for shard 1 and return what came of it."""
    courier.go(Errand(plan, (), (1,), time.monotonic() + seconds))
    return results.get(timeout=10.0)


@pytest.mark.parametrize(
    "error", [DiskError("the disk is full"), OSError(errno.EMFILE, "Too many open files"), UnicodeError("a..b")]
)
def test_an_errand_that_fails_costs_one_link_and_not_the_courier(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made, results, asked = world(2), queue.Queue[Result](), list[StreamLink]()
    plan = made.coordinator.plan(0.0)

    def ask(link: StreamLink, *_: object, **__: object) -> None:
        asked.append(link)
        raise error if len(asked) == 1 else LinkClosed("the other side is gone", clean=True)

    monkeypatch.setattr(letters, "ask_for_shard", ask)
    with Listener(Plaintext("peer-1"), ("127.0.0.1", 0), limits=LIMITS) as listener:
        book: Any = OnePage(listener.address)
        courier = Courier(1, book, Plaintext("peer-0"), made.recipe, LIMITS, results.put)
        try:
            first = sent_off(courier, results, plan, seconds=0.01)
            second = sent_off(courier, results, plan, seconds=0.01)
        finally:
            courier.close()
    assert first == second == Result(plan.digest, 1, 1)
    assert asked[0] is not asked[1]  # who knows in the middle of which frame it was left
    assert "the errand failed" in caplog.text


def test_a_name_that_no_host_can_have_is_told_to_whoever_asks_for_a_snapshot() -> None:
    book: Any = OnePage(("a..b", 7444))
    courier = Courier(1, book, Plaintext("peer-0"), world(2).recipe, LIMITS, lambda result: None)
    try:
        with pytest.raises(LinkClosed, match="cannot find host"):
            courier.snapshot({}, time.monotonic() + 5.0)
    finally:
        courier.close()
