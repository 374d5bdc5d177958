"""The bytes of a round: who sent how much to whom, in which role, and how long it would take.

It counts what data links carry: frames with their headers. A peer's own shard is not sent, so it is not counted. Plans,
reports and verdicts go through the coordinator and are far smaller; they are not counted either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eris.aggregate.figures import FIGURE_BYTES, SHARD
from eris.events import RoleBytes, RoundTraffic
from eris.privacy.masking import CHECK_WORDS
from eris.protocol.recipe import Recipe
from eris.protocol.round_plan import RoundPlan
from eris.protocol.steps import send_context
from eris.seeds import private_root
from eris.shards.plan import Coordinates, ShardPlan
from eris.simulate.clock import Links
from eris.transforms.packed import Packed
from eris.wire.frame import CHUNK, HEADER_BYTES

__all__ = ["CHECKED", "Bytes", "RoundBytes", "expected_upload", "framed", "payload_sizes", "shared_payload_sizes"]

Bytes = NDArray[np.int64]
CHECKED = 4 * CHECK_WORDS  # bytes of the check words behind a masked contribution


def framed(payload: Bytes) -> Bytes:
    """Return the bytes of messages on the wire.

    >>> (framed(np.array([0, 100, CHUNK + 1])) - [0, 100, CHUNK + 1]).tolist()
    [160, 160, 320]
    """
    frames: Bytes = np.maximum(1, -(-payload // CHUNK))
    return payload + HEADER_BYTES * frames


@dataclass
class RoundBytes:
    """Counts the bytes of one round. With a server, which is not a member, nothing stays at home.

    Rows are for the peers on the plan. In a crowd the last entry stands for all other members: they do not take part,
    but receive what is published like everybody else.
    """

    plan: RoundPlan
    server: bool  # whether a server aggregates, and not members
    members: int  # of the run
    figures: int = 0  # bytes of what members scored, in contributions to shard 0

    def __post_init__(self) -> None:
        plan, server = self.plan, self.members
        everybody = [entry.peer for entry in plan.roster if entry.peer < self.members]
        self._others = self.members - len(everybody) if len(everybody) < len(plan.roster) else 0
        self._at = np.array([*everybody, server])  # whose rows these are
        self._members = np.arange(len(everybody))
        self._peers, self._places = self._at.size, {peer: place for place, peer in enumerate(self._at.tolist())}
        homes = self._rows_of([server] * plan.shards if self.server else plan.assignment)
        self._owners = np.array([homes, self._rows_of(plan.witnesses)] if plan.witnesses else [homes])
        self._received = np.zeros(self._owners.shape, np.int64)  # by who aggregates a shard
        self._published = np.zeros(plan.shards, np.int64)
        self._member_up = np.zeros(self._peers, np.int64)
        self._heard: list[int] = []  # members of whom anything arrived
        self._missing = False  # whether any aggregator lacks anybody
        self._pads_up, self._pads_down = np.zeros((2, self._peers), np.int64)  # of masked shards

    def sent(self, member: int, messages: Bytes, unreached: tuple[int, ...]) -> tuple[int, ...]:
        """Count a member's messages, and return how many bytes it sent for each shard.

        `messages` are their sizes on the wire, shard by shard; those to `unreached` shards, or to itself, do not count.
        """
        place = self._places[member]
        sizes = messages * (self._owners != place)
        if unreached:
            sizes[:, list(unreached)] = 0
            self._missing = True
        if len(unreached) < self.plan.shards:
            self._heard.append(place)
        self._received += sizes
        total = tuple((sizes[0] if len(sizes) == 1 else sizes.sum(axis=0)).tolist())
        self._member_up[place] += sum(total)
        return total

    def published(self, payloads: Mapping[int, int]) -> dict[int, int]:
        """Count published shards, each of which goes to every member but the one that made it; return their sizes."""
        shards, sizes = list(payloads), framed(np.array(list(payloads.values()), np.int64))
        self._published[shards] = sizes
        for shard, payload in payloads.items():
            self._unmasked(shard, payload)
        return dict(zip(shards, sizes.tolist(), strict=True))

    def _unmasked(self, shard: int, payload: int) -> None:
        """Count the sums of pads that the shard's unmaskers sent to its aggregators: shard, check words, figures."""
        owners, helpers = self.plan.aggregators_of(shard), self.plan.unmaskers_of(shard)
        behind = CHECKED + (self.figures if shard == SHARD else 0)
        size = int(framed(np.array([payload + behind]))[0])
        for helper in helpers:
            self._pads_up[self._places[helper]] += size * len(owners)
        for owner in owners:
            self._pads_down[self._places[owner]] += size * len(helpers)

    def total(self, links: Links, deadline: float = 0.0) -> RoundTraffic:
        """Return the totals. Aggregators wait for missing contributions until the deadline, if there is one."""
        participants, homes = self._rows_of(self.plan.participants), self._owners[0]
        listening, every = self._members.size + self._others, int(self._published.sum())
        others = every / links.slowest_down(self.members, self._at) if self._others else 0.0
        links = links.of(self._at)
        received = [self._by_owner(owners, sizes) for owners, sizes in zip(self._owners, self._received, strict=True)]
        aggregator_down: Bytes = np.sum(received, axis=0)
        member_down = np.zeros(self._peers, np.int64)
        member_down[self._members] = (every - self._by_owner(homes, self._published))[self._members]
        aggregator_up = self._by_owner(homes, self._published * (listening - (not self.server)))
        at_work = np.unique(self._owners)
        uploads, downloads = links.phase(self._member_up, aggregator_down), links.phase(aggregator_up, member_down)
        downloads = max(downloads, others)
        gathered = links.gathered(self._heard, self._member_up, aggregator_down)
        if self.plan.unmaskers:
            downloads += links.phase(self._pads_up, self._pads_down)
            aggregator_up, aggregator_down = aggregator_up + self._pads_up, aggregator_down + self._pads_down
            at_work = np.unique([*at_work, *self._rows_of(self.plan.unmaskers)])
        downloaded = int(member_down.sum()) + self._others * every
        return RoundTraffic(
            member=RoleBytes(float(self._member_up[participants].mean()), downloaded / listening),
            aggregator=RoleBytes(float(aggregator_up[at_work].mean()), float(aggregator_down[at_work].mean())),
            total=int(self._member_up.sum() + aggregator_up.sum()),
            seconds=uploads + downloads,
            round_seconds=(max(gathered, deadline) if self._missing else gathered) + downloads,
            aggregator_name="server" if self.server else "aggregator",
        )

    def _rows_of(self, peers: Sequence[int]) -> Bytes:
        return np.array([self._places[peer] for peer in peers], np.int64)

    def _by_owner(self, owners: Bytes, sizes: Bytes) -> Bytes:
        """Return what the shards of each peer add up to."""
        return np.bincount(owners, sizes, self._peers).astype(np.int64)


def payload_sizes(packed: Packed, plan: ShardPlan) -> tuple[int, ...]:
    """Return the bytes of each shard's part, without cutting it: what `Part.payload_bytes` says."""
    return _sizes(packed.support, plan, packed.code.bits, packed.scales.size, explicit=packed.explicit)


def shared_payload_sizes(recipe: Recipe, round: int) -> tuple[int, ...]:
    """Return what `payload_sizes` says for every member of a round, where all keep the same coordinates."""
    code = recipe.compressor.code(recipe.spec.trainable_sizes)
    plan, mask = recipe.layout(round).trainable, recipe.shared_mask(round)
    return _sizes(mask, plan, code.bits, code.scale_count, explicit=False)


def _sizes(support: Coordinates | None, plan: ShardPlan, bits: int, scales: int, *, explicit: bool) -> tuple[int, ...]:
    counts = plan.sizes if support is None else np.bincount(plan.owners_of(support), minlength=plan.shards)
    symbols = -(-counts * bits // 8)
    indices = np.minimum(4 * counts, -(-plan.sizes // 8)) if explicit else 0
    return tuple((symbols + indices + 4 * scales).tolist())


def expected_upload(recipe: Recipe, plan: RoundPlan, seed: int) -> int:
    """Return how many bytes one member's messages to all shards will have, to know if they come in time.

    The member has not trained yet, so a vector of ones is compressed. That is exact for every compressor whose size
    does not depend on the values, and close for the others. `seed` is the run's.
    """
    layout, member = recipe.layout(plan.round), plan.participants[0]
    context = send_context(recipe, plan.round, member, private_root(seed, member).child("round", plan.round))
    packed = recipe.compressor.compress(np.ones(layout.trainable.n, np.float32), context)
    sizes = np.array(payload_sizes(packed, layout.trainable)) + recipe.words.buffers.itemsize * layout.buffers.sizes
    sizes += CHECKED if recipe.unmaskers else 0
    sizes[SHARD] += FIGURE_BYTES * recipe.figure_words(plan.round)
    return int(framed(sizes).sum()) * recipe.policy.replicas
