"""Every document that leaves a process: its golden bytes, and what a damaged one does to its reader."""

from __future__ import annotations

import importlib
import pkgutil
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

import eris
from eris.errors import Reason, Refused
from eris.local.spec import ModelSpec, TensorSpec
from eris.peer import framing
from eris.protocol.false_manifest import FalseManifest, LieProof
from eris.protocol.journal import Departure, Membership, Rewind, StopClaim, Stopped
from eris.protocol.messages import Disagreement, Equivocation, Idle, NewKey, Receipt, ShownKey, Wanted
from eris.protocol.roster import LeaveClaim, Roster, RosterClaim, SignedLeave, WholeRoster, cited
from eris.protocol.round_plan import RoundPlan
from eris.protocol.seal import CertifiedSeal, Contradiction, EpochBegun, PlanName, Seal
from eris.protocol.take_over import Candidacy, Kept, LogEnd, Mandate, Vote
from eris.protocol.unmasker import Cut
from eris.transport.bulletins import (
    PeerGone,
    PeerIdle,
    PlanBulletin,
    Revoked,
    RoundsDone,
    RunCourse,
    RunEnd,
    Settled,
    VerdictBulletin,
)
from eris.transport.calls import (
    BookAnswer,
    BookRequest,
    CertificateAnswer,
    CertificateRequest,
    ControlTraffic,
    DepartureAnswer,
    DepartureRequest,
    DialAnswer,
    DialRequest,
    Done,
    JoinAnswer,
    JoinRequest,
    KeptRound,
    KeptRounds,
    LeaveRequest,
    NewsAnswer,
    NewsRequest,
    Overview,
    PeerRecord,
    PeerStatus,
    PlayedRound,
    Posted,
    ProofAnswer,
    ProofRequest,
    RosterAnswer,
    RosterRequest,
    RoundsAnswer,
    RoundsRequest,
    StandingAnswer,
    StandingRequest,
    StatusRequest,
    StopRequest,
)
from eris.wire.schema import decode, digest_of, encode
from eris.wire.version import VERSION
from tests.protocol.documents import CHANGE, MANIFEST, PLAN, ROSTER, SAMPLES, VERDICT, A, B, C
from tests.wire.damage import damaged

SPEC = ModelSpec(
    (TensorSpec("weight", (2, 300), "float32", "trainable"), TensorSpec("mean", (2,), "float32", "buffer"))
)
RECORD = PeerRecord(300, "amber", ("2001:db8::1", 7443), b"\x30\x82", (("relay", 7445), ("10.0.0.1", 1)))
RECORD = replace(RECORD, counter=70_000, signature="3045" + "cc" * 69)
LEAVE = SignedLeave(LeaveClaim("town", "amber", 70_000), "3045" + "cc" * 69, b"\x30\x82")
SEAL = Seal("rün", 1, 3, A, B, PlanName(0, 70_000, C), "3045" + "cc" * 69)
SEALED = CertifiedSeal(SEAL, b"\x30\x82")
KEY = ShownKey(B, 70_000, "3045" + "cc" * 69)
RECEIPT = Receipt(MANIFEST.plan, 2, MANIFEST.shard, MANIFEST.aggregator, "3045" + "cc" * 69)
LIE = LieProof((MANIFEST,), b"\x30\x82", PLAN.encoded, ROSTER.encoded, SEALED, RECEIPT)
STOP = StopClaim("rün", 3, A)
CANDIDACY = Candidacy(A, 70_000, "reserve", B, b"\x30\x82", "3045" + "cc" * 69)
VOTE = Vote(A, "amber", C, LogEnd(1, 1 << 20, 70_000, B), SEALED, b"\x30\x82", "3045" + "cc" * 69)
MANDATE = Mandate(CANDIDACY, (VOTE, Vote(A, "birch", C, LogEnd(), None, b"")))
STATUS = PeerStatus("amber", True, False, "clinic", ROSTER[0], 0, 2e9)

# One of each. A change of its bytes is a new version of the wire.
VALUES: list[Any] = [
    Wanted((1, 9), full=True),
    Idle(A),
    Equivocation(MANIFEST, MANIFEST),
    Disagreement(MANIFEST, MANIFEST),
    Membership(ROSTER, 3),
    Rewind(70_000),
    EpochBegun(3, PlanName(2, 70_000, A)),
    SEAL,
    Contradiction(SEALED, CertifiedSeal(Seal("r", 0, 0, A), b"")),
    CertificateRequest(),
    FalseManifest(MANIFEST, RECEIPT),
    RECEIPT,
    NewKey(ShownKey(A, 70_000, "3045" + "cc" * 69)),
    LIE,
    ProofRequest((2, 9)),
    ProofAnswer((LIE,)),
    CertificateAnswer(b"\x30\x82"),
    RosterClaim(A, "amber", 2.5, "clinic", 70_000),
    RECORD.place(A),
    LEAVE.claim,
    Departure(2, LEAVE),
    DepartureRequest((0, 2)),
    DepartureAnswer((LEAVE,)),
    JoinRequest(
        A, SPEC, 2.5, "clinic", 7, "3045", ("host", 7443), B, True, C, 7, -1, (0, 5), (("relay", 7445),), SEALED, KEY
    ),
    JoinAnswer(2, False, PLAN.encoded, "finished", True, "board", SEAL, b"\x30\x82"),
    BookRequest("board", 3),
    BookAnswer("board", 9, (RECORD, PeerRecord(0, "b", None, b"")), (0, 300), more=True),
    RosterRequest(A, ""),
    RosterAnswer(CHANGE, b""),
    RoundsRequest(12),
    RoundsAnswer((PlayedRound(PLAN.encoded, VERDICT.encoded, (SEAL, SEAL)),)),
    DialRequest(("127.0.0.1", 1)),
    DialAnswer(dialled=True),
    StatusRequest(),
    Overview(
        *("town", A, "0.1", 1.5, ControlTraffic(1, 2, 3), "run", 1, 2, True, "", "waiting for b"),
        lost={"gone": 2, "too-few": 300},
        disagreements=("round 1",),
        peers=(STATUS, PeerStatus("b", False, False, "", None)),
        ways=("relay host:7445",),
        state="waiting",
        why="waiting for b (for 60 s)",
        expires=2e9,
    ),
    LeaveRequest(LEAVE),
    StopRequest(STOP, "3045"),
    STOP,
    Stopped(STOP, "olive", "3045", b"\x30\x82"),
    Done(),
    NewsRequest("", -1, 5.0),
    NewsAnswer("board", (Posted(0, b"a"), Posted(70_000, encode(RunEnd("x")))), more=False),
    PlanBulletin(PLAN, A, (0, 2), "board-3", SEAL),
    VerdictBulletin(VERDICT, SEAL),
    PeerGone(2),
    PeerIdle(300),
    RunEnd("finished"),
    Revoked(b"list"),
    RoundsDone(PLAN, "board-3", SEAL),
    RunCourse("waiting", "for b"),
    framing.ManifestQuestion(A, 1, 2, 3),
    framing.HashQuestion(B),
    framing.SnapshotQuestion(),
    framing._SnapshotHead(3, C, {"model": 7, "momentum": 70_000}),
    framing._Refusal(Reason.WRONG_PLAN, "another plan", SEALED),
    Cut(A, 1, 2, (0, 2), (bytes(16), b"n" * 16), "3045" + "cc" * 69),
    framing._UnmaskingHead(B, 300, "3045" + "cc" * 69),
    CANDIDACY,
    VOTE,
    MANDATE,
    KeptRounds((KeptRound(PLAN.encoded, ROSTER.encoded, VERDICT.encoded, SEALED, SEALED),)),
    StandingRequest(1, A),
    Kept(A),
    Settled(A),
    StandingAnswer((MANDATE,), CANDIDACY, 70_000),
]
GOLDEN = {
    "PlaceClaim": "fde007562ff99391",
    "Wanted": "76a83c7afd0081ef",
    "Idle": "2beb7d5881a63298",
    "Equivocation": "5e84817bc93aaeb7",
    "Disagreement": "5786b8c70b72624b",
    "Membership": "76f049fb1e8cab7c",
    "Rewind": "b8ae69385dc5781d",
    "EpochBegun": "25c0033e19a7be13",
    "Seal": "0f344a87961eaadd",
    "Contradiction": "e45c512906afd963",
    "CertificateRequest": "c08545b3e6fee159",
    "CertificateAnswer": "7c2e8ddb0f3763c1",
    "JoinRequest": "4ebb3c10124a34c2",
    "JoinAnswer": "1e957a4a887da2c8",
    "BookRequest": "72c2ee0a4c2e70ed",
    "BookAnswer": "9ddd5ff37b4c320a",
    "RosterRequest": "13e8d85174cf4cb7",
    "RosterAnswer": "9ee5483759673872",
    "RoundsRequest": "78a49fb8cc490919",
    "RoundsAnswer": "83798c92a9c731aa",
    "DialRequest": "ee06dfdc6ff1ca25",
    "DialAnswer": "93ed9ead6642a2d9",
    "StatusRequest": "accc9cf73296342a",
    "Overview": "75cd0d643d12e62e",
    "LeaveRequest": "0da0958f3336a28f",
    "StopRequest": "c86c6967eff37215",
    "Done": "704d1ee5a1eec3a0",
    "NewsRequest": "d548a3f988e58fe5",
    "NewsAnswer": "5da16f72681bb7eb",
    "PlanBulletin": "d09575ae2916a6b2",
    "VerdictBulletin": "c3cc584e5bcb8cad",
    "PeerGone": "251b75893390f7f1",
    "PeerIdle": "ce5d786b70ad6a29",
    "RunEnd": "b6d1488a8e7ddbd5",
    "Revoked": "a7218bff5e524e95",
    "RoundsDone": "a3de3961154a3b02",
    "RunCourse": "7b334e96d6fbca20",
    "ManifestQuestion": "1b6e4c2725f92f70",
    "HashQuestion": "fdafc71d9c2b8bca",
    "SnapshotQuestion": "8dc596eb44378e74",
    "_SnapshotHead": "340a46d4dad01a9d",
    "_Refusal": "68e918f35911cfe6",
    "RosterClaim": "292626783f7ea0f7",
    "LeaveClaim": "8b100edb86b7e4d2",
    "Departure": "3d599437cf3c2fb6",
    "DepartureRequest": "4d69c20e5c99c194",
    "DepartureAnswer": "8c0e774bf1b9a8ff",
    "Cut": "a2c74f15273920a3",
    "_UnmaskingHead": "c403242c1edb82ce",
    "FalseManifest": "ce5da9693b914975",
    "Receipt": "3de222ec2b269286",
    "NewKey": "875e4594a9fbc095",
    "LieProof": "eba9204372062008",
    "ProofRequest": "15a1353020aeb8d1",
    "ProofAnswer": "6f78199fba48ebc5",
    "StopClaim": "72be7750ccbd8999",
    "Stopped": "5a2c9216d0a47534",
    "Kept": "0bb7a5cbfa98076a",
    "Settled": "779c3292377c7ef1",
    "Candidacy": "685940cd7584de2c",
    "Vote": "93273ee4a97146c1",
    "Mandate": "12afdd13cbc7bb1c",
    "KeptRounds": "d1d63f643f43feae",
    "StandingRequest": "acb84593b2075c43",
    "StandingAnswer": "85a7ccc0ce9ecf73",
}


def known(digest: str) -> Roster:
    if digest != ROSTER.digest:
        raise Refused(Reason.WRONG_DIGEST, "this roster is not known here")
    return ROSTER


RESOLVE: dict[type, dict[str, Any]] = {
    Membership: {"roster": cited(known)},
    PlanBulletin: {"plan": lambda plan: RoundPlan.decode(plan, known)},
    RoundsDone: {"plan": lambda plan: RoundPlan.decode(plan, known)},
}


def read(kind: type, data: bytes) -> Any:
    return decode(kind, data, **RESOLVE.get(kind, {}))


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_golden_bytes(value: Any) -> None:
    data = encode(value)
    assert digest_of(data)[:16] == GOLDEN[type(value).__name__]
    assert read(type(value), data) == value
    with pytest.raises(Refused) as caught:
        read(type(value), data[:1] + bytes([VERSION + 1]) + data[2:])
    assert caught.value.reason is Reason.WRONG_VERSION


def test_every_document_has_a_golden_and_a_tag_of_its_own() -> None:
    tags = Counter[int]()
    found = set()
    for module in pkgutil.walk_packages(eris.__path__, "eris."):
        if module.name.split(".")[1] in ("protocol", "transport", "peer", "wire"):
            for kind in vars(importlib.import_module(module.name)).values():
                if isinstance(kind, type) and "__wire_tag__" in vars(kind) and kind not in found:
                    found.add(kind)
                    tags[kind.__wire_tag__] += 1  # type: ignore[attr-defined]
    golden = set(map(type, VALUES)) | {type(sample.value) for sample in SAMPLES.values()}
    assert found - golden == {WholeRoster}  # it is written as a `Roster`
    assert max(tags.values()) == 1
    assert max(tags) < 128  # one byte


def attack(count: int, seed: int) -> Counter[str]:
    """Damage documents; a reader refuses, or returns what is written as exactly those bytes."""
    chance, seen = random.Random(seed), Counter[str]()
    samples = [(type(value), encode(value)) for value in VALUES]
    for attempt in range(count):
        kind, data = samples[attempt % len(samples)]
        bad = damaged(data, chance)
        try:
            value = read(kind, bad)
        except Refused as refusal:
            seen[refusal.reason.value] += 1
        else:
            assert encode(value) == bad
            seen["harmless"] += 1
    return seen


def test_damaged_documents_are_refused_or_mean_what_they_say() -> None:
    seen = attack(8_000, seed=1)
    assert seen.total() == 8_000
    assert {"malformed", "wrong-version", "harmless"} <= seen.keys()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_million_damaged_documents() -> None:
    assert attack(1_000_000, seed=2).total() == 1_000_000
