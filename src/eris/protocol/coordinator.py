"""The coordinator: roster, round clock, verdicts. It never sees an update, a shard or a model.

    plan(now) → [manifests, notices and reports come in] → decide(now) → Verdict → plan(now) …

A shard is committed if a quorum of peers holds what one manifest says; otherwise it is lost for the round. Every plan
and every verdict is journalled before anyone hears of it, so a coordinator that restarts resumes where it was, with the
plan in flight if there was one.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable

from eris.errors import Reason, Refused, RunStopped
from eris.protocol.best_round import BestRound
from eris.protocol.false_manifest import FalseManifest, Lie, lie_of
from eris.protocol.journal import Departure, Journal, Membership, Rewind, in_force
from eris.protocol.messages import BriefReport, Disagreement, Equivocation, Manifest, Report, Wanted, Withheld
from eris.protocol.open_round import OpenRound
from eris.protocol.pairs import choose_unmaskers
from eris.protocol.participation import ALARMS, draw_participants, is_alarm, without_a_third
from eris.protocol.placement import Placement
from eris.protocol.recipe import Recipe
from eris.protocol.roster import Roster, RosterEntry, SignedLeave
from eris.protocol.round_plan import RoundPlan
from eris.protocol.rules import Rules
from eris.protocol.seal import EpochBegun, PlanName
from eris.protocol.steps import Verify, possible_figures, trust_everybody
from eris.protocol.verdict import GENESIS, Verdict

__all__ = ["Coordinator"]

_MOST_CHANGES = 8  # that one peer may make to its roster entry between two plans
_MOST_FAILED_PAIRS = 3  # with the same peer in them, after which it gets no duty for masked shards


class Coordinator:
    """One run's clock: takes messages and the time, and returns plans and verdicts.

    Args:
        roster: the members that the run begins with; later changes are in the journal.
        journal: what it holds is replayed, and everything new is appended before anyone hears of it.
        epoch: the lowest epoch to plan in, the first of this coordinator's term.
        verify: checks the aggregators' signatures on manifests and receipts.
    """

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
        self._last_plan: PlanName | None = None  # the last one ever written, in force or taken back
        self._supersedes: PlanName | None = None  # the last plan of all epochs before this one
        self._epoch_kept = False  # whether the journal knows what this epoch goes on from
        self._first_roster = {entry.peer: entry for entry in roster}
        self.roster = dict(self._first_roster)
        self.excluded: dict[int, Lie] = {}
        self.absent: set[int] = set()
        self.unreached: Counter[int] = Counter()  # rounds in a row in which too few reached an aggregator
        self.disagreements: list[Disagreement] = []
        self.lost_reasons: Counter[str] = Counter()
        self.lost_in_a_row = self.short_in_a_row = 0  # rounds that committed nothing, and not every shard
        self._alarms = self._alarms_in_a_row = 0  # rounds with a sum that no members within the limit can have
        self.best = BestRound()  # judged by the figures that members share
        self._open: OpenRound | None = None
        self._last_roster = Roster()
        self._planned_reference = (0, 0)  # reference epoch of the last plan, and the round that opened it
        self._attest = False  # somebody came back since the last plan
        self._changes: Counter[int] = Counter()  # of each peer's entry since the last plan
        self._contributed: dict[int, int] = {}  # peer → last round with a committed contribution
        self.mask_keys: dict[int, bytes] = {}  # of the peers that are here, as their processes have shown them
        self._moved: Counter[int] = Counter()  # shard → places along the ring by which its pair has moved on
        self._failed: dict[int, set[frozenset[int]]] = {}  # peer → pairs with it that unmasked nothing
        self._had: defaultdict[int, set[int]] = defaultdict(set)  # peer → shards that any plan ever gave it
        self._resume()

    # ── who is here ──────────────────────────────────────────────────────────────────────────────────────────────

    def join(self, entry: RosterEntry) -> None:
        """Add a member, or change its weight, from the next plan on; this begins a reference epoch."""
        self.require_honest(entry.peer)
        if changes := not entry.says_the_same(self.roster.get(entry.peer)):
            self._count_change(entry)
        self.absent.discard(entry.peer)
        self.unreached.pop(entry.peer, None)
        if changes:
            self._change(self.roster | {entry.peer: entry})

    def _count_change(self, entry: RosterEntry) -> None:
        """Refuse a peer that keeps changing its entry: every change is journalled, and the disk is shared by all."""
        if entry.peer in self.roster and entry.counter < self.roster[entry.peer].counter:
            raise Refused(
                Reason.DUPLICATE,
                f"this roster entry of {entry.name} is older than the one on record",
                fix="correct its clock: entries are numbered by it",
                peer=entry.peer,
            )
        self._changes[entry.peer] += 1
        if self._changes[entry.peer] > _MOST_CHANGES:
            raise Refused(
                Reason.DUPLICATE,
                f"{entry.name} changed its weight, key, organisation or address {_MOST_CHANGES} times in this round",
                fix="wait for the next round",
                peer=entry.peer,
            )

    def require_honest(self, peer: int) -> None:
        """Refuse a peer that has been excluded."""
        if (lie := self.excluded.get(peer)) is not None:
            raise Refused(lie.reason, lie.what, peer=peer)

    def leave(self, peer: int, leave: SignedLeave | None = None) -> None:
        """Remove a member for good from the next plan on, which begins a reference epoch; `leave` is kept as proof."""
        self.absent.discard(peer)
        if peer in self.roster:
            if leave is not None:
                self._journal.append(Departure(peer, leave))
            self._change({other: entry for other, entry in self.roster.items() if other != peer})

    def show_key(self, peer: int, key: bytes) -> None:
        """Take a peer's mask key, which it makes anew at every start; plans show it to all from the next one on."""
        self.mask_keys[peer] = key

    def gone(self, peer: int) -> None:
        """Note that a peer cannot be reached: nobody waits for it until it returns."""
        self.absent.add(peer)

    def heard_again(self, peer: int) -> None:
        """Note that a peer can be reached again; at the next verdict all peers compare their states."""
        self.absent.discard(peer)
        self._attest = self.round > 0

    def returned(self, peer: int, *, private_round: int, reference_epoch: int) -> bool:
        """Take a peer back, and return whether its private state is still valid.

        The state dates from the start of `private_round`, in `reference_epoch`. It is not valid if that is an earlier
        epoch, or if a contribution of this peer was committed since, a step that its reference lacks. Then the next
        plan begins a new reference epoch for all, and the peer forgets its reference.
        """
        self.heard_again(peer)
        self.unreached.pop(peer, None)
        outdated = reference_epoch != self.reference_epoch or self._contributed.get(peer, -1) >= private_round
        if self.recipe.keeps_references and outdated:
            self._change(self.roster)
            return False
        return True

    def _change(self, roster: dict[int, RosterEntry]) -> None:
        epoch = self._last_reference_epoch() + 1
        if (epoch, roster) != (self.reference_epoch, self.roster):  # otherwise it has been journalled already
            self._journal.append(Membership(tuple(roster[peer] for peer in sorted(roster)), epoch))
        self.roster, self.reference_epoch = dict(roster), epoch

    def _last_reference_epoch(self) -> int:
        """Return the epoch of the last plan: several changes between two plans begin a single epoch."""
        return self._planned_reference[0]

    # ── the round ────────────────────────────────────────────────────────────────────────────────────────────────

    def plan(self, now: float) -> RoundPlan:
        """Return the plan of the round in flight, or open the next round."""
        if self._open is None:
            self._keep_epoch()
            plan = self._next_plan()
            self._journal.append(plan)
            self._note_duties(plan)
            self._last_plan = PlanName(*plan.when, plan.digest)
            self._attest = False
            self._changes.clear()
            self._planned_reference = (plan.reference_epoch, plan.reference_begins)
            self._open = OpenRound(plan, now + plan.deadlines.report, frozenset(plan.aggregators & self.absent))
        return self._open.plan

    def manifest(self, manifest: Manifest) -> Lie | None:
        """Note what an aggregator says it published; exclude it for two manifests of one shard, or for a false one."""
        self.require_honest(manifest.aggregator)
        current = self._for_plan(manifest.plan, manifest.aggregator)
        if not self._verify(manifest.aggregator, manifest.signed_bytes, manifest.signature):
            raise Refused(
                Reason.BAD_SIGNATURE, "the manifest is not signed by its aggregator", peer=manifest.aggregator
            )
        if lie_of(current.plan, manifest):
            return self._exclude(FalseManifest(manifest))
        who = current.plan, manifest.shard, manifest.figures, manifest.contributors
        if not possible_figures(self.recipe, *who):
            what = "no contributors can have scored such figures"
            raise Refused(Reason.OUT_OF_RANGE, what, peer=manifest.aggregator, round=self.round)
        if manifest.digest in current.manifests:
            return None
        others = [other for other in current.manifests.values() if other.shard == manifest.shard]
        current.note(manifest)
        for other in others:
            if other.aggregator == manifest.aggregator:
                return self._exclude(Equivocation(other, manifest))
            if not other.agrees(manifest):
                self._note_disagreement(current, Disagreement(other, manifest))
        return None

    def accused(self, claim: FalseManifest) -> Lie | None:
        """Judge a manifest that a member shows with the receipt it breaks, and exclude its author if it does."""
        manifest, receipt = claim.manifest, claim.receipt
        found = self.manifest(manifest)
        if found is not None or receipt is None:
            return found
        if not self._verify(manifest.aggregator, receipt.signed_bytes, receipt.signature):
            raise Refused(Reason.BAD_SIGNATURE, "the receipt is not signed by the aggregator", peer=manifest.aggregator)
        if not lie_of(self._for_plan(manifest.plan, manifest.aggregator).plan, manifest, receipt):
            raise Refused(Reason.MALFORMED, "the receipt does not contradict the manifest", peer=manifest.aggregator)
        return self._exclude(claim)

    def _exclude(self, lie: Lie) -> Lie:
        """Exclude a proven liar from shards for the rest of the run, and keep the proof."""
        self._journal.append(lie)
        self.excluded[lie.aggregator] = lie
        return lie

    def _note_disagreement(self, current: OpenRound, finding: Disagreement) -> None:
        """Keep a disagreement and lose its shard; nobody is excluded, as it does not show which of the two is wrong."""
        self._journal.append(finding)
        self.disagreements.append(finding)
        current.disputed.add(finding.first.shard)

    def withheld(self, notice: Withheld) -> None:
        """Note that a shard will not be published."""
        current = self._for_plan(notice.plan, notice.aggregator)
        current.require_participants(notice.contributors, notice.aggregator)
        if current.owns(notice.shard, notice.aggregator):
            current.withheld[notice.shard] = notice

    def report(self, report: Report) -> tuple[int, ...]:
        """Take a peer's report; return the shards whose manifests we want from it."""
        self._for_member(report.plan, report.peer).take(report)
        return self.wanted(report.peer).manifests

    def report_briefly(self, peer: int, brief: BriefReport) -> None:
        """Take a peer's brief report of the shards it holds; `wanted` tells whether that was enough."""
        self._for_member(brief.plan, peer).take_brief(peer, brief)

    def wanted(self, peer: int) -> Wanted:
        """Return what we still need from a peer to know what it holds in the round in flight."""
        return self._open.wanted(peer) if self._open is not None else Wanted()

    def decide(self, now: float) -> Verdict | None:
        """Write the verdict if every present peer is done or the time is up; None before that."""
        current = self._open
        if current is None or not (self._all_done(current) or now >= current.due) or self.is_unheard(now):
            return None
        verdict = self._verdict(current)
        self._journal.append(verdict)
        self._note_reach(current)
        self._note_pairs(current.plan, verdict)
        self._conclude(verdict)
        return verdict

    @property
    def lacking(self) -> tuple[int, ...]:
        """Who is missing from the next round, if too few are here for any mean to be published; otherwise nobody."""
        drawn, here = self._participants(), set(self._present())
        enough = len(here & set(drawn)) >= self.rules.min_contributors
        return () if enough else tuple(peer for peer in drawn if peer not in here)

    def is_futile(self, now: float) -> bool:
        """Whether the round in flight is due and cannot commit anything because too few participants are here."""
        current = self._open
        if current is None or not (now >= current.due or self._all_done(current)) or not self.lacking:
            return False
        return not any(entry.committed for entry in self._verdict(current).shards)

    def is_unheard(self, now: float) -> bool:
        """Whether the round in flight is due, but too few reported for a verdict that no other coordinator can undo."""
        current = self._open
        if current is None or not self.rules.majority or len(current.said) >= self.rules.majority:
            return False
        return self._all_done(current) or now >= current.due

    @property
    def out_of_reach(self) -> set[int]:
        """Peers here that too few could dial: they get no shard until they join again and can be reached."""
        patience = self.rules.unreached_rounds
        return {peer for peer, rounds in self.unreached.items() if patience and rounds >= patience}

    def is_done(self, rounds: int) -> bool:
        """Whether the run is over: all rounds were played, or the members' figures have not improved for too long."""
        figures = self.recipe.figures
        over = figures is not None and 0 < figures.patience <= self.best.since
        return self.round >= rounds or (over and self._open is None)

    @property
    def has_quorum(self) -> bool:
        """Whether enough members are here for another round."""
        return len(self._present()) >= max(self._quorum(len(self.roster)), self.rules.majority, 1)

    @property
    def in_flight(self) -> RoundPlan | None:
        """The plan of the round that has no verdict yet."""
        return self._open.plan if self._open else None

    def overtaken(self, last: PlanName) -> None:
        """Move to an epoch after a plan of ours that a member has heard but our journal has lost.

        Peers ignore any epoch lower than the last one they heard, so a journal restored from a copy cannot take them
        back.
        """
        if self._last_plan is None or last.when > self._last_plan.when:
            self._last_plan = last
            self._begin_epoch()

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _keep_epoch(self) -> None:
        """Journal what this epoch follows, before its first plan is signed."""
        if self._supersedes is not None and not self._epoch_kept:
            self._journal.append(EpochBegun(self.epoch, self._supersedes))
        self._epoch_kept = True

    def _begin_epoch(self) -> None:
        """Move to an epoch after that of the last plan."""
        self._supersedes, self._epoch_kept = self._last_plan, False
        if self._last_plan is not None:
            self.epoch = max(self.epoch, self._last_plan.epoch + 1)

    def rewind(self, round: int) -> None:
        """Go back to the start of a round, in a new epoch; the rounds after it no longer count."""
        self._journal.append(Rewind(round))
        self.round, self.chain, self.reference_epoch, self.best = 0, GENESIS, 0, BestRound()
        self.roster, self._planned_reference, self._open = dict(self._first_roster), (0, 0), None
        self._contributed.clear()
        self.lost_reasons.clear()
        self.lost_in_a_row = self.short_in_a_row = 0
        self._alarms = self._alarms_in_a_row = 0
        self.disagreements.clear()
        self._resume()

    def _resume(self) -> None:
        """Replay the journal; the last plan without a verdict is still in flight."""
        last_plan: RoundPlan | None = None
        entries = list(self._journal)
        names = [PlanName(*entry.when, entry.digest) for entry in entries if isinstance(entry, RoundPlan)]
        names += [entry.supersedes for entry in entries if isinstance(entry, EpochBegun)]
        self._last_plan = max(names, key=lambda name: name.when, default=self._last_plan)
        self._begin_epoch()
        for entry in entries:
            if isinstance(entry, RoundPlan):
                self._note_duties(entry)
        for entry in in_force(entries):
            if isinstance(entry, RoundPlan):
                last_plan = entry
                self.roster = {member.peer: member for member in entry.roster}
                self.reference_epoch = entry.reference_epoch
                self._planned_reference = (entry.reference_epoch, entry.reference_begins)
            elif isinstance(entry, Membership):
                self.roster = {member.peer: member for member in entry.roster}
                self.reference_epoch = entry.reference_epoch
            elif isinstance(entry, Equivocation | FalseManifest):
                self.excluded[entry.aggregator] = entry
            elif isinstance(entry, Disagreement):
                self.disagreements.append(entry)
            elif isinstance(entry, Verdict) and last_plan is not None:
                self._conclude(entry)
                last_plan = None
        if last_plan is not None:
            self._open = OpenRound(last_plan, -math.inf)

    def restart_clock(self, now: float) -> None:
        """Give the round in flight its full time again after a restart."""
        if self._open is not None:
            self._open.due = now + self._open.plan.deadlines.report

    def postpone(self, seconds: float) -> None:
        """Extend the round in flight by the time this process stood still."""
        if self._open is not None:
            self._open.due += seconds

    def _next_plan(self) -> RoundPlan:
        members, present = sorted(self.roster), self._present()
        if not self.has_quorum:
            raise RunStopped(
                f"only {len(present)} of {len(members)} members are present, "
                f"but the quorum is {self._quorum(len(members))}",
                fix="bring members back, then start the run again: it continues with this round",
                round=self.round,
            )
        rules, began = self.rules, self._planned_reference[1]
        assignment, witnesses = self._assignment(set(present) - self.out_of_reach - self.without_duty)
        masked = self._masked(assignment, witnesses, set(present) - self.without_duty)
        return RoundPlan(
            run=rules.run,
            epoch=self.epoch,
            round=self.round,
            chain=self.chain,
            spec=self.recipe.spec.digest,
            roster=self._agreed(members),
            participants=self._participants(),
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
            unmaskers=masked,
            mask_keys=tuple(self.mask_keys.get(peer, b"").hex() for peer in members) if self.mask_keys else (),
        )

    def _masked(self, assignment: tuple[int, ...], witnesses: tuple[int, ...], present: set[int]) -> tuple[int, ...]:
        """Return the unmaskers of each shard, from the `present` peers with a mask key; empty if nothing is masked.

        `assignment` and `witnesses` are the shards' first and second aggregators, who cannot unmask them. In a
        simulation no peer shows a key: nothing is padded there, for the sums are the same.
        """
        chosen, count = list[int](), self.recipe.unmaskers
        able = present & self.mask_keys.keys() if self.mask_keys else present
        for shard, home in enumerate(assignment if count else ()):
            owners = (home, *witnesses[shard : shard + 1])
            untried = self._untried(home, able)
            found = choose_unmaskers(self.roster, owners, count, untried if len(untried - {*owners}) >= count else able)
            if len(found) < count:
                raise RunStopped(
                    f"shard {shard} has only {len(found)} of the {count} peers needed to unmask it",
                    fix="bring members back: a masked shard needs peers that do not aggregate it",
                    round=self.round,
                )
            chosen += found
        return tuple(chosen)

    def _untried(self, home: int, peers: set[int]) -> set[int]:
        """Return those of the peers that were in no pair with an aggregator that unmasked nothing."""
        return {peer for peer in peers if not self._failed.get(peer, set()) & self._failed.get(home, set())}

    def _participants(self) -> tuple[int, ...]:
        """Draw who trains; if too few of the draw are here but enough others, draw again among those here."""
        rules, here = self.rules, self._present()
        drawn = draw_participants(sorted(self.roster), rules.participation, self.recipe.public, self.round)
        if len(set(here) & set(drawn)) >= rules.min_contributors or len(here) < rules.min_contributors:
            return self._after_alarms(drawn, here)
        return draw_participants(here, min(1.0, len(drawn) / len(here)), self.recipe.public, self.round)

    def _after_alarms(self, drawn: tuple[int, ...], here: Collection[int]) -> tuple[int, ...]:
        """After two impossible sums in a row, let a different third sit out each round, as long as enough are left."""
        if self._alarms_in_a_row < ALARMS:
            return drawn
        rest = without_a_third(drawn, self._alarms)
        return rest if len(set(here) & set(rest)) >= max(self.rules.min_contributors, 2) else drawn

    def _verdict(self, current: OpenRound) -> Verdict:
        quorum = self._quorum(len(current.plan.roster))
        return current.verdict(quorum=quorum, excluded=self.excluded, max_share=self._placement.share)

    def _agreed(self, members: list[int]) -> Roster:
        """Return the current roster: the same object, digest included, as long as nobody comes or goes."""
        entries = tuple(self.roster[peer] for peer in members)
        if self._last_roster != entries:
            self._last_roster = Roster(entries)
        return self._last_roster

    def _note_duties(self, plan: RoundPlan) -> None:
        """Remember which shards each peer was given, however the round ended: members count them over the whole run."""
        for shard, peer in (*enumerate(plan.assignment), *enumerate(plan.witnesses)):
            self._had[peer].add(shard)

    def _note_reach(self, current: OpenRound) -> None:
        """Count the rounds in a row in which most participants could not reach an aggregator.

        This is the only sign of a firewall that lets the coordinator through but not the members.
        """
        unreached = current.unreached()
        for peer in current.plan.aggregators:
            self.unreached[peer] = self.unreached[peer] + 1 if peer in unreached else 0

    def _note_pairs(self, plan: RoundPlan, verdict: Verdict) -> None:
        """Assign a new pair to each shard that was not unmasked; exclude no peer for it.

        Which of the two failed is not known. Absent peers do not count: the next plan does without them anyway.
        """
        for entry in verdict.shards:
            pair = frozenset({*plan.aggregators_of(entry.shard), *plan.unmaskers_of(entry.shard)})
            if entry.lost in (Reason.UNMASK.value, Reason.WRONG_PADS.value) and not pair & self.absent:
                self._moved[entry.shard] += 1
                for peer in pair:
                    self._failed.setdefault(peer, set()).add(pair)

    @property
    def without_duty(self) -> set[int]:
        """Peers that were in several different pairs that unmasked nothing: they get neither shards nor pads any more.

        Empty where too few would be left for a shard: if nearly all fail, the fault is not theirs.
        """
        failed = {peer for peer, pairs in self._failed.items() if len(pairs) >= _MOST_FAILED_PAIRS}
        needed = self.recipe.policy.replicas + self.recipe.unmaskers
        return failed if len(set(self._present()) - failed) >= needed else set()

    def _present(self) -> list[int]:
        return [peer for peer in sorted(self.roster) if peer not in self.absent and peer not in self.excluded]

    def _quorum(self, members: int) -> int:
        return self.rules.quorum or members // 2 + 1

    def _assignment(self, present: set[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return self._placement.place(present)

    @property
    def _placement(self) -> Placement:
        return Placement(self.recipe.policy, self.rules, self.roster, self.round, self._moved, self._had)

    def _for_plan(self, digest: str, peer: int) -> OpenRound:
        if self._open is None or self._open.plan.digest != digest:
            raise Refused(Reason.WRONG_PLAN, "this is not about the current round", peer=peer, round=self.round)
        return self._open

    def _for_member(self, digest: str, peer: int) -> OpenRound:
        current = self._for_plan(digest, peer)
        if peer not in current.plan.weights:
            raise Refused(Reason.NOT_A_MEMBER, "only members report", peer=peer)
        return current

    def _all_done(self, current: OpenRound) -> bool:
        here = self.roster.keys() & current.plan.weights.keys() - self.absent - self.excluded.keys()
        return current.done(here)

    def _conclude(self, verdict: Verdict) -> None:
        for members in {entry.contributors for entry in verdict.shards if entry.committed}:  # mostly the same ones
            self._contributed |= dict.fromkeys(members, verdict.round)
        if self.recipe.figures is not None:
            self.best = self.best.after(verdict.round, self.recipe.figures.score(verdict.figures))
        lost = [entry.lost for entry in verdict.shards if not entry.committed]
        self.lost_reasons.update(lost)
        self.lost_in_a_row = self.lost_in_a_row + 1 if len(lost) == len(verdict.shards) else 0
        self.short_in_a_row = self.short_in_a_row + 1 if lost else 0
        alarm = self.recipe.encoding is not None and is_alarm(lost)
        self._alarms += alarm
        self._alarms_in_a_row = self._alarms_in_a_row + 1 if alarm else 0
        self.round, self.chain, self._open = verdict.round + 1, verdict.digest, None
