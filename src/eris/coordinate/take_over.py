"""Takes over from a lost coordinator: asks the listed peers for votes and rebuilds the run from what they keep.

    ask for a term → votes of more than half → the log that goes furthest among them → a journal → coordinate

Nothing of the old coordinator is needed, not even its disk. While there are too few votes, this waits; it has no say in
which verdict the run continues from.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import NoReturn

from eris.errors import ConfigError, Reason, Refused, RunStopped
from eris.events import RunState
from eris.peer.federation_file import FederationFile
from eris.peer.folder_claim import FolderClaim
from eris.peer.journal import SealedRound
from eris.peer.kept_log import KeptLog, unpack_round
from eris.peer.mandates import Mandates
from eris.protocol.journal import Rewind
from eris.protocol.messages import Wanted
from eris.protocol.take_over import CANDIDACY_PURPOSE, Candidacy, LogEnd, Mandate, Vote, majority_of
from eris.protocol.verdict import GENESIS
from eris.transport.calls import (
    ControlTraffic,
    Done,
    FetchAnswer,
    FetchRequest,
    JoinAnswer,
    JoinRequest,
    KeptRounds,
    LeaveRequest,
    Overview,
    PeerStatus,
    ReportRequest,
    StandingAnswer,
    StandingRequest,
    StatusRequest,
    StopRequest,
)
from eris.transport.control_client import ControlClient
from eris.transport.control_server import ControlServer
from eris.transport.credentials import Credentials
from eris.transport.identity import PeerIdentity
from eris.transport.link import LinkError

__all__ = ["JOURNAL", "TakeOver", "require_not_taken_over", "take_over"]

_LOG = logging.getLogger(__name__)
JOURNAL = "coordinator.sqlite"  # in a coordinator's folder
_TICK = 0.2  # seconds
_CALL = 3.0  # seconds to wait for an answer
_WORDS = 5.0  # seconds between two log lines


def take_over(
    federation: FederationFile,
    credentials: Credentials,
    folder: Path,
    *,
    listen: tuple[str, int],
    wait: float = 86_400.0,
    stopped: Callable[[], bool] = lambda: False,
) -> Mandate:
    """Get voted in, and write the journal that a coordinator then started in this folder continues from.

    If the last mandate known is ours already, nobody is asked again.

    Args:
        credentials: our own, which sign the candidacy.
        folder: where the journal is written.
        listen: host and port at which peers find us.
        wait: seconds to wait for votes and rounds.
        stopped: says whether to give up waiting.
    """
    folder.mkdir(parents=True, exist_ok=True)
    claim, log = FolderClaim(folder), KeptLog(folder / JOURNAL)
    try:
        mandates = Mandates(federation, credentials, log.journal.mandates())
        _learn_from_others(mandates, credentials)
        if mandates.is_ours and mandates.last is not None:
            return mandates.last
        candidate = TakeOver(federation, credentials, mandates.all)
        with ControlServer(
            credentials,
            listen,
            candidate,
            capacity=max(64, 2 * len(federation.peers)),
            require_allowed=candidate.require_allowed,
        ):
            mandate, rounds = candidate.wait(wait, stopped)
        log.align(lambda since: rounds[since:])
        log.journal.append(Rewind(log.rounds))  # a plan of ours without a verdict, from an earlier term
        log.note_mandates((*candidate.mandates.all, mandate))
        _LOG.warning("term %d is ours: the run continues at round %d", mandate.term, log.rounds)
        return mandate
    finally:
        log.close()
        claim.release()


def require_not_taken_over(federation: FederationFile, credentials: Credentials) -> None:
    """Refuse to start if another possible coordinator was voted in, rather than wait for peers in vain."""
    mandates = Mandates(federation, credentials)
    _learn_from_others(mandates, credentials)
    if (last := mandates.last) is not None and not mandates.is_ours:
        raise ConfigError(
            f"{last.name} has taken over in term {last.term}, with the votes of "
            f"{', '.join(vote.voter for vote in last.votes)}: they follow no other coordinator",
            fix="leave it to that one, or ask for the next term with --take-over",
        )


def _learn_from_others(mandates: Mandates, credentials: Credentials) -> None:
    """Ask all other possible coordinators which mandates they know; those that are down are not waited for."""
    for name, place in mandates.federation.coordinators.items():
        if name == credentials.name:
            continue
        with contextlib.suppress(LinkError), ControlClient(credentials, place, name=name) as other:
            for mandate in other.fetch(StandingRequest(), StandingAnswer, seconds=_CALL).mandates:
                mandates.learn(mandate)


class TakeOver:
    """A candidate behind a gRPC server: answers where it stands, and collects votes and rounds.

    `known` are the mandates of earlier terms: it asks for the next one.
    """

    def __init__(self, federation: FederationFile, credentials: Credentials, known: tuple[Mandate, ...] = ()) -> None:
        self.federation, self._credentials = federation, credentials
        self.mandates = Mandates(federation, credentials, known)
        self._lock = threading.Condition()
        self._votes: dict[str, Vote] = {}
        self._rounds: list[SealedRound] = []
        self._since: float | None = None  # when there were enough votes
        self._mandate: Mandate | None = None  # counted: later votes do not change what we continue from
        self._candidacy = self._ask_for(1 + (self.mandates.last.term if self.mandates.last is not None else 0))

    def wait(self, seconds: float, stopped: Callable[[], bool] = lambda: False) -> tuple[Mandate, list[SealedRound]]:
        """Wait for votes of more than half, then a little for the others, then for the rounds of the base."""
        until, said = time.monotonic() + seconds, 0.0
        with self._lock:
            while not self._is_complete:
                now = time.monotonic()
                self._count(now)
                if now >= until or stopped():
                    raise RunStopped(
                        f"not voted in: {self._so_far}",
                        fix="bring more listed peers within reach, or stop the coordinator they follow; then try again",
                    )
                if now >= said + _WORDS:
                    _LOG.info("taking over: %s", self._so_far)
                    said = now
                self._lock.wait(_TICK)
            assert self._mandate is not None
            return self._mandate, list(self._rounds)

    @property
    def _is_complete(self) -> bool:
        mandate = self._mandate
        return mandate is not None and (len(self._rounds), self._chain) == (mandate.base.rounds, mandate.base.verdict)

    @property
    def _chain(self) -> str:
        return self._rounds[-1].verdict.digest if self._rounds else GENESIS

    @property
    def _so_far(self) -> str:
        term, listed = self._candidacy.term, self.federation.peers
        if self._mandate is not None:
            base, holders = self._mandate.base, ", ".join(sorted(self._holders(self._mandate.base)))
            return f"voted in for term {term}; {len(self._rounds)} of {base.rounds} rounds are here, {holders} has all"
        needed, silent = majority_of(len(listed)), [name for name in listed if name not in self._votes]
        return f"{len(self._votes)} of {needed} votes for term {term}; no word from {', '.join(silent) or 'nobody'}"

    def _count(self, now: float) -> None:
        """Close the count when all have voted, or enough and the others had time to: one may hold a later verdict."""
        if self._mandate is not None or len(self._votes) < majority_of(len(self.federation.peers)):
            return
        self._since = self._since if self._since is not None else now
        everybody = len(self._votes) == len(self.federation.peers)
        if everybody or now >= self._since + self.federation.settings.connect:
            votes = tuple(self._votes[name] for name in sorted(self._votes))
            self._mandate = Mandate(self._candidacy, votes)
            _LOG.warning("voted in for term %d by %s", self._candidacy.term, ", ".join(sorted(self._votes)))

    def _ask_for(self, term: int) -> Candidacy:
        own = self._credentials
        made = Candidacy(
            self.federation.digest, term, own.name, secrets.token_hex(32), own.identity.certificate
        )  # fmt: skip
        return replace(made, signature=own.sign(CANDIDACY_PURPOSE, made.signed_bytes).hex())

    def _holders(self, base: LogEnd) -> set[str]:
        return {name for name, vote in self._votes.items() if vote.log == base}

    # ── what peers call ──────────────────────────────────────────────────────────────────────────────────────────

    def require_allowed(self, caller: PeerIdentity, call: str) -> None:
        """Refuse everybody but listed peers, operators and other possible coordinators."""
        known = (*self.federation.peers, *self.federation.settings.operators, *self.federation.coordinators)
        if caller.name not in known:
            raise Refused(Reason.NOT_A_MEMBER, f"{caller.name} may not call {call}: it is not listed")

    def fetch(self, caller: PeerIdentity, request: FetchRequest) -> FetchAnswer:
        """Say where we stand and what we want from the caller; give up a term that was promised to another."""
        if not isinstance(request, StandingRequest):
            self._refuse()
        with self._lock:
            listed, ours = caller.name in self.federation.peers, self._candidacy
            taken = request.promised >= ours.term and request.candidacy != ours.digest
            if listed and taken and self._mandate is None:
                _LOG.info("%s has promised itself in term %d: we ask for a higher one", caller.name, request.promised)
                self._candidacy, self._since = self._ask_for(request.promised + 1), None
                self._votes.clear()
            wants = -1
            if self._mandate is not None and not self._is_complete and caller.name in self._holders(self._mandate.base):
                wants = len(self._rounds)
            return StandingAnswer(self.mandates.all, self._candidacy if listed else None, wants)

    def report(self, caller: PeerIdentity, request: ReportRequest) -> Wanted:
        """Take a vote, kept rounds, or a mandate of an earlier term."""
        with self._lock:
            match request:
                case Vote() if request.voter == caller.name:
                    self.mandates.require_vote(request, self._candidacy)
                    if self._mandate is None:
                        self._votes[caller.name] = request
                case Mandate():
                    self._learn(request)
                case KeptRounds(rounds) if self._mandate is not None and caller.name in self._votes:
                    for kept in rounds:
                        self._take(unpack_round(kept, self.mandates.is_sealed))
                case _:
                    self._refuse()
            self._lock.notify_all()
        return Wanted()

    def _learn(self, mandate: Mandate) -> None:
        """Note who was voted in before; if its term is ours or higher, we have lost."""
        if self.mandates.learn(mandate) and mandate.term >= self._candidacy.term and self._mandate is None:
            self._candidacy, self._since = self._ask_for(mandate.term + 1), None
            self._votes.clear()

    def _take(self, played: SealedRound) -> None:
        assert self._mandate is not None
        plan, verdict = played.plan, played.verdict
        if plan.round != len(self._rounds):
            return  # two peers sent the same
        links = (plan.chain, verdict.previous, verdict.plan) == (self._chain, self._chain, plan.digest)
        if not links or plan.round >= self._mandate.base.rounds:
            raise Refused(Reason.WRONG_CHAIN, "a kept round does not follow the one before it", round=plan.round)
        self._rounds.append(played)

    def _refuse(self) -> NoReturn:
        raise Refused(
            Reason.WRONG_ROUND,
            f"{self._credentials.name} is taking over and coordinates nothing yet: {self._so_far}",
            fix="wait until it is voted in",
        )

    def join(self, caller: PeerIdentity, request: JoinRequest) -> JoinAnswer:
        """Refuse: peers cannot join before the vote."""
        del caller, request
        self._refuse()

    def status(self, caller: PeerIdentity, request: StatusRequest) -> Overview:
        """Return who has voted."""
        del caller, request
        with self._lock:
            so_far = f"{self._credentials.name} is taking over: {self._so_far}"
            peers = [PeerStatus(name, name in self._votes, False, "", None) for name in self.federation.peers]
        return Overview(
            federation=self.federation.name,
            digest=self.federation.digest,
            version=metadata.version("eris-fl"),
            time=time.time(),
            control=ControlTraffic(),
            run="",
            round=0,
            rounds=self.federation.config.rounds,
            started=False,
            ended="",
            waiting=so_far,
            lost={},
            disagreements=(),
            peers=tuple(peers),
            state=RunState.WAITING,
            why=so_far,
            expires=self._credentials.identity.not_after,
        )

    def leave(self, caller: PeerIdentity, request: LeaveRequest) -> Done:
        """Refuse: peers cannot leave before the vote."""
        del caller, request
        self._refuse()

    def stop(self, caller: PeerIdentity, request: StopRequest) -> Done:
        """Refuse: there is no run to end before the vote."""
        del caller, request
        self._refuse()

    def heard(self, caller: PeerIdentity, *, waits: bool) -> None:
        """Ignore: there is no news yet."""

    def lost(self, caller: PeerIdentity) -> None:
        """Ignore: no round has begun."""

    def healthy(self) -> bool:
        """Return whether we can be asked."""
        return True
