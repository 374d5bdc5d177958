"""The same rounds through the real roles, message by message: members, aggregators, a coordinator, and bad luck."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from eris.aggregate import rule_by_name
from eris.local.spec import Vector
from eris.local.task import LocalResult
from eris.privacy import clip_by_norm
from eris.protocol.floor import Floor
from eris.protocol.in_process import InProcess
from eris.protocol.member import Member
from eris.protocol.messages import Published
from eris.protocol.recipe import Recipe
from eris.protocol.replica import Replica
from eris.protocol.roster import RosterEntry
from eris.protocol.round_plan import RoundPlan
from eris.protocol.rules import Rules
from eris.seeds import private_root
from eris.step import optimizer_by_name
from eris.transforms import State, Transform, bernoulli, chain, identity, rand_k, shift
from eris.transforms.compress import Compress, Compressor
from eris.transforms.normalise import normalise_steps
from tests.equivalence.case import HYPER, Case
from tests.equivalence.reference import Outcome

MINORITY = 2  # members that a lost shard still reaches: they must not act on it


def recipe_of(case: Case, *extra: Transform, compressor: Compressor | None = None) -> Recipe:
    """Return what the peers of a case agree on; `extra` transforms come first, `compressor` replaces the case's own."""
    compressor = compressor or _compressor(case)
    last = Compress(compressor) if case.gamma is None else shift(compressor, gamma=case.gamma)
    before: list[Transform] = [normalise_steps()] if case.optimizer == "fednova" else []
    before += [clip_by_norm(case.noise.bound)] if case.noise is not None else []
    optimizer = optimizer_by_name(case.optimizer, **HYPER[case.optimizer])
    transforms = chain(*extra, *before, last)
    rule = rule_by_name(case.rule)
    fixed: dict[str, Any] = {"encoding": case.encoding, "unmaskers": case.unmaskers, "noise": case.noise}
    return Recipe(case.spec, case.policy, transforms, rule, optimizer, case.public, **fixed)


def _compressor(case: Case) -> Compressor:
    makers: dict[str, Callable[[float], Compressor]] = {"rand_k": rand_k, "bernoulli": bernoulli}
    return makers[case.sparsifier](case.kept) if case.sparsifier else identity()


def rules_of(case: Case) -> Rules:
    """Return what the coordinator of a case holds its rounds to."""
    return Rules(
        run="equivalence",
        aggregators=tuple(shard % case.members for shard in range(case.shards)),
        participation=case.participation,
        normalisation=case.normalisation,  # type: ignore[arg-type]
        min_contributors=1,
    )


def roster_of(case: Case) -> tuple[RosterEntry, ...]:
    """Return the peers of a case."""
    return tuple(RosterEntry(k, f"peer-{k}", weight) for k, weight in enumerate(case.member_weights))


class Federation(InProcess):
    """All peers of a case, with messages that get lost, come twice and in any order."""

    def __init__(self, case: Case, *extra: Transform, compressor: Compressor | None = None) -> None:
        recipe, root = recipe_of(case, *extra, compressor=compressor), partial(private_root, case.seed)
        floor = Floor(min_contributors=1)
        super().__init__(recipe, rules_of(case), roster_of(case), case.initial, root, floor=floor)
        self.case = case
        self.participants: list[tuple[int, ...]] = []

    def run(self) -> Outcome:
        """Run all rounds; every peer must hold the same in the end."""
        for _ in range(self.case.rounds):
            self.round()
        digests = {member.replica.digest() for member in self.members.values()}
        assert len(digests) == 1, "members ended with different models"
        return self.outcome()

    def outcome(self) -> Outcome:
        """Return what the first member holds, and everybody's references."""
        return outcome_of(self.members[0].replica, {peer: member.private for peer, member in self.members.items()})

    def round(self) -> None:
        """Carry every message of one round, in an order of its own, and conclude it."""
        plan = self.plan()
        luck, faults = random.Random(f"{self.case.arrival} {plan.round}"), self.case.faults(plan.round)
        self.begin(plan)
        arriving = [u for u in self.contribute(plan, self._train) if (u.member, u.shard) not in faults.links]
        if self.case.arrival:
            arriving += [upload for upload in arriving if luck.random() < 0.2]
            luck.shuffle(arriving)
        self.upload(plan, arriving)
        outcomes = self.cut(plan)
        if self.case.arrival:
            luck.shuffle(outcomes)
        for outcome in outcomes:
            lost = isinstance(outcome, Published) and outcome.manifest.shard in faults.shards
            self.publish(plan, [outcome], to=[self.members[k] for k in range(MINORITY)] if lost else None)
        self.before_the_verdict()
        self.conclude(self.decide())
        self.participants.append(plan.participants)

    def before_the_verdict(self) -> None:
        """For whoever wants to look at the peers then."""

    def _train(self, member: Member, plan: RoundPlan) -> LocalResult:
        return self.case.train(plan.round, member.peer, member.look())


def outcome_of(replica: Replica, private: Mapping[int, State]) -> Outcome:
    """Return what must agree of one replica and everybody's private state."""
    references = {peer: _reference(state) for peer, state in private.items()}
    return Outcome(
        replica.model.copy(),
        {name: value.copy() for name, value in replica.optimizer.items()},
        _reference(replica.public),
        {peer: value for peer, value in references.items() if value is not None},
        replica.limit.copy(),
    )


def _reference(state: dict[str, Vector]) -> np.ndarray | None:
    return next((value.copy() for name, value in state.items() if name.endswith("reference")), None)
