"""The bulletins that the coordinator sends to everybody.

PlanBulletin      a round begins                    PeerGone    nobody waits for this peer any more in this round
VerdictBulletin   how a round ended
RoundsDone        the last round has its verdict    PeerIdle    this peer sends nothing in this round
RunEnd            the run is over                   Revoked     the CA has withdrawn certificates
Settled           enough have a verdict on disk: it is followed (where another coordinator may take over)
RunCourse         whether the run trains, waits (for whom, how long) or loses what it trains
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

from eris.errors import Refused
from eris.protocol.roster import Roster
from eris.protocol.round_plan import RoundPlan
from eris.protocol.seal import Seal
from eris.protocol.verdict import Verdict
from eris.wire.schema import Binary, Digest, Number, Peers, Text, decode, document, peek, whole

__all__ = [
    "Bulletin",
    "PeerGone",
    "PeerIdle",
    "PlanBulletin",
    "Revoked",
    "RoundsDone",
    "RunCourse",
    "RunEnd",
    "Settled",
    "VerdictBulletin",
    "decode_bulletin",
    "plan_order",
]


@document(64)
@dataclass(frozen=True, slots=True)
class PlanBulletin:
    """A round plan is in force."""

    plan: Annotated[RoundPlan, whole(RoundPlan)]
    initial: Digest = ""  # digest of the x⁰ that most peers computed, in the first round
    absent: Peers = ()  # peers on the roster that are not here
    book: Text = ""  # edition of the address book: if it is new to a peer, that peer fetches it
    seal: Seal | None = None  # the coordinator's signature on the plan; nobody follows a plan without one


@document(65)
@dataclass(frozen=True, slots=True)
class VerdictBulletin:
    """A round has its verdict."""

    verdict: Annotated[Verdict, whole(Verdict)]
    seal: Seal | None = None  # the coordinator's signature on it


@document(66)
@dataclass(frozen=True, slots=True)
class PeerGone:
    """Nobody waits for this peer any more in this round, neither for its contribution nor for its shards."""

    peer: Number


@document(67)
@dataclass(frozen=True, slots=True)
class PeerIdle:
    """This peer sends nothing in this round; what it aggregates still comes."""

    peer: Number


@document(68)
@dataclass(frozen=True, slots=True)
class RunEnd:
    """The run is over: for everybody, or only for this peer, which then says so to itself."""

    how: Text


@document(69)
@dataclass(frozen=True, slots=True)
class Revoked:
    """The CA's newest list of withdrawn certificates, signed by it."""

    certificates: Binary = field(repr=False)


@document(70)
@dataclass(frozen=True, slots=True)
class RoundsDone:
    """Every round has its verdict: peers that lack some catch up, those with the model serve it until the end."""

    plan: Annotated[RoundPlan, whole(RoundPlan)]  # of the last round
    book: Text  # edition of the address book, as in a plan bulletin
    seal: Seal | None = None  # on the plan


@document(71)
@dataclass(frozen=True, slots=True)
class RunCourse:
    """The state of the run, sent whenever it changes."""

    state: Text  # of eris.events.RunState
    why: Text = ""  # whom it waits for and how long, or what it is losing


@document(72)
@dataclass(frozen=True, slots=True)
class Settled:
    """A verdict is on the disks of more than half of the listed peers: no take-over can undo it, and all follow it."""

    verdict: Digest


Bulletin = PlanBulletin | VerdictBulletin | PeerGone | PeerIdle | RunEnd | Revoked | RoundsDone | RunCourse | Settled


def decode_bulletin(data: bytes, roster: Callable[[str], Roster]) -> Bulletin:
    """Decode a bulletin from the coordinator; `roster` returns the roster that a plan cites, by digest.

    >>> from eris.wire.schema import encode
    >>> decode_bulletin(encode(RunEnd("finished")), roster=Roster)
    RunEnd(how='finished')
    """
    bulletin: Bulletin = decode(Bulletin, data, plan=lambda plan: RoundPlan.decode(plan, roster))
    return bulletin


def plan_order(data: bytes) -> tuple[int, int] | None:
    """Return a plan's epoch and round without decoding all of it; None for other bulletins and malformed ones."""
    try:
        plan = peek(RoundPlan, peek(PlanBulletin, data).plan)
    except Refused:
        return None
    return plan.epoch, plan.round
