"""A server outlives those who dial again and again, and a machine that gives it no thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from eris.errors import Refused
from eris.peer import framing
from eris.peer.shard_server import ShardServer
from eris.peer.shared_aggregator import SharedAggregator
from eris.transport.link import LinkClosed, LinkLimits
from eris.transport.link_listener import LinkListener
from eris.transport.stream_link import StreamLink
from eris.transport.tls_link import Plaintext, dial
from eris.wire import HEADER_BYTES
from tests.protocol.test_rounds import world

LIMITS = LinkLimits(HEADER_BYTES, 1 << 20, connect=5.0, handshake=5.0, idle=5.0)


@contextmanager
def serving() -> Iterator[tuple[ShardServer, Callable[[], StreamLink]]]:
    """A server, and a way to dial it."""
    aggregator = world(2).peers[1].aggregator
    listener = LinkListener(Plaintext("peer-1"), ("127.0.0.1", 0), limits=LIMITS)
    server = ShardServer(
        SharedAggregator(aggregator, lambda outcome, round: None),
        peer_of=lambda name: None,
        find=lambda digest: None,
        snapshot=lambda: pytest.fail("nobody asked"),
    )
    server.serve(listener)
    try:
        yield server, lambda: dial(listener.address, Plaintext("peer-0"), expected="peer-1", limits=LIMITS)
    finally:
        server.close()


def served(server: ShardServer, times: int) -> bool:
    """Whether that many links have come, and ended."""
    until = time.monotonic() + 5.0
    while time.monotonic() < until:
        if not server._links and sum(account.links for account in server.accounts()) == times:
            return True
        time.sleep(0.002)
    return False


def test_links_take_no_threads_while_others_dial() -> None:
    with serving() as (server, dialled):
        dialled().close()
        assert served(server, 1)
        threads = threading.active_count()
        for times in range(2, 21):  # faster than a second of rest between two
            dialled().close()
            assert served(server, times)
        assert threading.active_count() <= threads + 1  # a handshake


def test_a_link_for_which_there_is_no_thread_is_closed_and_the_next_one_served(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    start, refused = threading.Thread.start, list[str]()

    def none_left(thread: threading.Thread) -> None:
        if thread.name.endswith("(moving)") and not refused:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    with serving() as (server, dialled):
        monkeypatch.setattr(threading.Thread, "start", none_left)
        deadline = time.monotonic() + 5.0
        with dialled() as turned_away:
            framing.ask(turned_away, framing.HashQuestion("0" * 64), deadline)  # which takes a thread
            with pytest.raises(LinkClosed):
                turned_away.receive_header(deadline=deadline)
        with dialled() as next_one:
            framing.ask(next_one, framing.HashQuestion("0" * 64), deadline)
            with pytest.raises(Refused, match="no shard with this hash"):
                framing.receive_manifest(next_one, deadline, round=0)
        assert served(server, 2)
    assert "cannot be served" in caplog.text
