"""Who takes the pads off which shard, and who must collude to see a member's values.

Plain contributions are seen by whoever aggregates the shard. Of masked ones, an aggregator sees a member's values only
together with every unmasker of the shard: such a set of peers is a *coalition*, and everything that limits or counts
what others see is expressed in coalitions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from eris.errors import Reason, Refused
from eris.protocol.recipe import Recipe
from eris.protocol.roster import RosterEntry
from eris.protocol.round_plan import RoundPlan

__all__ = ["Coalition", "check_pairs", "choose_unmaskers", "coalitions", "share_of"]

Coalition = frozenset[int]


def choose_unmaskers(
    roster: Mapping[int, RosterEntry], owners: tuple[int, ...], count: int, able: Collection[int]
) -> tuple[int, ...]:
    """Return the next `count` able peers after a shard's aggregator in the ring, other organisations first.

    Peers that aggregate the shard themselves are never chosen. A peer that cannot be dialled may be: an unmasker is
    asked over the link on which it waits for the shard.

    Args:
        owners: who aggregates the shard.
        able: peers that can take pads off.
    """
    home, theirs = owners[0], {roster[owner].organisation for owner in owners if owner in roster} - {""}
    ring = [*(peer for peer in sorted(roster) if peer > home), *(peer for peer in sorted(roster) if peer < home)]
    free = [peer for peer in ring if peer in able and peer not in owners]
    ordered = sorted(free, key=lambda peer: roster[peer].organisation in theirs)  # stable: otherwise the ring decides
    return tuple(ordered[:count])


def check_pairs(plan: RoundPlan, recipe: Recipe) -> None:
    """Refuse a plan in which an aggregator could remove pads itself, or needlessly within its own organisation."""
    where: dict[str, Any] = {"round": plan.round}
    if len(plan.unmaskers) != recipe.unmaskers * plan.shards:
        what = f"{len(plan.unmaskers)} unmaskers for {plan.shards} shards, but {recipe.unmaskers} each were agreed"
        raise Refused(Reason.WRONG_PLAN, what, **where)
    if not recipe.unmaskers:
        return
    names = {entry.peer: entry.organisation for entry in plan.roster}
    for shard in range(plan.shards):
        owners, chosen = plan.aggregators_of(shard), plan.unmaskers_of(shard)
        if len({*owners, *chosen}) != len(owners) + len(chosen):
            raise Refused(Reason.WRONG_PLAN, "one peer has two duties for a masked shard", shard=shard, **where)
        theirs = {names[owner] for owner in owners} - {""}
        others = [peer for peer in plan.keys if peer not in owners and names[peer] not in theirs]
        if any(names[peer] in theirs for peer in chosen) and len(others) >= len(chosen):
            what = "an aggregator and an unmasker are of one organisation, and there are others"
            raise Refused(Reason.WRONG_PLAN, what, shard=shard, **where)
        if lacking := [peer for peer in chosen if peer not in plan.keys]:
            raise Refused(Reason.WRONG_PLAN, f"peer {lacking[0]} unmasks without a key", shard=shard, **where)


def coalitions(plan: RoundPlan) -> Mapping[Coalition, tuple[int, ...]]:
    """Return the smallest sets of peers that see single members' values, each with the shards it sees."""
    return plan.coalitions


def share_of(plan: RoundPlan, recipe: Recipe, peers: Iterable[int]) -> float:
    """Return the share of a member's update that these peers see together under a plan."""
    together, layout = frozenset(peers), recipe.layout(plan.round)
    seen = {shard for group, shards in coalitions(plan).items() if group <= together for shard in shards}
    return sum(layout.size(shard) for shard in seen) / max(layout.n, 1)
