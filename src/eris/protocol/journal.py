"""What must survive the coordinator: plans, verdicts, members, proofs and findings, what was taken back, epochs, and
who may coordinate.
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
    """The roster changed, or a reference was lost: from the next plan on."""

    roster: Cited
    reference_epoch: Number


@document(20)
@dataclass(frozen=True, slots=True)
class Departure:
    """A member left for good, and signed that: who misses it on the roster is shown this."""

    peer: Number
    leave: SignedLeave


@document(23)
@dataclass(frozen=True, slots=True)
class StopClaim:
    """What whoever ends a run signs: this run, in this epoch, once."""

    run: Text
    epoch: Number
    nonce: Digest  # at random


@document(24)
@dataclass(frozen=True, slots=True)
class Stopped:
    """The run was ended by somebody who may; kept so that nobody else is blamed for it."""

    claim: StopClaim
    by: Name
    signature: Signature
    certificate: Binary = field(repr=False)  # of who signed, DER


@document(14)
@dataclass(frozen=True, slots=True)
class Rewind:
    """The run goes on from the beginning of an earlier round: all were down, and nobody has what came after it."""

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
    """Where all that must survive the coordinator is kept; `append` returns only when the entry is durable."""

    def append(self, entry: Entry, /) -> None:
        """Keep an entry for good."""
        ...

    def __iter__(self) -> Iterator[Entry]:
        """Return all entries in order."""
        ...


def in_force(entries: list[Entry]) -> list[Entry]:
    """Return the entries without what a rewind took back: rounds, and reference epochs that began after them.

    Members go back to the references they had then. Who came or left stays as it is; so do proofs.
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
    """Whether an entry is one of rounds alone: a membership with the same members only began a reference epoch."""
    if isinstance(entry, Membership):
        return entry.roster == roster
    return isinstance(entry, RoundPlan | Verdict | Disagreement)
