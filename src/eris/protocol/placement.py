"""Who aggregates which shard while some peers are away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from eris.errors import RunStopped
from eris.protocol.floor import usual_share
from eris.protocol.roster import RosterEntry
from eris.protocol.rules import Rules
from eris.shards.policy import ShardPolicy

__all__ = ["Placement"]

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Placement:
    """Gives shards to peers for one round."""

    policy: ShardPolicy
    rules: Rules
    roster: Mapping[int, RosterEntry]
    round: int
    moved: Mapping[int, int] = field(default_factory=dict)  # shard → places by which it has moved along the ring
    had: Mapping[int, Collection[int]] = field(default_factory=dict)  # peer → shards it was ever given

    def place(self, present: Collection[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return each shard's aggregator, and its second one whose mean is compared (empty without replicas)."""
        homes = self._along(self.policy.assignment(self.round, self.rules.aggregators))
        seconds = self._along(self.policy.witnesses(self.round, self.rules.aggregators))
        layout, load = self.policy.layout(self.round), Counter[int]()
        for shard, home in (*enumerate(homes), *enumerate(seconds)):
            if home in present:
                load[home] += layout.size(shard)
        assignment = self._placed(homes, present, load, seconds)
        return assignment, self._placed(seconds, present, load, assignment)

    def _along(self, homes: tuple[int, ...]) -> tuple[int, ...]:
        """Move shards along the ring as often as they were lost for want of pads, past peers that have enough."""
        ring, layout, load = sorted(set(self.rules.aggregators)), self.policy.layout(self.round), Counter[int]()
        limit, found = self.share * layout.n * (1 + _ROUNDING), list(homes)
        for shard in sorted(range(len(homes)), key=lambda shard: (self.moved.get(shard, 0) > 0, shard)):
            first, size = ring.index(homes[shard]) + self.moved.get(shard, 0), layout.size(shard)
            turns = [ring[(first + turn) % len(ring)] for turn in range(len(ring))]
            if self.moved.get(shard, 0):
                found[shard] = next((peer for peer in turns if load[peer] + size <= limit), turns[0])
            load[found[shard]] += size
        return tuple(found)

    @property
    def share(self) -> float:
        """The largest share of an update that standing in for others may bring one peer to."""
        return usual_share(self.policy, self.round) if self.rules.max_share is None else self.rules.max_share

    def _placed(
        self, homes: tuple[int, ...], present: Collection[int], load: Counter[int], taken: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Give every shard to its home or, while that is away, to the least loaded peer within the largest share.

        Nobody gets a shard that the same peer has in `taken`. Where no peer may have it, the shard stays with its
        absent home and is lost until that peer returns. If the shards stay as they are, members count what a peer has
        seen over the whole run, and so does this: members would send nothing to a peer above the limit, and the round
        would wait for them. A peer that had the shard before is preferred, and among equals the next in the ring, so
        that all of them have room for one. `load`, the coordinates that each peer has in this round, is brought up to
        date.
        """
        layout, placed = self.policy.layout(self.round), list(homes)
        limit = self.share * layout.n * (1 + _ROUNDING)
        for shard, home in enumerate(homes):
            if home in present:
                continue
            size, other = layout.size(shard), taken[shard : shard + 1]
            free = (peer for peer in present if self.roster[peer].can_aggregate and peer not in other)
            able = [peer for peer in free if load[peer] + size <= limit]
            within = [peer for peer in able if self._seen(peer, shard) <= limit]
            able = within if within or home in self.roster else able  # one that left for good has no home to stay at
            if able:
                new = {peer: self._is_new(peer, shard) for peer in able}
                placed[shard] = min(able, key=lambda peer: (new[peer], load[peer], (peer - home) % 2**31))
                load[placed[shard]] += size
            elif home not in self.roster:
                raise RunStopped(
                    f"shard {shard} has no aggregator: {home} left and no other peer may take it",
                    fix="raise the largest allowed share, or add a peer that can aggregate",
                    round=self.round,
                )
        return tuple(placed)

    def _seen(self, peer: int, shard: int) -> int:
        """Return how many coordinates a peer will have seen in the whole run with this shard; 0 if shards move."""
        had, layout = self.had.get(peer, ()), self.policy.layout(self.round)
        return sum(map(layout.size, {*had, shard})) if self._stays else 0

    def _is_new(self, peer: int, shard: int) -> bool:
        """Whether a shard that stays as it is would be new to a peer."""
        return self._stays and shard not in self.had.get(peer, ())

    @property
    def _stays(self) -> bool:
        return self.policy.schedule == "fixed"
