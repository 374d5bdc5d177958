"""The control plane's words: what a peer asks of the coordinator, and what it is answered.

    Join     JoinRequest                                             → JoinAnswer
    Report   Manifest | Withheld | BriefReport | FullReport | Idle   → Wanted
             Kept, where others may take over; Vote | KeptRounds | Mandate, to who does   → Wanted
    Fetch    BookRequest | RosterRequest | RoundsRequest | DialRequest       → BookAnswer | RosterAnswer | …
             CertificateRequest | DepartureRequest | ProofRequest            → CertificateAnswer | …
             StandingRequest                                                 → StandingAnswer
    Status   StatusRequest                                           → Overview
    Leave    LeaveRequest                                            → Done
    Stop     StopRequest                                             → Done
    Next     NewsRequest                                             → NewsAnswer

Documents that are signed or digested (plans, verdicts, rosters) travel inside these as the bytes they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec

from eris.local.spec import ModelSpec
from eris.protocol.false_manifest import FalseManifest, LieProof
from eris.protocol.journal import StopClaim
from eris.protocol.messages import BriefReport, FullReport, Idle, Manifest, NewKey, ShownKey, Wanted, Withheld
from eris.protocol.roster import Name, RosterChange, RosterEntry, SignedLeave
from eris.protocol.seal import CertifiedSeal, Seal
from eris.protocol.take_over import MOST_TERMS, Candidacy, Kept, Mandate, Vote
from eris.wire.schema import MOST_PEERS, Binary, Digest, Number, Numbers, Peers, Real, Signature, Text, document

__all__ = [
    "CALLS",
    "MOST_RELAYS",
    "PLACE_PURPOSE",
    "Address",
    "BookAnswer",
    "BookRequest",
    "CertificateAnswer",
    "CertificateRequest",
    "ControlTraffic",
    "DepartureAnswer",
    "DepartureRequest",
    "DialAnswer",
    "DialRequest",
    "Done",
    "FetchAnswer",
    "FetchRequest",
    "JoinAnswer",
    "JoinRequest",
    "KeptRound",
    "KeptRounds",
    "LeaveRequest",
    "NewsAnswer",
    "NewsRequest",
    "Overview",
    "PeerRecord",
    "PeerStatus",
    "PlaceClaim",
    "PlayedRound",
    "Posted",
    "ProofAnswer",
    "ProofRequest",
    "Relays",
    "ReportRequest",
    "RosterAnswer",
    "RosterRequest",
    "RoundsAnswer",
    "RoundsRequest",
    "StandingAnswer",
    "StandingRequest",
    "StatusRequest",
    "StopRequest",
]

OrBefore = Annotated[int, msgspec.Meta(ge=-1, le=2**32 - 1)]  # a number, or −1: none yet
Address = tuple[
    Annotated[str, msgspec.Meta(min_length=1, max_length=255)], Annotated[int, msgspec.Meta(ge=1, le=65535)]
]
MOST_RELAYS = 4
Relays = Annotated[tuple[Address, ...], msgspec.Meta(max_length=MOST_RELAYS)]  # where a peer waits, in its own order


# ── Join ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


PLACE_PURPOSE = "place"


@document(28)
@dataclass(frozen=True, slots=True)
class PlaceClaim:
    """What a peer signs of where it can be dialled: nobody else says where its links lead."""

    federation: Digest  # of the file that all peers share
    name: Name
    address: Address | None
    relays: Relays
    counter: Number  # seconds since 1970 when it was signed: a later one replaces it


@document(32)
@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A request to join, or to come back; everybody's roster and address book will have what it says."""

    federation: Digest  # digest of FEDERATION.toml
    spec: ModelSpec
    weight: Real
    organisation: Name
    counter: Number  # of the claim to weight and organisation that it signs
    signature: Signature
    address: Address | None  # where it can be dialled straight
    initial: Digest  # digest of x⁰
    fresh: bool  # it was started, and has heard of no round since: all it knows is what it kept
    chain: Digest  # digest of the last verdict it followed
    private_round: Number
    reference_epoch: OrBefore
    checkpoints: Numbers = ()  # rounds it could go back to
    relays: Relays = ()  # at which it waits to be called; with none and no address it only dials out
    heard: CertifiedSeal | None = None  # the last plan it heard: it answers no lower one
    mask_key: ShownKey | None = None  # of this start of it, where contributions are masked
    place_counter: Number = 0  # of the claim to address and relays that it signs
    place_signature: Signature = ""

    def place(self, name: str) -> PlaceClaim:
        """Return what a peer of this name signs of where it is."""
        return PlaceClaim(self.federation, name, self.address, self.relays, self.place_counter)


@document(33)
@dataclass(frozen=True, slots=True)
class JoinAnswer:
    """A peer is taken in."""

    peer: Number
    intact: bool  # its reference still holds
    plan: Binary  # of the round it came into the middle of; empty if there is none
    ended: Text  # how the run ended; empty while it goes on
    dialled: bool  # it can be given shards, or never asked for any
    board: Text  # which one news are on
    seal: Seal | None  # on the plan, if there is one
    certificate: Binary = field(repr=False)  # the coordinator's own (DER), to check seals with


# ── Report ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class KeptRound:
    """A round as a peer keeps it: plan, roster and verdict, each as it was signed, with both seals."""

    plan: Binary
    roster: Binary
    verdict: Binary
    plan_seal: CertifiedSeal
    verdict_seal: CertifiedSeal


@document(83)
@dataclass(frozen=True, slots=True)
class KeptRounds:
    """Rounds that a peer keeps, from one on, as many as fit: for who takes over, and asked for them."""

    rounds: Annotated[tuple[KeptRound, ...], msgspec.Meta(max_length=MOST_PEERS)]


ReportRequest = (
    Manifest | Withheld | BriefReport | FullReport | Idle | FalseManifest | NewKey | Kept | Vote | KeptRounds | Mandate
)


# ── Fetch ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@document(34)
@dataclass(frozen=True, slots=True)
class BookRequest:
    """Asks for the records that are newer than an edition of the address book."""

    board: Text  # editions are counted anew on each
    edition: Number


@dataclass(frozen=True, slots=True)
class PeerRecord:
    """One peer: its name, where it can be dialled or waits to be called, and its certificate (DER)."""

    peer: Number
    name: Text
    address: Address | None
    certificate: Binary = field(repr=False)
    relays: Relays = ()
    mask_key: ShownKey | None = None
    counter: Number = 0  # of what it signed of address and relays
    signature: Signature = ""

    def place(self, federation: str) -> PlaceClaim:
        """Return what its peer signed of where it is, in the federation whose file has this digest."""
        return PlaceClaim(federation, self.name, self.address, self.relays, self.counter)

    @property
    def reachable(self) -> bool:
        """Whether there is any way to it."""
        return self.address is not None or bool(self.relays)


@document(35)
@dataclass(frozen=True, slots=True)
class BookAnswer:
    """Records in the order of their editions, as many as fit; who asks again after this edition gets the next ones."""

    board: Text
    edition: Number  # up to which it goes
    records: tuple[PeerRecord, ...]
    present: Peers  # records of all others are out of date
    more: bool


@document(36)
@dataclass(frozen=True, slots=True)
class RosterRequest:
    """Asks for the roster that a plan cites."""

    digest: Digest
    base: Digest  # the last one that this peer knows


@document(37)
@dataclass(frozen=True, slots=True)
class RosterAnswer:
    """A roster: what has changed since the base, or all of it."""

    change: RosterChange | None
    roster: Binary  # empty if the change says it


@document(38)
@dataclass(frozen=True, slots=True)
class RoundsRequest:
    """Asks for the rounds that have a verdict, from one on."""

    since: Number


@dataclass(frozen=True, slots=True)
class PlayedRound:
    """Plan and verdict of a round."""

    plan: Binary
    verdict: Binary
    seals: tuple[Seal, ...] = ()  # of the plan, and of the verdict


@document(39)
@dataclass(frozen=True, slots=True)
class RoundsAnswer:
    """As many rounds as fit."""

    rounds: tuple[PlayedRound, ...]


@document(40)
@dataclass(frozen=True, slots=True)
class DialRequest:
    """Asks whether the peer that asks can be dialled where it listens, or called where it waits."""

    address: Address | None
    relays: Relays = ()


@document(41)
@dataclass(frozen=True, slots=True)
class DialAnswer:
    """Whether it can be reached."""

    dialled: bool


@document(49)
@dataclass(frozen=True, slots=True)
class CertificateRequest:
    """Asks for the coordinator's certificate: a seal does not fit the one that is known, it may have a new one."""


@document(50)
@dataclass(frozen=True, slots=True)
class CertificateAnswer:
    """The certificate (DER) of the key that seals are signed with."""

    certificate: Binary = field(repr=False)


@document(51)
@dataclass(frozen=True, slots=True)
class DepartureRequest:
    """Asks for what members signed who are not on the roster any more."""

    peers: Peers


@document(52)
@dataclass(frozen=True, slots=True)
class DepartureAnswer:
    """What they signed, as far as they did."""

    leaves: Annotated[tuple[SignedLeave, ...], msgspec.Meta(max_length=MOST_PEERS)]


@document(53)
@dataclass(frozen=True, slots=True)
class ProofRequest:
    """Asks why peers are excluded."""

    peers: Peers


@document(54)
@dataclass(frozen=True, slots=True)
class ProofAnswer:
    """What each of them signed that no honest peer does."""

    proofs: Annotated[tuple[LieProof, ...], msgspec.Meta(max_length=MOST_PEERS)]


@document(84)
@dataclass(frozen=True, slots=True)
class StandingRequest:
    """Asks whether the other side coordinates, in which term, or would like to; says what the asker has promised."""

    promised: Number = 0  # the highest term that the asker voted in, or follows
    candidacy: Digest = ""  # and for whom


@document(85)
@dataclass(frozen=True, slots=True)
class StandingAnswer:
    """Who coordinates, as far as the other side knows; and what it wants from who asks."""

    mandates: Annotated[tuple[Mandate, ...], msgspec.Meta(max_length=MOST_TERMS)] = ()  # in the order of their terms
    candidacy: Candidacy | None = None  # it asks for a vote
    wants: OrBefore = -1  # the rounds that the asker keeps, from this one on; −1: none


FetchRequest = (
    BookRequest
    | RosterRequest
    | RoundsRequest
    | DialRequest
    | CertificateRequest
    | DepartureRequest
    | ProofRequest
    | StandingRequest
)
FetchAnswer = (
    BookAnswer
    | RosterAnswer
    | RoundsAnswer
    | DialAnswer
    | CertificateAnswer
    | DepartureAnswer
    | ProofAnswer
    | StandingAnswer
)


# ── Status, Leave, Stop ──────────────────────────────────────────────────────────────────────────────────────────────


@document(42)
@dataclass(frozen=True, slots=True)
class StatusRequest:
    """Asks who is there and how far the run is."""


@dataclass(slots=True)
class ControlTraffic:
    """Bytes of documents and number of calls; none of them depends on the size of the model."""

    calls: int = 0
    sent: int = 0
    received: int = 0


@dataclass(frozen=True, slots=True)
class PeerStatus:
    """One peer as the coordinator sees it."""

    name: Text
    here: bool
    aggregates: bool
    organisation: Text
    entry: RosterEntry | None
    way: OrBefore = -1  # which of the overview's ways leads to it
    expires: Real = 0.0  # when its certificate does, in seconds since 1970; 0 if it is not here


@document(43)
@dataclass(frozen=True, slots=True)
class Overview:
    """Who is there and how far the run is."""

    federation: Text
    digest: Digest
    version: Text  # of eris
    time: Real
    control: ControlTraffic
    run: Text
    round: Number
    rounds: Number
    started: bool
    ended: Text
    waiting: Text
    lost: dict[str, int]  # reason → shards
    disagreements: tuple[Text, ...]
    peers: tuple[PeerStatus, ...]
    ways: tuple[Text, ...] = ()  # "direct", "relay host:port": each once, for many peers share one
    state: Text = ""  # of eris.events.RunState
    why: Text = ""  # for whom it waits and how long, what it loses
    expires: Real = 0.0  # when the coordinator's certificate does, in seconds since 1970
    epoch: Number = 0  # of the next plan


@document(44)
@dataclass(frozen=True, slots=True)
class LeaveRequest:
    """A peer says goodbye."""

    leave: SignedLeave | None = None  # signed if it will not come back: a reference epoch begins without it


@document(45)
@dataclass(frozen=True, slots=True)
class StopRequest:
    """Asks the coordinator to end the run, signed."""

    claim: StopClaim
    signature: Signature


@document(46)
@dataclass(frozen=True, slots=True)
class Done:
    """So it is."""


# ── Next ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@document(47)
@dataclass(frozen=True, slots=True)
class NewsRequest:
    """Asks for what came after the last thing heard, and waits for it."""

    board: Text  # empty if none was read yet
    after: OrBefore
    wait: Real  # seconds


@dataclass(frozen=True, slots=True)
class Posted:
    """One thing everybody must hear: a bulletin's bytes, and its place on the board."""

    sequence: Number
    bulletin: Binary = field(repr=False)


@document(48)
@dataclass(frozen=True, slots=True)
class NewsAnswer:
    """News in order, as many as fit."""

    board: Text
    posted: tuple[Posted, ...]
    more: bool


CALLS: dict[str, tuple[Any, Any]] = {
    "Join": (JoinRequest, JoinAnswer),
    "Report": (ReportRequest, Wanted),
    "Fetch": (FetchRequest, FetchAnswer),
    "Status": (StatusRequest, Overview),
    "Leave": (LeaveRequest, Done),
    "Stop": (StopRequest, Done),
    "Next": (NewsRequest, NewsAnswer),
}
"""What a call is asked with, and what it is answered with."""
