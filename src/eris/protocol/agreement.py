"""What a peer agreed to when it joined. Every plan is held to it: the coordinator keeps the clock and decides nothing.

Whoever reads a plan that departs from the agreement, member or aggregator, refuses it and names the field that is
wrong. What cannot be known beforehand (others' weights and keys, who is there) is covered by the floor and the roster's
pins.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from eris.errors import Reason, Refused
from eris.protocol.participation import draw_participants, without_a_third
from eris.protocol.recipe import Recipe
from eris.protocol.roster import Roster
from eris.protocol.round_plan import Deadlines, Normalisation, RoundPlan

__all__ = ["Agreement", "effective_contributors", "sits_out"]

_ROUNDING = 1e-9
_LONGEST = 2.0  # a plan's deadlines, as multiples of the agreed ones


@dataclass(frozen=True, slots=True)
class Agreement:
    """The parts of a federation's file that plans repeat."""

    run: str
    names: tuple[str, ...]  # of all peers, by peer number
    aggregators: frozenset[int] | None = None  # who may be given shards; None: everybody
    participation: float = 1.0  # share of the roster that trains in a round
    normalisation: Normalisation = "contributors"  # how a mean treats missing members
    min_contributors: int = 3  # of a published shard
    uniform: bool = False  # every member weighs 1
    heaviest: float = math.inf  # the largest weight a member may have
    organisations: Mapping[int, str] | None = None  # peer → organisation; None: each peer states its own
    min_effective: float = 1.0  # a published mean hides a member at least as well as this many of equal weight
    deadlines: Deadlines = field(default_factory=Deadlines)  # a plan may take up to twice as long

    def check(self, plan: RoundPlan, recipe: Recipe) -> None:
        """Refuse a plan that does not belong to this run, naming the field."""
        recipe.spec.require_same(plan.spec, where=f"the plan of round {plan.round}")
        fields: tuple[tuple[str, Any, Any], ...] = (
            ("run", plan.run, self.run),
            ("normalisation", plan.normalisation, self.normalisation),
            ("participation", plan.participation, self.participation),
            ("min_contributors", plan.min_contributors, self.min_contributors),
            ("draw", plan.draw, recipe.policy.draw(plan.round)),
            ("assignment", len(plan.assignment), recipe.policy.shards),
        )
        for name, said, agreed in fields:
            if said != agreed:
                raise _violation(plan, name, f"is {said}, but {agreed} was agreed")
        self._check_deadlines(plan)
        self._check_roster(plan)
        drawn = draw_participants(sorted(plan.weights), self.participation, recipe.public, plan.round)
        if plan.participants != drawn and not (recipe.encoding and sits_out(plan.participants, drawn)):
            raise _violation(plan, "participants", "are not the ones that the public seed draws from this roster")
        if self.aggregators is not None and not plan.aggregators <= self.aggregators:
            strangers = [self.names[peer] for peer in sorted(plan.aggregators - self.aggregators)]
            raise _violation(plan, "assignment", f"gives shards to {', '.join(strangers)}, who may not aggregate")
        if plan.reference_begins > plan.round:
            raise _violation(plan, "reference_begins", f"is {plan.reference_begins}, after this round")

    def are_enough(self, plan: RoundPlan, contributors: tuple[int, ...]) -> bool:
        """Whether the weights of these members keep their mean from being nearly one member's own update."""
        return effective_contributors(plan, contributors) >= self.min_effective - _ROUNDING

    def _check_deadlines(self, plan: RoundPlan) -> None:
        said, longest = plan.deadlines, _LONGEST * self.deadlines.report
        if not 0 < said.contribute <= said.unmasked <= said.report <= longest:
            times = " and ".join(f"{time:g} s" for time in (said.contribute, said.report))
            raise _violation(plan, "deadlines", f"are {times}, but at most {longest:g} s were agreed")

    def _check_roster(self, plan: RoundPlan) -> None:
        for entry in plan.roster:
            if entry.peer >= len(self.names) or entry.name != self.names[entry.peer]:
                raise _violation(
                    plan, "roster", f"has {entry.name!r} as peer {entry.peer}, but the federation's file does not"
                )
            agreed = entry.organisation if self.organisations is None else self.organisations.get(entry.peer, "")
            if entry.organisation != agreed:
                raise _violation(
                    plan, "roster", f"has {entry.name} in {entry.organisation!r}, but {agreed!r} was agreed"
                )
            if self.uniform and entry.weight != 1:
                raise _violation(plan, "roster", f"gives {entry.name} the weight {entry.weight:g}, but 1 was agreed")
            if entry.weight > self.heaviest:
                raise _violation(
                    plan,
                    "roster",
                    f"gives {entry.name} the weight {entry.weight:g}, but at most {self.heaviest:g} was agreed",
                )


def sits_out(participants: tuple[int, ...], drawn: tuple[int, ...]) -> bool:
    """Whether a third of the drawn participants sits out, as happens after impossible sums."""
    return participants != drawn and participants in (without_a_third(drawn, turn) for turn in range(3))


def effective_contributors(plan: RoundPlan, members: Iterable[int]) -> float:
    """Return (Σw)²/Σw²: a mean of these members hides each as well as a mean of that many members of equal weight.

    There can be many members and one weight that is nearly everything; then the mean *is* that member's update.
    """
    asked = tuple(members)
    if asked not in plan.worths:  # every shard of a round asks, mostly about the same members
        given = {entry.peer: float(entry.weight) for entry in Roster(plan.roster)}  # float32 would lose small ones
        plan.worths[asked] = _effective([given[member] for member in asked])
    return plan.worths[asked]


def _effective(weights: list[float]) -> float:
    largest = max(weights, default=0.0)
    scaled = [weight / largest for weight in weights]  # so that no square overflows
    squares = math.fsum(weight * weight for weight in scaled)
    return math.fsum(scaled) ** 2 / squares if squares > 0 else 0.0


def _violation(plan: RoundPlan, field: str, what: str) -> Refused:
    return Refused(
        Reason.WRONG_PLAN,
        f"the plan's {field} {what}",
        fix="the coordinator has another FEDERATION.toml than this peer, or is not honest",
        round=plan.round,
        field=field,
    )
