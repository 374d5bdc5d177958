"""How a peer gets its news: one thread asks the coordinator for bulletins, another acts at once on what cannot wait."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable

from eris.errors import ConfigError, ErisError, Refused
from eris.events import EventStream, RunCourseChanged, RunState
from eris.peer.address_book import AddressBook
from eris.peer.admission import Admission
from eris.peer.coordinator_line import CoordinatorLine
from eris.peer.federation_file import FederationFile
from eris.peer.peer_links import PeerLinks
from eris.peer.rosters import roster_watch
from eris.protocol.round_plan import RoundPlan
from eris.protocol.take_over import Kept
from eris.transport.bulletins import (
    Bulletin,
    PeerGone,
    PeerIdle,
    PlanBulletin,
    Revoked,
    RoundsDone,
    RunCourse,
    RunEnd,
    Settled,
    VerdictBulletin,
    decode_bulletin,
    plan_order,
)
from eris.transport.calls import BookAnswer, Posted
from eris.transport.credentials import Credentials
from eris.transport.link import LinkError, LinkRefused

__all__ = ["NewsReader", "news_seconds"]

_LOG = logging.getLogger(__name__)
_MOST_POSTED = 256  # of at most 1 MiB each: who reads faster than it acts asks for no more news until it has
_POLL = 5.0  # seconds after which an idle thread checks whether the peer was closed
_NEWS_SECONDS = 5.0  # the coordinator misses a peer that does not ask again


def news_seconds(peers: int) -> float:
    """Return how long a call for news may wait: a thousand peers that ask every five seconds are 200 calls a second.

    >>> news_seconds(10), news_seconds(1000)
    (5.0, 50.0)
    """
    return min(50.0, max(_NEWS_SECONDS, peers / 20))


class NewsReader:
    """Brings bulletins to the inbox, and opens the aggregator's round however busy the playing thread is.

    One thread asks and another acts: opening a round of a long model takes a while, and a peer that does not ask for
    news counts as gone.
    """

    def __init__(
        self,
        federation: FederationFile,
        credentials: Credentials,
        line: CoordinatorLine,
        links: PeerLinks,
        book: AddressBook,
        admission: Admission,
        emit: EventStream,
    ) -> None:
        """Prepare; `start` begins to read.

        Args:
            credentials: take over what the CA has revoked.
            book: brought up to date with every plan.
            admission: joins again when the coordinator was restarted.
            emit: told whether the run trains or waits.
        """
        self._line, self._links, self._book, self._credentials = line, links, book, credentials
        self._client, self._inbox, self._allegiance = line.control, line.inbox, line.allegiance
        self._admission, self._emit, self._seconds = admission, emit, news_seconds(len(federation.peers))
        self._watch = roster_watch(federation.digest, book, credentials, line.control)
        self._edition = ""  # of the address book
        self._held: VerdictBulletin | None = None  # a verdict that is not settled yet
        self._posted: queue.Queue[Posted] = queue.Queue(_MOST_POSTED)

    def start(self) -> None:
        """Start reading, until the inbox is closed."""
        threading.Thread(target=self._guarded, args=(self._read,), name="eris-news", daemon=True).start()
        threading.Thread(target=self._guarded, args=(self._take_up_in_order,), name="eris-act", daemon=True).start()

    def take_up(self, bulletin: Bulletin) -> None:
        """Do at once what cannot wait for the playing thread, then pass the bulletin on to it."""
        match bulletin:
            case PlanBulletin(plan, absent=absent, book=edition):
                self._open_round(plan, edition)
                self._inbox.gone = set(absent)
                self._links.without(self._inbox.gone)
            case PeerGone(peer):
                self._inbox.gone.add(peer)
                self._links.without(self._inbox.gone)
            case PeerIdle(peer):
                self._links.without({peer}, away=False)
            case RunEnd():
                self._links.aggregator.close()  # whoever waits for a shard of ours, ourselves included, waits in vain
            case Revoked(certificates):
                try:
                    self._credentials.adopt_revocations(certificates)
                except ConfigError as error:
                    _LOG.error("the coordinator shows a revocation list that is not valid: %s", error)
            case RoundsDone(plan, book=edition):
                self._learn_addresses(plan, edition)
            case RunCourse(state, why):  # whatever the playing thread is waiting for
                self._inbox.waiting = state == RunState.WAITING
                _LOG.info("the run is %s%s", state, why and f": {why}")
                self._emit.aside(RunCourseChanged(state, why))
                return
        self._inbox.put(bulletin)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - no memory, for one; nobody may wait for news from a dead thread
            self._inbox.failure = error

    def _read(self) -> None:
        board, silent = self._client.board, False
        while not self._inbox.closed.is_set():
            try:
                news = self._client.news(self._seconds)
                if board and self._client.board != board:  # the coordinator was restarted and knows nobody yet
                    self._admission.join()
            except ErisError as error:
                if isinstance(error, LinkRefused) and not error.by_us:  # it does not want us any more
                    self._inbox.failure = error
                    return
                # Otherwise it is silent, or a stranger is at its address while it is down: we have patience for either.
                if self._inbox.closed.wait(0.5):
                    return
                _LOG.log(logging.INFO if silent else logging.WARNING, "no news: %s", error)
                silent = True
                continue
            board, silent, self._inbox.heard = self._client.board, False, time.monotonic()
            self._pass_on(news)

    def _pass_on(self, news: list[Posted]) -> None:
        """Pass on everything except plans of rounds that are already over."""
        orders = [plan_order(posted.bulletin) for posted in news]
        newest = max(filter(None, orders), default=None)
        for posted, order in zip(news, orders, strict=True):
            while (order is None or order == newest) and not self._inbox.closed.is_set():
                with contextlib.suppress(queue.Full):
                    self._posted.put(posted, timeout=1.0)
                    break

    def _take_up_in_order(self) -> None:
        while not self._inbox.closed.is_set():
            with contextlib.suppress(queue.Empty):
                bulletin = self._read_bulletin(self._posted.get(timeout=_POLL))
                if bulletin is not None and self._is_to_be_followed(bulletin):
                    settled = self._when_settled(bulletin)
                    if settled is not None:
                        self.take_up(settled)

    def _when_settled(self, bulletin: Bulletin) -> Bulletin | None:
        """Hold a verdict back until enough peers have it on disk, where another coordinator may take over."""
        if self._allegiance is None:
            return bulletin
        match bulletin:
            case VerdictBulletin(verdict):
                self._held = bulletin
                if self._allegiance.log.chain == verdict.digest:
                    self._say_that_it_is_kept(verdict.digest)
                return None
            case Settled(verdict):
                held, self._held = self._held, None
                return held if held is not None and held.verdict.digest == verdict else None
            case PlanBulletin():
                self._held = None  # a peer that lacks its verdict asks for it
        return bulletin

    def _say_that_it_is_kept(self, verdict: str) -> None:
        """Repeat to the current coordinator that the verdict is on disk, until it acknowledges."""
        while not self._inbox.closed.is_set():
            try:
                self._client.report(Kept(verdict))
                return
            except LinkError as error:
                _LOG.info("the coordinator could not be told that the verdict is on disk: %s", error)
                self._inbox.closed.wait(0.5)
            except ErisError as error:
                _LOG.warning("the coordinator rejected our confirmation that the verdict is on disk: %s", error)
                return

    def _is_to_be_followed(self, bulletin: Bulletin) -> bool:
        """Whether a plan or verdict is signed, and a plan does not go back behind one heard before."""
        if self._allegiance is not None and self._allegiance.waits:
            return False  # by our vote we left this coordinator for another
        try:
            match bulletin:
                case PlanBulletin(plan, seal=seal):
                    return self._line.witness.hear(plan, seal)
                case VerdictBulletin(verdict, seal=seal):
                    return self._line.witness.hear(verdict, seal)
                case RoundsDone(plan, seal=seal):
                    self._line.witness.vouches_for(plan, seal)
        except Refused as refusal:
            self._inbox.failure = refusal
            return False
        return True

    def _read_bulletin(self, posted: Posted) -> Bulletin | None:
        """Decode a posted bulletin; a plan's roster may have to be fetched first, however often that fails."""
        while not self._inbox.closed.is_set():
            try:
                return decode_bulletin(posted.bulletin, self._line.rosters.find)
            except LinkError as error:
                _LOG.warning("the roster of a plan could not be fetched: %s", error)
                self._inbox.closed.wait(0.5)
            except ErisError as error:
                _LOG.error("the coordinator sent something that is not a bulletin: %s", error)
                return None
        return None

    def _learn_addresses(self, plan: RoundPlan, edition: str) -> None:
        """Bring the address book up to a plan; a peer without it would reach nobody for the whole round."""
        outdated = self._book.lacks(plan) or edition != self._edition or self._book.lacks_keys(plan)
        while outdated and not self._inbox.closed.is_set():
            try:
                self._book.learn(lambda request: self._client.fetch(request, BookAnswer))
                self._edition = edition
                break
            except LinkError as error:  # a coordinator that everybody asks at once may be late; it has no newer plan
                _LOG.warning("the address book could not be fetched, and is asked for again: %s", error)
                self._inbox.closed.wait(0.5)
            except ErisError as error:
                _LOG.warning("the address book could not be fetched: %s", error)
                break
        self._book.follow(plan)

    def _open_round(self, plan: RoundPlan, edition: str) -> None:
        self._learn_addresses(plan, edition)
        self._watch.follow(plan)
        self._credentials.refresh()
        self._links.server.review(lambda peer: self._credentials.refusal(peer, roster=self._book.roster()))
        aggregator, unmasker = self._links.aggregator, self._links.unmasker
        if aggregator.plan is None or plan.when > aggregator.plan.when:  # newcomers are shown old plans
            if unmasker is not None:
                unmasker.begin(plan)
            aggregator.begin(plan)
