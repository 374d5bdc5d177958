"""All peers of a run in one process: the real roles, without sockets, threads or a clock.

A round is eight calls, each of which hands on what the one before gave:

    plan → begin → contribute → upload → cut → publish → decide → conclude

`play` makes them all. Whoever wants to see, lose, repeat or change a message makes them one by one; every call can be
stepped into with a debugger, and everything the roles know is in `coordinator`, `members` and `aggregators`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from eris.local.spec import Vector
from eris.local.task import BlockResult, LocalResult
from eris.protocol.aggregator import Aggregator
from eris.protocol.coordinator import Coordinator
from eris.protocol.floor import Floor
from eris.protocol.journal import Entry
from eris.protocol.member import Member, Verify, trust_everybody
from eris.protocol.messages import Published, Receipt, Upload, Withheld
from eris.protocol.recipe import Recipe
from eris.protocol.roster import RosterEntry
from eris.protocol.round_plan import RoundPlan
from eris.protocol.rules import Rules
from eris.protocol.steps import Sign
from eris.protocol.verdict import Verdict
from eris.seeds import Seed

__all__ = ["InProcess", "Train"]

Train = Callable[[Member, RoundPlan], LocalResult | BlockResult]
"""Trains a member from `member.look()` (or a copy, `member.start()`)."""


class InProcess:
    """A coordinator, and a member and an aggregator for every peer on the roster.

    `root` gives each peer its private seed. Time is a number, `now`; it moves when somebody would wait.
    """

    def __init__(
        self,
        recipe: Recipe,
        rules: Rules,
        roster: Iterable[RosterEntry],
        model: Vector,
        root: Callable[[int], Seed],
        *,
        floor: Floor | None = None,
        sign: Callable[[int], Sign] | None = None,
        verify: Verify = trust_everybody,
    ) -> None:
        self.recipe, self.now, roster = recipe, 0.0, tuple(roster)
        peers = sorted(entry.peer for entry in roster)
        self.journal: list[Entry] = []
        self.coordinator = Coordinator(recipe, rules, roster, self.journal, verify=verify)
        self.members = {k: Member(k, recipe, model, root(k), floor=floor, verify=verify) for k in peers}
        self.aggregators = {k: Aggregator(k, recipe, sign=sign(k) if sign else None) for k in peers}

    def play(self, train: Train) -> Verdict:
        """Play one round, with every message delivered."""
        plan = self.plan()
        self.begin(plan)
        self.upload(plan, self.contribute(plan, train))
        self.publish(plan, self.cut(plan))
        verdict = self.decide()
        self.conclude(verdict)
        return verdict

    def plan(self) -> RoundPlan:
        """Let the coordinator open the next round."""
        return self.coordinator.plan(self.now)

    def begin(self, plan: RoundPlan) -> None:
        """Show the plan to every peer, in both roles; members refuse one below their floor."""
        for peer, member in self.members.items():
            member.begin(plan)
            self.aggregators[peer].begin(plan, self.now)

    def contribute(self, plan: RoundPlan, train: Train) -> list[Upload]:
        """Let all participants train, transform and cut their updates; return what they would send."""
        members = [self.members[peer] for peer in plan.participants]
        return [upload for member in members for upload in member.contribute(train(member, plan))]

    def upload(self, plan: RoundPlan, uploads: Iterable[Upload]) -> list[Receipt]:
        """Hand contributions to whoever aggregates their shard."""
        return [
            self.aggregators[owner].receive(upload, sender=upload.member)
            for upload in uploads
            for owner in plan.aggregators_of(upload.shard)
        ]

    def cut(self, plan: RoundPlan) -> list[Published | Withheld]:
        """Let the aggregators fold what they have; where somebody is missing, they have waited until the deadline."""
        outcomes = [outcome for peer in self.aggregators.values() for outcome in peer.tick(self.now)]
        self.now += plan.deadlines.contribute
        return outcomes + [outcome for peer in self.aggregators.values() for outcome in peer.tick(self.now)]

    def publish(
        self, plan: RoundPlan, outcomes: Iterable[Published | Withheld], to: Sequence[Member] | None = None
    ) -> None:
        """Tell the coordinator, and all members (or only those of `to`), what became of the shards."""
        for outcome in outcomes:
            if isinstance(outcome, Withheld):
                self.coordinator.withheld(outcome)
            else:
                self.coordinator.manifest(outcome.manifest)
            for member in self.members.values() if to is None else to:
                _hold(member, outcome, plan)

    def decide(self) -> Verdict:
        """Let all members report, and the coordinator decide; if it must wait, until its deadline."""
        for member in self.members.values():
            for shard in self.coordinator.report(member.report()):
                if (manifest := member.manifest(shard)) is not None:
                    self.coordinator.manifest(manifest)
        verdict = self.coordinator.decide(self.now)
        if verdict is None:
            self.now += self.coordinator.rules.deadlines.report
            verdict = self.coordinator.decide(self.now)
        assert verdict is not None, "a round ends with a verdict, at the latest at its deadline"
        return verdict

    def conclude(self, verdict: Verdict) -> None:
        """Let every member move as the verdict says; who lacks a committed shard fetches it from whoever holds it."""
        for member in self.members.values():
            missing = member.conclude(verdict)
            for digest in missing.hashes.values() if missing is not None else ():
                found = (other.serve(digest) for other in self.members.values())
                member.accept_fetched(next(published for published in found if published is not None), verdict)
            if missing is not None:
                member.conclude(verdict)


def _hold(member: Member, outcome: Published | Withheld, plan: RoundPlan) -> None:
    if isinstance(outcome, Withheld):
        member.withhold(outcome)
    elif plan.assignment[outcome.manifest.shard] == outcome.manifest.aggregator:
        member.receive(outcome)
    else:  # the second aggregator of a shard: what it says is compared, its values are not needed
        member.second(outcome.manifest)
