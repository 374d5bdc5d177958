"""The coordinator's board of bulletins, in order: plans, verdicts, the end.

A peer that asks for what came after the last bulletin it heard gets it at once, or waits for it. Only the newest stay;
a peer that was away longer asks for what it missed by name (`fetch`).
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from contextlib import AbstractContextManager

from eris.transport.calls import Posted

__all__ = ["KEPT_BULLETINS", "Board"]

KEPT_BULLETINS = 64


class Board:
    """The newest bulletins; safe to use from many threads.

    >>> board = Board()
    >>> board.post(b"a plan")
    0
    >>> [posted.bulletin for posted in board.after(-1, seconds=0)]
    [b'a plan']
    """

    def __init__(self, keep: int = KEPT_BULLETINS) -> None:
        self._posted: deque[Posted] = deque(maxlen=keep)
        self._taken_down: tuple[Posted, ...] = ()  # for readers that were waiting when the board was renewed
        self._next, self._closed = 0, False
        self._changed = threading.Condition()
        self.identity = secrets.token_hex(8)  # sequence numbers restart with every start of a coordinator

    def together(self) -> AbstractContextManager[object]:
        """Return a context in which everything posted is heard at once, in one call instead of several."""
        return self._changed

    def post(self, bulletin: bytes) -> int:
        """Post a bulletin and return its sequence number."""
        with self._changed:
            sequence, self._next = self._next, self._next + 1
            self._posted.append(Posted(sequence, bulletin))
            self._changed.notify_all()
        return sequence

    def renew(self) -> None:
        """Become a new, empty board: as after a restart, peers that read the old one join again."""
        with self._changed:
            self.identity, self._next, self._taken_down = secrets.token_hex(8), 0, tuple(self._posted)
            self._posted.clear()
            self._changed.notify_all()

    def after(self, sequence: int, *, seconds: float) -> list[Posted]:
        """Return what came after `sequence`, waiting if necessary; empty if the time runs out or the board closes."""
        return self.read(self.identity, sequence, seconds=seconds)[1]

    def read(self, known: str, after: int, *, seconds: float) -> tuple[str, list[Posted]]:
        """Return this board's identity, and the bulletins that a reader has not read yet.

        A reader of another board is told at once that this is a new one, from its beginning: it must join again. A
        reader of none waits for the first bulletin like everybody else.

        Args:
            known: identity of the board that was last read; empty: none.
            after: sequence number of the last bulletin read there.
            seconds: how long to wait for a bulletin.
        """
        deadline = time.monotonic() + seconds
        with self._changed:
            identity = self.identity
            if known != identity:
                after, deadline = -1, deadline if known == "" else time.monotonic()
            while not self._closed and self.identity == identity and self._next <= after + 1:
                left = deadline - time.monotonic()
                if left <= 0:
                    return identity, []
                self._changed.wait(left)
            posted = self._posted if self.identity == identity else self._taken_down
            return identity, [one for one in posted if one.sequence > after]

    def close(self) -> None:
        """Wake all waiting readers and stop making anybody wait."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
