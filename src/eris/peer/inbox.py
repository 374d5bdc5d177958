"""The inbox: bulletins in the order heard, until the thread that plays the rounds takes them."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable

from eris.errors import Reason, Refused, RunStopped
from eris.peer.node_settings import NodeSettings
from eris.protocol.round_plan import RoundPlan
from eris.transport.bulletins import Bulletin, PlanBulletin, RoundsDone, RunEnd, VerdictBulletin

__all__ = ["Inbox"]

_MOST = 10_000  # bulletins that may wait: thousands of peers may come and go while this one trains


class Inbox:
    """Bulletins in order, for the thread that plays the rounds; other threads add them and look ahead."""

    def __init__(self, settings: NodeSettings) -> None:
        self._settings = settings
        self._waiting: queue.Queue[Bulletin] = queue.Queue()
        self.heard = time.monotonic()  # when the coordinator was last heard from
        self.waiting = False  # the coordinator says that it waits for members
        self.failure: Exception | None = None  # revoked, expired, out of memory: waiting does not help
        self.gone: set[int] = set()  # peers that nobody waits for in this round
        self.closed = threading.Event()
        self.stirred: Callable[[], None] = lambda: None  # called when something was added

    def put(self, bulletin: Bulletin) -> None:
        """Add the latest bulletin; stop listening to a coordinator that says more than anybody can follow."""
        if self._waiting.qsize() < _MOST:
            self._waiting.put(bulletin)
            self.stirred()
        elif self.failure is None:
            self.failure = Refused(
                Reason.NO_ROOM,
                f"{_MOST:,} bulletins are waiting, and the coordinator keeps sending",
                fix="check the coordinator; started again, this peer continues where it was",
                peer=self._settings.name,
            )

    def put_back(self, bulletin: Bulletin) -> None:
        """Put a bulletin back, to be the next one returned."""
        with self._waiting.mutex:
            self._waiting.queue.appendleft(bulletin)

    def next(self, round: int) -> Bulletin:
        """Wait for the next bulletin, for as long as the coordinator can be reached."""
        while True:
            self.require_patience(round)
            with contextlib.suppress(queue.Empty):
                return self._waiting.get(timeout=1.0)

    def require_patience(self, round: int) -> None:
        """Raise the reason if waiting is pointless: the coordinator turned us away or was silent for too long."""
        if self.failure is not None:
            raise self.failure
        if time.monotonic() >= self.heard + self._settings.patience:
            raise RunStopped(
                f"no word from the coordinator for {self._settings.patience:g} s",
                fix="check with `eris status` that it runs; started again, this peer continues where it was",
                peer=self._settings.name,
                round=round,
            )

    def is_over(self, plan: RoundPlan) -> bool:
        """Whether the round's verdict or the end of the run is here, or nothing more will come."""
        return self.failure is not None or self._holds(
            lambda one: (
                isinstance(one, RunEnd | RoundsDone)
                or (isinstance(one, VerdictBulletin) and one.verdict.plan == plan.digest)
            )
        )

    def has_end(self) -> bool:
        """Whether the end of the run is here."""
        return self._holds(lambda one: isinstance(one, RunEnd))

    def is_stale(self, plan: RoundPlan) -> bool:
        """Whether a later plan is here; then this round is followed by its verdict, without training."""
        return self._holds(lambda one: isinstance(one, PlanBulletin) and one.plan.when > plan.when)

    def _holds(self, fits: Callable[[Bulletin], bool]) -> bool:
        with self._waiting.mutex:
            return any(map(fits, self._waiting.queue))
