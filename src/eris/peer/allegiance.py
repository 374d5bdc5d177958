"""Which coordinator a peer follows, in federations that list standbys: its promises, and the verdicts it keeps.

promise.json    the highest term that this peer voted in or follows, and for whom; written before any vote is given
kept.sqlite     every verdict that it followed, with its plan and seals, and the mandates that it accepted

A vote binds for ever: the coordinator of an earlier term is no longer answered, whatever is restarted.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from eris.atomic_file import write_atomically
from eris.errors import CheckpointError, Reason, Refused
from eris.peer.federation_file import FederationFile
from eris.peer.journal import SealedRound
from eris.peer.kept_log import KEPT, KeptLog
from eris.peer.mandates import Mandates
from eris.protocol.round_plan import RoundPlan
from eris.protocol.seal import CertifiedSeal
from eris.protocol.take_over import VOTE_PURPOSE, Candidacy, Mandate, Promise, Vote, first_epoch, term_of
from eris.protocol.verdict import Verdict
from eris.transport.credentials import Credentials

__all__ = ["PROMISE", "Allegiance"]

_LOG = logging.getLogger(__name__)
PROMISE = "promise.json"  # in a peer's folder


class Allegiance:
    """A peer's promise and its log of verdicts, kept in `folder`; safe to use from many threads."""

    def __init__(self, federation: FederationFile, credentials: Credentials, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._credentials, self._path, self._lock = credentials, folder / PROMISE, threading.RLock()
        self.log = KeptLog(folder / KEPT)
        self.mandates = Mandates(federation, credentials, self.log.journal.mandates())
        self.promise, self._seat, self._adopted = Promise(), secrets.token_hex(32), 0
        self._read()
        self.term = self.mandates.last.term if self.mandates.last is not None else 0  # of who is followed
        self._planned: tuple[RoundPlan, CertifiedSeal] | None = None  # waits for its verdict

    @property
    def waits(self) -> bool:
        """Whether this peer has voted but does not know the result; until then it follows no coordinator."""
        return self.promise.term > self.term

    # ── whom ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def vote(self, candidacy: Candidacy) -> Vote:
        """Record that no earlier term is followed, then vote, stating where our log ends; refuse if committed."""
        self.mandates.require_candidacy(candidacy)
        with self._lock:
            self._promise(candidacy.term, candidacy.digest, candidacy.name)
            vote = Vote(
                candidacy.digest,
                self._credentials.name,
                self._seat,
                self.log.end(self._adopted),
                self.log.seal(),
                self._credentials.identity.certificate,
            )
        return replace(vote, signature=self._credentials.sign(VOTE_PURPOSE, vote.signed_bytes).hex())

    def accept(self, mandates: Sequence[Mandate]) -> Mandate | None:
        """Check mandates in the order of their terms; return the last one if it is to be followed from now on."""
        with self._lock:
            for mandate in mandates:
                self._require_own_votes(mandate)
                self.mandates.learn(mandate)
            last = self.mandates.last
            if last is None or last.term <= self.term or not self.promise.allows(last.term, last.candidacy.digest):
                return None
            self._promise(last.term, last.candidacy.digest, last.name)
            self.log.note_mandates(self.mandates.all)
            self.term, self._planned = last.term, None
            return last

    def _promise(self, term: int, candidacy: str, name: str) -> None:
        if not self.promise.allows(term, candidacy):
            raise Refused(
                Reason.WRONG_EPOCH,
                f"{name} asks for term {term}, but this peer is already committed in term {self.promise.term}",
                fix="ask for a higher term: `eris coordinator --take-over` does",
                peer=self._credentials.name,
            )
        if (term, candidacy) != (self.promise.term, self.promise.candidacy):
            self._write(Promise(term, candidacy), self._adopted)

    def _require_own_votes(self, mandate: Mandate) -> None:
        """Refuse a mandate from an earlier run of the same file: our vote in it has another seat."""
        own = (vote for vote in mandate.votes if vote.voter == self._credentials.name)
        if any(vote.seat != self._seat for vote in own):
            raise Refused(
                Reason.WRONG_RUN,
                f"the mandate of {mandate.name} for term {mandate.term} is from an earlier run of this federation",
                fix="remove the --state folder of the coordinator that shows it",
                peer=self._credentials.name,
            )

    # ── what is kept ─────────────────────────────────────────────────────────────────────────────────────────────

    def hears(self, document: RoundPlan | Verdict) -> bool:
        """Whether an announced plan or verdict belongs to a term that this peer may still follow."""
        term = term_of(document.epoch)
        if term < self.promise.term:
            _LOG.warning(
                "round %d of term %d is not answered: this peer is already committed in term %d",
                document.round,
                term,
                self.promise.term,
            )
        return term >= self.promise.term

    def require_base(self, plan: RoundPlan) -> None:
        """Refuse a term's first plan if it does not continue the log that goes furthest among the votes."""
        mandate = self.mandates.of(term_of(plan.epoch))
        if mandate is None or plan.epoch != first_epoch(mandate.term):
            return
        base = mandate.base
        if plan.round < base.rounds or (plan.round == base.rounds and plan.chain != base.verdict):
            raise Refused(
                Reason.WRONG_CHAIN,
                f"{mandate.name} does not continue from the last verdict that its voters hold",
                fix="it is not honest, or its journal is damaged: let another standby take over",
                round=plan.round,
            )

    def note(self, document: RoundPlan | Verdict, certified: CertifiedSeal) -> None:
        """Keep an announced verdict with its plan, before acting on it."""
        with self._lock:
            if isinstance(document, RoundPlan):
                self._planned = document, certified
            elif self._planned is not None and self._planned[0].digest == document.plan:
                plan, seal = self._planned
                self.log.keep(SealedRound(plan, document, seal, certified))

    def align(self, since: Callable[[int], Sequence[SealedRound]]) -> None:
        """Bring our log to the history of the coordinator that we follow; only then it counts as one of its term."""
        term = self.term
        with self._lock:
            self.log.align(since)
            if term != self.term:
                return  # this is somebody else's history by now
            mandate = self.mandates.of(term)
            if mandate is not None and not self.log.holds(mandate.base):
                raise Refused(
                    Reason.WRONG_CHAIN,
                    f"the history of {mandate.name} lacks the last verdict that its voters hold",
                    fix="it is not honest, or its journal is damaged: let another standby take over",
                )
            if self._adopted != term:
                self._write(self.promise, term)

    def keeps_up_to(self, chain: str) -> bool:
        """Whether all verdicts before a plan are on our disk, as those of the coordinator that we follow."""
        return self.log.chain == chain and self._adopted == self.term

    def close(self) -> None:
        """Close the log."""
        self.log.close()

    def _write(self, promise: Promise, adopted: int) -> None:
        kept = {"term": promise.term, "candidacy": promise.candidacy, "adopted": adopted, "seat": self._seat}
        write_atomically(self._path, (json.dumps(kept) + "\n").encode())
        self.promise, self._adopted = promise, adopted

    def _read(self) -> None:
        if not self._path.exists():
            self._write(self.promise, self._adopted)
            return
        try:
            kept = json.loads(self._path.read_bytes())
            self.promise = Promise(int(kept["term"]), str(kept["candidacy"]))
            self._adopted, self._seat = int(kept["adopted"]), str(kept["seat"])
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"this peer's promises cannot be read: {error}",
                fix="restore the file: a peer that forgets its promises may follow two coordinators",
                path=self._path,
            ) from None
