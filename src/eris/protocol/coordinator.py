"""The coordinator: roster, round clock, verdicts. It never sees an update, a shard or a model.

    plan(now) → [manifests, notices and reports come in] → decide(now) → Verdict → plan(now) …

A shard is committed if a quorum of peers holds what one manifest says; otherwise it is lost for the round. Every plan
and every verdict goes to the journal before anyone hears of it, so that a coordinator that comes back goes on where it
was: with the plan in flight, if there was one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

from eris.errors import ConfigError, Reason, Refused, RunStopped
from eris.protocol.member import Verify, trust_everybody
from eris.protocol.messages import Disagreement, Equivocation, Manifest, Report, Withheld
from eris.protocol.participation import draw_participants
from eris.protocol.recipe import Recipe
from eris.protocol.round_plan import Deadlines, Normalisation, RosterEntry, RoundPlan
from eris.protocol.verdict import GENESIS, ShardVerdict, Verdict

__all__ = ["Coordinator", "Entry", "Journal", "Membership", "Rewind", "Rules"]


@dataclass(frozen=True, slots=True)
class Membership:
    """The roster changed, or a reference was lost: from the next plan on."""

    roster: tuple[RosterEntry, ...]
    reference_epoch: int


@dataclass(frozen=True, slots=True)
class Rewind:
    """The run goes on from the beginning of an earlier round: all were down, and nobody has what came after it."""

    round: int


Entry = RoundPlan | Verdict | Membership | Equivocation | Disagreement | Rewind


class Journal(Protocol):
    """Where all that must survive the coordinator is kept; `append` returns only when the entry is durable."""

    def append(self, entry: Entry, /) -> None:
        """Keep an entry for good."""
        ...

    def __iter__(self) -> Iterator[Entry]:
        """Return all entries in order."""
        ...


@dataclass(frozen=True, slots=True)
class Rules:
    """What the coordinator holds rounds to."""

    run: str
    aggregators: tuple[int, ...]  # home of each shard, before rotation and replacement
    participation: float = 1.0
    normalisation: Normalisation = "contributors"
    min_contributors: int = 3
    quorum: int = 0  # peers that must hold a shard; 0: more than half of the roster
    max_share: float = 1.0  # largest share of an update a replacement may bring one peer to
    checkpoint_every: int = 0  # rounds; 0: never
    unreached_rounds: int = 0  # in a row, after which an aggregator whom few can dial gets no shard; 0: never
    deadlines: Deadlines = field(default_factory=Deadlines)

    def __post_init__(self) -> None:
        if self.min_contributors < 1:
            raise ConfigError(f"min_contributors is {self.min_contributors}", fix="use 1 or more (3 by default)")


@dataclass
class _Open:
    """The round in flight."""

    plan: RoundPlan
    due: float
    away: frozenset[int] = frozenset()  # who was absent already when it was planned: nobody might stand in
    manifests: dict[str, Manifest] = field(default_factory=dict)  # by digest
    withheld: dict[int, Withheld] = field(default_factory=dict)
    reports: dict[int, Report] = field(default_factory=dict)
    disputed: set[int] = field(default_factory=set)  # shards whose two aggregators do not say the same

    def owns(self, shard: int, peer: int) -> bool:
        """Whether a peer aggregates a shard in this round."""
        return 0 <= shard < self.plan.shards and peer in self.plan.aggregators_of(shard)


class Coordinator:
    """One run's clock. Give it messages and the time; it gives plans and verdicts."""

    def __init__(
        self,
        recipe: Recipe,
        rules: Rules,
        roster: Iterable[RosterEntry],
        journal: Journal,
        *,
        epoch: int = 0,
        verify: Verify = trust_everybody,
    ) -> None:
        self.recipe, self.rules, self._journal, self._verify = recipe, rules, journal, verify
        self.epoch, self.round, self.chain, self.reference_epoch = epoch, 0, GENESIS, 0
        self._first_roster = {entry.peer: entry for entry in roster}
        self.roster = dict(self._first_roster)
        self.excluded: dict[int, Equivocation] = {}
        self.absent: set[int] = set()
        self.unreached: Counter[int] = Counter()  # rounds in a row in which too few got through to an aggregator
        self.disagreements: list[Disagreement] = []
        self.lost_reasons: Counter[str] = Counter()
        self._open: _Open | None = None
        self._planned_reference = (0, 0)  # epoch of the last plan, and the round that opened it
        self._attest = False  # somebody came back since the last plan
        self._contributed: dict[int, int] = {}  # peer → last round with a committed contribution
        self._resume()

    # ── who is here ──────────────────────────────────────────────────────────────────────────────────────────────

    def join(self, entry: RosterEntry) -> None:
        """Add a member, or change its weight, from the next plan on: a reference epoch begins."""
        if entry.peer in self.excluded:
            raise Refused(Reason.EQUIVOCATION, "this peer signed two manifests for one shard", peer=entry.name)
        self.absent.discard(entry.peer)
        self.unreached.pop(entry.peer, None)
        if self.roster.get(entry.peer) != entry:
            self._change(self.roster | {entry.peer: entry})

    def leave(self, peer: int) -> None:
        """Remove a member for good, from the next plan on: a reference epoch begins."""
        self.absent.discard(peer)
        if peer in self.roster:
            self._change({other: entry for other, entry in self.roster.items() if other != peer})

    def gone(self, peer: int) -> None:
        """Note that a peer cannot be reached: nobody waits for it until it returns."""
        self.absent.add(peer)

    def returned(self, peer: int, *, private_round: int, reference_epoch: int) -> bool:
        """Take a peer back; its private state is that of the beginning of `private_round`. Return if that still holds.

        If not (it belongs to an earlier epoch, or a contribution of this peer was committed since, a step its reference
        lacks), a new reference epoch begins for all with the next plan, and the peer forgets its reference.
        """
        self.absent.discard(peer)
        self.unreached.pop(peer, None)
        self._attest = self.round > 0
        outdated = reference_epoch != self.reference_epoch or self._contributed.get(peer, -1) >= private_round
        if self.recipe.keeps_references and outdated:
            self._change(self.roster)
            return False
        return True

    def _change(self, roster: dict[int, RosterEntry]) -> None:
        epoch = self._last_reference_epoch() + 1
        self._journal.append(Membership(tuple(roster[peer] for peer in sorted(roster)), epoch))
        self.roster, self.reference_epoch = dict(roster), epoch

    def _last_reference_epoch(self) -> int:
        """Return the epoch of the last plan: several changes between two plans begin one epoch together."""
        return self._planned_reference[0]

    # ── the round ────────────────────────────────────────────────────────────────────────────────────────────────

    def plan(self, now: float) -> RoundPlan:
        """Return the plan of the round in flight, or open the next one."""
        if self._open is None:
            plan = self._next_plan()
            self._journal.append(plan)
            self._attest = False
            self._planned_reference = (plan.reference_epoch, plan.reference_begins)
            self._open = _Open(plan, now + plan.deadlines.report, frozenset(plan.aggregators & self.absent))
        return self._open.plan

    def manifest(self, manifest: Manifest) -> Equivocation | None:
        """Take note of what an aggregator says it published; two different ones for a shard exclude it."""
        current = self._for_plan(manifest.plan, manifest.aggregator)
        if not current.owns(manifest.shard, manifest.aggregator):
            raise Refused(Reason.WRONG_SHARD, "this peer does not own the shard", peer=manifest.aggregator)
        if not self._verify(manifest.aggregator, manifest.signed_bytes, manifest.signature):
            raise Refused(
                Reason.BAD_SIGNATURE, "the manifest is not signed by its aggregator", peer=manifest.aggregator
            )
        if manifest.digest in current.manifests:
            return None
        others = [other for other in current.manifests.values() if other.shard == manifest.shard]
        current.manifests[manifest.digest] = manifest
        for other in others:
            if other.aggregator == manifest.aggregator:
                proof = Equivocation(other, manifest)
                self._journal.append(proof)
                self.excluded[manifest.aggregator] = proof
                return proof
            if not other.agrees(manifest):
                self._note_disagreement(current, Disagreement(other, manifest))
        return None

    def _note_disagreement(self, current: _Open, finding: Disagreement) -> None:
        """Keep a finding: which of the two is wrong it does not show, so nobody is excluded, and the shard is lost."""
        self._journal.append(finding)
        self.disagreements.append(finding)
        current.disputed.add(finding.first.shard)

    def withheld(self, notice: Withheld) -> None:
        """Take note that a shard will not be published."""
        current = self._for_plan(notice.plan, notice.aggregator)
        if current.owns(notice.shard, notice.aggregator):
            current.withheld[notice.shard] = notice

    def report(self, report: Report) -> tuple[int, ...]:
        """Take a peer's report; return the shards whose manifest is wanted from it."""
        current = self._for_plan(report.plan, report.peer)
        if report.peer not in current.plan.weights:  # which is kept; a set of the roster would be made for every report
            raise Refused(Reason.NOT_A_MEMBER, "only members report", peer=report.peer)
        current.reports[report.peer] = report
        return tuple(shard for shard, digest in report.held.items() if digest not in current.manifests)

    def decide(self, now: float) -> Verdict | None:
        """Write the verdict if every present peer is done or the time is up; None before that."""
        current = self._open
        if current is None or not (self._all_done(current) or now >= current.due):
            return None
        verdict = self._verdict(current)
        self._journal.append(verdict)
        self._note_reach(current)
        self._conclude(verdict)
        return verdict

    @property
    def out_of_reach(self) -> set[int]:
        """Who is here but could be dialled by too few: given no shard until it joins again, with the way open."""
        patience = self.rules.unreached_rounds
        return {peer for peer, rounds in self.unreached.items() if patience and rounds >= patience}

    @property
    def in_flight(self) -> RoundPlan | None:
        """The plan of the round that has no verdict yet."""
        return self._open.plan if self._open else None

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────

    def rewind(self, round: int) -> None:
        """Go back to the beginning of a round, in an epoch of its own; what came after it never counted."""
        self._journal.append(Rewind(round))
        self.round, self.chain, self.reference_epoch = 0, GENESIS, 0
        self.roster, self._planned_reference, self._open = dict(self._first_roster), (0, 0), None
        self._contributed.clear()
        self.lost_reasons.clear()
        self.disagreements.clear()
        self._resume()

    def _resume(self) -> None:
        """Go through the journal: the last plan without a verdict is still in flight."""
        last_plan: RoundPlan | None = None
        entries = list(self._journal)
        self.epoch = max([self.epoch, *(entry.epoch + 1 for entry in entries if isinstance(entry, RoundPlan))])
        for entry in _in_force(entries):
            if isinstance(entry, RoundPlan):
                last_plan = entry
                self.roster = {member.peer: member for member in entry.roster}
                self.reference_epoch = entry.reference_epoch
                self._planned_reference = (entry.reference_epoch, entry.reference_begins)
            elif isinstance(entry, Membership):
                self.roster = {member.peer: member for member in entry.roster}
                self.reference_epoch = entry.reference_epoch
            elif isinstance(entry, Equivocation):
                self.excluded[entry.aggregator] = entry
            elif isinstance(entry, Disagreement):
                self.disagreements.append(entry)
            elif isinstance(entry, Verdict) and last_plan is not None:
                self._conclude(entry)
                last_plan = None
        if last_plan is not None:
            self._open = _Open(last_plan, -math.inf)

    def restart_clock(self, now: float) -> None:
        """Give the round in flight its full time again, after a restart."""
        if self._open is not None:
            self._open.due = now + self._open.plan.deadlines.report

    def _next_plan(self) -> RoundPlan:
        members = sorted(self.roster)
        present = [peer for peer in members if peer not in self.absent and peer not in self.excluded]
        if len(present) < max(self._quorum(len(members)), 1):
            raise RunStopped(
                f"{len(present)} of {len(members)} members are here, the quorum is {self._quorum(len(members))}",
                fix="bring members back, then start the run again: it goes on with this round",
                round=self.round,
            )
        rules, began = self.rules, self._planned_reference[1]
        assignment, witnesses = self._assignment(set(present) - self.out_of_reach)
        return RoundPlan(
            run=rules.run,
            epoch=self.epoch,
            round=self.round,
            chain=self.chain,
            spec=self.recipe.spec.digest,
            roster=tuple(self.roster[peer] for peer in members),
            participants=draw_participants(members, rules.participation, self.recipe.public, self.round),
            assignment=assignment,
            witnesses=witnesses,
            draw=self.recipe.policy.draw(self.round),
            reference_epoch=self.reference_epoch,
            reference_begins=self.round if self.reference_epoch != self._planned_reference[0] else began,
            normalisation=rules.normalisation,
            participation=rules.participation,
            min_contributors=rules.min_contributors,
            checkpoint=rules.checkpoint_every > 0 and self.round % rules.checkpoint_every == 0,
            attest=self._attest,
            deadlines=rules.deadlines,
        )

    def _note_reach(self, current: _Open) -> None:
        """Count the rounds in which fewer than half as many members got through to an aggregator as to the best one.

        A firewall that lets the coordinator through but not the members shows only here.
        """
        heard = {m.aggregator: len(m.contributors) for m in current.manifests.values()}
        heard |= {w.aggregator: len(w.contributors) for w in current.withheld.values() if w.reason is Reason.TOO_FEW}
        most = max(heard.values(), default=0)
        for peer, count in heard.items():
            self.unreached[peer] = self.unreached[peer] + 1 if 2 * count < most else 0

    def _quorum(self, members: int) -> int:
        return self.rules.quorum or members // 2 + 1

    def _assignment(self, present: set[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return who aggregates each shard, and who does so again to be compared (nobody without replicas)."""
        layout, policy = self.recipe.layout(self.round), self.recipe.policy
        homes = policy.assignment(self.round, self.rules.aggregators)
        seconds = policy.witnesses(self.round, self.rules.aggregators)
        load = Counter[int]()
        for shard, home in (*enumerate(homes), *enumerate(seconds)):
            if home in present:
                load[home] += layout.size(shard)
        assignment = self._placed(homes, present, load, seconds)
        return assignment, self._placed(seconds, present, load, assignment)

    def _placed(
        self, homes: tuple[int, ...], present: set[int], load: Counter[int], taken: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Give every shard to its home, or, while that is away, to the least loaded peer within the largest share.

        Nobody gets a shard that is `taken` by the same peer. Where no peer may have it, the shard stays with its absent
        home and is lost until that returns.
        """
        layout, placed = self.recipe.layout(self.round), list(homes)
        limit = self.rules.max_share * layout.n
        for shard, home in enumerate(homes):
            if home in present:
                continue
            size, other = layout.size(shard), taken[shard : shard + 1]
            able = [peer for peer in present if self._may_take(peer, load[peer] + size <= limit) and peer not in other]
            if able:
                placed[shard] = min(able, key=lambda peer: (load[peer], peer))
                load[placed[shard]] += size
            elif home not in self.roster:
                raise RunStopped(
                    f"shard {shard} has no aggregator: {home} left and nobody may take it",
                    fix="raise the largest allowed share, or add a peer that can aggregate",
                    round=self.round,
                )
        return tuple(placed)

    def _may_take(self, peer: int, within: bool) -> bool:
        return within and self.roster[peer].can_aggregate

    def _for_plan(self, digest: str, peer: int) -> _Open:
        if self._open is None or self._open.plan.digest != digest:
            raise Refused(Reason.WRONG_PLAN, "not the round in flight", peer=peer, round=self.round)
        return self._open

    def _all_done(self, current: _Open) -> bool:
        here = self.roster.keys() & {e.peer for e in current.plan.roster} - self.absent - self.excluded.keys()
        wanted = {
            digest for report in current.reports.values() for digest in report.held.values()
        } - current.manifests.keys()
        return not wanted and all(peer in current.reports and current.reports[peer].complete for peer in here)

    def _verdict(self, current: _Open) -> Verdict:
        plan = current.plan
        shards = tuple(self._shard_verdict(shard, current) for shard in range(plan.shards))
        late = tuple(entry.peer for entry in plan.roster if entry.peer not in current.reports)
        return Verdict(plan.run, plan.epoch, plan.round, plan.digest, plan.chain, shards, late, _agreed_state(current))

    def _shard_verdict(self, shard: int, current: _Open) -> ShardVerdict:
        aggregator = current.plan.assignment[shard]
        lost = ShardVerdict(shard, aggregator)
        if any(peer in self.excluded for peer in current.plan.aggregators_of(shard)):
            return replace(lost, lost=Reason.EQUIVOCATION.value)
        if shard in current.disputed:
            return replace(lost, lost=Reason.REPLICAS_DIFFER.value)
        holders = Counter(report.held[shard] for report in current.reports.values() if shard in report.held)
        digest, count = holders.most_common(1)[0] if holders else ("", 0)
        quorum = self._quorum(len(current.plan.roster))
        if count >= quorum and digest in current.manifests:
            manifest = current.manifests[digest]
            return ShardVerdict(shard, aggregator, manifest.hash, manifest.contributors)
        if shard in current.withheld:
            return replace(lost, lost=current.withheld[shard].reason.value)
        if current.away & set(current.plan.aggregators_of(shard)):
            limit = f"{self.rules.max_share:.0%}"
            return replace(lost, lost=f"its aggregator is away, and nobody else may see more than {limit} of an update")
        return replace(lost, lost=f"held by {count} of {quorum} needed" if count else "not published")

    def _conclude(self, verdict: Verdict) -> None:
        for entry in verdict.shards:
            if entry.committed:
                self._contributed |= dict.fromkeys(entry.contributors, verdict.round)
            else:
                self.lost_reasons[entry.lost] += 1
        self.round, self.chain, self._open = verdict.round + 1, verdict.digest, None


def _in_force(entries: list[Entry]) -> list[Entry]:
    """Return the entries without what a rewind took back: rounds, and reference epochs that began after them.

    Members go back to the references they had then. Who came or left stays as it is; so do proofs.
    """
    kept: list[Entry] = []
    for entry in entries:
        if isinstance(entry, Rewind):
            kept = _before(kept, entry.round)
        else:
            kept.append(entry)
    return kept


def _before(entries: list[Entry], round: int) -> list[Entry]:
    kept: list[Entry] = []
    roster: tuple[RosterEntry, ...] = ()
    undone = False
    for entry in entries:
        if isinstance(entry, RoundPlan | Verdict):
            undone = undone or entry.round >= round
        if not undone or not _belongs_to_a_round(entry, roster):
            kept.append(entry)
        if isinstance(entry, RoundPlan | Membership):
            roster = entry.roster
    return kept


def _belongs_to_a_round(entry: Entry, roster: tuple[RosterEntry, ...]) -> bool:
    """Whether an entry is one of rounds alone: a membership with the same members only began a reference epoch."""
    if isinstance(entry, Membership):
        return entry.roster == roster
    return isinstance(entry, RoundPlan | Verdict | Disagreement)


def _agreed_state(current: _Open) -> str:
    """Return the replica digest most peers reported at a checkpoint round; empty otherwise."""
    digests = Counter(report.state for report in current.reports.values() if report.state)
    return digests.most_common(1)[0][0] if digests else ""
