"""Where a simulation's rounds come from: a live coordinator, or the record of another run.

A live script has the real coordinator write plans and verdicts, and draws faults. A replay takes recorded plans and
verdicts, lets the same contributions go missing, and checks every shard against the hash that was committed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from eris.aggregate.figures import SHARD
from eris.compose import Composition
from eris.errors import ConfigError, InputError, RunStopped
from eris.protocol.coordinator import Coordinator
from eris.protocol.crowd import Crowd
from eris.protocol.journal import Entry
from eris.protocol.messages import Published, Report, Withheld
from eris.protocol.participation import draw_participants
from eris.protocol.recipe import Recipe
from eris.protocol.roster import Roster
from eris.protocol.round_plan import RoundPlan
from eris.protocol.rules import Rules
from eris.protocol.verdict import Verdict
from eris.simulate.clock import Links
from eris.simulate.faults import Outages, draw_outages
from eris.simulate.traffic import expected_upload
from eris.wire.schema import read_plain

__all__ = ["LiveScript", "Replay", "Rounds", "Script", "read_verdicts"]

Rounds = list[tuple[RoundPlan, Verdict]]


class Script(Protocol):
    """Says what each round is and how it ends."""

    def plan(self) -> RoundPlan:
        """Return the plan of the coming round."""
        ...

    def outages(self, plan: RoundPlan) -> Outages:
        """Return whose messages will not reach which shards."""
        ...

    def conclude(self, plan: RoundPlan, outcomes: list[Published | Withheld]) -> Verdict:
        """Return how the round ended, given what the aggregators published or withheld."""
        ...

    def go_to(self, round: int, chain: str, reference_epoch: int) -> None:
        """Continue before a later round, after a resume; `chain` is the digest of the verdict before it."""
        ...


class _NoJournal:
    """Keeps nothing: a listener of the run writes the verdicts."""

    def append(self, entry: Entry) -> None:
        del entry

    def __iter__(self) -> Iterator[Entry]:
        return iter(())


class _CrowdCoordinator(Coordinator):
    """The coordinator of a crowd: it lists, hears and waits for only those that take part in a round."""

    def __init__(self, recipe: Recipe, rules: Rules, crowd: Crowd) -> None:
        self._crowd, self._drawn = crowd, tuple[int, ...]()
        super().__init__(recipe, rules, (), _NoJournal())

    def _next_plan(self) -> RoundPlan:
        members = range(len(self._crowd))
        self._drawn = draw_participants(members, self.rules.participation, self.recipe.public, self.round)
        listed = sorted({*self._drawn, *self.rules.aggregators})
        self.roster = {peer: self._crowd[peer] for peer in listed}
        return super()._next_plan()

    def _participants(self) -> tuple[int, ...]:
        return self._drawn

    def _agreed(self, members: list[int]) -> Roster:
        return self._crowd.roster(members)


class LiveScript:
    """The coordinator of a simulated run, with faults drawn from its seed."""

    def __init__(self, composition: Composition, links: Links) -> None:
        config, self._composition, self._links = composition.config, composition, links
        rules = Rules(
            run=composition.run,
            aggregators=composition.aggregators,
            participation=config.participation,
            normalisation=config.server.normalisation,
            min_contributors=config.server.min_contributors,
        )
        roster = composition.roster
        self._coordinator = (
            _CrowdCoordinator(composition.recipe, rules, roster)
            if isinstance(roster, Crowd)
            else Coordinator(composition.recipe, rules, roster, _NoJournal())
        )

    def plan(self) -> RoundPlan:
        """Return the plan of the coming round."""
        return self._coordinator.plan(now=0.0)

    def outages(self, plan: RoundPlan) -> Outages:
        """Draw the round's faults."""
        config, recipe = self._composition.config, self._composition.recipe
        deadline, at_home = config.network.deadline, not self._composition.method.server
        if not deadline:
            return draw_outages(config.faults, plan, recipe.public, at_home=at_home)
        size = expected_upload(recipe, plan, config.seed)
        late = [member for member in plan.participants if self._links.finished(member, size) > deadline]
        return draw_outages(config.faults, plan, recipe.public, late=late, at_home=at_home)

    def conclude(self, plan: RoundPlan, outcomes: list[Published | Withheld]) -> Verdict:
        """Let every peer on the plan report all that was published, and the coordinator decide."""
        held = {}
        for outcome in outcomes:
            if isinstance(outcome, Withheld):
                self._coordinator.withheld(outcome)
            else:
                self._coordinator.manifest(outcome.manifest)
                held[outcome.manifest.shard] = outcome.manifest.digest
        for entry in plan.roster:
            self._coordinator.report(Report(plan.digest, entry.peer, held, complete=True))
        verdict = self._coordinator.decide(now=0.0)
        assert verdict is not None
        return verdict

    def go_to(self, round: int, chain: str, reference_epoch: int) -> None:
        """Continue before a later round."""
        self._coordinator.round, self._coordinator.chain = round, chain
        self._coordinator.reference_epoch = reference_epoch


class Replay:
    """The rounds of another run."""

    def __init__(self, rounds: Rounds, composition: Composition) -> None:
        self._rounds, self._next = rounds, 0
        for plan, _ in rounds[:1]:
            composition.recipe.spec.require_same(plan.spec, where="the replayed run")
            if plan.shards != composition.recipe.policy.shards:
                raise ConfigError(
                    f"the replayed run has {plan.shards} shards, but the configuration has "
                    f"{composition.recipe.policy.shards}",
                    fix="replay with the configuration of that run",
                    key="aggregators",
                )

    def plan(self) -> RoundPlan:
        """Return the recorded plan."""
        return self._rounds[self._next][0]

    def outages(self, plan: RoundPlan) -> Outages:
        """Return whose contributions the recorded verdict lacks."""
        verdict = self._rounds[self._next][1]
        failed = {member: shards for member in plan.participants if (shards := verdict.missing(member))}
        return Outages(verdict.lost_shards, failed)

    def conclude(self, plan: RoundPlan, outcomes: list[Published | Withheld]) -> Verdict:
        """Return the recorded verdict; raise if the computed shards differ from those it committed."""
        published = [outcome.manifest for outcome in outcomes if isinstance(outcome, Published)]
        verdict, hashes = self._rounds[self._next][1], {manifest.shard: manifest.hash for manifest in published}
        for entry in verdict.shards:
            if entry.committed and hashes.get(entry.shard) != entry.hash:
                raise RunStopped(
                    "the replay computed different values from the recorded run",
                    fix="use the same configuration, versions and machine type: training bits depend on them; "
                    "and peers of `eris join` draw batches and noise in private unless all are --reproducible",
                    round=plan.round,
                    shard=entry.shard,
                )
        scored = next((manifest.figures for manifest in published if manifest.shard == SHARD), ())
        if verdict.shards[SHARD].committed and scored != verdict.figures:
            raise RunStopped(
                "the replay computed different figures from the recorded run",
                fix="members must hold back the same samples: use the same configuration, task and versions",
                round=plan.round,
            )
        self._next += 1
        return verdict

    def go_to(self, round: int, chain: str, reference_epoch: int) -> None:
        """Continue before a later round."""
        del chain, reference_epoch
        self._next = next((i for i, (plan, _) in enumerate(self._rounds) if plan.round == round), len(self._rounds))


def read_verdicts(path: Path) -> Rounds:
    """Read a verdicts.jsonl, in which each line has a round's plan and verdict."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InputError(f"the verdicts cannot be read: {error.strerror}", path=path) from None
    rounds = [_round(line, path, number) for number, line in enumerate(lines, start=1)]
    if not rounds:
        raise InputError("no round has a verdict", fix="give the verdicts.jsonl of a run that played one", path=path)
    return rounds


def _round(line: str, path: Path, number: int) -> tuple[RoundPlan, Verdict]:
    try:
        data = json.loads(line)
        return read_plain(RoundPlan, data["plan"]), read_plain(Verdict, data["verdict"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"this is not a line of verdicts: {error!r}", path=path, line=number) from None
