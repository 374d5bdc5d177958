"""The bytes of a round: who sent how much to whom, in which role, and how long it would take.

Counted is what data links carry: frames with their headers. What stays in a peer (its own shard) is not sent, so it is
not counted. Plans, reports and verdicts are the coordinator's affair and far smaller.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eris.events import RoleBytes, Traffic
from eris.protocol.round_plan import RoundPlan
from eris.simulate.clock import Links
from eris.wire.frame import CHUNK, HEADER_BYTES

__all__ = ["RoundBytes", "framed"]

Bytes = NDArray[np.int64]


def framed(payload: Bytes) -> Bytes:
    """Return the bytes of messages on the wire.

    >>> (framed(np.array([0, 100, CHUNK + 1])) - [0, 100, CHUNK + 1]).tolist()
    [160, 160, 320]
    """
    frames: Bytes = np.maximum(1, -(-payload // CHUNK))
    return payload + HEADER_BYTES * frames


@dataclass
class RoundBytes:
    """Counts one round. With a server, which is no member, nothing stays at home."""

    plan: RoundPlan
    server: bool

    def __post_init__(self) -> None:
        peers = max(entry.peer for entry in self.plan.roster) + 2
        self._member_up, self._member_down, self._aggregator_up, self._aggregator_down = np.zeros((4, peers), np.int64)
        self._homes = np.array([self._home(shard) for shard in range(self.plan.shards)])
        self._owners = [self._homes, *([np.array(self.plan.witnesses)] if self.plan.witnesses else [])]
        self._roster = np.array([entry.peer for entry in self.plan.roster])

    def sent(self, member: int, payload: Bytes, unreached: tuple[int, ...]) -> tuple[int, ...]:
        """Count a member's messages and return their sizes, shard by shard."""
        total = np.zeros(self.plan.shards, np.int64)
        for owners in self._owners:
            sizes = np.where(owners == member, 0, framed(payload))
            sizes[list(unreached)] = 0
            self._aggregator_down += np.bincount(owners, sizes, self._aggregator_down.size).astype(np.int64)
            total += sizes
        self._member_up[member] += total.sum()
        return tuple(total.tolist())

    def published(self, shard: int, payload: int) -> int:
        """Count a published shard, which goes to every member but the one that made it; return its size."""
        size, home = int(framed(np.array(payload))), self._homes[shard]
        receivers = self._roster[self._roster != home]
        self._member_down[receivers] += size
        self._aggregator_up[home] += size * receivers.size
        return size

    def total(self, links: Links) -> Traffic:
        """Sum up."""
        participants, roster = list(self.plan.participants), self._roster
        homes = np.unique(np.concatenate(self._owners))
        uploads = links.phase(self._member_up, self._aggregator_down)
        downloads = links.phase(self._aggregator_up, self._member_down)
        return Traffic(
            member=RoleBytes(float(self._member_up[participants].mean()), float(self._member_down[roster].mean())),
            aggregator=RoleBytes(float(self._aggregator_up[homes].mean()), float(self._aggregator_down[homes].mean())),
            total=int(self._member_up.sum() + self._aggregator_up.sum()),
            seconds=uploads + downloads,
            aggregator_name="server" if self.server else "aggregator",
        )

    def _home(self, shard: int) -> int:
        return self._member_up.size - 1 if self.server else self.plan.assignment[shard]
