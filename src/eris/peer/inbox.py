"""What a peer has heard from the coordinator and not yet acted on."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from typing import Any

from eris.errors import RunStopped
from eris.peer.node_settings import NodeSettings
from eris.protocol.round_plan import RoundPlan

__all__ = ["Inbox", "News"]

News = tuple[str, dict[str, Any]]  # the kind of a bulletin ("plan", "verdict", "gone", "end", …) and what it says


class Inbox:
    """Bulletins in order, for the thread that plays the rounds; others put them in and look ahead."""

    def __init__(self, settings: NodeSettings) -> None:
        self._settings = settings
        self._news: queue.Queue[News] = queue.Queue()
        self.heard = time.monotonic()  # when the coordinator was last there
        self.failure: Exception | None = None  # revoked, expired, out of memory: waiting does not help
        self.gone: set[int] = set()  # whom nobody waits for in this round
        self.closed = threading.Event()

    def put(self, news: News) -> None:
        """Add what was heard last."""
        self._news.put(news)

    def put_back(self, news: News) -> None:
        """Let the next one who asks hear this first."""
        with self._news.mutex:
            self._news.queue.appendleft(news)

    def next(self, round: int) -> News:
        """Wait for the next bulletin, however long that takes, as long as the coordinator can be reached."""
        while True:
            self.require_patience(round)
            with contextlib.suppress(queue.Empty):
                return self._news.get(timeout=1.0)

    def require_patience(self, round: int) -> None:
        """Raise why there is nothing to wait for: the coordinator turned us away, or was silent for too long."""
        if self.failure is not None:
            raise self.failure
        if time.monotonic() >= self.heard + self._settings.patience:
            raise RunStopped(
                f"no word from the coordinator for {self._settings.patience:g} s",
                fix="see whether it runs (`eris status`); this peer goes on where it was when started again",
                peer=self._settings.name,
                round=round,
            )

    def is_over(self, plan: RoundPlan) -> bool:
        """Whether the round's verdict, or the end of the run, is among the news."""
        with self._news.mutex:
            return any(
                kind == "end" or (kind == "verdict" and document["verdict"]["plan"] == plan.digest)
                for kind, document in self._news.queue
            )

    def has_end(self) -> bool:
        """Whether the end of the run is among the news."""
        with self._news.mutex:
            return any(kind == "end" for kind, _ in self._news.queue)

    def is_stale(self, plan: RoundPlan) -> bool:
        """Whether a later plan is there: this round is followed by its verdict, not by training."""
        with self._news.mutex:
            return any(kind == "plan" and document["read"].when > plan.when for kind, document in self._news.queue)
