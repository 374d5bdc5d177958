"""One round as a peer plays it, from plan to verdict, in the order in which it happens:

stand before it → begin → train → send parts, hold what is published → report → await the verdict → step
"""

from __future__ import annotations

import logging
import math
import time
from bisect import bisect
from collections.abc import Mapping
from dataclasses import dataclass

from eris.errors import Reason, Refused, RunStopped
from eris.events import EventStream, MemberTrained, RoundStarted, Sent, ShardPublished, VerdictWritten
from eris.peer.admission import Admission
from eris.peer.aggregator_client import Delivery, ShardResult
from eris.peer.catch_up import CatchUp
from eris.peer.coordinator_line import CoordinatorLine
from eris.peer.fault_points import FaultPoints
from eris.peer.peer_links import PeerLinks
from eris.peer.reporter import Reporter
from eris.peer.round_events import largest_share, published_events, sent_event
from eris.peer.training import Trained, Training
from eris.protocol.false_manifest import lie_of
from eris.protocol.member import Member
from eris.protocol.messages import Equivocation, Upload, Withheld
from eris.protocol.round_plan import RoundPlan
from eris.protocol.verdict import Verdict
from eris.transport.bulletins import PeerGone, PlanBulletin, RoundsDone, RunEnd, VerdictBulletin
from eris.transport.link import LinkError

__all__ = ["ConcludedRound", "RoundPlayer"]

_LOG = logging.getLogger(__name__)
_LOOK_AROUND = 1.0  # seconds after which a waiting thread checks whether the peer was closed


@dataclass(frozen=True, slots=True)
class ConcludedRound:
    """A round that this peer completed up to the step."""

    plan: RoundPlan
    verdict: Verdict
    loss: float  # of its own training; NaN if it sent nothing
    seconds: Mapping[str, float]  # by stage, and of the whole round
    largest_share: float  # largest share of its update that any other peer was to receive
    metrics: Mapping[str, float]  # what its task reports about its training besides


class _Stopwatch:
    """Measures how long each stage took, one after another."""

    def __init__(self, began: float) -> None:
        self._last = began
        self.stages: dict[str, float] = {}

    def stop(self, stage: str) -> None:
        now = time.monotonic()
        self.stages[stage], self._last = now - self._last, now


class RoundPlayer:
    """Plays the rounds of one peer, one after another; `left` says whether the others play on without it."""

    def __init__(
        self,
        member: Member,
        training: Training,
        line: CoordinatorLine,
        links: PeerLinks,
        reporter: Reporter,
        admission: Admission,
        catch_up: CatchUp,
        emit: EventStream,
        fault_points: FaultPoints,
        *,
        name: str,
        initial: str,
    ) -> None:
        """Prepare to play.

        Args:
            line: leads to the coordinator.
            links: lead to the other peers.
            name: our own.
            initial: digest of x⁰ as we computed it.
        """
        self._member, self._training, self._emit, self._fault_points = member, training, emit, fault_points
        self._inbox, self._witness = line.inbox, line.witness
        self._aggregator, self._clients = links.aggregator, links.clients
        self._reporter, self._admission, self._catch_up = reporter, admission, catch_up
        self._name, self._initial = name, initial
        self.left = False
        self._sent = ""  # digest of the plan under which this process last sent parts
        self._may_repeat = True  # whether others may hold parts of ours for this plan from before a restart

    def play(self, bulletin: PlanBulletin) -> ConcludedRound | None:
        """Play a round; None if it was over before we could contribute, or ended without our step."""
        began, plan = time.monotonic(), bulletin.plan
        watch = _Stopwatch(began)
        if not self._stand_before(plan, bulletin.initial):
            return None
        self._begin(plan)
        deadline = began + plan.deadlines.report
        trained = self._train(plan)
        watch.stop("train")
        self._exchange(plan, trained.uploads if trained is not None else [], deadline)
        self._aggregator.wait_until_told(deadline)
        watch.stop("exchange")
        stated = self._reporter.report(plan)
        self._fault_points("reported", round=plan.round)
        verdict = self._await_verdict(plan)
        watch.stop("verdict")
        if verdict is None:
            return None
        if trained is not None:
            self._training.keep()
        self._require_guilty(plan, verdict)
        if not self._step(verdict, deadline, stated):
            return None
        watch.stop("step")
        self._tell_of(plan, verdict)
        loss = trained.loss if trained is not None else math.nan
        share = largest_share(plan, self._member.recipe, self._member.peer)
        metrics = trained.metrics if trained is not None else {}
        seconds = {**watch.stages, "round": time.monotonic() - began}
        return ConcludedRound(plan, verdict, loss, seconds, share, metrics)

    # ── before ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _stand_before(self, plan: RoundPlan, initial: str) -> bool:
        """Get to the state in which the round begins; False if it is over, or will be before we could contribute."""
        member = self._member
        if self._inbox.is_stale(plan) or (plan.round < member.round and not self._catch_up.strayed()):
            return False
        if (plan.round, plan.chain) != (member.round, member.chain):
            self._catch_up.catch_up()
        differs = initial and plan.round == member.round == 0 and initial != self._initial
        if differs and not self._catch_up.fetch_initial(plan, initial):
            return False
        # otherwise we have a snapshot from after it, or the run went back before it
        return (plan.round, plan.chain) == (member.round, member.chain) and self._holds_verdicts_before(plan)

    def _holds_verdicts_before(self, plan: RoundPlan) -> bool:
        """Whether we may report under a plan: with standbys, only with all verdicts before it on our disk."""
        try:
            return self._catch_up.keeps_up_to(plan.chain)
        except LinkError as error:
            _LOG.warning("round %d: the verdicts before it cannot be fetched: %s", plan.round, error)
            return False

    def _begin(self, plan: RoundPlan) -> None:
        self._member.begin(plan)
        self._fault_points("plan", round=plan.round)
        who, model = (plan.participants, plan.assignment), self._member.replica.model
        self._emit(RoundStarted(plan.round, *who, model, witnesses=plan.witnesses, unmaskers=plan.unmaskers))
        if self._member.lost_reference:  # only asked here: a plan that begins an epoch may come with the verdict
            self._admission.ask_for_reference()

    def _train(self, plan: RoundPlan) -> Trained | None:
        trained, me = self._training.train(plan), self._member.peer
        if trained is not None:
            what = (trained.samples, trained.steps, trained.loss, trained.seconds, trained.limited)
            self._emit(MemberTrained(plan.round, me, *what))
            for shard in self._member.unsent:
                _LOG.warning(
                    "round %d: nothing is sent to shard %d: with what its aggregator has of updates from this "
                    "state, it would see more than this member's floor allows",
                    plan.round,
                    shard,
                )
        if me in plan.participants and (trained is None or not trained.uploads):
            self._reporter.sit_out(plan)
        return trained

    # ── the exchange: parts out to all aggregators at once, published shards back ────────────────────────────────

    def _exchange(self, plan: RoundPlan, uploads: list[Upload], deadline: float) -> None:
        """Send our parts, and hold what is published until every shard is accounted for or the time is up."""
        me = self._member.peer
        others = sorted(plan.aggregators - {me})
        first = bisect(others, me) % len(others) if me in plan.aggregators and others else me % max(1, len(others))
        owners = others[first:] + others[:first]  # everybody begins with a different one
        self._clients.under_way.begin(plan.digest, set(owners) if uploads else set())
        for owner in owners:
            shards = plan.shards_of(owner)
            parts = tuple(upload for upload in uploads if upload.shard in shards)
            self._clients.to(owner).go(Delivery(plan, parts, shards, deadline))
        mine, arrived = plan.shards_of(me), set[tuple[int, int]]()  # (shard, aggregator) where our part arrived
        for upload in uploads:
            if upload.shard in mine and self._contribute_to_myself(upload):
                arrived.add((upload.shard, me))
        for shard in mine:
            self._hold_own(plan, shard, deadline)
        waiting = {(shard, owner) for owner in owners for shard in plan.shards_of(owner)}
        self._may_repeat = self._sent in ("", plan.digest)
        self._sent = plan.digest
        brought, answered = self._hold_results(plan, waiting, deadline)
        arrived |= brought
        if uploads and not self._inbox.is_over(plan):
            self._member.out_of_reach(set(owners) - answered - self._inbox.gone)
        if uploads and self._emit.wants(Sent):
            self._emit(sent_event(self._member.uncovered(uploads), arrived, plan, self._member.recipe, me))
        for shard in range(plan.shards):
            if (finding := self._member.disagreement(shard)) is not None:
                _LOG.error("%s", finding)

    def _contribute_to_myself(self, upload: Upload) -> bool:
        try:
            self._aggregator.receive(upload, self._member.peer)
        except Refused as refusal:
            _LOG.warning("round %d: this peer's own contribution: %s", upload.round, refusal)
            if refusal.reason is Reason.CONFLICT:
                self._member.disown()
            return False
        return True

    def _hold_own(self, plan: RoundPlan, shard: int, deadline: float) -> None:
        try:
            outcome = self._aggregator.outcome(plan.digest, shard, deadline)
            if isinstance(outcome, Withheld):
                self._member.withhold(outcome)
            elif plan.assignment[shard] == self._member.peer:
                self._member.receive(outcome)
            else:
                self._member.second(outcome.manifest)
        except Refused as refusal:  # too late, or our own address book lacks us because it could not be fetched
            _LOG.warning("round %d: this peer's own shard %d: %s", plan.round, shard, refusal)
            self._member.withhold(Withheld(plan.digest, shard, self._member.peer, refusal.reason))

    def _hold_results(
        self, plan: RoundPlan, waiting: set[tuple[int, int]], deadline: float
    ) -> tuple[set[tuple[int, int]], set[int]]:
        """Take the clients' results until all shards are accounted for, the time is up, or the round has a verdict.

        `waiting` holds (shard, aggregator) for each result that is still to come, and is emptied on the way.

        Returns (shard, aggregator) for each receipt that our parts got, and the peers that answered.
        """
        arrived: set[tuple[int, int]] = set()
        answered: set[int] = set()
        self._inbox.stirred = self._clients.results.stir
        while waiting and (left := deadline - time.monotonic()) > 0 and not self._inbox.is_over(plan):
            gone = self._inbox.gone
            for shard, owner in [(shard, owner) for shard, owner in waiting if owner in gone] if gone else []:
                waiting.discard((shard, owner))
                self._member.withhold(Withheld(plan.digest, shard, owner, Reason.GONE))
            for result in self._clients.results.take(len(waiting), min(left, _LOOK_AROUND)) if waiting else []:
                if result.plan != plan.digest:
                    continue
                waiting.discard((result.shard, result.peer))
                if result.arrived:
                    arrived.add((result.shard, result.peer))
                if result.answered:
                    answered.add(result.peer)
                self._hold(plan, result)
        return arrived, answered

    def _hold(self, plan: RoundPlan, result: ShardResult) -> None:
        if result.refused_upload is Reason.CONFLICT:
            self._give_up_update(plan, result)
        try:
            self._take(result)
        except Refused as refusal:
            _LOG.warning("round %d: shard %d: %s", plan.round, result.shard, refusal)
            signed = result.manifest or (result.published.manifest if result.published else None)
            if signed is not None and lie_of(plan, signed):
                self._reporter.accuse(signed)
            # Its aggregator has answered: nobody waits out the round for what no honest peer would have sent.
            self._member.withhold(Withheld(plan.digest, result.shard, result.peer, refusal.reason))
        if result.reason is not None:
            self._member.withhold(Withheld(plan.digest, result.shard, result.peer, result.reason))

    def _give_up_update(self, plan: RoundPlan, result: ShardResult) -> None:
        """Believe that a peer holds another part of ours only if we may have sent one: it costs our reference."""
        if self._may_repeat:
            self._member.disown()
        else:
            what = "round %d: peer %d claims to hold another part of ours of shard %d, which we never sent"
            _LOG.error(what, plan.round, result.peer, result.shard)

    def _take(self, result: ShardResult) -> None:
        signed = result.manifest or (result.published.manifest if result.published is not None else None)
        if result.arrived and signed is not None and self._member.peer not in signed.contributors:
            what = "round %d: peer %d gave a receipt for our part of shard %d, and left it out"
            _LOG.error(what, signed.round, result.peer, result.shard)
        if signed is not None and (lie := self._member.broken(signed, result.receipt)) is not None:
            self._reporter.accuse(lie)
            raise Refused(
                Reason.FALSE_MANIFEST, "this member's contribution was acknowledged but left out", shard=result.shard
            )
        if result.manifest is not None:
            self._member.second(result.manifest)
        if result.published is not None:
            proof = self._member.receive(result.published)
            if isinstance(proof, Equivocation):
                _LOG.error("peer %d signed two manifests for shard %d", proof.aggregator, result.shard)

    # ── the verdict ──────────────────────────────────────────────────────────────────────────────────────────────

    def _await_verdict(self, plan: RoundPlan) -> Verdict | None:
        """Wait for the round's verdict; a coordinator that comes back asks for the report again."""
        while True:
            bulletin = self._inbox.next(self._member.round)
            match bulletin:
                case VerdictBulletin(verdict) if verdict.plan == plan.digest:
                    return verdict
                case RunEnd():
                    self._inbox.put_back(bulletin)
                    return None
                case RoundsDone():  # a coordinator that was away has a new board, without the last verdict
                    self._inbox.put_back(bulletin)
                    return self._catch_up.verdict_of(plan)
                case PlanBulletin(later) if later.when > plan.when:
                    self._inbox.put_back(bulletin)
                    return self._catch_up.verdict_of(plan)  # written but never announced; or the run went back
                case PlanBulletin(again) if again.digest == plan.digest:
                    self._reporter.report(plan)
                case PeerGone():
                    self._reporter.report_without(plan)

    def _require_guilty(self, plan: RoundPlan, verdict: Verdict) -> None:
        """Require proof against everyone the verdict excludes; if the coordinator is away, ask another time."""
        try:
            self._witness.require_guilty(plan, verdict, self._reporter.lies_of)
        except LinkError as error:
            _LOG.warning("round %d: the proof for an exclusion could not be fetched: %s", plan.round, error)

    def _step(self, verdict: Verdict, deadline: float, stated: str) -> bool:
        """Follow the verdict; False if that failed, as nobody gave us what it committed: we left, or took a snapshot.

        `stated` is the replica digest that we reported.
        """
        try:
            self._catch_up.conclude(verdict, deadline, stated=stated)
        except RunStopped as lacking:
            if self._clients.book.number(self._name) is None:  # the others play on without us, and owe us nothing more
                self.left = True
                return False
            _LOG.warning("%s; this peer takes a snapshot", lacking)
            self._catch_up.catch_up()
            return False
        for told in self._member.untold:
            _LOG.error(
                "round %d: the verdict calls this peer late, and does not say whose pads it gave out for shard %d; "
                "if this happens again though reports arrive, the coordinator is not honest",
                verdict.round,
                told.shard,
            )
        self._fault_points("stepped", round=verdict.round)
        return True

    def _tell_of(self, plan: RoundPlan, verdict: Verdict) -> None:
        if self._emit.wants(ShardPublished):
            for event in published_events(verdict, self._member):
                self._emit(event)
        self._emit(VerdictWritten(verdict.round, plan, verdict))
