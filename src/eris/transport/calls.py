"""The messages of the control plane: what a peer asks the coordinator, and what the coordinator answers.

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

Signed or digested documents (plans, verdicts, rosters) travel inside these as their original bytes.
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
    """What a peer signs about where it can be dialled: nobody else says where its links lead."""

    federation: Digest  # of the file that all peers share
    name: Name
    address: Address | None  # None: it opens no port
    relays: Relays
    counter: Number  # seconds since 1970 at signing: a later claim replaces it


@document(32)
@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A request to join or to come back; what it says goes into everybody's roster and address book."""

    federation: Digest  # digest of FEDERATION.toml
    spec: ModelSpec
    weight: Real
    organisation: Name
    counter: Number  # of the signed claim to weight and organisation
    signature: Signature  # of that claim
    address: Address | None  # where it can be dialled directly
    initial: Digest  # digest of x⁰
    fresh: bool  # just started and heard of no round since: it only knows what it kept
    chain: Digest  # digest of the last verdict it followed
    private_round: Number  # the round it stands before; one more while it has a round open, which it can still settle
    reference_epoch: OrBefore  # of its reference; −1: it was lost
    checkpoints: Numbers = ()  # rounds it could go back to
    relays: Relays = ()  # where it waits to be called; with none and no address it only dials out
    heard: CertifiedSeal | None = None  # the last plan it heard: it answers no lower one
    mask_key: ShownKey | None = None  # of this start of the peer, where contributions are masked
    place_counter: Number = 0  # of the signed claim to address and relays
    place_signature: Signature = ""  # of that claim

    def place(self, name: str) -> PlaceClaim:
        """Return what a peer of this name signs about where it can be reached."""
        return PlaceClaim(self.federation, name, self.address, self.relays, self.place_counter)


@document(33)
@dataclass(frozen=True, slots=True)
class JoinAnswer:
    """The peer has been taken into the run."""

    peer: Number
    intact: bool  # its reference is still valid
    plan: Binary  # of the round under way; empty if there is none
    ended: Text  # how the run ended; empty while it goes on
    dialled: bool  # it can be given shards, or never asked for any
    board: Text  # the board that carries the news
    seal: Seal | None  # on the plan, if there is one
    certificate: Binary = field(repr=False)  # the coordinator's own (DER), to check seals with


# ── Report ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class KeptRound:
    """A round as a peer keeps it: plan, roster and verdict as they were signed, with both seals."""

    plan: Binary
    roster: Binary
    verdict: Binary
    plan_seal: CertifiedSeal
    verdict_seal: CertifiedSeal


@document(83)
@dataclass(frozen=True, slots=True)
class KeptRounds:
    """The rounds a peer keeps, from a given one on, as many as fit: for a new coordinator that asked for them."""

    rounds: Annotated[tuple[KeptRound, ...], msgspec.Meta(max_length=MOST_PEERS)]


ReportRequest = (
    Manifest | Withheld | BriefReport | FullReport | Idle | FalseManifest | NewKey | Kept | Vote | KeptRounds | Mandate
)


# ── Fetch ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@document(34)
@dataclass(frozen=True, slots=True)
class BookRequest:
    """Asks for the address book's records that are newer than an edition."""

    board: Text  # each board counts editions anew
    edition: Number


@dataclass(frozen=True, slots=True)
class PeerRecord:
    """One peer: its name, where it can be dialled or waits to be called, and its certificate (DER)."""

    peer: Number
    name: Text
    address: Address | None
    certificate: Binary = field(repr=False)
    relays: Relays = ()
    mask_key: ShownKey | None = None  # where contributions are masked
    counter: Number = 0  # of its signed claim to address and relays
    signature: Signature = ""  # of that claim

    def place(self, federation: str) -> PlaceClaim:
        """Return what this peer signed about where it is, in the federation whose file has this digest."""
        return PlaceClaim(federation, self.name, self.address, self.relays, self.counter)

    @property
    def reachable(self) -> bool:
        """Whether there is any way to reach it."""
        return self.address is not None or bool(self.relays)


@document(35)
@dataclass(frozen=True, slots=True)
class BookAnswer:
    """Records in order of edition, as many as fit; asking again from this answer's edition returns the next ones."""

    board: Text  # that counts these editions
    edition: Number  # the edition that this answer reaches
    records: tuple[PeerRecord, ...]
    present: Peers  # the records of all other peers are out of date
    more: bool  # not all of them fitted


@document(36)
@dataclass(frozen=True, slots=True)
class RosterRequest:
    """Asks for the roster that a plan cites."""

    digest: Digest
    base: Digest  # the last roster that this peer knows


@document(37)
@dataclass(frozen=True, slots=True)
class RosterAnswer:
    """A roster, as the change since the base or whole."""

    change: RosterChange | None
    roster: Binary  # empty if `change` is given instead


@document(38)
@dataclass(frozen=True, slots=True)
class RoundsRequest:
    """Asks for the rounds that have a verdict, from a given one on."""

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
    """Rounds with a verdict, as many as fit."""

    rounds: tuple[PlayedRound, ...]


@document(40)
@dataclass(frozen=True, slots=True)
class DialRequest:
    """Asks whether the asking peer can be dialled where it listens, or called where it waits."""

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
    """Asks for the coordinator's certificate, because a seal does not match the known one and it may have a new one."""


@document(50)
@dataclass(frozen=True, slots=True)
class CertificateAnswer:
    """The certificate (DER) of the key that seals are signed with."""

    certificate: Binary = field(repr=False)


@document(51)
@dataclass(frozen=True, slots=True)
class DepartureRequest:
    """Asks for the signed leaves of members that are no longer on the roster."""

    peers: Peers


@document(52)
@dataclass(frozen=True, slots=True)
class DepartureAnswer:
    """The leaves of those that signed one."""

    leaves: Annotated[tuple[SignedLeave, ...], msgspec.Meta(max_length=MOST_PEERS)]


@document(53)
@dataclass(frozen=True, slots=True)
class ProofRequest:
    """Asks why peers are excluded."""

    peers: Peers


@document(54)
@dataclass(frozen=True, slots=True)
class ProofAnswer:
    """For each of them, the signed documents that no honest peer signs."""

    proofs: Annotated[tuple[LieProof, ...], msgspec.Meta(max_length=MOST_PEERS)]


@document(84)
@dataclass(frozen=True, slots=True)
class StandingRequest:
    """Asks whether the other side coordinates, in which term, or wants to; says what the asker has promised."""

    promised: Number = 0  # the highest term that the asker voted in or follows
    candidacy: Digest = ""  # whom it voted for


@document(85)
@dataclass(frozen=True, slots=True)
class StandingAnswer:
    """Who coordinates, as far as the other side knows, and what it wants from the asker."""

    mandates: Annotated[tuple[Mandate, ...], msgspec.Meta(max_length=MOST_TERMS)] = ()  # in the order of their terms
    candidacy: Candidacy | None = None  # set if it asks for a vote
    wants: OrBefore = -1  # send the rounds you keep, from this one on; −1: none


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
    """Number of calls, and bytes of documents sent and received; neither depends on the size of the model."""

    calls: int = 0
    sent: int = 0
    received: int = 0


@dataclass(frozen=True, slots=True)
class PeerStatus:
    """One peer as the coordinator sees it."""

    name: Text
    here: bool  # it has joined, and asks for news
    aggregates: bool  # it may be given shards: it can be dialled, and is meant to
    organisation: Text
    entry: RosterEntry | None  # without its signature; None if it has not joined
    way: OrBefore = -1  # index of the way to it in the overview's `ways`
    expires: Real = 0.0  # when its certificate expires, seconds since 1970; 0 if it is not here


@document(43)
@dataclass(frozen=True, slots=True)
class Overview:
    """Who is there and how far the run is."""

    federation: Text  # its name
    digest: Digest  # of FEDERATION.toml
    version: Text  # of eris
    time: Real  # on the coordinator's clock, seconds since 1970
    control: ControlTraffic
    run: Text  # empty before it has started
    round: Number  # under way, or next
    rounds: Number  # that were agreed on
    started: bool
    ended: Text  # how the run ended; empty while it goes on
    waiting: Text  # for whom or what; empty if for nothing
    lost: dict[str, int]  # reason → shards
    disagreements: tuple[Text, ...]  # between aggregators of one shard, the newest ones
    peers: tuple[PeerStatus, ...]
    ways: tuple[Text, ...] = ()  # "direct", "relay host:port": each once, for many peers share one
    state: Text = ""  # of eris.events.RunState
    why: Text = ""  # whom it waits for and how long, or what it is losing
    expires: Real = 0.0  # when the coordinator's certificate expires, seconds since 1970
    epoch: Number = 0  # of the next plan


@document(44)
@dataclass(frozen=True, slots=True)
class LeaveRequest:
    """A peer's goodbye."""

    leave: SignedLeave | None = None  # signed if it will not come back: a reference epoch then begins without it


@document(45)
@dataclass(frozen=True, slots=True)
class StopRequest:
    """Asks the coordinator to end the run, signed."""

    claim: StopClaim
    signature: Signature


@document(46)
@dataclass(frozen=True, slots=True)
class Done:
    """Confirms that a request was carried out."""


# ── Next ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@document(47)
@dataclass(frozen=True, slots=True)
class NewsRequest:
    """Asks for what came after the last bulletin heard, and waits for it."""

    board: Text  # empty if none was read yet
    after: OrBefore
    wait: Real  # seconds


@dataclass(frozen=True, slots=True)
class Posted:
    """One bulletin's bytes and its place on the board."""

    sequence: Number
    bulletin: Binary = field(repr=False)


@document(48)
@dataclass(frozen=True, slots=True)
class NewsAnswer:
    """Bulletins in order, as many as fit."""

    board: Text  # that they were posted on
    posted: tuple[Posted, ...]
    more: bool  # not all of them fitted


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
