"""How a peer hears of things: a thread that asks the coordinator for news and does at once what cannot wait."""

from __future__ import annotations

import base64
import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from eris.errors import ErisError
from eris.peer.book import Book
from eris.peer.desk import Desk
from eris.peer.inbox import Inbox
from eris.protocol.round_plan import RoundPlan
from eris.transport.board import Bulletin
from eris.transport.control_client import ControlClient
from eris.transport.credentials import Credentials
from eris.transport.link import LinkRefused

__all__ = ["Hearing"]

_LOG = logging.getLogger(__name__)
_NO_PLAN = (-1, -1)
_NEWS_SECONDS = 5.0  # the coordinator misses a peer that does not ask again


class Hearing:
    """Brings bulletins to the inbox; opens the aggregator's round, however busy the thread is that plays."""

    def __init__(
        self,
        client: ControlClient,
        inbox: Inbox,
        desk: Desk,
        book: Book,
        credentials: Credentials,
        *,
        join: Callable[[], None],
        review: Callable[[], None],
    ) -> None:
        self._client, self._inbox, self._desk, self._book = client, inbox, desk, book
        self._credentials, self._join, self._review = credentials, join, review
        self._edition = ""  # of the address book
        self._heard: queue.Queue[Bulletin] = queue.Queue()

    def start(self) -> None:
        """Listen from now on, until the inbox is closed.

        One thread asks, another acts: to open a round of a long model takes a while, and who asks for no news is gone.
        """
        threading.Thread(target=self._guarded, args=(self._hear,), name="eris-news", daemon=True).start()
        threading.Thread(target=self._guarded, args=(self._take_up_in_order,), name="eris-act", daemon=True).start()

    def take_up(self, kind: str, document: dict[str, Any]) -> None:
        """Do at once what cannot wait for the main thread; then let it hear."""
        try:
            document = self._act(kind, document)
        except (KeyError, TypeError, ValueError, ErisError) as error:
            _LOG.error("the coordinator said something that is no %s: %r", kind, error)
            return
        self._inbox.put((kind, document))

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - no memory, for one; nobody may wait for news from a dead thread
            self._inbox.failure = error

    def _hear(self) -> None:
        board, silent = self._client.board, False
        while not self._inbox.closed.is_set():
            try:
                bulletins = self._client.news(_NEWS_SECONDS)
                if board and self._client.board != board:  # the coordinator was started anew and knows nobody yet
                    self._join()
            except ErisError as error:
                if isinstance(error, LinkRefused) and not error.by_us:  # it will not have us any more
                    self._inbox.failure = error
                    return
                # Else it is silent, or a stranger is at its address while it is down: we have patience for either.
                if self._inbox.closed.wait(0.5):
                    return
                _LOG.log(logging.INFO if silent else logging.WARNING, "no news: %s", error)
                silent = True
                continue
            board, silent, self._inbox.heard = self._client.board, False, time.monotonic()
            newest = max(map(_planned, bulletins), default=_NO_PLAN)
            for bulletin in bulletins:
                if bulletin.kind != "plan" or _planned(bulletin) == newest:  # others are over already
                    self._heard.put(bulletin)

    def _take_up_in_order(self) -> None:
        while not self._inbox.closed.is_set():
            with contextlib.suppress(queue.Empty):
                bulletin = self._heard.get(timeout=1.0)
                self.take_up(bulletin.kind, bulletin.document)

    def _act(self, kind: str, document: dict[str, Any]) -> dict[str, Any]:
        if kind == "plan":
            plan = RoundPlan.from_dict(document["plan"])
            document = {**document, "read": plan}
            self._open_round(plan, document["book"])
            self._inbox.gone = set(document["absent"])
            self._desk.without(self._inbox.gone)
        elif kind == "gone":
            self._inbox.gone.add(document["peer"])
            self._desk.without(self._inbox.gone)
        elif kind == "idle":
            self._desk.without({document["peer"]})
        elif kind == "end":
            self._desk.close()  # who waits for a shard of ours, we among them, waits in vain
        elif kind == "revoked":
            self._credentials.adopt_revocations(base64.b64decode(document["list"]))
        return document

    def _open_round(self, plan: RoundPlan, edition: str) -> None:
        if self._book.lacks(plan) or edition != self._edition:
            try:
                self._book.learn(self._client.fetch({"book": True}))
                self._edition = edition
            except ErisError as error:
                _LOG.warning("the address book could not be fetched: %s", error)
        self._book.follow(plan)
        self._credentials.refresh()
        self._review()
        if self._desk.plan is None or plan.when > self._desk.plan.when:  # newcomers are shown old plans
            self._desk.begin(plan)


def _planned(bulletin: Bulletin) -> tuple[int, int]:
    """Return epoch and round of a plan; what is none, or not a good one, comes before all."""
    plan = bulletin.document.get("plan") if bulletin.kind == "plan" else None
    match plan:
        case {"epoch": int(epoch), "round": int(round)}:
            return epoch, round
    return _NO_PLAN
