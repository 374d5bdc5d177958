"""Remembers what this peer has heard the coordinator sign, and detects contradictions.

Every plan and every verdict comes with a seal. The last plan's seal is stored on disk before anything is done under it:
no lower plan is answered, whatever is restarted. A seal that contradicts another one, heard here or shown by another
peer, is a proof: it is kept, passed on, and ends the run for whoever has it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Collection
from pathlib import Path

from eris.atomic_file import write_atomically, writing
from eris.errors import Reason, Refused
from eris.peer.allegiance import Allegiance
from eris.protocol.false_manifest import LieProof
from eris.protocol.round_plan import RoundPlan
from eris.protocol.seal import CertifiedSeal, Contradiction, Seal
from eris.protocol.take_over import term_of
from eris.protocol.verdict import Verdict
from eris.transport.control import COORDINATOR
from eris.transport.credentials import Credentials
from eris.transport.sealed import is_sealed, require_lie, require_proof, write_proof
from eris.wire.schema import plain, read_plain

__all__ = ["HEARD", "PROOF", "Witness"]

_LOG = logging.getLogger(__name__)
HEARD, PROOF = "heard.jsonl", "coordinator-proof.json"  # in a peer's folder
_KEEP = 64  # seals kept to compare others' with
_LINES = 256  # of what was heard, before the file is begun anew: to add one costs half of what to replace a file does


class Witness:
    """Remembers the coordinator's seals; safe to use from many threads."""

    def __init__(
        self,
        credentials: Credentials,
        run: str,
        fetch_certificate: Callable[[], bytes],
        folder: Path | None = None,
        *,
        allegiance: Allegiance | None = None,
        names: Collection[str] = (COORDINATOR,),
    ) -> None:
        """Start from what was heard before, if there is a folder.

        Args:
            run: the run whose seals count.
            fetch_certificate: asks the coordinator for its certificate.
            folder: where the last plan's seal and any proof are kept.
            allegiance: knows who coordinates in which term; None without standbys.
            names: everybody who may coordinate.
        """
        self._credentials, self._run, self._fetch, self._folder = credentials, run, fetch_certificate, folder
        self._allegiance, self._names = allegiance, names
        self._lock = threading.RLock()
        self._certificate = b""  # the coordinator's
        self._seals: deque[CertifiedSeal] = deque(maxlen=_KEEP)
        self.proof: Contradiction | None = None
        self._guilty: set[int] = set()  # aggregators whose lie was proven
        self.last = self._read()  # seal of the last plan heard
        self._written = 0  # lines written by this process

    def learn(self, certificate: bytes) -> None:
        """Take the coordinator's certificate; whether it is genuine shows only in the seals."""
        self._certificate = certificate

    def vouches_for(self, document: RoundPlan | Verdict, seal: Seal | None) -> CertifiedSeal:
        """Return a document's seal with the matching certificate; refuse a document without a good seal."""
        what = "plan" if isinstance(document, RoundPlan) else "verdict"
        if seal is not None and seal.is_of(document):
            certified = CertifiedSeal(seal, self._certificate_of(seal))
            if not self._is_sealed(certified):  # the certificate may have been renewed
                self._certificate = self._fetch()
                certified = CertifiedSeal(seal, self._certificate)
            if self._is_sealed(certified):
                return certified
        raise Refused(
            Reason.BAD_SIGNATURE,
            f"the {what} is not signed by the coordinator",
            fix="compare the coordinator's certificate with the CA's list",
            round=document.round,
        )

    def hear(self, document: RoundPlan | Verdict, seal: Seal | None) -> bool:
        """Check what the coordinator says, and return whether to follow it: not a plan lower than one heard before."""
        certified = self.vouches_for(document, seal)
        if self._allegiance is not None and not self._follows(self._allegiance, document, certified):
            return False
        with self._lock:
            self.compare(certified)
            if isinstance(document, Verdict):
                self._seals.append(certified)
                return True
            if self._goes_back(certified.seal):
                return False
            if self.last is None or certified.seal.when > self.last.seal.when:
                self._keep(certified)
            return True

    def compare(self, certified: CertifiedSeal) -> None:
        """Compare a seal, whoever showed it, with those heard here; raise if together they prove foul play."""
        with self._lock:
            known = [*self._seals, *([self.last] if self.last is not None else [])]
            found = next((one for one in known if one.seal.contradicts(certified.seal)), None)
        if found is not None and self._is_sealed(certified) and self._is_one_coordinators(found, certified):
            self.convict(Contradiction(found, certified))

    def convict(self, proof: Contradiction) -> None:
        """Check a proof; if it is valid, keep it and raise it, which ends the run here."""
        require_proof(proof, self._credentials.issued, self._names)
        with self._lock:
            if proof.first.seal.run != self._run:
                raise Refused(Reason.WRONG_RUN, "the proof is about another run")
            if self.proof is None:
                self.proof = proof
                _LOG.error("%s", proof)
                if self._folder is not None:
                    write_proof(proof, self._folder / PROOF)
        where = f": {self._folder / PROOF}" if self._folder is not None else ""
        raise Refused(
            Reason.EQUIVOCATION,
            f"{proof}; the proof is kept{where}",
            fix="check it with `eris certs check-proof`, and find another coordinator",
        )

    def require_guilty(
        self, plan: RoundPlan, verdict: Verdict, ask: Callable[[Collection[int]], Collection[LieProof]]
    ) -> None:
        """Check the proof before an exclusion is accepted; refuse a verdict that excludes somebody without one.

        `ask` returns the proofs against these peers.
        """
        for entry in verdict.shards:
            owners = plan.aggregators_of(entry.shard)
            if entry.lost not in (Reason.EQUIVOCATION, Reason.FALSE_MANIFEST) or self._guilty & set(owners):
                continue
            for proof in ask(owners):
                if proof.aggregator in owners:
                    what = require_lie(proof, self._credentials.issued, self._names)
                    _LOG.error("round %d: %s", verdict.round, what)
                    self._guilty.add(proof.aggregator)
                    if self._folder is not None:
                        write_proof(proof, self._folder / f"aggregator-{proof.aggregator}-proof.json")
            if not self._guilty & set(owners):
                raise Refused(
                    Reason.WRONG_PLAN,
                    f"the coordinator excludes an aggregator of shard {entry.shard} without showing a proof",
                    fix="the coordinator is not honest",
                    round=verdict.round,
                )

    def _follows(self, allegiance: Allegiance, document: RoundPlan | Verdict, certified: CertifiedSeal) -> bool:
        """Whether a document is of a term that this peer still follows; a verdict is kept at once, with its plan."""
        if not allegiance.hears(document):
            return False
        if isinstance(document, RoundPlan):
            allegiance.require_base(document)
        allegiance.note(document, certified)
        return True

    def _certificate_of(self, seal: Seal) -> bytes:
        """Return the certificate that should match a seal: that of its term's coordinator, as far as known."""
        term = term_of(seal.epoch)
        if self._allegiance is None or term == self._allegiance.term:
            return self._certificate
        known = self.last.certificate if self.last is not None and term_of(self.last.seal.epoch) == term else b""
        return self._allegiance.mandates.certificate_of(term) or known

    def _is_sealed(self, certified: CertifiedSeal) -> bool:
        if self._allegiance is not None:
            return self._allegiance.mandates.is_sealed(certified)
        return is_sealed(certified, self._credentials.issued)

    def _is_one_coordinators(self, first: CertifiedSeal, second: CertifiedSeal) -> bool:
        """Whether one coordinator signed both: two different ones prove nothing against either."""
        return len({self._credentials.identify(one.certificate).name for one in (first, second)}) == 1

    def _goes_back(self, seal: Seal) -> bool:
        """Whether a plan is lower than the last one heard, or of an epoch that leaves that one out."""
        if self.last is None:
            return False
        # A new coordinator may not know of a plan that few have heard: its mandate says what it continues from.
        same_term = term_of(seal.epoch) == term_of(self.last.seal.epoch)
        hides = (seal.epoch > self.last.seal.epoch and same_term) and (
            seal.supersedes is None or seal.supersedes.when < self.last.seal.when
        )
        if hides or seal.when < self.last.seal.when:
            _LOG.error(
                "the plan of epoch %d, round %d is not answered: this peer has already seen one of epoch %d, round %d",
                *(*seal.when, *self.last.seal.when),
            )
            return True
        return False

    def _keep(self, certified: CertifiedSeal) -> None:
        if self._folder is not None:
            path, line = self._folder / HEARD, json.dumps(plain(certified)).encode() + b"\n"
            before, self._written = self._written, 0  # after an incomplete line the file is started anew
            if before % _LINES:
                with writing(path, fix="make room; nothing was done under this plan"), path.open("ab") as file:
                    file.write(line)
                    file.flush()
                    os.fsync(file.fileno())
            else:
                self._folder.mkdir(parents=True, exist_ok=True)
                write_atomically(path, line)
            self._written = before + 1
        self.last = certified
        self._seals.append(certified)

    def _read(self) -> CertifiedSeal | None:
        """Return what was heard last; nothing was done under the plan of a torn line."""
        if self._folder is None or not (self._folder / HEARD).exists():
            return None
        for line in reversed((self._folder / HEARD).read_bytes().splitlines()):
            with contextlib.suppress(ValueError):
                kept = read_plain(CertifiedSeal, json.loads(line))
                if kept.seal.run == self._run and self._is_sealed(kept):
                    return kept
        return None
