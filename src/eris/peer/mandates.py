"""Who has coordinated this run, term by term: checked mandates, and whose seal counts in which term."""

from __future__ import annotations

from collections.abc import Iterable

from eris.errors import ConfigError, Reason, Refused
from eris.peer.federation_file import FederationFile
from eris.protocol.seal import CertifiedSeal
from eris.protocol.take_over import Candidacy, Mandate, Vote, require_candidacy, require_mandate, require_vote, term_of
from eris.transport.certificates import fingerprint_of, read_certificate
from eris.transport.control import COORDINATOR
from eris.transport.credentials import Credentials
from eris.transport.sealed import is_sealed
from eris.transport.signatures import verify_message

__all__ = ["Mandates"]


class Mandates:
    """The mandates known here, by term; only those that prove themselves are accepted."""

    def __init__(self, federation: FederationFile, credentials: Credentials, known: Iterable[Mandate] = ()) -> None:
        """Start from `known`, mandates that were checked before they were kept."""
        self.federation, self._credentials = federation, credentials
        self._by_term = {mandate.term: mandate for mandate in known}

    @property
    def all(self) -> tuple[Mandate, ...]:
        """All mandates in the order of their terms; terms that nobody won are left out."""
        return tuple(self._by_term[term] for term in sorted(self._by_term))

    @property
    def last(self) -> Mandate | None:
        """The mandate of the highest term; None while the first coordinator is in office."""
        return self.all[-1] if self._by_term else None

    def of(self, term: int) -> Mandate | None:
        """Return the mandate of a term, if it is known."""
        return self._by_term.get(term)

    def learn(self, mandate: Mandate) -> bool:
        """Check a mandate and remember it; return whether it is new. An invalid one is refused."""
        if (known := self._by_term.get(mandate.term)) is not None:
            if known.candidacy.digest != mandate.candidacy.digest:
                raise Refused(
                    Reason.EQUIVOCATION,
                    f"there are two mandates for term {mandate.term}, of {known.name} and of {mandate.name}",
                    fix="a peer voted twice: compare the votes in both mandates, and revoke its certificate",
                )
            return False
        require_mandate(
            mandate,
            federation=self.federation.digest,
            candidates=self.federation.coordinators,
            listed=self.federation.peers,
            is_signed=self.is_signed,
            is_sealed=self.is_sealed,
        )
        self._by_term[mandate.term] = mandate
        return True

    def require_candidacy(self, candidacy: Candidacy) -> None:
        """Refuse a candidacy by somebody who may not coordinate, or whose certificate is no longer valid."""
        require_candidacy(
            candidacy,
            federation=self.federation.digest,
            candidates=self.federation.coordinators,
            is_signed=self.is_signed,
        )
        if not self._credentials.vouches_for(candidacy.certificate, candidacy.name):
            raise Refused(Reason.BAD_SIGNATURE, f"the certificate of {candidacy.name} is no longer valid")

    def require_vote(self, vote: Vote, candidacy: Candidacy) -> None:
        """Refuse a vote that does not count for a candidacy."""
        listed = self.federation.peers
        require_vote(vote, candidacy, listed=listed, is_signed=self.is_signed, is_sealed=self.is_sealed)

    def is_signed(self, name: str, certificate: bytes, purpose: str, message: bytes, signature: str) -> bool:
        """Return whether our CA gave `certificate` to `name`, now or earlier, and its key signed this message.

        Args:
            certificate: DER.
            purpose: what the signature is good for; one for another purpose does not count.
            signature: in hex.
        """
        if not self._credentials.issued(name, certificate):
            return False
        return verify_message(certificate, purpose, message, bytes.fromhex(signature))

    def is_sealed(self, certified: CertifiedSeal) -> bool:
        """Return whether a seal is by the coordinator of its term: checked by name in term 0, by key in later ones."""
        term = term_of(certified.seal.epoch)
        if term == 0:
            return is_sealed(certified, self._credentials.issued)
        mandate = self._by_term.get(term)
        if mandate is None or not is_sealed(certified, self._credentials.issued, (mandate.name,)):
            return False
        return _key(certified.certificate) == _key(mandate.candidacy.certificate)

    def certificate_of(self, term: int) -> bytes:
        """Return the certificate (DER) of a term's coordinator, as its mandate or later votes show; else empty."""
        if (mandate := self._by_term.get(term)) is not None:
            return mandate.candidacy.certificate
        seals = (vote.seal for mandate in self.all for vote in mandate.votes)
        shown = (seal for seal in seals if seal is not None and term_of(seal.seal.epoch) == term)
        return next((seal.certificate for seal in shown if self.is_sealed(seal)), b"")

    @property
    def is_ours(self) -> bool:
        """Whether the owner of these credentials was voted in for the last term."""
        last = self.last
        return last is not None and _key(last.candidacy.certificate) == self._credentials.identity.fingerprint

    def require_own_term(self) -> None:
        """Refuse to coordinate in a term that somebody else was voted in for, or as a standby in the first one."""
        term = self.last.term if self.last is not None else 0
        if not (self.is_ours if term else self._credentials.name == COORDINATOR):
            raise ConfigError(
                f"{self.name_of(term)} coordinates in term {term}, not {self._credentials.name} with this key",
                fix="ask the listed peers for the next term: `eris coordinator --take-over`",
            )

    def name_of(self, term: int) -> str:
        """Return who coordinates in a term."""
        mandate = self._by_term.get(term)
        return mandate.name if mandate is not None else COORDINATOR


def _key(certificate: bytes) -> str:
    return fingerprint_of(read_certificate(certificate, where="seal"))
