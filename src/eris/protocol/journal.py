"""What must survive the coordinator: plans, verdicts, members, proofs and findings, rewinds, epochs, and who may
coordinate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from eris.protocol.false_manifest import FalseManifest
from eris.protocol.messages import Disagreement, Equivocation
from eris.protocol.roster import Cited, Name, RosterEntry, SignedLeave
from eris.protocol.round_plan import RoundPlan
from eris.protocol.seal import EpochBegun
from eris.protocol.take_over import Mandate
from eris.protocol.verdict import Verdict
from eris.wire.schema import Binary, Digest, Number, Signature, Text, document

__all__ = [
    "STOP_PURPOSE",
    "Departure",
    "Entry",
    "Journal",
    "Membership",
    "Rewind",
    "StopClaim",
    "Stopped",
    "in_force",
]

STOP_PURPOSE = "stop"  # what a signature is for stands in what is signed


@document(13)
@dataclass(frozen=True, slots=True)
class Membership:
    """The roster changed or a reference was lost; takes effect with the next plan."""

    roster: Cited
    reference_epoch: Number


@document(20)
@dataclass(frozen=True, slots=True)
class Departure:
    """A member left for good and signed that; it is shown to peers that miss the member on the roster."""

    peer: Number
    leave: SignedLeave


@document(23)
@dataclass(frozen=True, slots=True)
class StopClaim:
    """What is signed to end a run: this run, in this epoch, once."""

    run: Text
    epoch: Number
    nonce: Digest  # random


@document(24)
@dataclass(frozen=True, slots=True)
class Stopped:
    """The run was ended by somebody entitled to; kept so that nobody else is blamed for it."""

    claim: StopClaim
    by: Name
    signature: Signature  # on the claim
    certificate: Binary = field(repr=False)  # of the signer, DER


@document(14)
@dataclass(frozen=True, slots=True)
class Rewind:
    """The run goes on from the start of an earlier round: all were down, and nobody has what came after it."""

    round: Number


Entry = (
    RoundPlan
    | Verdict
    | Membership
    | Equivocation
    | Disagreement
    | FalseManifest
    | Rewind
    | EpochBegun
    | Departure
    | Stopped
    | Mandate
)


class Journal(Protocol):
    """Where everything that must survive the coordinator is kept; `append` returns once the entry is durable."""

    def append(self, entry: Entry, /) -> None:
        """Keep an entry for good."""
        ...

    def __iter__(self) -> Iterator[Entry]:
        """Return all entries in order."""
        ...


def in_force(entries: list[Entry]) -> list[Entry]:
    """Return the entries without what a rewind took back: rounds, and the reference epochs that began after them.

    Members go back to the references they had then. Joins and departures stay as they are, and so do proofs.
    """
    kept: list[Entry] = []
    for entry in entries:
        if isinstance(entry, Rewind):
            kept = _before(kept, entry.round)
        else:
            kept.append(entry)
    return kept


def _before(entries: list[Entry], round: int) -> list[Entry]:
    kept: list[Entry] = []
    roster: tuple[RosterEntry, ...] = ()
    undone = False
    for entry in entries:
        if isinstance(entry, RoundPlan | Verdict):
            undone = undone or entry.round >= round
        if not undone or not _belongs_to_a_round(entry, roster):
            kept.append(entry)
        if isinstance(entry, RoundPlan | Membership):
            roster = entry.roster
    return kept


def _belongs_to_a_round(entry: Entry, roster: tuple[RosterEntry, ...]) -> bool:
    """Whether an entry concerns rounds only: a membership with unchanged members merely began a reference epoch."""
    if isinstance(entry, Membership):
        return entry.roster == roster
    return isinstance(entry, RoundPlan | Verdict | Disagreement)
