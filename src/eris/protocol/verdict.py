"""The verdict: how a round ended. State advances on the verdict only."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Annotated

import msgspec

from eris.wire.schema import (
    LONGEST_DOCUMENT,
    MOST_PEERS,
    Digest,
    Number,
    Peers,
    Sums,
    Text,
    decode,
    digest_of,
    document,
    encode,
    spelled_as,
)

__all__ = ["GENESIS", "ShardVerdict", "UnmaskedSum", "UnmaskedSums", "Verdict"]

GENESIS = "0" * 64  # the chain before the first verdict
_LONGEST = 1 << 30  # bytes of a verdict that is never sent


@dataclass(frozen=True, slots=True)
class ShardVerdict:
    """One shard: committed with the hash of what was published and its contributors, or lost with the reason why."""

    shard: Number
    aggregator: Number  # the first, if there are two
    hash: Digest = ""  # BLAKE3 of the published payload; empty if lost
    contributors: tuple[Number, ...] = ()  # ascending
    lost: Text = ""  # why; empty if committed
    manifest: Digest = ""  # digest of the signed manifest that was committed; empty if lost

    @property
    def committed(self) -> bool:
        """Whether peers apply this shard."""
        return not self.lost


@dataclass(frozen=True, slots=True)
class UnmaskedSum:
    """Whose pads an unmasker gave out for a shard: their sum may be known, however the shard ended."""

    shard: Number
    contributors: Peers


UnmaskedSums = Annotated[tuple[UnmaskedSum, ...], msgspec.Meta(max_length=MOST_PEERS)]


@dataclass(frozen=True, slots=True)
class _Row:
    """A shard on the wire: its place is its number, and its contributors are one of the table's sets."""

    aggregator: Number
    manifest: Digest
    hash: Digest
    contributors: Number  # place of the set in the table
    lost: Text


@dataclass(frozen=True, slots=True)
class _Table:
    """All shards on the wire; each distinct set stands once, in the order in which shards first cite it."""

    sets: Annotated[tuple[Peers, ...], msgspec.Meta(max_length=MOST_PEERS)]
    rows: Annotated[tuple[_Row, ...], msgspec.Meta(max_length=MOST_PEERS)]


def _table(shards: tuple[ShardVerdict, ...]) -> _Table:
    if [entry.shard for entry in shards] != list(range(len(shards))):
        raise ValueError("all shards must be listed, in order of their numbers")
    sets: dict[tuple[int, ...], int] = {}
    rows = [_Row(e.aggregator, e.manifest, e.hash, sets.setdefault(e.contributors, len(sets)), e.lost) for e in shards]
    return _Table(tuple(sets), tuple(rows))


def _shards(table: _Table) -> tuple[ShardVerdict, ...]:
    if any(row.contributors >= len(table.sets) for row in table.rows):
        raise ValueError("a shard cites a set that is not in the table")
    rows = enumerate(table.rows)
    return tuple(
        ShardVerdict(shard, row.aggregator, row.hash, table.sets[row.contributors], row.lost, row.manifest)
        for shard, row in rows
    )


@document(4)
@dataclass(frozen=True)
class Verdict:
    """The one statement about a round that all peers follow."""

    run: Text
    epoch: Number
    round: Number
    plan: Digest  # digest of the round plan
    previous: Digest  # digest of the verdict before this one
    shards: Annotated[tuple[ShardVerdict, ...], spelled_as(_Table, _table, _shards)]
    late: Peers = ()  # peers that had not reported in time
    state: Digest = ""  # digest of the replica before this round, at checkpoints and returns; snapshots must match it
    figures: Sums = ()  # members' scores before this round, summed, as shard 0's manifest says
    unmasked: UnmaskedSums = ()  # of lost shards: what may be known of them though nothing was published

    @cached_property
    def encoded(self) -> bytes:
        """The whole verdict as it travels; with as many members as only simulations have, it does not."""
        crowd = any(entry.contributors[-1:] >= (MOST_PEERS,) for entry in self.shards)
        return encode(self, longest=_LONGEST if crowd else LONGEST_DOCUMENT)

    @cached_property
    def digest(self) -> str:
        """Digest of everything above: the chain the next plan carries."""
        return digest_of(self.encoded)

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview) -> Verdict:
        """Decode a verdict that came from outside."""
        verdict: Verdict = decode(cls, data)
        return verdict

    @property
    def lost_shards(self) -> tuple[int, ...]:
        """Shards whose coordinates stay frozen in this round."""
        return tuple(entry.shard for entry in self.shards if not entry.committed)

    def missing(self, member: int) -> tuple[int, ...]:
        """Return the shards that were lost or committed without this member."""
        absent = (shards for members, shards in self._alike.items() if member not in members)
        return tuple(sorted(chain.from_iterable(absent)))

    @cached_property
    def _alike(self) -> dict[frozenset[int], list[int]]:
        """Contributors, and the shards that have them; most shards share one set, and lost shards have nobody."""
        alike: dict[tuple[int, ...], list[int]] = {}
        for entry in self.shards:
            alike.setdefault(entry.contributors if entry.committed else (), []).append(entry.shard)
        return {frozenset(members): shards for members, shards in alike.items()}
