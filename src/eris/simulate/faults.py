"""Simulated faults: what goes wrong in a round, on purpose.

Faults are drawn from the public seed before anything happens, so that the same run has the same faults whatever the
number of workers: aggregators that are away, links that fail, members whose messages come after the deadline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from eris.config import Faults
from eris.protocol.round_plan import RoundPlan
from eris.seeds import Seed

__all__ = ["Outages", "draw_outages", "slow_members"]


@dataclass(frozen=True, slots=True)
class Outages:
    """A round's faults: whose messages do not reach which shards."""

    away: tuple[int, ...] = ()  # shards whose aggregator is absent
    failed: dict[int, tuple[int, ...]] = field(default_factory=dict)  # member → shards whose link failed
    late: tuple[int, ...] = ()  # members whose messages came after the deadline

    def unreached(self, member: int, shards: int) -> tuple[int, ...]:
        """Return the shards whose aggregator has nothing from this member."""
        if member in self.late:
            return tuple(range(shards))
        failed = self.failed.get(member, ())
        return tuple(sorted({*self.away, *failed})) if failed else self.away


def draw_outages(
    faults: Faults, plan: RoundPlan, public: Seed, *, late: Sequence[int] = (), at_home: bool = True
) -> Outages:
    """Draw a round's faults.

    Args:
        faults: the configured rates.
        plan: the round's plan.
        public: the run's public seed.
        late: members whose messages come after the deadline.
        at_home: whether aggregators are members; a member's link to itself never fails.
    """
    seed = public.child("round", plan.round, "faults")
    count = _whole(faults.aggregator_dropout * plan.shards, seed.child("one more"))
    away = _with_unmasked(tuple(seed.child("aggregators").subset(plan.shards, count).tolist()) if count else (), plan)
    failed = _failed_links(faults.link_failure, plan, seed.child("links"), at_home) if faults.link_failure else {}
    return Outages(away, failed, tuple(late))


def _with_unmasked(away: tuple[int, ...], plan: RoundPlan) -> tuple[int, ...]:
    """Add the masked shards that an absent aggregator was to unmask."""
    gone = {plan.assignment[shard] for shard in away}
    lost = [shard for shard in range(plan.shards) if gone.intersection(plan.unmaskers_of(shard))] if gone else []
    return tuple(sorted({*away, *lost})) if lost else away


def _whole(share: float, seed: Seed) -> int:
    """Round a share down or up at random, so that its mean over the rounds is the share itself."""
    below = int(share)
    return below + int(share > below and float(seed.uniforms(1)[0]) < share - below)


def _failed_links(rate: float, plan: RoundPlan, seed: Seed, at_home: bool) -> dict[int, tuple[int, ...]]:
    failed = {}
    for member in plan.participants:
        hit = seed.child(member).uniforms(plan.shards) < rate
        shards = [s for s in np.flatnonzero(hit).tolist() if not (at_home and plan.assignment[s] == member)]
        if shards:
            failed[member] = tuple(shards)
    return failed


def slow_members(faults: Faults, members: int, public: Seed) -> frozenset[int]:
    """Return which of so many members are slow, the same in every round; `public` is the run's public seed."""
    count = int(faults.slow_members * members + 0.5)
    return frozenset(public.child("faults", "slow").subset(members, count).tolist())
