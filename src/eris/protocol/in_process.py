"""All peers of a run in one process: the real roles, without sockets, threads or a clock.

A round is eight calls, each of which takes what the one before returned:

    plan → begin → contribute → upload → cut → publish → decide → conclude

Where contributions are masked, `cut` has two halves: aggregators state whose contributions they hold, and their
unmaskers answer (`unmask`). `play` makes all the calls. To see, lose, repeat or change a message, make them one by one;
each can be stepped into with a debugger, and everything the roles know is in `coordinator`, `members`, `aggregators`
and `unmaskers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from eris.errors import Refused
from eris.local.scores import Scores
from eris.local.spec import Vector
from eris.local.task import BlockResult, LocalResult
from eris.privacy.masking import MaskKey
from eris.protocol.aggregator import Aggregator
from eris.protocol.coordinator import Coordinator
from eris.protocol.floor import Floor
from eris.protocol.journal import Entry
from eris.protocol.member import Member
from eris.protocol.messages import Published, Receipt, Upload, Withheld
from eris.protocol.recipe import Recipe
from eris.protocol.roster import RosterEntry
from eris.protocol.round_plan import RoundPlan
from eris.protocol.rules import Rules
from eris.protocol.steps import Sign, Verify, trust_everybody
from eris.protocol.sums import Sums
from eris.protocol.unmasker import FINAL, Unmasker
from eris.protocol.verdict import Verdict
from eris.seeds import Seed

__all__ = ["InProcess", "Score", "Train"]

Train = Callable[[Member, RoundPlan], LocalResult | BlockResult]
"""Trains a member from `member.look()` (or a copy, `member.start()`)."""

Score = Callable[[Member, RoundPlan], Scores]
"""Scores a member's `replica.model`, the one that the round begins with."""


class InProcess:
    """A coordinator, plus a member, an aggregator and (for masked shards) an unmasker for every peer on the roster.

    Time is a number, `now`, which moves when somebody would have to wait.

    Args:
        model: what every member starts from.
        root: gives each peer its private seed.
        floor: the limits of every member.
        sign: gives each peer what signs its messages; None leaves them unsigned.
        verify: checks these signatures, for every peer and the coordinator.
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
        masks = {k: MaskKey(0) for k in peers} if recipe.unmaskers else {}
        for peer, key in masks.items():
            self.coordinator.show_key(peer, key.public)
        signs = {k: sign(k) if sign else None for k in peers}
        sums = {k: Sums() for k in peers}
        self.members = {
            k: Member(k, recipe, model, root(k), floor=floor, verify=verify, key=masks.get(k), sums=sums[k])
            for k in peers
        }
        self.aggregators = {k: Aggregator(k, recipe, sign=signs[k], verify=verify) for k in peers}
        self.unmaskers = {
            k: Unmasker(k, recipe, key, sign=signs[k], verify=verify, sums=sums[k]) for k, key in masks.items()
        }

    def play(self, train: Train, score: Score | None = None) -> Verdict:
        """Play one round with every message delivered; `score` gives the figures, where members share them."""
        plan = self.plan()
        self.begin(plan)
        self.upload(plan, self.contribute(plan, train, score))
        self.publish(plan, self.cut(plan))
        verdict = self.decide()
        self.conclude(verdict)
        return verdict

    def plan(self) -> RoundPlan:
        """Have the coordinator open the next round."""
        return self.coordinator.plan(self.now)

    def begin(self, plan: RoundPlan) -> None:
        """Show the plan to every peer, in all its roles; members refuse one below their floor."""
        for peer, member in self.members.items():
            member.begin(plan)
            self.aggregators[peer].begin(plan, self.now)
            if peer in self.unmaskers:
                self.unmaskers[peer].begin(plan, self.now)

    def contribute(self, plan: RoundPlan, train: Train, score: Score | None = None) -> list[Upload]:
        """Have all participants train, transform and cut their updates; return what they would send.

        `score` gives the figures, where members share them.
        """
        uploads: list[Upload] = []
        for member in (self.members[peer] for peer in plan.participants):
            uploads += member.contribute(train(member, plan), None if score is None else score(member, plan))
        return uploads

    def upload(self, plan: RoundPlan, uploads: Iterable[Upload]) -> list[Receipt]:
        """Hand contributions to whoever aggregates their shard."""
        return [
            self.aggregators[owner].receive(upload, sender=upload.member)
            for upload in uploads
            for owner in plan.aggregators_of(upload.shard)
        ]

    def cut(self, plan: RoundPlan) -> list[Published | Withheld]:
        """Have the aggregators fold what they have; where somebody is missing, they wait until the deadline first."""
        began, outcomes = self.now, self._ticked()
        self.unmask(plan)
        outcomes += self._ticked()
        self.now = began + plan.deadlines.contribute
        outcomes += self._ticked()
        self.unmask(plan)
        outcomes += self._ticked()
        self.now = began + plan.deadlines.unmasked if self.unmaskers else self.now
        return outcomes + self._ticked()

    def _ticked(self) -> list[Published | Withheld]:
        return [outcome for peer in self.aggregators.values() for outcome in peer.tick(self.now)]

    def unmask(self, plan: RoundPlan) -> None:
        """Show every cut to its shard's unmaskers, and bring back the pads from those that answer."""
        for _ in range(2 if plan.witnesses else 1):  # the first of two aggregators is answered only once both have cut
            for aggregator in self.aggregators.values():
                for cut in aggregator.cuts():
                    for peer in plan.unmaskers_of(cut.shard):
                        try:
                            answer = self.unmaskers[peer].unmask(cut, self.now)
                            if answer is not None:
                                aggregator.take_off(answer, peer)
                        except Refused as refusal:
                            if refusal.reason in FINAL:
                                aggregator.deny(cut.shard, peer)

    def publish(
        self, plan: RoundPlan, outcomes: Iterable[Published | Withheld], to: Sequence[Member] | None = None
    ) -> None:
        """Tell the coordinator and all members (or only those in `to`) how the shards ended."""
        for outcome in outcomes:
            if isinstance(outcome, Withheld):
                self.coordinator.withheld(outcome)
            else:
                self.coordinator.manifest(outcome.manifest)
            for member in self.members.values() if to is None else to:
                _hold(member, outcome, plan)

    def decide(self) -> Verdict:
        """Have all members report and the coordinator decide; if it must wait, time moves to its deadline."""
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
        """Have every member follow the verdict; one that lacks a committed shard fetches it from another."""
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
    else:  # from a shard's second aggregator: compared only, so its values are not needed
        member.second(outcome.manifest)
