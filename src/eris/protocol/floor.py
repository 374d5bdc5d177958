"""The least a member insists on, whatever the coordinator says.

The coordinator is trusted for liveness, never for privacy: before anything is sent, every member checks the round plan
against its own floor and refuses a plan that would show more of its update than it allows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from eris.errors import FloorError
from eris.protocol.agreement import effective_contributors
from eris.protocol.pairs import coalitions, share_of
from eris.protocol.recipe import Recipe
from eris.protocol.round_plan import RoundPlan
from eris.shards.policy import ShardPolicy

__all__ = ["Floor", "shares", "usual_share"]

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Floor:
    """A member's own limits."""

    min_aggregators: int = 1  # peers that the update must be spread over
    max_share: float | None = 1.0  # largest share of the update that one peer may see; None: `usual_share`
    max_organisation_share: float = 1.0  # and that one organisation may see
    min_contributors: int = 3  # with fewer, a published mean is nearly someone's own update
    min_effective: float | None = None  # effective contributors, by weight; None: (min_contributors + 1) / 2
    transforms: tuple[str, ...] = ()  # names that must appear in the chain, e.g. "gaussian_noise"
    share_figures: bool = False  # whether sums of this member's scores may leave it

    def check(self, plan: RoundPlan, recipe: Recipe, me: int) -> None:
        """Refuse a plan below the floor, naming the rule it breaks; `me` is this member's number."""
        where: dict[str, Any] = {"peer": me, "round": plan.round}
        self.check_figures(recipe, **where)
        seen = shares(plan, recipe)
        others = {peer: share for peer, share in seen.items() if peer != me}
        if len(seen) < self.min_aggregators:
            raise FloorError(
                f"the plan has {len(seen)} aggregators, but this member requires {self.min_aggregators}",
                fix="wait for more aggregators, or lower min_aggregators",
                **where,
            )
        if plan.unmaskers:  # a peer alone sees nothing
            others = {}
            self._check_share("coalition", _by_coalition(plan, recipe, me), self.share(recipe, plan.round), where)
            self._check_share("organisation", _masked_by(plan, recipe, me), self.max_organisation_share, where)
        self._check_share("peer", others, self.share(recipe, plan.round), where)
        self._check_share("organisation", _by_organisation(plan, others, me), self.max_organisation_share, where)
        if plan.min_contributors < self.min_contributors:
            raise FloorError(
                f"the plan would publish means of {plan.min_contributors} contributors, but this member requires "
                f"{self.min_contributors}",
                fix="raise min_contributors of the run: a mean of fewer would reveal single members' values",
                **where,
            )
        self.check_effective(plan, plan.participants, "the plan", where)
        missing = [name for name in self.transforms if name not in recipe.describe()]
        if missing:
            raise FloorError(f"the chain lacks {missing}", fix=f"the run uses: {recipe.describe()}", **where)

    def check_figures(self, recipe: Recipe, **where: Any) -> None:
        """Refuse a run whose members share their scores, unless this member allows it."""
        if recipe.figures is None or self.share_figures:
            return
        seen = "nobody" if recipe.unmaskers else "one aggregator"
        raise FloorError(
            f"members of this run share {', '.join(recipe.figures.names)} on held-back samples, but this one does "
            f"not allow it: everybody learns the mean over all members of every round, {seen} this member's own",
            fix="allow it with --share-figures, or leave stop, keep and figures of the run at their defaults",
            **where,
        )

    def share(self, recipe: Recipe, round: int) -> float:
        """Return the largest share of the update that any one peer may see."""
        return usual_share(recipe.policy, round) if self.max_share is None else self.max_share

    def limits(self, plan: RoundPlan, recipe: Recipe, me: int) -> list[tuple[frozenset[int], float]]:
        """Return the groups of peers that are limited, each with the largest share it may see.

        A group is a coalition (a single peer, where nothing is masked) or an organisation; those of `me` are left out.
        """
        found, share = list[tuple[frozenset[int], float]](), self.share(recipe, plan.round)
        if share < 1:
            found += [(group, share) for group in coalitions(plan) if me not in group]
        if self.max_organisation_share < 1:
            names = {entry.peer: entry.organisation for entry in plan.roster}
            groups = defaultdict[str, set[int]](set)
            for peer, name in names.items():  # including those without a shard now: they may have had one before
                if name and name != names.get(me, ""):
                    groups[name].add(peer)
            found += [(frozenset(group), self.max_organisation_share) for group in groups.values()]
        return found

    @property
    def effective(self) -> float:
        """The least effective number of contributors of a mean, so that no single weight is nearly all of it."""
        return (self.min_contributors + 1) / 2 if self.min_effective is None else self.min_effective

    def check_effective(self, plan: RoundPlan, members: Iterable[int], what: str, where: dict[str, Any]) -> None:
        """Refuse weights that make a mean of many members nearly one member's own update.

        The error names the mean as `what` and adds `where`, its peer and round.
        """
        worth = effective_contributors(plan, members)
        if worth < self.effective - _ROUNDING:
            raise FloorError(
                f"by weight {what} is worth {worth:.2f} equal contributors, but this member requires "
                f"{self.effective:.2f}",
                fix='compare the weights on the roster with what members have; or use server.weights = "uniform"',
                **where,
            )

    @staticmethod
    def _check_share(
        what: str, seen: Mapping[int, float] | Mapping[str, float], limit: float, where: dict[str, Any]
    ) -> None:
        for name, share in seen.items():
            if share > limit + _ROUNDING:
                raise FloorError(
                    f"{what} {name} would see {share:.1%} of the update, but this member allows {limit:.1%}",
                    fix="use more aggregators, or raise the limit",
                    **where,
                )


def usual_share(policy: ShardPolicy, round: int) -> float:
    """Return the default limit: a peer's own shard plus one it stands in for, but never the whole update.

    It is worked out from the real shard sizes, so it is never less than a peer's own load; with equal shards it is
    2·replicas/A.
    """
    layout = policy.layout(round)
    largest = max((layout.size(shard) for shard in range(policy.shards)), default=0)
    load = min(1.0, largest * policy.replicas / max(layout.n, 1))
    return 2 * load if 2 * load < 1 else load


def shares(plan: RoundPlan, recipe: Recipe) -> dict[int, float]:
    """Return the share of every update that each aggregating peer receives under this plan."""
    layout, seen = recipe.layout(plan.round), defaultdict[int, float](float)
    for shard in range(plan.shards):
        for peer in plan.aggregators_of(shard):  # a second aggregator sees as much as the first
            seen[peer] += layout.size(shard) / max(layout.n, 1)
    return dict(seen)


def _by_coalition(plan: RoundPlan, recipe: Recipe, me: int) -> dict[str, float]:
    """Return the share of a masked update that each smallest coalition of other peers sees."""
    groups = [group for group in coalitions(plan) if me not in group]
    return {" and ".join(map(str, sorted(group))): share_of(plan, recipe, group) for group in groups}


def _masked_by(plan: RoundPlan, recipe: Recipe, me: int) -> dict[str, float]:
    """Return the share of a masked update that the peers of each other organisation see together."""
    groups = defaultdict[str, set[int]](set)
    for entry in plan.roster:
        groups[entry.organisation].add(entry.peer)
    mine = next((entry.organisation for entry in plan.roster if entry.peer == me), "")
    return {name: share_of(plan, recipe, peers) for name, peers in groups.items() if name not in ("", mine)}


def _by_organisation(plan: RoundPlan, seen: dict[int, float], me: int) -> dict[str, float]:
    names = {entry.peer: entry.organisation for entry in plan.roster}
    mine, totals = names.get(me, ""), defaultdict[str, float](float)
    for peer, share in seen.items():
        if names[peer] and names[peer] != mine:
            totals[names[peer]] += share
    return dict(totals)
