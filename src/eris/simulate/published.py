"""Cut what was folded whole into the shards that the aggregators publish."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from eris.errors import Reason
from eris.local.spec import Vector
from eris.protocol.aggregator import mean_steps
from eris.protocol.messages import Manifest, Published, Withheld, payload_hash
from eris.protocol.recipe import Recipe
from eris.protocol.round_plan import RoundPlan
from eris.shards.plan import Coordinates

__all__ = ["Contributors", "cut"]


@dataclass
class Contributors:
    """Whose contribution each aggregator has, and how many local steps went into it."""

    shards: int
    steps: list[dict[int, float]] = field(init=False)  # shard → member → steps

    def __post_init__(self) -> None:
        self.steps = [{} for _ in range(self.shards)]

    def add(self, member: int, steps: float, unreached: tuple[int, ...]) -> None:
        """Note a member at every shard it reached."""
        for shard in set(range(self.shards)).difference(unreached):
            self.steps[shard][member] = steps

    @property
    def members(self) -> list[tuple[int, ...]]:
        """The contributors of each shard, ascending."""
        return [tuple(sorted(given)) for given in self.steps]


def cut(
    plan: RoundPlan,
    recipe: Recipe,
    contributors: Contributors,
    values: Vector,
    buffers: Vector,
    away: tuple[int, ...],
) -> tuple[list[Published], list[Withheld]]:
    """Return what each aggregator publishes of the folded values, and what is withheld; those away say nothing."""
    mask = recipe.shared_mask(plan.round)
    published, withheld = [], []
    for shard, members in enumerate(contributors.members):
        if shard in away:
            continue
        if len(members) < max(plan.min_contributors, 1):
            withheld.append(Withheld(plan.digest, shard, plan.assignment[shard], Reason.TOO_FEW, members))
        else:
            part, rest = _part(plan, recipe, shard, mask, values), _buffers(plan, recipe, shard, buffers)
            published.append(_published(plan, recipe, shard, contributors.steps[shard], part, rest))
    return published, withheld


def _published(
    plan: RoundPlan, recipe: Recipe, shard: int, steps: dict[int, float], values: Vector, buffers: Vector
) -> Published:
    members = tuple(sorted(steps))
    manifest = Manifest(
        plan=plan.digest,
        round=plan.round,
        shard=shard,
        aggregator=plan.assignment[shard],
        contributors=members,
        c=float(recipe.scale(plan, members)),
        steps=mean_steps({member: steps[member] for member in members}, plan),
        hash=payload_hash(values, buffers),
    )
    return Published(manifest, values, buffers)


def _part(plan: RoundPlan, recipe: Recipe, shard: int, mask: Coordinates | None, values: Vector) -> Vector:
    if mask is None:
        return recipe.layout(plan.round).trainable.gather(values, shard)
    kept = recipe.published_support(plan.round, shard)
    assert kept is not None
    return values[np.searchsorted(mask, kept)]


def _buffers(plan: RoundPlan, recipe: Recipe, shard: int, buffers: Vector) -> Vector:
    return recipe.layout(plan.round).buffers.gather(buffers, shard)
