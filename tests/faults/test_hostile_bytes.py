"""Valid frames, damaged: every one is refused by name or harmless, costs its sender only, and memory stays flat."""

from __future__ import annotations

import logging
import os
import random
import resource
import sys
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from eris.errors import Refused
from eris.peer import framing
from eris.peer import shard_server as server_module
from eris.protocol.messages import Manifest
from eris.transport.link import LinkError
from eris.transport.stream_link import StreamLink
from eris.wire import Header, Kind, encode_upload
from eris.wire.frame import HEADER_BYTES
from eris.wire.schema import decode, encode
from tests.faults.scene import HOSTILE, Scene, name, spoken_by_aggregator, spoken_by_member
from tests.faults.script import mutate, scripted

FAST = 5_000  # streams of each kind, each of several frames
SLOW = int(os.environ.get("ERIS_HOSTILE_STREAMS", "120000"))  # nine times that in all
ROUND = 4  # streams in one round
KINDS = ["dense", "dsc", "top-k"]
ROOM = 10 * 2**20


def serve(scene: Scene, link: StreamLink) -> None:
    """Serve a link to its end, as the thread of a long message does."""

    def all_that_comes() -> None:
        while True:
            scene.server._answer(link)

    scene.server._work(link, all_that_comes)
    assert link.closed


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(server_module, "_BEHIND", 0.0)  # nobody will bring the plan a damaged frame asks for
    logging.getLogger("eris").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("eris").setLevel(logging.NOTSET)


def peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def attack_server(kind: str, count: int, seed: int) -> Counter[str]:
    """Feed damaged streams to an aggregator; after every few hundred, see what the honest members still get."""
    scene, chance = Scene(kind, patience=0.2), random.Random(seed)  # a question for an open shard waits for its outcome
    honest = spoken_by_member(scene)
    without = scene.conclude(0, 1, 2).manifest.hash
    seen: Counter[str] = Counter()
    for attempt in range(count):
        if attempt % ROUND == 0:
            scene.open()
        link, answered = scripted(mutate(bytes(honest.data), honest.frames, chance), name(HOSTILE))
        serve(scene, link)
        seen.update(_kinds(bytes(answered)))
        if attempt % ROUND == ROUND - 1:
            seen["rounds without it" if _unharmed(scene, without) else "rounds with its own lie"] += 1
    return seen


def _unharmed(scene: Scene, without: str) -> bool:
    """Let the honest members contribute: their bytes are all there, and nothing else but the hostile member's own."""
    lied = HOSTILE in staged(scene)
    manifest = scene.conclude(0, 1, 2).manifest
    assert manifest.contributors == ((0, 1, 2, HOSTILE) if lied else (0, 1, 2))
    for peer in (0, 1, 2):
        upload = scene.uploads[peer]
        honest = b"".join(encode_upload(upload.part, upload.buffers, scene.recipe.layout(0).trainable))
        assert scene.aggregator._shards[0].staging.payload(peer).tobytes() == honest
    assert lied or manifest.hash == without
    return not lied


def staged(scene: Scene) -> tuple[int, ...]:
    return scene.aggregator._shards[0].staging.complete


def _kinds(answers: bytes) -> list[str]:
    """Return the kinds of the frames that were answered; every one of them must be one of ours, whole."""
    kinds = []
    while answers:
        header = Header.decode(answers[:HEADER_BYTES])
        kinds.append(header.kind.name)
        payload = answers[HEADER_BYTES : HEADER_BYTES + header.length]
        if header.kind is Kind.RECEIPT:
            assert not payload
        elif header.kind is Kind.REFUSAL:
            kinds.append(decode(framing._Refusal, payload).reason)
        elif header.kind is Kind.MANIFEST:
            Manifest.decode(payload)
        else:
            decode(framing._SnapshotHead, payload)
        answers = answers[HEADER_BYTES + header.length :]
    return kinds


def attack_courier(kind: str, count: int, seed: int) -> Counter[str]:
    """Feed damaged answers to the reading side of a member: what comes out is valid, or a typed error."""
    scene, chance = Scene(kind), random.Random(seed)
    honest = spoken_by_aggregator(scene)
    sizes = {name: int(value.size) for name, value in scene.member(0).snapshot().state.items()}
    seen: Counter[str] = Counter()
    for _ in range(count):
        link, _ = scripted(mutate(bytes(honest.data), honest.frames, chance))
        try:
            framing.receive_receipt(link, 0.0)
            published = framing.receive_published(link, scene.recipe, 0.0, round=0)
            member = scene.member(1)
            member.begin(scene.plan)
            member.receive(published)
            framing.receive_snapshot(link, sizes, 0.0)
            framing.receive_receipt(link, 0.0)
        except Refused as refusal:
            seen[refusal.reason.value] += 1
        except LinkError as error:
            seen[type(error).__name__] += 1
    assert seen.total() == count
    return seen


def attack_documents(count: int, seed: int) -> Counter[str]:
    """Damage bare headers and documents; both decoders refuse or return what would be written the same way."""
    chance = random.Random(seed)
    header = Header(Kind.CONTRIBUTION, total=100, length=50, symbols=20, round=3, mask_key=bytes(range(16))).encode()
    document = encode(framing._SnapshotHead(3, "ab" * 32, {"model": 7, "momentum": 7}))
    seen: Counter[str] = Counter()
    for attempt in range(count):
        source, read = ((header, Header.decode), (document, partial(decode, framing._SnapshotHead)))[attempt % 2]
        damaged = mutate(source, [0], chance)
        try:
            value = read(damaged)
        except Refused as refusal:
            seen[refusal.reason.value] += 1
        else:
            again = value.encode() if isinstance(value, Header) else encode(value)
            assert again == damaged
            seen["harmless"] += 1
    return seen


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_streams_cost_an_aggregator_nothing(kind: str) -> None:
    attack_server(kind, 300, seed=1)  # everything that is made once is made now
    before = peak_memory()
    seen = attack_server(kind, FAST, seed=2)
    assert peak_memory() - before < ROOM
    assert seen["rounds without it"] > 10
    assert {"malformed", "wrong-size", "wrong-run", "wrong-plan", "wrong-chain", "not-a-member"} & set(seen)


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_answers_cost_a_member_nothing(kind: str) -> None:
    attack_courier(kind, 300, seed=3)
    before = peak_memory()
    seen = attack_courier(kind, FAST // 3, seed=4)
    assert peak_memory() - before < ROOM
    assert {"malformed", "LinkClosed", "wrong-digest", "bad-signature"} <= set(seen)


def test_damaged_headers_and_documents_are_refused_or_spelled_alike() -> None:
    seen = attack_documents(80_000, seed=5)
    assert seen["malformed"] > 10_000
    assert seen["harmless"] > 100


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
def test_a_million_damaged_streams(kind: str) -> None:
    before = peak_memory()
    attack_server(kind, SLOW, seed=6)
    attack_courier(kind, SLOW, seed=7)
    attack_documents(SLOW, seed=8)
    assert peak_memory() - before < ROOM


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused_before_they_are_folded(value: float) -> None:
    scene = Scene()
    scene.uploads[HOSTILE].part.symbols[3] = value
    honest = spoken_by_member(scene)
    link, answered = scripted(bytes(honest.data), name(HOSTILE))
    serve(scene, link)
    assert _kinds(bytes(answered))[:2] == ["REFUSAL", "non-finite"]
    assert scene.conclude(0, 1, 2).manifest.contributors == (0, 1, 2)


def test_a_contribution_again_gets_the_same_receipt_and_another_one_is_refused() -> None:
    scene = Scene()
    first = spoken_by_member(scene)
    scene.uploads[HOSTILE].part.symbols[0] += 1
    second = spoken_by_member(scene)
    answers = []
    for stream in (first, first, second):
        link, answered = scripted(bytes(stream.data), name(HOSTILE))
        serve(scene, link)
        answers.append(_kinds(bytes(answered)))
    assert [answer[0] for answer in answers] == ["RECEIPT", "RECEIPT", "REFUSAL"]
    assert answers[2][1] == "conflict"


def test_nobody_contributes_for_somebody_else() -> None:
    scene = Scene()
    link, answered = scripted(bytes(spoken_by_member(scene).data), name(1))
    serve(scene, link)
    assert _kinds(bytes(answered))[:2] == ["REFUSAL", "not-a-member"]
    assert not staged(scene)


@pytest.mark.parametrize(
    ("field", "reason"),
    [({"round": 7}, "wrong-round"), ({"epoch": 2}, "wrong-epoch"), ({"run": "elsewhere"}, "wrong-run"),
     ({"chain": "ab" * 32}, "wrong-chain"), ({"plan": "cd" * 32}, "wrong-plan")],
)  # fmt: skip
def test_what_was_sent_in_another_round_or_run_is_refused(field: dict[str, object], reason: str) -> None:
    scene = Scene()
    scene.uploads[HOSTILE] = replace(scene.uploads[HOSTILE], **field)
    link, answered = scripted(bytes(spoken_by_member(scene).data), name(HOSTILE))
    serve(scene, link)
    assert _kinds(bytes(answered))[:2] == ["REFUSAL", reason]
    assert not staged(scene)


def tiny_chunks(scene: Scene) -> list[bytes]:
    link = spoken_by_member(scene)
    header, payload = Header.decode(link.data[:HEADER_BYTES]), bytes(link.data[HEADER_BYTES : link.frames[1]])
    return [header._replace(offset=at, length=1).encode() + payload[at : at + 1] for at in range(len(payload))]


@pytest.mark.parametrize(
    "chunks", [10_000, pytest.param(1_000_000, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]
)
def test_tiny_chunks_are_one_contribution_and_cost_no_memory(chunks: int) -> None:
    scene = Scene(cut=900.0, patience=900.0)  # as long as the test may take: the round stays open throughout
    pieces = tiny_chunks(scene)
    stream, before = b"".join(pieces), peak_memory()
    for _ in range(chunks // len(pieces) + 1):
        link, answered = scripted(stream, name(HOSTILE))
        serve(scene, link)
        assert _kinds(bytes(answered)) == ["RECEIPT"]
    assert peak_memory() - before < ROOM
    assert scene.conclude(0, 1, 2).manifest.contributors == (0, 1, 2, HOSTILE)


def test_chunks_out_of_order_are_refused_and_harm_nobody(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("eris").setLevel(logging.INFO)
    scene = Scene()
    link, answered = scripted(b"".join(reversed(tiny_chunks(scene)[:200])), name(HOSTILE))
    serve(scene, link)
    assert set(_kinds(bytes(answered))) <= {"REFUSAL", "malformed"}
    assert len(caplog.records) == 1
    assert scene.conclude(0, 1, 2).manifest.contributors == (0, 1, 2)


def test_an_oversized_message_is_refused_before_memory_is_spent_on_it() -> None:
    scene = Scene()
    header = Header.decode(spoken_by_member(scene).data[:HEADER_BYTES])
    huge = header._replace(total=2**60, length=2**26, symbols=2**58)
    document = Header(Kind.FETCH, total=2**26, length=2**26)
    streams = [scripted(header.encode() + bytes(2**22), name(HOSTILE)) for header in (huge, document)]
    tracemalloc.start()  # also what is asked for and never used
    try:
        for link, _ in streams:
            serve(scene, link)
        assert tracemalloc.get_traced_memory()[1] < ROOM
    finally:
        tracemalloc.stop()
    assert _kinds(bytes(streams[1][1])) == []
    assert not staged(scene)


def test_each_refusal_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("eris").setLevel(logging.INFO)
    scene = Scene()
    scene.uploads[HOSTILE].part.symbols[3] = np.nan
    link, _ = scripted(bytes(spoken_by_member(scene).data[: spoken_by_member(scene).frames[1]]), name(HOSTILE))
    serve(scene, link)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "non-finite" in caplog.text
    assert name(HOSTILE) in caplog.text


def test_nothing_but_typed_errors_for_random_bytes() -> None:
    scene, chance = Scene(), random.Random(9)
    for _ in range(2000):
        link, answered = scripted(chance.randbytes(chance.randrange(400)), name(HOSTILE))
        serve(scene, link)
        assert not answered
