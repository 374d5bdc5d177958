"""Who is a member, under which key and with which weight: agreed once, cited by digest, then sent as differences.

>>> first = Roster([RosterEntry(0, "ada", 2.0), RosterEntry(1, "bob", 1.0)])
>>> later = Roster([first[0], RosterEntry(2, "cyd", 1.0)])
>>> change = first.change_to(later)
>>> change.removed, [entry.name for entry in change.entries]
((1,), ['cyd'])
>>> first.changed(change).digest == later.digest
True
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from eris.errors import InputError, Reason, Refused
from eris.wire.schema import (
    MOST_PEERS,
    Binary,
    Digest,
    Number,
    Peers,
    Real,
    Signature,
    Spelling,
    decode,
    digest_of,
    document,
    encode,
)

__all__ = [
    "LEAVE_PURPOSE",
    "LONGEST_NAME",
    "ROSTER_PURPOSE",
    "Cited",
    "LeaveClaim",
    "Name",
    "Roster",
    "RosterChange",
    "RosterClaim",
    "RosterEntry",
    "SignedLeave",
    "cited",
    "roster_weights",
]

ROSTER_PURPOSE, LEAVE_PURPOSE = "roster", "leave"  # part of what is signed

_HEAVIEST = 2.0**53
_LONGEST = 1 << 28  # bytes of an encoded roster
LONGEST_NAME = 64  # characters; a certificate has room for 63
Name = Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)]


@document(18)
@dataclass(frozen=True, slots=True)
class RosterClaim:
    """What a member signs about its own entry: nobody else says how much it weighs or which organisation it is in."""

    federation: Digest  # of the file that all peers share
    name: Name
    weight: Real
    organisation: Name
    counter: Number  # seconds since 1970 at signing: a later claim replaces it


@document(19)
@dataclass(frozen=True, slots=True)
class LeaveClaim:
    """What a member signs when it leaves for good."""

    federation: Name  # as certificates have it
    name: Name
    counter: Number  # seconds since 1970: a later entry of this member counts again


@dataclass(frozen=True, slots=True)
class SignedLeave:
    """Proof that a member left, for peers that miss it on the roster."""

    claim: LeaveClaim
    signature: Signature
    certificate: Binary = field(repr=False)  # the member's, DER


@dataclass(frozen=True, slots=True)
class RosterEntry:
    """One member of the federation as all others know it."""

    peer: Number
    name: Name
    weight: Real  # samples, or 1 for a plain mean; fixed within a reference epoch
    fingerprint: Digest = ""  # of its certificate's key
    organisation: Name = ""
    can_aggregate: bool = True  # is meant to have shards, and others can reach it
    counter: Number = 0  # of the claim that the member signed
    signature: Signature = ""  # the member's, on its claim

    def claim(self, federation: str) -> RosterClaim:
        """Return what the entry's member signs, in the federation whose file has this digest."""
        return RosterClaim(federation, self.name, self.weight, self.organisation, self.counter)

    def says_the_same(self, other: RosterEntry | None) -> bool:
        """Whether another entry differs only in when it was signed."""
        return other is not None and replace(other, counter=self.counter, signature=self.signature) == self

    def __post_init__(self) -> None:
        weight = self.weight
        if not (isinstance(weight, int | float) and math.isfinite(weight) and 0 < weight <= _HEAVIEST):
            raise InputError(
                f"weight is {self.weight}", fix="use a finite weight in (0, 2⁵³]; leave out members without samples",
                peer=self.name,
            )  # fmt: skip


Entries = Annotated[tuple[RosterEntry, ...], msgspec.Meta(max_length=MOST_PEERS)]


@document(1)
@dataclass(frozen=True, slots=True)
class WholeRoster:
    """A whole roster on the wire."""

    entries: Entries

    def __post_init__(self) -> None:
        object.__setattr__(self, "entries", Roster(self.entries))  # sorted ascending, or refused on reading


@document(2)
@dataclass(frozen=True, slots=True)
class RosterChange:
    """The difference that turns one roster into another."""

    base: Digest  # the roster that it changes
    result: Digest  # the roster that it leads to
    removed: Peers
    entries: Entries  # new and changed ones


class Roster(tuple[RosterEntry, ...]):
    """The members in ascending order of their numbers; what follows from them is worked out once."""

    def __new__(cls, entries: Iterable[RosterEntry] = ()) -> Roster:
        """Return the roster of these entries; a roster is returned as it is."""
        if isinstance(entries, Roster):
            return entries
        made = super().__new__(cls, entries)
        peers = [entry.peer for entry in made]
        if peers != sorted(set(peers)):
            raise InputError("the roster must list each peer once, in ascending order of ids")
        return made

    @cached_property
    def encoded(self) -> bytes:
        """All entries as they travel; in a simulation, where they do not, they may be more than anybody accepts."""
        return encode(WholeRoster(self), longest=_LONGEST)

    @cached_property
    def digest(self) -> str:
        """The digest by which plans cite the roster."""
        return digest_of(self.encoded)

    @cached_property
    def peers(self) -> frozenset[int]:
        """The numbers of the members."""
        return frozenset(entry.peer for entry in self)

    @cached_property
    def weights(self) -> dict[int, np.float32]:
        """w_k of every member; they sum to one up to rounding."""
        weights = roster_weights([entry.weight for entry in self])
        return {entry.peer: weight for entry, weight in zip(self, weights, strict=True)}

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview) -> Roster:
        """Decode a roster that came from outside."""
        roster: Roster = decode(WholeRoster, data).entries
        return roster

    def change_to(self, later: Roster) -> RosterChange:
        """Return the difference to a later roster: all that a peer with this one needs to hear."""
        known = {entry.peer: entry for entry in self}
        removed = tuple(entry.peer for entry in self if entry.peer not in later.peers)
        other = tuple(entry for entry in later if known.get(entry.peer) != entry)
        return RosterChange(self.digest, later.digest, removed, other)

    def changed(self, change: RosterChange) -> Roster:
        """Return the roster after a change; refuse one that is not of this roster, or leads elsewhere."""
        if change.base != self.digest:
            raise Refused(Reason.WRONG_DIGEST, "the difference is from a roster that this peer does not have")
        entries = {entry.peer: entry for entry in self if entry.peer not in change.removed}
        entries |= {entry.peer: entry for entry in change.entries}
        later = Roster(entries[peer] for peer in sorted(entries))
        if later.digest != change.result:
            raise Refused(Reason.WRONG_DIGEST, "the difference does not lead to the roster it names")
        return later


def roster_weights(weights: list[float]) -> NDArray[np.float32]:
    """Normalise weights over the whole roster, each rounded once to float32.

    >>> roster_weights([1, 1, 2]).tolist()
    [0.25, 0.25, 0.5]
    """
    total = math.fsum(weights)
    return np.array([weight / total for weight in weights], dtype=np.float32)


def _citation(roster: tuple[RosterEntry, ...]) -> bytes:
    return bytes.fromhex(Roster(roster).digest)


def _unknown(digest: bytes) -> Roster:
    raise ValueError(f"it cites roster {digest.hex()[:12]}…, which is not at hand")


Cited = Annotated[tuple[RosterEntry, ...], Spelling(Annotated[bytes, msgspec.Meta(max_length=32)], _citation, _unknown)]
"""A roster that a document names by its digest; whoever reads it knows that roster, or asks for it."""


def cited(find: Callable[[str], Roster]) -> Callable[[bytes], Roster]:
    """Return the function from a citation to its roster; `find` takes the digest, and raises if it does not know it."""
    return lambda digest: find(digest.hex())
