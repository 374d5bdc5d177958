"""What the coordinator tells everybody, in order: plans, verdicts, the end.

A peer that asks for what came after the last thing it heard gets it at once, or waits for it. Only the newest stay; a
peer that was away longer asks for what it missed by name (`fetch`).
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
        self._taken_down: tuple[Posted, ...] = ()  # who waits while the board is renewed still hears the last of it
        self._next, self._closed = 0, False
        self._changed = threading.Condition()
        self.identity = secrets.token_hex(8)  # sequences begin anew with every start of a coordinator

    def together(self) -> AbstractContextManager[object]:
        """Return a block in which all that is posted is heard at once: one call tells it instead of several."""
        return self._changed

    def post(self, bulletin: bytes) -> int:
        """Put up a bulletin and return its sequence."""
        with self._changed:
            sequence, self._next = self._next, self._next + 1
            self._posted.append(Posted(sequence, bulletin))
            self._changed.notify_all()
        return sequence

    def renew(self) -> None:
        """Take everything down and be another board: as after a restart, whoever read the last one joins again."""
        with self._changed:
            self.identity, self._next, self._taken_down = secrets.token_hex(8), 0, tuple(self._posted)
            self._posted.clear()
            self._changed.notify_all()

    def after(self, sequence: int, *, seconds: float) -> list[Posted]:
        """Return what came after `sequence`, waiting for it if need be; nothing if the time or the board ends."""
        return self.read(self.identity, sequence, seconds=seconds)[1]

    def read(self, known: str, after: int, *, seconds: float) -> tuple[str, list[Posted]]:
        """Return which board this is and what came after the last thing read on the board that is `known`.

        Who read another board hears at once that this is a new one, from its beginning: it has to join again. Who read
        none waits for the first bulletin like everybody else.
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
        """Let nobody wait any longer."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
