"""The same rounds through the real roles, message by message: members, aggregators, a coordinator, and bad luck."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from eris.aggregate import rule_by_name
from eris.local.spec import Vector
from eris.local.task import LocalResult
from eris.protocol.aggregator import Aggregator
from eris.protocol.coordinator import Coordinator
from eris.protocol.floor import Floor
from eris.protocol.journal import Entry
from eris.protocol.member import Member
from eris.protocol.messages import Published, Upload, Withheld
from eris.protocol.recipe import Recipe
from eris.protocol.round_plan import RosterEntry, RoundPlan
from eris.protocol.rules import Rules
from eris.seeds import private_root
from eris.step import optimizer_by_name
from eris.transforms import Transform, bernoulli, chain, identity, rand_k, shift
from eris.transforms.compress import Compress, Compressor
from eris.transforms.normalise import normalise_steps
from tests.equivalence.case import HYPER, PULL, Case
from tests.equivalence.reference import Outcome

MINORITY = 2  # members that a lost shard still reaches: they must not act on it


def recipe_of(case: Case, *extra: Transform, compressor: Compressor | None = None) -> Recipe:
    """Return what the peers of a case agree on; `extra` transforms come first, `compressor` replaces the case's own."""
    compressor = compressor or _compressor(case)
    last = Compress(compressor) if case.gamma is None else shift(compressor, gamma=case.gamma)
    before = [normalise_steps()] if case.optimizer == "fednova" else []
    optimizer = optimizer_by_name(case.optimizer, **HYPER[case.optimizer])
    transforms = chain(*extra, *before, last)
    return Recipe(case.spec, case.policy, transforms, rule_by_name(case.rule), optimizer, case.public)


def _compressor(case: Case) -> Compressor:
    makers: dict[str, Callable[[float], Compressor]] = {"rand_k": rand_k, "bernoulli": bernoulli}
    return makers[case.sparsifier](case.kept) if case.sparsifier else identity()


class Federation:
    """All peers of a case in one process."""

    def __init__(self, case: Case, *extra: Transform, compressor: Compressor | None = None) -> None:
        self.case, self.recipe, self.now = case, recipe_of(case, *extra, compressor=compressor), 0.0
        roster = [RosterEntry(k, f"peer-{k}", weight) for k, weight in enumerate(case.member_weights)]
        rules = Rules(
            run="equivalence",
            aggregators=tuple(shard % case.members for shard in range(case.shards)),
            participation=case.participation,
            normalisation=case.normalisation,  # type: ignore[arg-type]
            min_contributors=1,
        )
        journal: list[Entry] = []
        self.coordinator = Coordinator(self.recipe, rules, roster, journal)
        self.members = [
            Member(k, self.recipe, case.initial, private_root(case.seed, k), floor=Floor(min_contributors=1))
            for k in range(case.members)
        ]
        self.aggregators = [Aggregator(k, self.recipe) for k in range(case.members)]
        self.participants: list[tuple[int, ...]] = []

    def run(self) -> Outcome:
        """Run all rounds; every peer must hold the same in the end."""
        for _ in range(self.case.rounds):
            self.round()
        digests = {member.replica.digest() for member in self.members}
        assert len(digests) == 1, "members ended with different models"
        return self.outcome()

    def outcome(self) -> Outcome:
        """Return what the first member holds, and everybody's references."""
        replica = self.members[0].replica
        references = {member.peer: _reference(member.private) for member in self.members}
        return Outcome(
            replica.model.copy(),
            {name: value.copy() for name, value in replica.optimizer.items()},
            _reference(replica.public),
            {peer: value for peer, value in references.items() if value is not None},
        )

    def round(self) -> None:
        """Carry every message of one round, in an order of its own, and conclude it."""
        plan = self.coordinator.plan(self.now)
        luck = random.Random(f"{self.case.arrival} {plan.round}")
        for member, aggregator in zip(self.members, self.aggregators, strict=True):
            member.begin(plan)
            aggregator.begin(plan, self.now)
        self._upload(plan, luck)
        self._publish(plan, luck)
        self._conclude()
        self.participants.append(plan.participants)

    def _upload(self, plan: RoundPlan, luck: random.Random) -> None:
        lost = self.case.faults(plan.round).links
        uploads = [upload for k in plan.participants for upload in self._contribute(k, plan.round)]
        arriving = [upload for upload in uploads if (upload.member, upload.shard) not in lost]
        if self.case.arrival:
            arriving += [upload for upload in arriving if luck.random() < 0.2]
            luck.shuffle(arriving)
        for upload in arriving:
            self.aggregators[plan.assignment[upload.shard]].receive(upload, upload.member)

    def _contribute(self, k: int, round: int) -> list[Upload]:
        member = self.members[k]
        update = self.case.drift(round, k) + PULL * member.start()
        return member.contribute(LocalResult(update, samples=1, steps=self.case.steps(k)))

    def _publish(self, plan: RoundPlan, luck: random.Random) -> None:
        self.now += plan.deadlines.contribute
        lost = self.case.faults(plan.round).shards
        outcomes = [outcome for aggregator in self.aggregators for outcome in aggregator.tick(self.now)]
        if self.case.arrival:
            luck.shuffle(outcomes)
        for outcome in outcomes:
            self._announce(outcome, lost)

    def _announce(self, outcome: Published | Withheld, lost: frozenset[int]) -> None:
        if isinstance(outcome, Withheld):
            self.coordinator.withheld(outcome)
            for member in self.members:
                member.withhold(outcome)
            return
        self.coordinator.manifest(outcome.manifest)
        reached = self.members[:MINORITY] if outcome.manifest.shard in lost else self.members
        for member in reached:
            assert member.receive(outcome) is None

    def _conclude(self) -> None:
        for member in self.members:
            self.coordinator.report(member.report())
        verdict = self.coordinator.decide(self.now)
        if verdict is None:
            self.now += 1_000.0
            verdict = self.coordinator.decide(self.now)
        assert verdict is not None, "a round must end with a verdict"
        for member in self.members:
            assert member.conclude(verdict) is None


def _reference(state: dict[str, Vector]) -> np.ndarray | None:
    return next((value.copy() for name, value in state.items() if name.endswith("reference")), None)
