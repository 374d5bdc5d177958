"""How long one step of a link may take: until a deadline at most, and never idle for long."""

from __future__ import annotations

import math
import time

from eris.transport.link import LinkTimeout, TimeoutKind

__all__ = ["IDLE_FLOOR", "Patience"]

IDLE_FLOOR = 64 * 1024  # moving less than this in the idle time counts as idle, however steadily it trickles
_LONGEST_WAIT = 60.0  # longest single wait on a socket; the clock decides


class Patience:
    """Measures progress against the clock; one for each step (a header, a payload, a frame sent).

    Args:
        idle: seconds in which at least `IDLE_FLOOR` bytes must move.
        deadline: the end, on the monotonic clock; None: only idling ends it.
        kind: which time is over at the deadline, for the error.
        peer: who is at the other end, for the error.
    """

    def __init__(
        self, idle: float = math.inf, deadline: float | None = None, *, kind: TimeoutKind = "deadline", peer: str = ""
    ) -> None:
        self._idle, self._deadline = idle, math.inf if deadline is None else deadline
        self._kind, self._peer = kind, peer
        self._since, self._moved = time.monotonic(), 0

    def left(self) -> float:
        """Return how many seconds the next wait may take; raise `LinkTimeout` if none are left."""
        now = time.monotonic()
        if now >= self._deadline:
            raise LinkTimeout(self._kind, f"the {self._kind} time is over", peer=self._peer)
        if now >= self._since + self._idle:
            raise LinkTimeout("idle", f"{self._moved} bytes in {self._idle:g} s", peer=self._peer)
        return min(self._deadline - now, self._since + self._idle - now, _LONGEST_WAIT)

    def moved(self, count: int) -> None:
        """Note that bytes have moved; enough of them begin a new idle time."""
        self._moved += count
        if self._moved >= IDLE_FLOOR:
            self._since, self._moved = time.monotonic(), 0
