"""Cut what was folded whole into the shards that the aggregators publish."""

from __future__ import annotations

from dataclasses import dataclass, field

from eris.errors import Reason
from eris.local.spec import Vector
from eris.protocol.aggregator import mean_steps
from eris.protocol.messages import Manifest, Published, Withheld, payload_hash
from eris.protocol.recipe import Recipe
from eris.protocol.round_plan import RoundPlan

__all__ = ["Contributors", "cut"]


@dataclass
class Contributors:
    """Whose contribution the aggregators have, and how many local steps went into it."""

    steps: dict[int, float] = field(default_factory=dict)  # by member, ascending
    refused: dict[int, frozenset[int]] = field(default_factory=dict)  # member → shards without it

    def add(self, member: int, steps: float, refused: tuple[int, ...]) -> None:
        """Note a member at every shard but those that refused it or that it did not reach."""
        self.steps[member] = steps
        if refused:
            self.refused[member] = frozenset(refused)

    def of_shards(self, shards: int) -> list[tuple[int, ...]]:
        """Return the contributors of each shard, ascending."""
        if not self.refused:
            return [tuple(self.steps)] * shards
        nowhere: frozenset[int] = frozenset()
        refused = [self.refused.get(member, nowhere) for member in self.steps]
        pairs = list(zip(self.steps, refused, strict=True))
        return [tuple(member for member, without in pairs if shard not in without) for shard in range(shards)]


def cut(
    plan: RoundPlan,
    recipe: Recipe,
    contributors: Contributors,
    values: Vector,
    buffers: Vector,
    away: tuple[int, ...],
) -> tuple[list[Published], list[Withheld]]:
    """Return what each aggregator publishes of the folded values, and what is withheld; those away say nothing."""
    parts, rests = _parts(plan, recipe, values), recipe.layout(plan.round).buffers.split(buffers)
    published, withheld = [], []
    scalars = _Scalars(plan, recipe, contributors.steps)
    for shard, members in enumerate(contributors.of_shards(plan.shards)):
        if shard in away:
            continue
        if len(members) < max(plan.min_contributors, 1):
            withheld.append(Withheld(plan.digest, shard, plan.assignment[shard], Reason.TOO_FEW, members))
            continue
        part, rest = parts[shard], rests[shard]
        c, steps = scalars.of(members)
        manifest = Manifest(
            plan=plan.digest,
            round=plan.round,
            shard=shard,
            aggregator=plan.assignment[shard],
            contributors=members,
            c=c,
            steps=steps,
            hash=payload_hash(part, rest),
        )
        published.append(Published(manifest, part, rest))
    return published, withheld


class _Scalars:
    """What a shard's contributors alone decide: c and the mean number of steps. Most shards have the same ones."""

    def __init__(self, plan: RoundPlan, recipe: Recipe, steps: dict[int, float]) -> None:
        self._plan, self._recipe, self._steps = plan, recipe, steps
        self._known: dict[tuple[int, ...], tuple[float, float]] = {}

    def of(self, members: tuple[int, ...]) -> tuple[float, float]:
        """Return c and steps."""
        if members not in self._known:
            steps = mean_steps({member: self._steps[member] for member in members}, self._plan)
            self._known[members] = float(self._recipe.scale(self._plan, members)), steps
        return self._known[members]


def _parts(plan: RoundPlan, recipe: Recipe, values: Vector) -> list[Vector]:
    shards, mask = recipe.layout(plan.round).trainable, recipe.shared_mask(plan.round)
    return shards.split(values) if mask is None else [values[places] for places in shards.grouped(mask)]
