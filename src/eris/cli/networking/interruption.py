"""Ctrl-C, SIGTERM and the end of a parent process: a request to stop, granted between two steps."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["INTERRUPTED", "interruptible", "stop_with_parent", "stoppable"]

INTERRUPTED = "interrupted"


@contextmanager
def stoppable(told: Callable[[], None] = lambda: None) -> Iterator[Callable[[], bool]]:
    """Turn the first signal into a request to stop; a second one ends at once.

    Yields a function that says whether there is a request; `told` is called with the first signal.
    """
    requests: list[int] = []

    def note(number: int, frame: object) -> None:
        del frame
        if requests:
            raise KeyboardInterrupt
        requests.append(number)
        told()

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(requests)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def interruptible(stop: Callable[[str], None]) -> Iterator[None]:
    """Turn the first signal into a call of `stop`; a second one ends at once."""

    def tell() -> None:
        # A handler runs in the middle of whatever the main thread does, perhaps under a lock that `stop` needs.
        threading.Thread(target=stop, args=(INTERRUPTED,), name="eris-interruption", daemon=True).start()

    with stoppable(tell):
        yield


def stop_with_parent(stop: Callable[[str], None]) -> None:
    """Call `stop` when standard input ends: `eris up` holds its other end, so its children never outlive it."""

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 4096):  # not through Python's buffer, whose lock outlives a daemon thread
            pass
        stop(INTERRUPTED)

    threading.Thread(target=watch, name="eris-parent", daemon=True).start()
