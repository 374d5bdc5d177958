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
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Board", "Bulletin"]


@dataclass(frozen=True, slots=True)
class Bulletin:
    """One thing everybody must hear: its kind ("plan", "verdict", …) and what it says."""

    sequence: int
    kind: str
    document: dict[str, Any] = field(repr=False)


class Board:
    """The newest bulletins; safe to use from many threads.

    >>> board = Board()
    >>> board.post("plan", {"round": 0})
    0
    >>> [bulletin.kind for bulletin in board.after(-1, seconds=0)]
    ['plan']
    """

    def __init__(self, keep: int = 64) -> None:
        self.identity = secrets.token_hex(8)  # sequences begin anew with every start of a coordinator
        self._bulletins: deque[Bulletin] = deque(maxlen=keep)
        self._next, self._closed = 0, False
        self._changed = threading.Condition()

    def together(self) -> AbstractContextManager[object]:
        """Return a block in which all that is posted is heard at once: one call tells it instead of several."""
        return self._changed

    def post(self, kind: str, document: dict[str, Any]) -> int:
        """Put up a bulletin and return its sequence."""
        with self._changed:
            sequence, self._next = self._next, self._next + 1
            self._bulletins.append(Bulletin(sequence, kind, document))
            self._changed.notify_all()
        return sequence

    def after(self, sequence: int, *, seconds: float) -> list[Bulletin]:
        """Return what came after `sequence`, waiting for it if need be; nothing if the time or the board ends."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while not self._closed and self._next <= sequence + 1:
                left = deadline - time.monotonic()
                if left <= 0:
                    return []
                self._changed.wait(left)
            return [bulletin for bulletin in self._bulletins if bulletin.sequence > sequence]

    def close(self) -> None:
        """Let nobody wait any longer."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
