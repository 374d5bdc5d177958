"""The bytes of a round: who sent how much to whom, in which role, and how long it would take.

Counted is what data links carry: frames with their headers. What stays in a peer (its own shard) is not sent, so it is
not counted. Plans, reports and verdicts are the coordinator's affair and far smaller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eris.events import RoleBytes, Traffic
from eris.protocol.round_plan import RoundPlan
from eris.simulate.clock import Links
from eris.wire.frame import CHUNK, HEADER_BYTES

__all__ = ["Bytes", "RoundBytes", "framed"]

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
        plan = self.plan
        self._peers = max(entry.peer for entry in plan.roster) + 2
        homes = np.full(plan.shards, self._peers - 1) if self.server else np.array(plan.assignment)
        self._owners = np.array([homes, plan.witnesses] if plan.witnesses else [homes])
        self._received = np.zeros(self._owners.shape, np.int64)  # by who aggregates a shard
        self._published = np.zeros(plan.shards, np.int64)
        self._member_up = np.zeros(self._peers, np.int64)
        self._heard: list[int] = []  # members of whom anything arrived
        self._missing = False  # whether any aggregator lacks anybody

    def sent(self, member: int, messages: Bytes, unreached: tuple[int, ...]) -> tuple[int, ...]:
        """Count a member's messages, as long as they are on the wire, and return what it sent for each shard."""
        sizes = messages * (self._owners != member)
        if unreached:
            sizes[:, list(unreached)] = 0
            self._missing = True
        if len(unreached) < self.plan.shards:
            self._heard.append(member)
        self._received += sizes
        total = tuple((sizes[0] if len(sizes) == 1 else sizes.sum(axis=0)).tolist())
        self._member_up[member] += sum(total)
        return total

    def published(self, payloads: Mapping[int, int]) -> dict[int, int]:
        """Count published shards, each of which goes to every member but the one that made it; return their sizes."""
        shards, sizes = list(payloads), framed(np.array(list(payloads.values()), np.int64))
        self._published[shards] = sizes
        return dict(zip(shards, sizes.tolist(), strict=True))

    def total(self, links: Links, deadline: float = 0.0) -> Traffic:
        """Sum up. Who lacks a contribution waits for it until the deadline, if there is one."""
        participants, roster = list(self.plan.participants), np.array([entry.peer for entry in self.plan.roster])
        homes = self._owners[0]
        received = [self._at(owners, sizes) for owners, sizes in zip(self._owners, self._received, strict=True)]
        aggregator_down: Bytes = np.sum(received, axis=0)
        member_down = np.zeros(self._peers, np.int64)
        member_down[roster] = (self._published.sum() - self._at(homes, self._published))[roster]
        aggregator_up = self._at(homes, self._published * (roster.size - (not self.server)))
        at_work = np.unique(self._owners)
        uploads, downloads = links.phase(self._member_up, aggregator_down), links.phase(aggregator_up, member_down)
        gathered = links.gathered(self._heard, self._member_up, aggregator_down)
        return Traffic(
            member=RoleBytes(float(self._member_up[participants].mean()), float(member_down[roster].mean())),
            aggregator=RoleBytes(float(aggregator_up[at_work].mean()), float(aggregator_down[at_work].mean())),
            total=int(self._member_up.sum() + aggregator_up.sum()),
            seconds=uploads + downloads,
            round_seconds=(max(gathered, deadline) if self._missing else gathered) + downloads,
            aggregator_name="server" if self.server else "aggregator",
        )

    def _at(self, owners: Bytes, sizes: Bytes) -> Bytes:
        """Sum what belongs to shards up by the peers that own them."""
        return np.bincount(owners, sizes, self._peers).astype(np.int64)
