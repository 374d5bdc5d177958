"""What we publish waits for our own contributions, but not for ever."""

from __future__ import annotations

import threading
import time

from eris.peer.aggregator_client import UnderWay


def test_nobody_waits_when_nothing_is_under_way() -> None:
    parts, began = UnderWay(), time.monotonic()
    parts.wait()
    parts.begin("plan", set())
    parts.wait()
    assert time.monotonic() - began < 5.0


def test_waiting_ends_with_the_last_arrival() -> None:
    parts, done = UnderWay(), threading.Event()
    parts.begin("plan", {1, 2})
    time.sleep(0.5)
    waiting = threading.Thread(target=lambda: (parts.wait(), done.set()))
    waiting.start()
    parts.arrived("another plan", 2)
    parts.arrived("plan", 1)
    assert not done.wait(0.1)
    parts.arrived("plan", 2)
    assert done.wait(0.3)
    waiting.join()


def test_waiting_takes_no_longer_than_it_took_so_far() -> None:
    parts = UnderWay()
    parts.begin("plan", {1})
    time.sleep(0.05)
    began = time.monotonic()
    parts.wait()
    assert 0.04 < time.monotonic() - began < 5.0
