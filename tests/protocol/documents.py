"""One of every document that the roles say, sign or digest, with the bytes it has had since wire version 3."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from eris.errors import Reason, Refused
from eris.protocol.messages import BriefReport, FullReport, Manifest, Withheld
from eris.protocol.roster import Roster, RosterChange, RosterEntry
from eris.protocol.round_plan import Deadlines, RoundPlan
from eris.protocol.verdict import GENESIS, ShardVerdict, UnmaskedSum, Verdict
from eris.wire.schema import decode

A, B, C = ("aa" * 32, "bb" * 32, "cc" * 32)
ROSTER = Roster(
    [
        RosterEntry(0, "Köln\n", 1.0, A, "clinic", False, 70_000, "3045" + "cc" * 69),
        RosterEntry(2, 'a "b"', 2.5, B),
        RosterEntry(300, "c", 2.0**53, C),
    ]
)
PLAN = RoundPlan(
    run="rün",
    epoch=1,
    round=3,
    chain=GENESIS,
    spec=A,
    roster=ROSTER,
    participants=(0, 2, 300),
    assignment=(2, 300),
    witnesses=(300, 2),
    draw=1,
    reference_epoch=2,
    reference_begins=1,
    normalisation="participation",
    participation=0.3,
    min_contributors=2,
    checkpoint=True,
    attest=False,
    deadlines=Deadlines(60.0, 0.1),
    unmaskers=(0, 0),
    mask_keys=(A, "", B),
)
FIGURES = (-(2**40), 3 << 20)
MANIFEST = Manifest(
    PLAN.digest, 3, 1, 2, (0, 2, 300), c=0.1 + 0.2, steps=1e-7, hash=B, figures=FIGURES, signature="3045" + "cc" * 69
)
VERDICT = Verdict(
    run="rün",
    epoch=1,
    round=3,
    plan=PLAN.digest,
    previous=GENESIS,
    shards=(
        ShardVerdict(0, 2, B, (0, 2), manifest=C),
        ShardVerdict(1, 300, lost=Reason.TOO_FEW.value),
        ShardVerdict(2, 2, C, (0, 2), manifest=B),
        ShardVerdict(3, 2, A, (0, 2, 300), manifest=A),
    ),
    late=(300,),
    state=A,
    figures=FIGURES,
    unmasked=(UnmaskedSum(1, (0, 300)),),
)


class Sample(NamedTuple):
    """A document, how it is read, and the digest of its bytes."""

    value: Any
    read: Callable[[bytes], Any]
    length: int
    digest: str


def _listed(data: bytes) -> Any:
    return Roster.decode(data)


def _known(digest: str) -> Roster:
    if digest != ROSTER.digest:
        raise Refused(Reason.WRONG_DIGEST, "this roster is not known here")
    return ROSTER


def _planned(data: bytes) -> Any:
    return RoundPlan.decode(data, _known)


def _of(kind: type) -> Callable[[bytes], Any]:
    return lambda data: decode(kind, data)


CHANGE = ROSTER.change_to(Roster([ROSTER[0], RosterEntry(2, 'a "b"', 3.0, B), RosterEntry(7, "d", 1.0)]))
SAMPLES = {
    "roster": Sample(ROSTER, _listed, 253, "c01d5389ac7c66f68dfb2f6da985de9d"),
    "roster change": Sample(CHANGE, _of(RosterChange), 189, "b9d66029b009587fd380cfbef066049f"),
    "round plan": Sample(PLAN, _planned, 296, "77e89492015075a3d67d382428a4ad42"),
    "verdict": Sample(VERDICT, Verdict.decode, 492, "66e5b600ee544d476175205bbd0c9304"),
    "manifest": Sample(MANIFEST, Manifest.decode, 221, "f1b46e3176132d66a430d5f56cc3e6cf"),
    "withheld": Sample(Withheld(A, 1, 2, Reason.TOO_FEW, (0,)), _of(Withheld), 51, "400931001876c3c0c265279b9ceacd2a"),
    "brief report": Sample(
        BriefReport(A, (0, 1, 3), B, True, C, unmasked=(UnmaskedSum(1, (0, 2)),)),
        _of(BriefReport),
        118,
        "e55d0570f62cab562a972b45f881ea04",
    ),
    "full report": Sample(
        FullReport(A, (0, 3), (B, C), False, "", unmasked=(UnmaskedSum(1, (0, 2)),)),
        _of(FullReport),
        121,
        "307af2b8e4531a0853fef292928e7e89",
    ),
}
