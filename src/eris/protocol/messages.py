"""What the three roles say to each other.

member ──Upload──▶ aggregator ──Receipt──▶ member
aggregator ──Published (with its Manifest)──▶ every member;  ──Manifest or Withheld──▶ coordinator
member ──Report──▶ coordinator ──Verdict──▶ everybody
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
from blake3 import blake3

from eris.errors import Reason
from eris.local.spec import Vector
from eris.protocol.canonical import canonical_bytes, digest_of, plain
from eris.protocol.strict import a_list, a_mapping, a_number, a_real, a_reason, a_text, a_truth, read
from eris.transforms.packed import Part

__all__ = [
    "Disagreement",
    "Equivocation",
    "Manifest",
    "Published",
    "Receipt",
    "Report",
    "Upload",
    "UploadHeader",
    "Withheld",
    "payload_hash",
]


@dataclass(frozen=True, slots=True)
class UploadHeader:
    """What stands before a contribution's bytes, so that a receiver can refuse them before it spends memory."""

    run: str
    epoch: int
    round: int
    plan: str  # digest of the round plan
    chain: str  # digest of the last verdict
    member: int
    shard: int
    count: int  # values, before buffers
    total: int  # bytes of the payload
    steps: float = 1.0
    explicit: bool = False
    mask_key: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Upload:
    """One member's contribution to one shard."""

    run: str
    epoch: int
    round: int
    plan: str
    chain: str
    member: int
    shard: int
    part: Part = field(repr=False)
    buffers: Vector = field(repr=False)
    steps: float = 1.0

    def header(self) -> UploadHeader:
        """Return what is sent before the values."""
        part = self.part
        total = part.payload_bytes + 4 * self.buffers.size
        fields = (self.run, self.epoch, self.round, self.plan, self.chain, self.member, self.shard)
        return UploadHeader(*fields, part.symbols.size, total, self.steps, part.explicit, part.mask_key)


@dataclass(frozen=True, slots=True)
class Receipt:
    """Complete, checked and staged. It means that bytes arrived, not that they were committed."""

    plan: str
    member: int
    shard: int
    aggregator: int


@dataclass(frozen=True)
class Manifest:
    """An aggregator's signed statement of what it published for a shard."""

    plan: str
    round: int
    shard: int
    aggregator: int
    contributors: tuple[int, ...]  # ascending
    c: float
    steps: float  # weighted mean of the contributors' local steps
    hash: str  # of values and buffers
    signature: str = ""

    @cached_property
    def signed_bytes(self) -> bytes:
        """Everything but the signature."""
        return canonical_bytes(replace(self, signature="") if self.signature else self)

    @cached_property
    def spelled(self) -> bytes:
        """All of it, as it travels: the same bytes for everybody."""
        return canonical_bytes(self)

    @cached_property
    def digest(self) -> str:
        """What members report; the signature does not count."""
        return digest_of(self.signed_bytes)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
        return cast(dict[str, Any], plain(self))

    def agrees(self, other: Manifest) -> bool:
        """Whether another aggregator of the same shard says the same, bit for bit."""
        return (self.contributors, self.c, self.steps, self.hash) == (
            other.contributors, other.c, other.steps, other.hash,
        )  # fmt: skip

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Manifest:
        """Read what came from outside; refuse what is not a manifest."""
        fields = {
            "plan": a_text,
            "round": a_number,
            "shard": a_number,
            "aggregator": a_number,
            "contributors": a_list(a_number),
            "c": a_real,
            "steps": a_real,
            "hash": a_text,
            "signature": a_text,
        }
        return cls(**read("manifest", data, fields))


@dataclass(frozen=True, slots=True)
class Published:
    """v̄ on one shard (on the shared support where there is one, else on every coordinate), with its manifest."""

    manifest: Manifest
    values: Vector = field(repr=False)
    buffers: Vector = field(repr=False)


@dataclass(frozen=True, slots=True)
class Withheld:
    """An aggregator will not publish a shard in this round, and why."""

    plan: str
    shard: int
    aggregator: int
    reason: Reason
    contributors: tuple[int, ...] = ()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Withheld:
        """Read what came from outside; refuse what is not a notice."""
        fields = {
            "plan": a_text,
            "shard": a_number,
            "aggregator": a_number,
            "reason": a_reason,
            "contributors": a_list(a_number),
        }
        return cls(**read("notice", data, fields))


@dataclass(frozen=True, slots=True)
class Report:
    """Which published shards a peer holds: shard → digest of the manifest."""

    plan: str
    peer: int
    held: dict[int, str]
    complete: bool = False  # this peer expects nothing more in this round
    state: str = ""  # digest of its replica before the round, at checkpoints and when somebody came back

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], peer: int) -> Report:
        """Read what a peer says from outside; refuse what is not a report."""
        fields = {"plan": a_text, "held": a_mapping(a_text), "complete": a_truth, "state": a_text}
        return cls(peer=peer, **read("report", data, fields))


@dataclass(frozen=True, slots=True)
class Equivocation:
    """Two manifests for one shard, both signed by the same aggregator: proof of foul play."""

    first: Manifest
    second: Manifest

    @property
    def aggregator(self) -> int:
        """Who signed both."""
        return self.first.aggregator


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Two aggregators of one shard, each with its own signed manifest, that do not say the same.

    With the same contributors one of the two lies, or a member sent them different values; which it was, this does not
    show. With other contributors a link may have broken on the way to one of them.
    """

    first: Manifest
    second: Manifest

    @property
    def same_contributors(self) -> bool:
        """Whether both averaged the contributions of the same members: then no broken link explains it."""
        return self.first.contributors == self.second.contributors

    def __str__(self) -> str:
        first, second = self.first, self.second
        what = "the same contributors, other values" if self.same_contributors else "other contributors"
        return f"round {first.round}: shard {first.shard}: peers {first.aggregator} and {second.aggregator}: {what}"


def payload_hash(values: Vector, buffers: Vector) -> str:
    """Return the BLAKE3 digest of a published shard."""
    hasher = blake3(values.view(np.uint8).data)
    if buffers.size:
        hasher.update(buffers.view(np.uint8).data)
    return str(hasher.hexdigest())
