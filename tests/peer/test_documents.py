"""Every document that leaves a process: its golden bytes, and what a damaged one does to its reader."""

from __future__ import annotations

import importlib
import pkgutil
import random
from collections import Counter
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
    "Wanted": "f69ffc7534aa9573",
    "Idle": "13978a7715c1ee13",
    "Equivocation": "e6ed22119f894a3d",
    "Disagreement": "12282f92a4f17346",
    "Membership": "0659a127a54e3ba0",
    "Rewind": "1214d5488f874afa",
    "EpochBegun": "69c0673bde8f57b5",
    "Seal": "7dd5ff01f980cdfe",
    "Contradiction": "d0cff509dd24d912",
    "CertificateRequest": "36a3de2261aff15a",
    "CertificateAnswer": "91c777ae43004e49",
    "JoinRequest": "82395067263271b8",
    "JoinAnswer": "2c44ce3ff739e8b8",
    "BookRequest": "8949c0d79d44f85d",
    "BookAnswer": "92eb311b06ac86ca",
    "RosterRequest": "0963827a9939ed2d",
    "RosterAnswer": "215b9a5e2fc26039",
    "RoundsRequest": "b5edba074eb2ef02",
    "RoundsAnswer": "24d0867c5ba3087e",
    "DialRequest": "1db851e5406b8f87",
    "DialAnswer": "aa518efdc581a0ee",
    "StatusRequest": "285eccdca45f6938",
    "Overview": "f0cf862a4929c3ba",
    "LeaveRequest": "480e4b7aa481ba52",
    "StopRequest": "b9b3566e5a942659",
    "Done": "addb89d0532ed064",
    "NewsRequest": "965b5fcaf39741ec",
    "NewsAnswer": "3fc9db687bf9618a",
    "PlanBulletin": "fdf4dd6c350825b6",
    "VerdictBulletin": "2ff7d9fc02882d20",
    "PeerGone": "44a87bd162b31c16",
    "PeerIdle": "ab2e305b037be09e",
    "RunEnd": "cc8a9ab12290dcad",
    "Revoked": "c1e646f44c1b09e2",
    "RoundsDone": "9731ab9a59223345",
    "RunCourse": "bd94e79861349549",
    "ManifestQuestion": "57a8a505470b2436",
    "HashQuestion": "a9495a844adb1ca2",
    "SnapshotQuestion": "72870c96c43334ca",
    "_SnapshotHead": "0836dad9c511d41e",
    "_Refusal": "74620b0197a8adc1",
    "RosterClaim": "1475eac47ab5db44",
    "LeaveClaim": "983702d0384f2737",
    "Departure": "1ebda1501c2675be",
    "DepartureRequest": "4ddb5ab9beb51033",
    "DepartureAnswer": "ccaf4cfbcb552340",
    "Cut": "fe8f9cd95197b50e",
    "_UnmaskingHead": "66bdb082e27f3959",
    "FalseManifest": "0b2581340a378eb4",
    "Receipt": "92e13f61a391d3b5",
    "NewKey": "1d6c7431197f91cd",
    "LieProof": "daeda55aae1a0aa4",
    "ProofRequest": "822c7e3fec3532cc",
    "ProofAnswer": "7839f305a134ff3f",
    "StopClaim": "c6a9823dbc12f432",
    "Stopped": "783ab836f67b6f6c",
    "Kept": "0df927842725a388",
    "Settled": "afae1810c4b98209",
    "Candidacy": "732917274ceebfd8",
    "Vote": "72568c1130258b62",
    "Mandate": "1cacd6b31dc45ce6",
    "KeptRounds": "77ccf6fd690c525b",
    "StandingRequest": "6989615268d946d8",
    "StandingAnswer": "d1991b1392ed4c50",
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
