"""Our own contributions that are still under way: they go before what we publish.

An aggregator whose shard is complete early would otherwise fill its way out with nine copies of the mean, while its own
part for another aggregator, for whom everybody waits, gets a tenth of it.
"""

from __future__ import annotations

import threading
import time

__all__ = ["UnderWay"]


class UnderWay:
    """Knows to whom parts of this round have not arrived yet."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._plan, self._waiting, self._began = "", set[int](), 0.0

    def begin(self, plan: str, peers: set[int]) -> None:
        """Note that parts for these peers leave now."""
        with self._changed:
            self._plan, self._waiting, self._began = plan, set(peers), time.monotonic()
            self._changed.notify_all()

    def arrived(self, plan: str, peer: int) -> None:
        """Note that a peer has its part, or that it cannot be brought now."""
        with self._changed:
            if plan == self._plan and peer in self._waiting:
                self._waiting.discard(peer)
                self._changed.notify_all()

    def wait(self) -> None:
        """Wait until all have arrived, but no longer than it took so far: somebody may be frozen."""
        with self._changed:
            patience = time.monotonic() - self._began
            self._changed.wait_for(lambda: not self._waiting, timeout=patience)
