"""What the three roles say to each other.

member ──Upload──▶ aggregator ──Receipt──▶ member
aggregator ──Published (with its Manifest)──▶ every member;  ──Manifest or Withheld──▶ coordinator
member ──Report──▶ coordinator ──Verdict──▶ everybody
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from eris.errors import Reason, Refused
from eris.protocol.verdict import UnmaskedSums
from eris.transforms.packed import Part
from eris.wire.schema import (
    Digest,
    Number,
    Peers,
    Real,
    Signature,
    Sums,
    decode,
    digest_of,
    document,
    encode,
    without_signature,
)

__all__ = [
    "MANIFEST_PURPOSE",
    "BriefReport",
    "Disagreement",
    "Equivocation",
    "FullReport",
    "Idle",
    "Manifest",
    "NewKey",
    "Published",
    "Receipt",
    "Report",
    "ShownKey",
    "Upload",
    "UploadHeader",
    "Wanted",
    "Withheld",
    "joint_digest",
    "payload_hash",
]

_NO_CHECKS: NDArray[Any] = np.empty(0, np.uint32)
_NO_FIGURES: NDArray[Any] = np.empty(0, np.uint64)


MANIFEST_PURPOSE = "manifest"  # part of what is signed


@dataclass(frozen=True, slots=True)
class UploadHeader:
    """What precedes a contribution's bytes, so that a receiver can refuse them before spending memory."""

    run: str
    epoch: int
    round: int
    plan: str  # digest of the round plan
    chain: str  # digest of the last verdict
    member: int
    shard: int
    count: int  # number of values, buffers not included
    total: int  # bytes of the payload
    steps: float = 1.0  # local steps behind it
    explicit: bool = False  # indices travel with the values
    mask_key: bytes = field(default=b"", repr=False)  # where member and aggregator share a secret mask
    nonce: bytes = field(default=b"", repr=False)  # of the pads of a masked contribution


@dataclass(frozen=True, slots=True)
class Upload:
    """One member's contribution to one shard."""

    run: str
    epoch: int
    round: int
    plan: str  # digest of the round plan
    chain: str  # digest of the last verdict
    member: int
    shard: int
    part: Part = field(repr=False)  # its values
    buffers: NDArray[Any] = field(repr=False)  # float32, or 64-bit ring values
    steps: float = 1.0  # local steps behind it
    checks: NDArray[Any] = field(default_factory=lambda: _NO_CHECKS, repr=False)  # if masked, under its pads
    nonce: bytes = field(default=b"", repr=False)  # of its pads, if it is masked
    figures: NDArray[Any] = field(default_factory=lambda: _NO_FIGURES, repr=False)  # with shard 0, under the same pads

    def header(self) -> UploadHeader:
        """Return the header that is sent before the values."""
        part = self.part
        total = part.payload_bytes + self.buffers.nbytes + self.figures.nbytes + self.checks.nbytes
        fields = (self.run, self.epoch, self.round, self.plan, self.chain, self.member, self.shard)
        return UploadHeader(*fields, part.symbols.size, total, self.steps, part.explicit, part.mask_key, self.nonce)


@dataclass(frozen=True, slots=True)
class ShownKey:
    """A peer's mask key, signed with its certificate's key (`eris.privacy.masking.key_statement`)."""

    key: Digest  # X25519, 32 bytes
    counter: Number  # rises with every start of the peer
    signature: Signature


@document(27)
@dataclass(frozen=True, slots=True)
class NewKey:
    """A peer's next mask key, for the plans to come."""

    shown: ShownKey


@document(26)
@dataclass(frozen=True)
class Receipt:
    """A contribution is complete, checked and staged: its bytes arrived, which does not mean they were committed.

    A receipt for a masked contribution is signed: with a manifest that leaves the member out it proves a lie.
    """

    plan: Digest
    member: Number  # whose contribution it is
    shard: Number
    aggregator: Number  # who gives the receipt
    signature: Signature = ""  # the aggregator's

    @cached_property
    def signed_bytes(self) -> bytes:
        """Everything but the signature."""
        return encode(replace(self, signature="")) if self.signature else encode(self)


@document(5)
@dataclass(frozen=True)
class Manifest:
    """An aggregator's signed statement of what it published for a shard."""

    plan: Digest
    round: Number
    shard: Number
    aggregator: Number
    contributors: Peers
    c: Real  # the factor that makes up for missing members
    steps: Real  # weighted mean of the contributors' local steps
    hash: Digest  # of values and buffers
    figures: Sums = ()  # the contributors' scores summed: for shard 0, where members share them
    signature: Signature = ""

    @cached_property
    def signed_bytes(self) -> bytes:
        """Everything but the signature, which stands last."""
        if not self.signature:
            return self.encoded
        if "encoded" in self.__dict__:  # it was read, or has travelled
            return without_signature(self.encoded, self.signature)
        return encode(replace(self, signature=""))

    @cached_property
    def encoded(self) -> bytes:
        """The whole message as it travels: the same bytes for everybody."""
        return encode(self)

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview) -> Manifest:
        """Decode bytes from outside; refuse anything that is not a manifest."""
        manifest: Manifest = decode(cls, data)
        return manifest

    @cached_property
    def digest(self) -> str:
        """The digest that members report; the signature is not part of it."""
        return digest_of(self.signed_bytes)

    def agrees(self, other: Manifest) -> bool:
        """Whether another aggregator of the same shard says the same, bit for bit."""
        return (self.contributors, self.c, self.steps, self.hash, self.figures) == (
            other.contributors, other.c, other.steps, other.hash, other.figures,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Published:
    """v̄ on one shard, with its manifest: on the shared support where there is one, else on every coordinate.

    In fixed point it is the sum as whole numbers, which every peer that applies it decodes.
    """

    manifest: Manifest
    values: NDArray[Any] = field(repr=False)
    buffers: NDArray[Any] = field(repr=False)


@document(6)
@dataclass(frozen=True, slots=True)
class Withheld:
    """An aggregator's notice that it will not publish a shard in this round, and why."""

    plan: Digest
    shard: Number
    aggregator: Number
    reason: Reason
    contributors: Peers = ()  # whose contributions were complete at the cut


@dataclass(frozen=True, slots=True)
class Report:
    """Which published shards a peer holds: shard → digest of the manifest."""

    plan: Digest
    peer: int
    held: dict[int, str]
    complete: bool = False  # expects nothing more in this round
    state: Digest = ""  # digest of its replica before the round: at checkpoints, and when somebody has come back
    unreached: tuple[int, ...] = ()  # aggregators that this peer's part did not reach, ascending
    unmasked: UnmaskedSums = ()  # whose pads this peer gave out in this round

    @property
    def brief(self) -> BriefReport:
        """The short form, sent first: which shards, and one digest for all of them."""
        shards = tuple(sorted(self.held))
        joint = joint_digest([self.held[s] for s in shards])
        return BriefReport(self.plan, shards, joint, self.complete, self.state, self.unreached, self.unmasked)

    @property
    def full(self) -> FullReport:
        """The long form, sent if the coordinator knows other manifests than this peer."""
        shards = tuple(sorted(self.held))
        manifests = tuple(self.held[s] for s in shards)
        return FullReport(self.plan, shards, manifests, self.complete, self.state, self.unreached, self.unmasked)


@document(7)
@dataclass(frozen=True, slots=True)
class BriefReport:
    """Which shards a peer holds, with one digest over their manifests' digests in that order, to be compared."""

    plan: Digest
    shards: Peers
    joint: Digest
    complete: bool  # expects nothing more in this round
    state: Digest  # of its replica before the round, where that is asked for
    unreached: Peers = ()  # aggregators that its part did not reach
    unmasked: UnmaskedSums = ()  # whose pads it gave out in this round


@document(8)
@dataclass(frozen=True, slots=True)
class FullReport:
    """Which shards a peer holds and each manifest's digest, for a coordinator that knows other manifests."""

    plan: Digest
    shards: Peers
    manifests: tuple[Digest, ...]  # of the shards, in that order
    complete: bool  # expects nothing more in this round
    state: Digest  # of its replica before the round, where that is asked for
    unreached: Peers = ()  # aggregators that its part did not reach
    unmasked: UnmaskedSums = ()  # whose pads it gave out in this round

    def of(self, peer: int) -> Report:
        """Return the report as that of the peer that sent it."""
        if len(self.shards) != len(self.manifests):
            raise Refused(
                Reason.MALFORMED,
                f"a report has {len(self.shards)} shards but {len(self.manifests)} manifests",
                peer=peer,
            )
        held = dict(zip(self.shards, self.manifests, strict=True))
        return Report(self.plan, peer, held, self.complete, self.state, self.unreached, self.unmasked)


@document(9)
@dataclass(frozen=True, slots=True)
class Wanted:
    """What the coordinator asks a peer for after its report: the manifests of these shards, and the full report."""

    manifests: Peers = ()
    full: bool = False


@document(10)
@dataclass(frozen=True, slots=True)
class Idle:
    """A member's notice that it sends nothing in a round."""

    plan: Digest


def joint_digest(digests: Iterable[str]) -> str:
    """Return one digest for several, in their order."""
    return digest_of(b"".join(map(bytes.fromhex, digests)))


@document(11)
@dataclass(frozen=True, slots=True)
class Equivocation:
    """Two manifests for one shard, both signed by the same aggregator: proof of foul play."""

    first: Manifest
    second: Manifest

    @property
    def aggregator(self) -> int:
        """The aggregator that signed both."""
        return self.first.aggregator

    @property
    def reason(self) -> Reason:
        """Why it is excluded."""
        return Reason.EQUIVOCATION

    @property
    def what(self) -> str:
        """The reason in words."""
        return "this peer signed two manifests for one shard"


@document(12)
@dataclass(frozen=True, slots=True)
class Disagreement:
    """Signed manifests of a shard's two aggregators that do not agree.

    With the same contributors, one of the two lies or a member sent them different values; this does not show which.
    With different contributors, a link to one of them may have broken.
    """

    first: Manifest
    second: Manifest

    @property
    def same_contributors(self) -> bool:
        """Whether both averaged the contributions of the same members; then no broken link explains the difference."""
        return self.first.contributors == self.second.contributors

    def __str__(self) -> str:
        first, second = self.first, self.second
        what = "the same contributors, other values" if self.same_contributors else "other contributors"
        return f"round {first.round}: shard {first.shard}: peers {first.aggregator} and {second.aggregator}: {what}"


def payload_hash(values: NDArray[Any], buffers: NDArray[Any]) -> str:
    """Return the BLAKE3 digest of a published shard."""
    hasher = blake3(values.view(np.uint8).data)
    if buffers.size:
        hasher.update(buffers.view(np.uint8).data)
    return str(hasher.hexdigest())
