"""The rule by which one coordinator takes over from another, so that no two are ever both believed; without I/O.

A **term** is a block of epochs that belongs to one coordinator: term 0 to the one that began the run, each later one to
whoever was voted in for it. Epochs rise, so every plan of a later term comes behind every plan of an earlier one.

1. A *candidacy* names a term, and the key that asks for it. A peer votes for one candidacy of a term, writes that down
   before it answers, and from then on follows no coordinator of an earlier term (`Promise`).
2. A vote says where the voter's log of verdicts ends, with the seal of the last one. Votes of more than half of the
   listed peers are a *mandate*, which everybody can check. The new coordinator goes on from the log that goes furthest
   among them (`Mandate.base`): it has no say in that.
3. A verdict that is on the disks of more than half of the listed peers, who follow its coordinator, is *settled*. Only
   then does anybody follow it, and only then is the next round planned. Some voter of every later mandate holds it.

What is not settled yet, at most the last verdict, may be lost with its coordinator; nobody has followed it.

>>> first_epoch(1), term_of(first_epoch(2) - 1), is_majority(3, 5), is_majority(2, 4)
(1048576, 1, True, False)
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any

import msgspec

from eris.errors import Reason, Refused
from eris.protocol.roster import Name
from eris.protocol.seal import CertifiedSeal
from eris.protocol.verdict import GENESIS
from eris.wire.schema import MOST_PEERS, Binary, Digest, Number, Signature, digest_of, document, encode

__all__ = [
    "CANDIDACY_PURPOSE",
    "MOST_TERMS",
    "VOTE_PURPOSE",
    "Candidacy",
    "Kept",
    "LogEnd",
    "Mandate",
    "Promise",
    "Signed",
    "Vote",
    "first_epoch",
    "is_majority",
    "majority_of",
    "require_candidacy",
    "require_mandate",
    "require_vote",
    "term_of",
]

CANDIDACY_PURPOSE, VOTE_PURPOSE = "candidacy", "vote"  # part of what is signed
_EPOCHS = 1 << 20  # in a term: one per start of its coordinator
MOST_TERMS = 1 << 12

Signed = Callable[[str, bytes, str, bytes, str], bool]
"""Whether the CA gave a certificate (DER) to a name, and its key signed a message for a purpose:
name, certificate, purpose, message, signature."""


def term_of(epoch: int) -> int:
    """Return the term that an epoch belongs to."""
    return epoch // _EPOCHS


def first_epoch(term: int) -> int:
    """Return the first epoch of a term."""
    return term * _EPOCHS


def majority_of(listed: int) -> int:
    """Return the smallest number of listed peers that is more than half of them."""
    return listed // 2 + 1


def is_majority(count: int, listed: int) -> bool:
    """Whether `count` is more than half of the listed peers."""
    return count >= majority_of(listed)


@dataclass(frozen=True, slots=True, order=True)
class LogEnd:
    """Where a peer's log of verdicts ends; of two logs the greater one goes further.

    The term of the last mandate that the log follows comes first: what an earlier coordinator said and a later one did
    not take up never counts again, however long it is.

    >>> LogEnd(1, 0, 3, "aa" * 32) > LogEnd(0, 0, 9, "bb" * 32) > LogEnd(0, 0, 8, "cc" * 32) > LogEnd()
    True
    """

    term: Number = 0
    epoch: Number = 0  # of the last verdict
    rounds: Number = 0  # how many have a verdict
    verdict: Digest = GENESIS  # the last one


@document(80)
@dataclass(frozen=True)
class Candidacy:
    """A request for the votes of a term, made once: another attempt is another candidacy."""

    federation: Digest  # digest of FEDERATION.toml
    term: Number
    name: Name  # of the candidate, as FEDERATION.toml lists it
    nonce: Digest  # random
    certificate: Binary = field(repr=False)  # DER: its key signs everything in the term
    signature: Signature = ""

    @cached_property
    def signed_bytes(self) -> bytes:
        """Everything but the signature."""
        return encode(replace(self, signature=""))

    @cached_property
    def digest(self) -> str:
        """Digest of what is signed, by which votes refer to it."""
        return digest_of(self.signed_bytes)


@document(81)
@dataclass(frozen=True)
class Vote:
    """A peer's word that it follows this candidacy or a later one and nothing earlier, and where its log ends."""

    candidacy: Digest
    voter: Name
    seat: Digest  # drawn once per peer folder: it tells votes of an earlier run of the same file apart
    log: LogEnd
    seal: CertifiedSeal | None  # of the last verdict in the log, if there is one
    certificate: Binary = field(repr=False)  # the voter's, DER
    signature: Signature = ""

    @cached_property
    def signed_bytes(self) -> bytes:
        """Everything but the signature."""
        return encode(replace(self, signature=""))


@document(86)
@dataclass(frozen=True, slots=True)
class Kept:
    """A peer's word that a verdict and all before it are on its disk."""

    verdict: Digest


@document(82)
@dataclass(frozen=True)
class Mandate:
    """Votes of more than half of the listed peers for a candidacy: who may coordinate in a term, and from where on."""

    candidacy: Candidacy
    votes: Annotated[tuple[Vote, ...], msgspec.Meta(max_length=MOST_PEERS)]

    @property
    def term(self) -> int:
        """The term that it is for."""
        return self.candidacy.term

    @property
    def name(self) -> str:
        """Who coordinates."""
        return self.candidacy.name

    @cached_property
    def base(self) -> LogEnd:
        """The log that goes furthest among the voters': the term continues from it, whatever its coordinator wants."""
        return max(vote.log for vote in self.votes)


@dataclass(frozen=True, slots=True)
class Promise:
    """What a peer has bound itself to for ever: the highest term it voted in or follows, and for whom.

    >>> promise = Promise(1, "aa" * 32)
    >>> promise.allows(1, "aa" * 32), promise.allows(1, "bb" * 32), promise.allows(0, ""), promise.allows(2, "bb" * 32)
    (True, False, False, True)
    """

    term: int = 0
    candidacy: str = ""  # its digest; empty in term 0, for which nobody was voted in

    def allows(self, term: int, candidacy: str) -> bool:
        """Whether a candidacy may still be voted for, or its coordinator followed."""
        return term > self.term or (term, candidacy) == (self.term, self.candidacy)


def require_candidacy(candidacy: Candidacy, *, federation: str, candidates: Collection[str], is_signed: Signed) -> None:
    """Refuse a candidacy for another federation, by somebody who may not coordinate, or not signed by the candidate.

    Args:
        federation: digest of our FEDERATION.toml.
        candidates: names of all who may coordinate.
        is_signed: checks certificate and signature.
    """
    if candidacy.federation != federation:
        raise Refused(Reason.WRONG_RUN, f"{candidacy.name} asks for the votes of another federation")
    if candidacy.name not in candidates or not 1 <= candidacy.term < MOST_TERMS:
        raise Refused(
            Reason.NOT_A_MEMBER,
            f"{candidacy.name} cannot coordinate in term {candidacy.term}",
            fix="list it under federation.standbys in every peer's file",
        )
    if not is_signed(
        candidacy.name, candidacy.certificate, CANDIDACY_PURPOSE, candidacy.signed_bytes, candidacy.signature
    ):
        raise Refused(Reason.BAD_SIGNATURE, f"the candidacy for term {candidacy.term} is not signed by its author")


def require_vote(
    vote: Vote,
    candidacy: Candidacy,
    *,
    listed: Collection[str],
    is_signed: Signed,
    is_sealed: Callable[[CertifiedSeal], bool],
) -> None:
    """Refuse a vote that is not a listed peer's own, is not for this candidacy, or claims a log without its seal.

    Args:
        listed: names of the peers that vote.
        is_signed: checks certificate and signature.
        is_sealed: whether a coordinator of this federation made a seal.
    """
    where: dict[str, Any] = {"peer": vote.voter, "term": candidacy.term}
    if vote.voter not in listed:
        raise Refused(Reason.NOT_A_MEMBER, f"{vote.voter} has no vote: it is not listed", **where)
    if vote.candidacy != candidacy.digest:
        raise Refused(Reason.WRONG_EPOCH, "the vote is for another candidacy", **where)
    if not is_signed(vote.voter, vote.certificate, VOTE_PURPOSE, vote.signed_bytes, vote.signature):
        raise Refused(Reason.BAD_SIGNATURE, "the vote is not signed by its voter", **where)
    if not _log_is_shown(vote, is_sealed) or vote.log.term >= candidacy.term:
        raise Refused(Reason.WRONG_CHAIN, "the vote claims a log that its seal does not show", **where)


def _log_is_shown(vote: Vote, is_sealed: Callable[[CertifiedSeal], bool]) -> bool:
    """Whether a coordinator signed the last verdict of the log that a voter claims."""
    log = vote.log
    if vote.seal is None or not log.rounds:
        return vote.seal is None and (log.epoch, log.rounds, log.verdict) == (0, 0, GENESIS)
    seal = vote.seal.seal
    shown = (seal.epoch, seal.round + 1, seal.verdict) == (log.epoch, log.rounds, log.verdict)
    return shown and term_of(seal.epoch) <= log.term and is_sealed(vote.seal)


def require_mandate(
    mandate: Mandate,
    *,
    federation: str,
    candidates: Collection[str],
    listed: Collection[str],
    is_signed: Signed,
    is_sealed: Callable[[CertifiedSeal], bool],
) -> None:
    """Refuse an invalid mandate: every vote is checked and counts once, and more than half of the listed must vote.

    The arguments are those of `require_candidacy` and `require_vote`.
    """
    candidacy = mandate.candidacy
    require_candidacy(candidacy, federation=federation, candidates=candidates, is_signed=is_signed)
    for vote in mandate.votes:
        require_vote(vote, candidacy, listed=listed, is_signed=is_signed, is_sealed=is_sealed)
    voters = {vote.voter for vote in mandate.votes}
    if len(voters) != len(mandate.votes) or not is_majority(len(voters), len(listed)):
        raise Refused(
            Reason.TOO_FEW,
            f"{len(voters)} of {len(listed)} listed peers voted for {mandate.name} in term {mandate.term}, but "
            f"{majority_of(len(listed))} must, each once",
            fix="wait until more of them can be reached",
        )
