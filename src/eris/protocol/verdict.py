"""How a round ended. State advances on the verdict only."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, cast

from eris.protocol.canonical import canonical_bytes, digest_of, plain

__all__ = ["GENESIS", "ShardVerdict", "Verdict"]

GENESIS = "0" * 64  # the chain before the first verdict


@dataclass(frozen=True, slots=True)
class ShardVerdict:
    """One shard: committed with the hash of what was published and its contributors, or lost with the reason why."""

    shard: int
    aggregator: int
    hash: str = ""  # BLAKE3 of the published payload; empty if lost
    contributors: tuple[int, ...] = ()
    lost: str = ""  # why; empty if committed

    @property
    def committed(self) -> bool:
        """Whether peers apply this shard."""
        return not self.lost


@dataclass(frozen=True)
class Verdict:
    """The one statement all peers follow."""

    run: str
    epoch: int
    round: int
    plan: str  # digest of the round plan
    previous: str  # digest of the verdict before this one
    shards: tuple[ShardVerdict, ...]
    late: tuple[int, ...] = ()  # peers that had not reported in time
    state: str = ""  # digest of the replica before this round, at checkpoints and returns: snapshots are held to it

    @cached_property
    def spelled(self) -> bytes:
        """All of it, as one line of JSON."""
        return canonical_bytes(self)

    @cached_property
    def digest(self) -> str:
        """Digest of everything above: the chain the next plan carries."""
        return digest_of(self.spelled)

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
        """Contributors, and the shards that have them; most shards have the same ones, lost shards have nobody."""
        alike: dict[frozenset[int], list[int]] = {}
        for entry in self.shards:
            alike.setdefault(frozenset(entry.contributors if entry.committed else ()), []).append(entry.shard)
        return alike

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for JSON lines."""
        return cast(dict[str, Any], plain(self))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Verdict:
        """Rebuild a verdict from `to_dict`."""
        fields = dict(data)
        fields["shards"] = tuple(
            ShardVerdict(**{**entry, "contributors": tuple(entry["contributors"])}) for entry in fields["shards"]
        )
        fields["late"] = tuple(fields["late"])
        return cls(**fields)
