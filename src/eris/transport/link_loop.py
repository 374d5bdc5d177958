"""One thread that waits on many links at once, plus threads for work that may block.

An idle link costs a descriptor and no thread. Messages that are short and have arrived whole are handled by the loop
itself; a long message, a handshake, or anything else that may block is handed to a thread, which is kept for the next
such task. There are as many threads as links move at once, and no cap on them (`_Threads` says why, and what bounds
their number). A link belongs to the loop, or to the thread it was handed to.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import logging
import queue
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable

from eris.transport.stream_link import StreamLink

__all__ = ["SHORT", "LinkLoop"]

SHORT = 1 << 16  # bytes of a message that the loop moves itself

_LOG = logging.getLogger(__name__)
_KEPT = 10.0  # seconds that a thread waits for more work
Work = Callable[[], None]


class LinkLoop:
    """Runs work in its own thread (`post`, `at`, `watch`) or in others (`hand_over`); it starts when first used."""

    def __init__(self, name: str = "eris-links") -> None:
        self._name, self._threads = name, _Threads(name)
        self._selector: selectors.BaseSelector
        self._bell: socket.socket
        self._button: socket.socket
        self._posted: deque[Work] = deque()
        self._later: list[tuple[float, int, Work]] = []
        self._numbers = itertools.count()
        self._watched: dict[StreamLink, int] = {}
        self._asleep = self._closed = False
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    # ── from any thread ──────────────────────────────────────────────────────────────────────────────────────────

    def post(self, work: Work) -> None:
        """Have the loop's thread do this next."""
        self._posted.append(work)
        if self._thread is None:
            self._start()
        if self._asleep:
            self._asleep = False
            with contextlib.suppress(OSError):  # full, so it will wake anyway; or closed
                self._button.send(b"\0")

    def hand_over(self, work: Work) -> None:
        """Have another thread do this now; RuntimeError if the machine has none left."""
        self._threads.run(work)

    def close(self) -> None:
        """Do what has been posted, then end."""
        self._closed = True
        thread = self._thread
        if thread is not None:
            self._asleep = True
            self.post(lambda: None)
            if thread is not threading.current_thread():
                thread.join(timeout=5.0)
        self._threads.close()

    # ── from the loop's own thread ───────────────────────────────────────────────────────────────────────────────

    def at(self, moment: float, work: Work) -> None:
        """Do this at a moment of the monotonic clock."""
        heapq.heappush(self._later, (moment, next(self._numbers), work))

    def watch(self, link: StreamLink, ready: Work) -> None:
        """Call `ready` whenever bytes have arrived on a link, until it is forgotten."""
        number = link.fileno()
        if self._watched.get(link) == number:
            return
        if number in self._selector.get_map():  # the descriptor was reused: somebody else closed its link
            self._selector.unregister(number)
        self._selector.register(number, selectors.EVENT_READ, (link, ready))
        self._watched[link] = number

    def __contains__(self, link: StreamLink | None) -> bool:
        """Whether a link is watched."""
        return link in self._watched

    def forget(self, link: StreamLink) -> None:
        """Stop watching a link."""
        number = self._watched.pop(link, None)
        key = self._selector.get_map().get(number) if number is not None else None
        if key is not None and key.data[0] is link:
            self._selector.unregister(key.fd)

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _start(self) -> None:
        with self._starting:
            if self._thread is None and not self._closed:
                self._selector = selectors.DefaultSelector()
                self._bell, self._button = socket.socketpair()
                for end in (self._bell, self._button):
                    end.setblocking(False)
                self._selector.register(self._bell, selectors.EVENT_READ, None)
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while not self._closed:
            for _ in range(len(self._posted)):
                _do(self._posted.popleft())
            self._do_due()
            self._asleep = True
            events = self._selector.select(self._patience())
            self._asleep = False
            for key, _ in events:
                if key.data is None:
                    self._hush()
                elif key.data[0] in self._watched:  # otherwise it was forgotten a moment ago
                    _do(key.data[1])
        while self._posted:
            _do(self._posted.popleft())
        self._selector.close()
        self._bell.close()
        self._button.close()

    def _patience(self) -> float | None:
        if self._posted or self._closed:
            return 0.0
        return max(0.0, self._later[0][0] - time.monotonic()) if self._later else None

    def _do_due(self) -> None:
        while self._later and self._later[0][0] <= time.monotonic():
            _do(heapq.heappop(self._later)[2])

    def _hush(self) -> None:
        with contextlib.suppress(OSError):
            self._bell.recv(4096)


class _Threads:
    """Threads that are created when none is free, and kept for a while.

    They have no cap, because they wait for each other. One that carries parts to an aggregator waits for the shard,
    until all members have been heard there; those members' threads may be waiting for other aggregators. One that
    serves an unmasker waits until other threads have received what the cut lacks. A task that queued for a thread
    could be the one that all threads wait for, and the round would stand until its time is up.

    Their number is bounded by what a peer has under way: one errand for each aggregator that it dials, one link for
    each peer that dials in (for a few seconds two, if it dials again and the older one is still in use), and one
    message to the coordinator for each shard that it cuts. Short errands dial four at a time (`DialTurns`). Incoming
    handshakes have threads of their own, 64 at most (`LinkListener`).
    """

    def __init__(self, name: str) -> None:
        self._name, self._lock, self._spare, self._closed = name, threading.Lock(), 0, False
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()

    def run(self, work: Work) -> None:
        with self._lock:
            spare = self._spare > 0
            self._spare -= spare
        if spare:
            self._work.put(work)
        else:
            threading.Thread(target=self._serve, args=(work,), name=f"{self._name} (moving)", daemon=True).start()

    def close(self) -> None:
        """Let idle threads end."""
        with self._lock:
            self._closed, spare, self._spare = True, self._spare, 0
        for _ in range(spare):
            self._work.put(None)

    def _serve(self, work: Work | None) -> None:
        while work is not None:
            _do(work)
            work = None  # do not keep its objects alive while waiting
            with self._lock:
                if self._closed:
                    return
                self._spare += 1
            work = self._next()

    def _next(self) -> Work | None:
        try:
            return self._work.get(timeout=_KEPT)
        except queue.Empty:
            with self._lock:
                if self._spare > 0:
                    self._spare -= 1
                    return None
            return self._work.get()  # somebody has just counted on this thread


def _do(work: Work) -> None:
    try:
        work()
    except Exception:  # noqa: BLE001 - whoever asked for it has its own guard; nobody else may be held up
        _LOG.exception("something went wrong on a link")
