"""The course of a run as the coordinator conducts it: take members in, begin, announce, decide, end.

It speaks through bulletins that everybody reads in order. The run begins when all listed peers are there, or as many as
were asked for; one that comes later, or comes back, is on the roster of the next plan. A round that could publish
nothing is not played: the run waits. After the last verdict it stays until every member has the model, or the time for
that is up.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import islice

from eris.aggregate.figures import Figures
from eris.compose import Composition, compose, shared_figures
from eris.coordinate.attendance import Attendance, Present
from eris.errors import Reason, Refused, RunStopped
from eris.events import (
    NO_PROGRESS,
    EventStream,
    Listener,
    RoundStarted,
    RunCourseChanged,
    RunEnded,
    RunStarted,
    RunState,
    VerdictWritten,
)
from eris.local.spec import ModelSpec
from eris.peer.fault_points import FaultPoints
from eris.peer.federation_file import FederationFile
from eris.peer.journal import Resumption, SqliteJournal, is_older
from eris.protocol.best_round import BestRound
from eris.protocol.coordinator import Coordinator
from eris.protocol.false_manifest import FalseManifest, Lie, LieProof
from eris.protocol.journal import Entry, in_force
from eris.protocol.roster import Roster, RosterEntry, SignedLeave
from eris.protocol.round_plan import RoundPlan
from eris.protocol.seal import SEAL_PURPOSE, CertifiedSeal, Seal
from eris.protocol.take_over import first_epoch, term_of
from eris.protocol.verdict import Verdict
from eris.transport.board import Board
from eris.transport.bulletins import (
    Bulletin,
    PeerGone,
    PeerIdle,
    PlanBulletin,
    Revoked,
    RoundsDone,
    RunCourse,
    RunEnd,
    Settled,
    VerdictBulletin,
)
from eris.transport.calls import JoinRequest
from eris.transport.credentials import REVOKED, Credentials
from eris.transport.sealed import is_sealed
from eris.wire.schema import encode

__all__ = ["CoordinatorRun"]

_LOG = logging.getLogger(__name__)
_NAMED = 20  # how many of the awaited peers are named
_LONGEST_END = 4000  # characters: everybody must be able to read it
_SHORT_ROUNDS = 3  # in a row with a lost shard; one or two are what a restart costs
_MOMENT = 3.0  # seconds
_LOOK = 0.1  # seconds between two checks for silent peers
_MOST_STANDSTILLS = 3  # in a round that gets more time for them: nobody may draw it out for ever by keeping us busy


class CoordinatorRun:
    """One run; every call but `end` and `sealed` is made with `lock` held."""

    def __init__(
        self,
        federation: FederationFile,
        credentials: Credentials,
        journal: SqliteJournal,
        fault_points: FaultPoints | None = None,
        *,
        begin_with: int = 0,
        wait: float = math.inf,
        patience: float | None = None,
        linger: float = 0.0,
        lost_rounds: int = 0,
        listeners: Iterable[Listener] = (),
    ) -> None:
        """Wait for `begin_with` peers (0: all), for at most `wait` seconds.

        Args:
            credentials: the coordinator's own; they sign plans and verdicts.
            journal: what an earlier start left in it is continued.
            fault_points: where tests make this process fail.
            patience: seconds to wait, in the middle of the run, for members that are needed; None: a round's time.
            linger: seconds to wait, after the last round, for members that lack the model.
            lost_rounds: rounds in a row that may commit nothing before the run ends; 0: any number.
            listeners: hear of plans, verdicts and the course, with the lock held: they must be quick.
        """
        self.federation, self._credentials, self._journal = federation, credentials, journal
        self._fault_points, self._emit = fault_points or FaultPoints(), EventStream(listeners).aside
        self.lock, self.board = threading.Condition(), Board()
        self.attendance = Attendance(credentials, patience=federation.settings.connect)
        self.spec: ModelSpec | None = None
        self.composition: Composition | None = None
        self.coordinator: Coordinator | None = None
        self.ended = ""
        self._begin_with = begin_with or len(federation.peers)
        self._patience = federation.settings.round if patience is None else patience
        self._linger, self._lost_rounds = linger, lost_rounds
        self._waits, self._waits_until = "", time.monotonic() + wait  # why there is no round, until when to wait
        self._held = False  # the next round is not announced, because it could publish nothing
        self._stays_until, self._have_model = math.inf, set[int]()  # after the last round
        self._stays_since = math.inf
        self._said = "", ""  # the run's course as last announced: its state, and whom it waits for
        self._since = time.monotonic()
        self._planned = math.inf  # when the last plan was announced
        self._stood_still = 0  # how often, in the round in flight
        self._looked = -math.inf  # when silent peers were last checked for
        self._idle: set[tuple[str, int]] = set()  # (plan in flight, peer) of those that send nothing under it
        self._told = 0  # number of the revocation list that everybody has heard of
        self._figures = shared_figures(federation.config)
        self.unsettled: Verdict | None = None  # written, but not yet on enough disks to be followed
        self._kept_by: set[int] = set()
        mandates = journal.mandates()
        self.term = mandates[-1].term if mandates else 0  # of this coordinator: how often another took over before
        self._rounds_kept: int | None = None  # according to the journal, while there is no coordinator

    # ── members come and go ──────────────────────────────────────────────────────────────────────────────────────

    def join(self, present: Present) -> tuple[bool, RoundPlan | None, str]:
        """Take a peer in, or back.

        Returns whether its reference is still valid, the round under way, and which board to read.
        """
        entry, request = present.entry, present.request
        if self.coordinator is not None:
            self.coordinator.require_honest(entry.peer)
        elif self.spec is None or not (self.composition or self.attendance.present):
            self.spec = request.spec  # whoever was here first, with another model, has left
        assert self.spec is not None
        self.spec.require_same(request.spec.digest, where=f"peer {entry.name}", base=request.spec.base)
        moved = self.attendance.enter(present)
        under_way, board = self.coordinator.in_flight if self.coordinator else None, self.board.identity
        intact = self._take_in(entry, request)
        if under_way is not None:
            self._excuse(entry.peer, moved=moved, contributes=intact)
        if self._stays:
            self._stays_until = max(self._stays_until, time.monotonic() + self._linger)
            if not self._note_model(entry.peer, request) or moved:  # who has the model is news, too
                self._tell_of_last_round()
        return intact, under_way, board

    def _take_in(self, entry: RosterEntry, request: JoinRequest) -> bool:
        """Put a peer on the roster and begin the run with the last one; return whether its reference is valid."""
        if self.coordinator is None:
            members, present = {known.peer for known in self._journal.roster()}, self.attendance.present.keys()
            enough = members <= present if members else len(present) >= self._begin_with
            enough = enough and len(present) >= self.federation.majority
            if enough or self._has_model(request, self._last_verdict()):
                self._begin()
            return True
        self._note_heard(request)
        self.coordinator.join(entry)
        if request.mask_key is not None:
            self.coordinator.show_key(entry.peer, bytes.fromhex(request.mask_key.key))
        return self.coordinator.returned(
            entry.peer, private_round=request.private_round, reference_epoch=request.reference_epoch
        )

    def _note_heard(self, request: JoinRequest) -> None:
        """Continue after the last plan that a member has heard, which only counts if we signed it ourselves."""
        if request.heard is not None and self.coordinator is not None:
            run = self.composition.run if self.composition else ""
            seal, names = request.heard.seal, self.federation.coordinators
            ours = seal.run == run and term_of(seal.epoch) <= self.term
            if ours and is_sealed(request.heard, self._credentials.issued, names):
                self.coordinator.overtaken(seal.name)

    def leave(self, peer: int, leave: SignedLeave | None = None) -> None:
        """Let a peer go: for good if it signed that, or because the run is over for it."""
        self.attendance.leave(peer)
        if self.coordinator is None or self.ended:
            return
        if leave is not None:
            self.coordinator.leave(peer, leave)
        else:
            self._gone(self.coordinator, peer)

    def sit_out(self, peer: int, plan: str) -> None:
        """Announce once per round that a member sends nothing; ignore repeats."""
        said, in_flight = (plan, peer), self.running.in_flight
        if said in self._idle or in_flight is None or in_flight.digest != plan:
            return
        self._idle = {other for other in self._idle if other[0] == plan} | {said}
        self._excuse(peer, moved=False, contributes=False)

    def _gone(self, coordinator: Coordinator, peer: int) -> None:
        """Tell everybody to stop waiting for a peer."""
        coordinator.gone(peer)
        self._post(PeerGone(peer))

    def _excuse(self, peer: int, *, moved: bool, contributes: bool) -> None:
        """Tell everybody not to wait for a peer in this round: it came back before it was missed, or sits it out.

        A peer that `moved` cannot be dialled before the next plan; one that does not contribute may still be dialled.
        """
        if moved:
            self._post(PeerGone(peer))
        elif not contributes:
            self._post(PeerIdle(peer))

    # ── the course ───────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def running(self) -> Coordinator:
        """The role that decides; refuses before the run has begun."""
        if self.coordinator is None:
            raise Refused(Reason.WRONG_ROUND, "the run has not begun")
        return self.coordinator

    def decide(self) -> None:
        """Do what is due: restart without absent peers, continue without silent ones, write the verdict."""
        if self.coordinator is None:
            self._begin_again()
            return
        self._give_up_silent(self.coordinator)
        if self.unsettled is not None:
            self._settle(self.coordinator, self.unsettled)
            return
        if self._stays:
            self._end_when_all_have_the_model(self.coordinator)
            return
        if self._held:
            self._announce_plan(self.coordinator)
            return
        if self._nobody_is_in_the_round(self.coordinator):
            self._take_back(self.coordinator)
            return
        if self.coordinator.is_futile(time.monotonic()):
            _LOG.warning(
                "round %d is cancelled: too few members were present to publish a shard", self.coordinator.round
            )
            self.coordinator.rewind(self.coordinator.round)
            self._announce_plan(self.coordinator)
            return
        if self.coordinator.is_unheard(time.monotonic()):
            what = "round %d is cancelled: fewer than %d of the listed peers reported"
            _LOG.warning(what, self.coordinator.round, self.federation.majority)
            self.coordinator.rewind(self.coordinator.round)
            self._announce_plan(self.coordinator)
            return
        plan, verdict = self.coordinator.in_flight, self.coordinator.decide(time.monotonic())
        if verdict is not None and plan is not None:
            self._fault_points("written", round=verdict.round)
            self._emit(VerdictWritten(verdict.round, plan, verdict))
            with self.board.together():
                self._tell(verdict, self.coordinator)
                if self.federation.majority:
                    self.unsettled, self._kept_by = verdict, set()
                else:
                    self._announce_plan(self.coordinator)

    # ── where another coordinator may take over ──────────────────────────────────────────────────────────────────

    def note_kept(self, peer: int, verdict: str) -> None:
        """Note that a peer has the last verdict on its disk."""
        if self.unsettled is not None and self.unsettled.digest == verdict:
            self._kept_by.add(peer)

    def _settle(self, coordinator: Coordinator, verdict: Verdict) -> None:
        """Announce a verdict as settled once more than half of the listed peers have it on disk; wait until then.

        If too few are here for that, all begin again when they are back: whoever joins keeps the verdict first.
        """
        if len(self._kept_by) >= self.federation.majority:
            self.unsettled = None
            self._fault_points("settled", round=verdict.round)
            with self.board.together():
                self._post(Settled(verdict.digest))
                self._announce_plan(coordinator)
        elif not coordinator.has_quorum:
            held = f"{len(self._kept_by)} of {self.federation.majority} peers that must hold its verdict do"
            self._await_members(f"round {verdict.round}: {held}")

    @property
    def waiting(self) -> str:
        """Why there is no round, while too few members are here."""
        if self.ended:
            return ""
        if self.coordinator is not None:
            return self._waits if self._held or self._stays else ""
        missing = [number for number in range(len(self.federation.peers)) if number not in self.attendance.present]
        return self._waits or f"waiting for {self._names(missing)}"

    @property
    def course(self) -> RunCourse:
        """The state of the run, in a word and a sentence."""
        if self.ended:
            return RunCourse(RunEnded(0, self.ended == "finished", "", 0.0, self.ended).state, self.ended)
        if self.waiting or self.coordinator is None:
            until = self._stays_until if self._stays else self._waits_until
            left = f" (for {math.ceil(until - time.monotonic()):,} s)" if time.monotonic() < until < math.inf else ""
            return RunCourse(RunState.WAITING, self.waiting + left)
        coordinator = self.coordinator
        if coordinator.lost_in_a_row or coordinator.short_in_a_row >= _SHORT_ROUNDS:
            return RunCourse(RunState.DEGRADED, self._losses(coordinator))
        return RunCourse(RunState.TRAINING)

    def tell_course(self) -> None:
        """Announce the state of the run if it has changed."""
        course, waiting = self.course, self.waiting if self._held else ""
        if self._stays and time.monotonic() < self._stays_since + _MOMENT:
            return  # usually all have the model in a moment, and the run is over
        if not self.ended and (course.state, waiting) != self._said:
            _LOG.info("the run is %s%s", course.state, course.why and f": {course.why}")
            self._said = course.state, waiting
            self._post(course)
            self._emit(RunCourseChanged(course.state, course.why))

    @staticmethod
    def _losses(coordinator: Coordinator) -> str:
        rounds, what = coordinator.lost_in_a_row, "committed nothing"
        if not rounds:
            rounds, what = coordinator.short_in_a_row, "lost shards"
        reasons = ", ".join(reason for reason, _ in coordinator.lost_reasons.most_common(3))
        return f"the last {rounds} rounds {what} ({reasons})" if rounds > 1 else f"the last round {what} ({reasons})"

    def _names(self, numbers: Collection[int]) -> str:
        names = [self.federation.peers[number] for number in sorted(numbers)]
        return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED:,} others" if len(names) > _NAMED else "")

    def forgive(self, seconds: float) -> None:
        """Extend all deadlines by the time this process was frozen or starved, a few times in a round at most."""
        self.attendance.forgive(seconds)
        self._stood_still += 1
        if self.coordinator is not None and self._stood_still <= _MOST_STANDSTILLS:
            self.coordinator.postpone(seconds)

    def end(self, how: str) -> None:
        """End the run, once, and announce how."""
        with self.lock:
            if not self.ended:
                self.ended = how[:_LONGEST_END]
                self._post(RunEnd(self.ended))
                done = self.coordinator.round if self.coordinator is not None else 0
                self._emit(RunEnded(done, how == "finished", "", time.monotonic() - self._since, how))
            self.lock.notify_all()

    def _post(self, bulletin: Bulletin) -> None:
        self.board.post(encode(bulletin))

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _stays(self) -> bool:
        """Whether all rounds have a verdict and the run only stays for peers that lack some."""
        return self._stays_until < math.inf

    @property
    def _rounds(self) -> int:
        """How many rounds the run has: as agreed, or fewer once the members' figures have ended it."""
        agreed, figures = self.federation.config.rounds, self._figures
        if figures is None or not figures.patience:
            return agreed
        if self.coordinator is not None:
            return self.coordinator.round if self.coordinator.is_done(agreed) else agreed
        if self._rounds_kept is None:  # nobody asks for a round before the run has begun again
            self._rounds_kept = _rounds_in(self._journal, figures, agreed)
        return self._rounds_kept

    def _last_verdict(self) -> str:
        """Return the digest of the last round's verdict; empty if it has none."""
        pairs = self._journal.since(self._rounds - 1)
        return pairs[-1][1].digest if pairs else ""

    def _has_model(self, request: JoinRequest, last: str) -> bool:
        """Whether a peer has followed the last verdict."""
        return bool(last) and request.chain == last and request.private_round >= self._rounds

    def _stay(self, coordinator: Coordinator) -> None:
        """Keep everybody who has the model here until all have it: it exists nowhere else."""
        self._stays_since = time.monotonic()
        self._stays_until, self._have_model = self._stays_since + self._linger, set()
        for peer, present in self.attendance.present.items():
            self._note_model(peer, present.request)
        self._tell_of_last_round()
        self._end_when_all_have_the_model(coordinator)

    def _note_model(self, peer: int, request: JoinRequest) -> bool:
        """Note that a peer has the model on its disk, as it may be gone again before all others have it."""
        if self._has_model(request, self._last_verdict()):
            self._have_model.add(peer)
        return peer in self._have_model

    def _tell_of_last_round(self) -> None:
        """Announce that all rounds are done, and again when somebody comes without the model, or with it."""
        plan, _ = self._journal.since(self._rounds - 1)[-1]
        self._post(RoundsDone(plan, self._edition, self.sealed(plan)))

    def _end_when_all_have_the_model(self, coordinator: Coordinator) -> None:
        lacking = coordinator.roster.keys() - coordinator.excluded.keys() - self._have_model
        if lacking and time.monotonic() < self._stays_until:
            self._waits = f"all rounds are done; serving the model to {self._names(lacking)}"
            return
        if lacking:
            _LOG.warning("the run ends without %s, which did not fetch the model", self._names(lacking))
        self.end("finished")

    # ── beginning ────────────────────────────────────────────────────────────────────────────────────────────────

    def _begin(self) -> None:
        self._waits, self._waits_until, self._held, self._stays_until = "", math.inf, False, math.inf
        requests = {number: present.request for number, present in self.attendance.present.items()}
        if is_older(self._journal, requests):
            self.end("the coordinator's database is older than the run: most members know verdicts that are not in it")
            return
        roster = self._roster()
        self.composition = self._compose(roster)
        homes = self._homes(roster, self.composition.recipe.policy.shards)
        if homes is None:
            return
        rules = self.federation.rules(self.composition.run, homes)
        verify = self.attendance.verify
        epoch = first_epoch(self.term)
        coordinator = Coordinator(self.composition.recipe, rules, roster, self._journal, epoch=epoch, verify=verify)
        self.coordinator = coordinator
        for request in requests.values():
            self._note_heard(request)
        if not self._goes_on_with_this_model(coordinator):
            return
        coordinator.restart_clock(time.monotonic())
        for entry in roster:
            present = self.attendance.present.get(entry.peer)
            if present is None or entry.peer in coordinator.excluded:
                coordinator.gone(entry.peer)
            else:
                self._take_in(entry, present.request)
        self._go_back(coordinator, requests)
        _LOG.info("the run begins with %d peers at round %d", len(self.attendance.present), coordinator.round)
        self._tell_of_start(self.composition, coordinator.round)
        self._announce_plan(coordinator)

    def _tell_of_start(self, composition: Composition, first_round: int) -> None:
        config, recipe = self.federation.config, composition.recipe
        sizes = config.rounds, first_round, config.members, recipe.policy.shards, recipe.spec.n
        self._emit(RunStarted(composition.run, composition.method.name, *sizes, recipe.describe()))

    def _goes_on_with_this_model(self, coordinator: Coordinator) -> bool:
        """Take back an unconcluded first round that was for another model; in a later round, end and return False."""
        plan, spec = coordinator.in_flight, coordinator.recipe.spec.digest
        if plan is None or (plan.run, plan.spec) == (coordinator.rules.run, spec):
            return True
        if coordinator.round == 0:
            coordinator.rewind(0)
            return True
        self.end(f"{coordinator.round} rounds were played with another model or other settings: give another --state")
        return False

    def _go_back(self, coordinator: Coordinator, requests: Mapping[int, JoinRequest]) -> None:
        """Continue from a round that the members have, with a plan that makes no member contradict what it sent."""
        if any(self._has_model(request, self._last_verdict()) for request in requests.values()):
            return  # the others get it from there
        resumption = Resumption(self._journal, requests, coordinator.round)
        target = resumption.goes_back_to(self._quorum(len(coordinator.roster)))
        if target is not None:
            _LOG.warning("not all have round %d any more: the run continues from round %d", coordinator.round, target)
            coordinator.rewind(target)
        elif resumption.aggregator_forgot(coordinator.in_flight):
            coordinator.rewind(coordinator.round)

    def _homes(self, roster: list[RosterEntry], shards: int) -> tuple[int, ...] | None:
        """Return each shard's aggregator when all are here; None, and the end of the run, if too few ever could be.

        Shards whose home has left, is yet to come, or cannot be dialled after a restart are given to others.
        """
        able = [entry.peer for entry in roster if entry.can_aggregate][:shards]
        if len(able) < shards and len(roster) == len(self.federation.peers) and not self._journal.roster():
            self.end(f"{shards} aggregators are needed, {len(able)} peers can be dialled")
            return None
        others = (number for number in range(len(self.federation.peers)) if number not in able)
        return tuple(sorted([*able, *islice(others, shards - len(able))]))

    def _begin_again(self) -> None:
        """Continue after a restart with a quorum of the members, if the others do not come back in time."""
        members, present = len(self._journal.roster()), self.attendance.present
        waited = time.monotonic() - min((peer.joined for peer in present.values()), default=math.inf)
        if members and len(present) >= self._quorum(members) and waited > self.federation.settings.connect:
            self._begin()
        elif time.monotonic() > self._waits_until:
            self.end(f"not enough members joined in time: {self.waiting}")

    def _await_members(self, why: str) -> None:
        """Begin anew when the members are back, as after a restart of this process, within `patience` seconds.

        Members still here join again, because the board is a new one.
        """
        _LOG.warning("%s; waiting for members for %g s", why, self._patience)
        self._waits, self._waits_until = why, time.monotonic() + self._patience
        self._said = "", ""
        self.coordinator, self._rounds_kept, self.unsettled = None, None, None
        self.board.renew()
        self.attendance.present.clear()

    def _roster(self) -> list[RosterEntry]:
        """Return the members that the journal knows, with their current entries, and the new ones."""
        known = {entry.peer: entry for entry in self._journal.roster()}
        known |= {number: present.entry for number, present in self.attendance.present.items()}
        return [known[number] for number in sorted(known)]

    def _compose(self, roster: list[RosterEntry]) -> Composition:
        assert self.spec is not None
        weights, config = {entry.peer: int(entry.weight) for entry in roster}, self.federation.config
        return compose(config, self.spec, [weights.get(number, 1) for number in range(config.members)])

    def _quorum(self, members: int) -> int:
        return max(self.federation.settings.quorum or members // 2 + 1, self.federation.majority)

    # ── going on ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _announce_plan(self, coordinator: Coordinator) -> None:
        self._drop_unwelcome(coordinator)
        if coordinator.is_done(self.federation.config.rounds):
            self._stay(coordinator)
            return
        left = len(coordinator.roster.keys() - coordinator.excluded.keys())
        if left < coordinator.rules.min_contributors:
            self.end(f"{left} members are left, too few to publish anything")
            return
        if 0 < self._lost_rounds <= coordinator.lost_in_a_row:
            self.end(f"{NO_PROGRESS}: {self._losses(coordinator)}")
            return
        if coordinator.has_quorum and self._hold(coordinator):
            return
        for peer in sorted(coordinator.out_of_reach & set(coordinator.rules.aggregators)):
            _LOG.warning(
                "round %d: too few members can dial %s: it is given no shard until it joins again, with its port open",
                coordinator.round,
                coordinator.roster[peer].name if peer in coordinator.roster else peer,
            )
        try:
            plan = coordinator.plan(time.monotonic())
        except RunStopped as stopped:
            if coordinator.has_quorum:
                self.end(str(stopped))
            else:
                self._await_members(str(stopped))
            return
        self._planned, self._stood_still = time.monotonic(), 0
        self._fault_points("planned", round=plan.round)
        self._emit(RoundStarted(plan.round, plan.participants, plan.assignment, witnesses=plan.witnesses))
        absent, seal = tuple(sorted(coordinator.absent)), self.sealed(plan)
        self._post(PlanBulletin(plan, self._initial(plan), absent, self._edition, seal))

    def sealed(self, document: RoundPlan | Verdict) -> Seal:
        """Sign a plan or a verdict that is in the journal; for an earlier term, return its own coordinator's seal."""
        if term_of(document.epoch) < self.term and (kept := self._journal.seal_of(document.digest)) is not None:
            return kept.seal
        seal = Seal.of(document, self._journal.superseded(document.epoch))
        return replace(seal, signature=self._credentials.sign(SEAL_PURPOSE, seal.signed_bytes).hex())

    def proofs(self, peers: Collection[int]) -> tuple[LieProof, ...]:
        """Return the proofs against these excluded peers, for anyone to check."""
        excluded = self.coordinator.excluded if self.coordinator is not None else {}
        return tuple(self._proof(excluded[peer]) for peer in peers if peer in excluded)

    def _proof(self, lie: Lie) -> LieProof:
        manifests = (lie.manifest,) if isinstance(lie, FalseManifest) else (lie.first, lie.second)
        plan = self._journal.find_plan(manifests[0].plan)
        kept = self._journal.seal_of(plan.digest)
        seal = kept or CertifiedSeal(self.sealed(plan), self._credentials.identity.certificate)
        certificate = self.attendance.certificate(lie.aggregator)
        receipt = lie.receipt if isinstance(lie, FalseManifest) else None
        return LieProof(manifests, certificate, plan.encoded, Roster(plan.roster).encoded, seal, receipt)

    @property
    def _edition(self) -> str:
        return f"{self.board.identity}-{self.attendance.edition}"  # another start counts from the beginning

    def _hold(self, coordinator: Coordinator) -> bool:
        """Hold the next round back while it could publish nothing, as long as patience lasts."""
        lacking, now = coordinator.lacking, time.monotonic()
        if not lacking:
            self._held, self._waits, self._waits_until = False, "", math.inf
            return False
        if coordinator.in_flight is not None:  # from before a restart
            coordinator.rewind(coordinator.round)
        if not self._held:
            self._held, self._waits_until = True, now + self._patience
        needed = coordinator.rules.min_contributors
        self._waits = f"round {coordinator.round} needs {needed} contributors, waiting for {self._names(lacking)}"
        if now >= self._waits_until:
            self.end(f"not enough members returned within {self._patience:g} s: {self._waits}")
        return True

    def _initial(self, plan: RoundPlan) -> str:
        """Return the digest of the x⁰ that most peers computed, in the first round."""
        if plan.round:
            return ""
        digests = [present.request.initial for present in self.attendance.present.values()]
        return max(sorted(set(digests)), key=digests.count)

    def _tell(self, verdict: Verdict, coordinator: Coordinator) -> None:
        for finding in coordinator.disagreements:
            if finding.first.round == verdict.round:
                _LOG.error("two aggregators disagree: %s", finding)
        for entry in verdict.shards:
            if not entry.committed:
                _LOG.warning("round %d: shard %d is lost: %s", verdict.round, entry.shard, entry.lost)
        self._post(VerdictBulletin(verdict, self.sealed(verdict)))

    def _give_up_silent(self, coordinator: Coordinator) -> None:
        """Go on without peers whose connection stays broken: nobody waits for their contribution or their shard."""
        if (now := time.monotonic()) < self._looked + _LOOK:  # not with every report: a thousand peers send many
            return
        self._looked = now
        for present in self.attendance.silent():
            if present.entry.peer not in coordinator.absent:
                _LOG.warning("%s is away: the round continues without it", present.entry.name)
                self._gone(coordinator, present.entry.peer)

    def _nobody_is_in_the_round(self, coordinator: Coordinator) -> bool:
        """Whether everyone who was in the round is gone: nobody is here, or only peers that came after its plan."""
        here = [present for number, present in self.attendance.present.items() if number not in coordinator.absent]
        came = (p.joined > self._planned and p.request.private_round <= coordinator.round for p in here)
        return coordinator.in_flight is not None and all(came)

    def _take_back(self, coordinator: Coordinator) -> None:
        """Strike out the plan in flight, as nobody could hold what it publishes; it is played when all are back."""
        coordinator.rewind(coordinator.round)
        if coordinator.has_quorum:
            self._await_members(f"all who are here came back in the middle of round {coordinator.round}")
        else:
            self._announce_plan(coordinator)

    def _drop_unwelcome(self, coordinator: Coordinator) -> None:
        """Take peers whose certificate was revoked or has expired off the roster, and pass on the CA's list."""
        self._credentials.refresh()
        for number, refusal in self.attendance.unwelcome():
            if number in coordinator.roster:
                _LOG.warning("%s is taken off the roster: %s", coordinator.roster[number].name, refusal)
                coordinator.leave(number)
                self.attendance.leave(number)
        if self._credentials.revocations.number > self._told:
            self._told = self._credentials.revocations.number
            self._post(Revoked(self._credentials.read(REVOKED)))


def _rounds_in(journal: Iterable[Entry], figures: Figures, agreed: int) -> int:
    """Return after how many rounds the members' `figures` ended a run; the `agreed` number if they have not."""
    best, done = BestRound(), 0
    for entry in in_force(list(journal)):
        if isinstance(entry, Verdict):
            best, done = best.after(entry.round, figures.score(entry.figures)), entry.round + 1
    return done if best.since >= figures.patience else agreed
