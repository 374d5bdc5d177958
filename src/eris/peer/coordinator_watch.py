"""Finds out who coordinates when the coordinator that a peer follows is silent or waits for too many others.

A thread asks all other possible coordinators where they stand: one that was voted in is followed from then on, and one
that asks for a vote gets it. No restart, and no human, is needed.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator

from eris.errors import Refused
from eris.peer.allegiance import Allegiance
from eris.peer.federation_file import FederationFile
from eris.peer.inbox import Inbox
from eris.peer.kept_log import pack_round
from eris.protocol.take_over import Mandate
from eris.transport.calls import KeptRounds, StandingAnswer, StandingRequest
from eris.transport.control_client import ControlClient
from eris.transport.control_server import a_page
from eris.transport.credentials import Credentials
from eris.transport.link import LinkError
from eris.transport.route import Proxy, address_text

__all__ = ["CoordinatorWatch"]

_LOG = logging.getLogger(__name__)
_PAUSE = 1.0  # seconds between two rounds of questions
_CALL = 3.0  # seconds to wait for an answer


class CoordinatorWatch:
    """Asks until the inbox is closed, and turns `client` to whoever coordinates."""

    def __init__(
        self,
        federation: FederationFile,
        credentials: Credentials,
        allegiance: Allegiance,
        client: ControlClient,
        inbox: Inbox,
        proxy: Proxy | None = None,
    ) -> None:
        """Turn `client` to the coordinator that this peer followed last; `start` begins to watch.

        Args:
            allegiance: accepts mandates, and votes.
            client: the one through which this peer calls whoever coordinates.
            inbox: knows when that coordinator was last heard from.
            proxy: the HTTP proxy to go through, if any.
        """
        self._places, self._silence = federation.coordinators, federation.settings.connect
        self._credentials, self._allegiance, self._client = credentials, allegiance, client
        self._inbox, self._proxy = inbox, proxy
        self._voted = ""  # the candidacy we voted for
        if allegiance.term:
            client.turn_to(self._followed, self._places[self._followed])

    def start(self) -> None:
        """Start watching."""
        threading.Thread(target=self._watch, name="eris-standing", daemon=True).start()

    @property
    def _followed(self) -> str:
        return self._allegiance.mandates.name_of(self._allegiance.term)

    @property
    def _doubts(self) -> bool:
        """Whether there is reason to look for another coordinator."""
        silent = time.monotonic() > self._inbox.heard + self._silence
        return silent or self._inbox.waiting or self._allegiance.waits

    def _watch(self) -> None:
        while not self._inbox.closed.wait(_PAUSE):
            try:
                for name in self._others():
                    self._ask(name)
            except Exception as error:  # noqa: BLE001 - a full disk, for one: no vote without a stored promise
                self._inbox.failure = error
                return

    def _others(self) -> Iterator[str]:
        """Yield all possible coordinators but the followed one, as long as we doubt it."""
        for name in self._places:
            if self._doubts and (name != self._followed or self._allegiance.waits) and not self._inbox.closed.is_set():
                yield name

    def _ask(self, name: str) -> None:
        """Ask one of them where it stands; follow it, vote for it, or show it that it was taken over from."""
        with contextlib.suppress(LinkError), self._line_to(name) as other:
            try:
                answer = self._standing(other)
                former = self._followed
                if (last := self._allegiance.accept(answer.mandates)) is not None:
                    self._turn_to(last, former)
                elif answer.candidacy is not None:
                    self._vote(other, answer)
                elif self._is_behind(answer):
                    other.report(self._allegiance.mandates.all[-1])
            except Refused as refused:
                _LOG.warning("%s at %s is not followed: %s", name, address_text(self._places[name]), refused)

    def _line_to(self, name: str) -> ControlClient:
        return ControlClient(self._credentials, self._places[name], name=name, proxy=self._proxy)

    def _turn_to(self, mandate: Mandate, former: str) -> None:
        """Follow the newly elected coordinator; show the former one why, if it can be reached."""
        votes = ", ".join(vote.voter for vote in mandate.votes)
        _LOG.warning("%s coordinates now, in term %d, with the votes of %s", mandate.name, mandate.term, votes)
        self._client.turn_to(mandate.name, self._places[mandate.name])
        self._inbox.heard, self._inbox.waiting = time.monotonic(), False
        if former != mandate.name:
            with contextlib.suppress(LinkError, Refused), self._line_to(former) as line:
                line.report(mandate, seconds=_CALL)

    def _standing(self, other: ControlClient) -> StandingAnswer:
        promise = self._allegiance.promise
        return other.fetch(StandingRequest(promise.term, promise.candidacy), StandingAnswer, seconds=_CALL)

    def _is_behind(self, answer: StandingAnswer) -> bool:
        """Whether the other one does not know that it was taken over from."""
        last = self._allegiance.mandates.last
        return last is not None and all(known.term < last.term for known in answer.mandates)

    def _vote(self, other: ControlClient, answer: StandingAnswer) -> None:
        """Vote, and send the rounds the candidate asks for."""
        candidacy = answer.candidacy
        assert candidacy is not None
        known = {mandate.term for mandate in answer.mandates}
        for mandate in self._allegiance.mandates.all:
            if mandate.term not in known:
                other.report(mandate)
        other.report(self._allegiance.vote(candidacy))
        if candidacy.digest != self._voted:
            self._voted = candidacy.digest
            _LOG.warning("this peer has voted for %s in term %d", candidacy.name, candidacy.term)
        answer = self._standing(other)
        while answer.wants >= 0 and answer.candidacy is not None:
            rounds = [pack_round(played) for played in self._allegiance.log.since(answer.wants)]
            if not rounds:
                return
            sized = a_page(rounds, lambda one: len(one.plan) + len(one.roster) + len(one.verdict) + 4096)
            other.report(KeptRounds(sized))
            answer = self._standing(other)
