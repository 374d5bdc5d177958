"""Turns protocol messages into frames on a link, and back.

The member asks and the aggregator answers, one question after another. A member may ask the next one before it has the
answer to the last, if what it asks is short and it goes on to read all the answers:

    CONTRIBUTION (in chunks)                  → RECEIPT or REFUSAL
    FETCH, all it asks in the header          → MANIFEST + PUBLISHED, or REFUSAL once it is known that nothing will come
    FETCH ManifestQuestion                    → MANIFEST, for a member that only compares
    FETCH HashQuestion                        → MANIFEST + PUBLISHED, or REFUSAL
    FETCH SnapshotQuestion                    → SNAPSHOT (a document, then each vector), or REFUSAL
    FETCH Contradiction                       → RECEIPT, or REFUSAL

The unmasker of a masked shard is itself asked something before it is answered, over the link on which it waits:

    FETCH of the shard                        → CUT
    UNMASKING + the sum of pads, or REFUSAL   → MANIFEST + PUBLISHED, or REFUSAL

What everybody says in every round (receipts, the usual question) is in the header alone.

Everywhere here a `deadline` is a moment of the monotonic clock, and `more` says that something else follows at once, so
that both may leave together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from eris.errors import Reason, Refused
from eris.privacy.masking import CHECK_WORDS
from eris.protocol.member import Snapshot
from eris.protocol.messages import Manifest, Published, Receipt, Upload, UploadHeader
from eris.protocol.recipe import Recipe
from eris.protocol.round_plan import RoundPlan
from eris.protocol.seal import CertifiedSeal, Contradiction
from eris.protocol.unmasker import Cut, Pads, Unmasking
from eris.storage.buffer_pool import BufferPool, Bytes
from eris.storage.mapped import release
from eris.transport.link import Link
from eris.wire import Header, Kind, encode_published, encode_upload, frames, run_tag
from eris.wire.codec import CHECK_TYPE, FIGURE_TYPE, decode_published, native
from eris.wire.schema import LONGEST_DOCUMENT, Digest, Number, Signature, Text, decode, document, encode

__all__ = [
    "HashQuestion",
    "ManifestQuestion",
    "OnCut",
    "Question",
    "RefusedUnderPlan",
    "ShardQuestion",
    "SnapshotQuestion",
    "ask",
    "ask_for_shard",
    "receive_header",
    "receive_manifest",
    "receive_published",
    "receive_question",
    "receive_receipt",
    "receive_snapshot",
    "receive_unmasking",
    "send_cut",
    "send_manifest",
    "send_published",
    "send_receipt",
    "send_refusal",
    "send_snapshot",
    "send_unmasking",
    "send_upload",
    "upload_header",
]

_LONGEST_WHAT = 1000  # characters of a refusal
_LONGEST_SIGNATURE = 128  # bytes
_OTHER_PLAN = {Reason.WRONG_EPOCH, Reason.WRONG_ROUND, Reason.WRONG_CHAIN, Reason.WRONG_PLAN}


@dataclass(frozen=True, slots=True)
class ShardQuestion:
    """Asks for a published shard of a round; it is in the header alone."""

    plan: Digest
    epoch: Number
    round: Number
    shard: Number


@document(96)
@dataclass(frozen=True, slots=True)
class ManifestQuestion(ShardQuestion):
    """Asks for a shard's manifest, without the values."""


@document(97)
@dataclass(frozen=True, slots=True)
class HashQuestion:
    """Asks for a published shard by its hash, from any peer that holds it."""

    hash: Digest


@document(98)
@dataclass(frozen=True, slots=True)
class SnapshotQuestion:
    """Asks for a member's current state."""


@document(99)
@dataclass(frozen=True, slots=True)
class _SnapshotHead:
    """What precedes the vectors of a snapshot."""

    round: Number
    chain: Digest
    sizes: dict[str, int]  # name → length of each vector, in order


@document(100)
@dataclass(frozen=True, slots=True)
class _Refusal:
    """A refusal and its reason."""

    reason: Reason
    what: Text
    seal: CertifiedSeal | None = None  # of the plan in force here, if the message was for another one


@document(101)
@dataclass(frozen=True, slots=True)
class _UnmaskingHead:
    """What precedes the sums of pads."""

    cut: Digest
    unmasker: Number
    signature: Signature


class RefusedUnderPlan(Refused):
    """A refusal by a peer that works under another plan, with that plan's seal."""

    def __init__(self, reason: Reason, what: str, seal: CertifiedSeal, peer: str) -> None:
        super().__init__(reason, what, peer=peer)
        self.seal = seal


OnCut = Callable[[Cut], None]
Question = ShardQuestion | ManifestQuestion | HashQuestion | SnapshotQuestion | Contradiction
"""What a FETCH can hold; a proof against the coordinator asks to be believed."""


def send_upload(
    link: Link,
    upload: Upload,
    recipe: Recipe,
    deadline: float,
    passed: Callable[..., None] | None = None,
    *,
    more: bool = False,
) -> None:
    """Send one contribution in chunks, straight from its array.

    Args:
        recipe: knows the round's layout, by which the payload is encoded.
        passed: called after every chunk, for fault tests.
    """
    header = upload.header()
    frame = Header(
        kind=Kind.CONTRIBUTION,
        symbols=header.count,
        epoch=header.epoch,
        round=header.round,
        shard=header.shard,
        member=header.member,
        steps=header.steps,
        explicit=header.explicit,
        mask_key=header.mask_key,
        nonce=header.nonce,
        run=run_tag(header.run),
        plan=bytes.fromhex(header.plan),
        chain=bytes.fromhex(header.chain),
    )
    trainable = recipe.layout(upload.round).trainable
    payload = encode_upload(upload.part, upload.buffers, trainable, upload.checks, upload.figures)
    for number, (head, pieces) in enumerate(frames(frame, payload)):
        link.send(head, *pieces, deadline=deadline, more=more)
        if passed is not None:
            passed("chunk", round=upload.round, shard=upload.shard, chunk=number)


def upload_header(frame: Header, plan: RoundPlan | None) -> UploadHeader:
    """Translate a contribution's frame header into the protocol's."""
    known = plan is not None and frame.run == run_tag(plan.run)
    return UploadHeader(
        run=plan.run if plan is not None and known else frame.run.hex(),
        epoch=frame.epoch,
        round=frame.round,
        plan=frame.plan.hex(),
        chain=frame.chain.hex(),
        member=frame.member,
        shard=frame.shard,
        count=frame.symbols,
        total=frame.total,
        steps=frame.steps,
        explicit=frame.explicit,
        mask_key=frame.mask_key,
        nonce=frame.nonce,
    )


def receive_header(link: Link, deadline: float) -> Header:
    """Return the next frame's header."""
    return Header.decode(link.receive_header(deadline=deadline))


def ask(link: Link, question: Question, deadline: float, *, more: bool = False) -> None:
    """Send a FETCH with a document."""
    _send_document(link, Kind.FETCH, encode(question), deadline, more=more)


def ask_for_shard(link: Link, plan: RoundPlan, shard: int, deadline: float, *, more: bool = False) -> None:
    """Send the usual FETCH, for a published shard of the round."""
    digest = bytes.fromhex(plan.digest)
    frame = Header(kind=Kind.FETCH, epoch=plan.epoch, round=plan.round, shard=shard, plan=digest)
    link.send(frame.encode(), deadline=deadline, more=more)


def send_receipt(link: Link, receipt: Receipt, deadline: float) -> None:
    """Send a receipt."""
    said, plan = bytes.fromhex(receipt.signature), bytes.fromhex(receipt.plan)
    size = len(said)
    frame = Header(Kind.RECEIPT, shard=receipt.shard, member=receipt.member, total=size, length=size, plan=plan)
    link.send(frame.encode(), *([said] if said else []), deadline=deadline)


def send_refusal(link: Link, refusal: Refused, deadline: float, seal: CertifiedSeal | None = None) -> None:
    """Send a refusal; if the message was for another plan than ours, with `seal`, that of ours."""
    said = _Refusal(
        refusal.reason,
        refusal.what.partition(": ")[2][:_LONGEST_WHAT],
        seal if refusal.reason in _OTHER_PLAN else None,
    )
    _send_document(link, Kind.REFUSAL, encode(said), deadline)


def receive_receipt(link: Link, deadline: float, aggregator: int = 0) -> Receipt:
    """Return `aggregator`'s receipt for the earliest part still without one; a refusal is raised as an error."""
    frame = _expect(link, Kind.RECEIPT, deadline)
    if frame.total > _LONGEST_SIGNATURE:
        raise Refused(Reason.MALFORMED, f"a receipt has {frame.total} bytes, which is too long", peer=link.peer.name)
    said = _receive_document(link, frame, deadline) if frame.total else b""
    return Receipt(frame.plan.hex(), frame.member, frame.shard, aggregator, said.hex())


def send_manifest(link: Link, published: Published, deadline: float, *, more: bool = False) -> None:
    """Send the signed manifest of what an aggregator published, without the values."""
    _send_document(link, Kind.MANIFEST, published.manifest.encoded, deadline, more=more)


def receive_manifest(link: Link, deadline: float, *, round: int, on_cut: OnCut | None = None) -> Manifest:
    """Return an aggregator's manifest for a round; a cut that it shows us first is answered by `on_cut`."""
    frame = receive_header(link, deadline)
    while frame.kind is Kind.CUT and on_cut is not None:
        on_cut(decode(Cut, _receive_document(link, frame, deadline)))
        frame = receive_header(link, deadline)
    manifest = Manifest.decode(_receive_document(link, _expected(link, frame, Kind.MANIFEST, deadline), deadline))
    if manifest.round != round:  # the other side must not choose which layout we spend time on
        raise Refused(
            Reason.WRONG_ROUND, f"the shard was published in round {manifest.round}, not {round}", peer=link.peer.name
        )
    return manifest


def send_published(link: Link, published: Published, deadline: float) -> None:
    """Send a manifest, then the values from the one buffer that serves all members."""
    send_manifest(link, published, deadline, more=True)
    payload = encode_published(published.values, published.buffers)
    frame = Header(kind=Kind.PUBLISHED, shard=published.manifest.shard, symbols=published.values.size)
    for head, pieces in frames(frame, payload):
        link.send(head, *pieces, deadline=deadline)


def receive_published(
    link: Link,
    recipe: Recipe,
    deadline: float,
    *,
    round: int,
    pool: BufferPool | None = None,
    on_cut: OnCut | None = None,
) -> Published:
    """Return a published shard of a round, received straight into the array where it stays.

    Args:
        recipe: says how long the shard must be.
        pool: where that array is allocated.
        on_cut: answers a cut that the aggregator shows us first.
    """
    manifest = receive_manifest(link, deadline, round=round, on_cut=on_cut)
    count, buffers = _published_size(manifest, recipe)
    payload = (pool or BufferPool()).take(recipe.words.payload(count, buffers))
    _receive_payload(link, Kind.PUBLISHED, payload, deadline)
    return Published(manifest, *decode_published(payload, count=count, buffers=buffers, words=recipe.words))


def send_snapshot(link: Link, snapshot: Snapshot, deadline: float) -> None:
    """Send a member's state: a document, then every vector by name."""
    sizes = {name: int(value.size) for name, value in sorted(snapshot.state.items())}
    first = _SnapshotHead(snapshot.round, snapshot.chain, sizes)
    _send_document(link, Kind.SNAPSHOT, encode(first), deadline)
    for _, value in sorted(snapshot.state.items()):
        for head, pieces in frames(Header(kind=Kind.SNAPSHOT), [value.view(np.uint8).data]):
            link.send(head, *pieces, deadline=deadline)
        release(value)


def receive_snapshot(
    link: Link, expected: dict[str, int], deadline: float, *, pool: BufferPool | None = None
) -> Snapshot:
    """Receive a snapshot whose vectors have the expected names and sizes; `pool` allocates them."""
    head = decode(_SnapshotHead, _receive_document(link, _expect(link, Kind.SNAPSHOT, deadline), deadline))
    if head.sizes != expected:
        raise Refused(Reason.WRONG_SPEC, "the snapshot is of a different model", peer=link.peer.name)
    state = {name: (pool or BufferPool()).vector(size) for name, size in sorted(expected.items())}
    for value in state.values():
        _receive_payload(link, Kind.SNAPSHOT, value.view(np.uint8), deadline)
        release(value)
    return Snapshot(head.round, head.chain, state)


def _published_size(manifest: Manifest, recipe: Recipe) -> tuple[int, int]:
    layout = recipe.layout(manifest.round)
    if not 0 <= manifest.shard < layout.shards:
        raise Refused(Reason.WRONG_SHARD, f"there is no shard {manifest.shard}")
    support = recipe.published_support(manifest.round, manifest.shard)
    count = int(layout.trainable.sizes[manifest.shard]) if support is None else support.size
    return count, int(layout.buffers.sizes[manifest.shard])


def send_cut(link: Link, cut: Cut, deadline: float) -> None:
    """Show an unmasker whose contributions a sum holds."""
    _send_document(link, Kind.CUT, encode(cut), deadline)


def send_unmasking(link: Link, answer: Unmasking, deadline: float) -> None:
    """Answer a cut: the signed part, then the sums of pads."""
    head = _UnmaskingHead(answer.cut, answer.unmasker, answer.signature)
    _send_document(link, Kind.UNMASKING, encode(head), deadline, more=True)
    payload = [array.view(np.uint8).data for array in answer.pads if array.size]
    for first, pieces in frames(Header(kind=Kind.UNMASKING, symbols=answer.pads.values.size), payload):
        link.send(first, *pieces, deadline=deadline)


def receive_unmasking(
    link: Link, recipe: Recipe, cut: Cut, round: int, deadline: float, pool: BufferPool | None = None
) -> Unmasking:
    """Return the answer to a cut; a refusal is raised as an error.

    Args:
        recipe: says how long the sums must be.
        cut: the one that was shown; its shard counts.
        round: of the cut.
        pool: allocates what is received.
    """
    frame = _expect(link, Kind.UNMASKING, deadline)
    head = decode(_UnmaskingHead, _receive_document(link, frame, deadline))
    count, buffers = recipe.published_sizes(round, cut.shard)
    words, checks = recipe.words.payload(count, buffers), 4 * CHECK_WORDS
    figures = FIGURE_TYPE.itemsize * recipe.figure_words(round, cut.shard)
    payload = (pool or BufferPool()).take(words + checks + figures)
    _receive_payload(link, Kind.UNMASKING, payload, deadline)
    values, rest = decode_published(payload[:words], count=count, buffers=buffers, words=recipe.words)
    behind = native(payload[words : words + checks], CHECK_TYPE), native(payload[words + checks :], FIGURE_TYPE)
    return Unmasking(head.cut, head.unmasker, Pads(values, rest, *behind), head.signature)


def _expect(link: Link, kind: Kind, deadline: float) -> Header:
    return _expected(link, receive_header(link, deadline), kind, deadline)


def _expected(link: Link, frame: Header, kind: Kind, deadline: float) -> Header:
    if frame.kind is Kind.REFUSAL:
        refusal = decode(_Refusal, _receive_document(link, frame, deadline))
        if refusal.seal is not None:
            raise RefusedUnderPlan(refusal.reason, refusal.what, refusal.seal, peer=link.peer.name)
        raise Refused(refusal.reason, refusal.what, peer=link.peer.name)
    if frame.kind is not kind:
        raise Refused(
            Reason.MALFORMED, f"received {frame.kind.name}, but {kind.name} was expected", peer=link.peer.name
        )
    return frame


def _receive_payload(link: Link, kind: Kind, payload: Bytes, deadline: float) -> None:
    """Receive a message of this kind, exactly as long as `payload`, into it: chunk by chunk, in order."""
    total, start = payload.size, 0
    while start < total or total == 0:
        frame = _expect(link, kind, deadline)
        if frame.total != total or frame.offset != start:
            raise Refused(
                Reason.WRONG_SIZE, f"received byte {frame.offset} of {frame.total}, but {start} of {total} is expected"
            )
        link.receive_into(payload[start : start + frame.length].data, deadline=deadline)
        start += frame.length
        if total == 0:
            break


def _send_document(link: Link, kind: Kind, data: bytes, deadline: float, *, more: bool = False) -> None:
    link.send(Header(kind=kind, total=len(data), length=len(data)).encode(), data, deadline=deadline, more=more)


def _receive_document(link: Link, frame: Header, deadline: float) -> bytes:
    if frame.length != frame.total or frame.total > LONGEST_DOCUMENT:
        raise Refused(Reason.MALFORMED, f"a document has {frame.total} bytes, which is too long", peer=link.peer.name)
    data = bytearray(frame.length)
    link.receive_into(memoryview(data), deadline=deadline)
    return bytes(data)


def receive_question(link: Link, frame: Header, deadline: float) -> Question:
    """Return the question of a FETCH whose header was `frame`."""
    if not frame.total:
        return ShardQuestion(frame.plan.hex(), frame.epoch, frame.round, frame.shard)
    kinds = ManifestQuestion | HashQuestion | SnapshotQuestion | Contradiction
    question: Question = decode(kinds, _receive_document(link, frame, deadline))
    return question
