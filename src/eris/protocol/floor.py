"""The least a member insists on, whatever the coordinator says.

The coordinator is trusted for liveness, never for privacy: before anything is sent, every member checks the round plan
against its own floor and refuses a plan that would show more of its update than it allows.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from eris.errors import FloorError
from eris.protocol.recipe import Recipe
from eris.protocol.round_plan import RoundPlan

__all__ = ["Floor", "shares"]


@dataclass(frozen=True, slots=True)
class Floor:
    """A member's own limits."""

    min_aggregators: int = 1
    max_share: float = 1.0  # of the update that any one peer may see
    max_organisation_share: float = 1.0  # and any one organisation
    min_contributors: int = 3  # fewer, and a published mean is nearly someone's own update
    transforms: tuple[str, ...] = ()  # names that must appear in the chain, e.g. "gaussian_noise"

    def check(self, plan: RoundPlan, recipe: Recipe, me: int) -> None:
        """Refuse a plan below the floor, naming the rule it breaks."""
        where: dict[str, Any] = {"peer": me, "round": plan.round}
        seen = shares(plan, recipe)
        others = {peer: share for peer, share in seen.items() if peer != me}
        if len(seen) < self.min_aggregators:
            raise FloorError(
                f"the plan has {len(seen)} aggregators, this member wants {self.min_aggregators}",
                fix="wait for more aggregators, or lower min_aggregators",
                **where,
            )
        self._check_share("peer", others, self.max_share, where)
        self._check_share("organisation", _by_organisation(plan, others, me), self.max_organisation_share, where)
        if plan.min_contributors < self.min_contributors:
            raise FloorError(
                f"the plan publishes with {plan.min_contributors} contributors, this member wants "
                f"{self.min_contributors}",
                fix="raise min_contributors of the run; with fewer a mean shows one member's values",
                **where,
            )
        missing = [name for name in self.transforms if name not in recipe.chain.describe()]
        if missing:
            raise FloorError(f"the chain lacks {missing}", fix=f"the run uses: {recipe.chain.describe()}", **where)

    @staticmethod
    def _check_share(what: str, seen: dict[int, float] | dict[str, float], limit: float, where: dict[str, Any]) -> None:
        for name, share in seen.items():
            if share > limit:
                raise FloorError(
                    f"{what} {name} would see {share:.1%} of the update, this member allows {limit:.1%}",
                    fix="use more aggregators, or raise the limit",
                    **where,
                )


def shares(plan: RoundPlan, recipe: Recipe) -> dict[int, float]:
    """Return which share of every update each aggregating peer receives under this plan."""
    layout, seen = recipe.layout(plan.round), defaultdict[int, float](float)
    for shard in range(plan.shards):
        for peer in plan.aggregators_of(shard):  # who only compares sees as much
            seen[peer] += layout.size(shard) / max(layout.n, 1)
    return dict(seen)


def _by_organisation(plan: RoundPlan, seen: dict[int, float], me: int) -> dict[str, float]:
    names = {entry.peer: entry.organisation for entry in plan.roster}
    mine, totals = names.get(me, ""), defaultdict[str, float](float)
    for peer, share in seen.items():
        if names[peer] and names[peer] != mine:
            totals[names[peer]] += share
    return dict(totals)
