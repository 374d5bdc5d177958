"""The exchange of a round: parts out to all aggregators at once, published shards back."""

from __future__ import annotations

import logging
import queue
import time

from eris.errors import Reason, Refused
from eris.peer.courier import Errand, Result
from eris.peer.couriers import Couriers
from eris.peer.desk import Desk
from eris.peer.inbox import Inbox
from eris.protocol.member import Member
from eris.protocol.messages import Equivocation, Upload, Withheld
from eris.protocol.round_plan import RoundPlan

__all__ = ["Exchange"]

_LOG = logging.getLogger(__name__)


class Exchange:
    """Carries one member's parts to their aggregators, this peer among them, and holds what those publish."""

    def __init__(self, member: Member, desk: Desk, couriers: Couriers, inbox: Inbox) -> None:
        self._member, self._desk, self._couriers, self._inbox = member, desk, couriers, inbox

    def run(self, plan: RoundPlan, uploads: list[Upload], deadline: float) -> None:
        """Send parts, and hold what is published until every shard is accounted for or the time is up."""
        me = self._member.peer
        owners = sorted(plan.aggregators - {me}, key=lambda peer: (peer - me - 1) % 2**31)
        self._couriers.under_way.begin(plan.digest, set(owners) if uploads else set())
        for owner in owners:
            shards = plan.shards_of(owner)
            parts = tuple(upload for upload in uploads if upload.shard in shards)
            self._couriers.to(owner).go(Errand(plan, parts, shards, deadline))
        mine = plan.shards_of(me)
        for upload in uploads:
            if upload.shard in mine:
                self._contribute_to_myself(upload)
        for shard in mine:
            self._hold_own(plan, shard, deadline)
        self._hold_results(plan, {(s, owner) for owner in owners for s in plan.shards_of(owner)}, deadline)
        for shard in range(plan.shards):
            if (finding := self._member.disagreement(shard)) is not None:
                _LOG.error("%s", finding)

    def _contribute_to_myself(self, upload: Upload) -> None:
        try:
            self._desk.receive(upload, self._member.peer)
        except Refused as refusal:
            _LOG.warning("round %d: our own part: %s", upload.round, refusal)
            if refusal.reason is Reason.CONFLICT:
                self._member.disown()

    def _hold_own(self, plan: RoundPlan, shard: int, deadline: float) -> None:
        try:
            outcome = self._desk.outcome(plan.digest, shard, deadline)
            if isinstance(outcome, Withheld):
                self._member.withhold(outcome)
            elif plan.assignment[shard] == self._member.peer:
                self._member.receive(outcome)
            else:
                self._member.second(outcome.manifest)
        except Refused as refusal:  # too late; or we are not in our own address book, as it could not be fetched
            _LOG.warning("round %d: our own shard %d: %s", plan.round, shard, refusal)

    def _hold_results(self, plan: RoundPlan, waiting: set[tuple[int, int]], deadline: float) -> None:
        """Take what couriers bring until all shards are accounted for, the round's time is up, or it has a verdict."""
        while waiting and time.monotonic() < deadline and not self._inbox.is_over(plan):
            for shard, owner in [(shard, owner) for shard, owner in waiting if owner in self._inbox.gone]:
                waiting.discard((shard, owner))
                self._member.withhold(Withheld(plan.digest, shard, owner, Reason.GONE))
            try:
                result = self._couriers.results.get(timeout=0.2)
            except queue.Empty:
                continue
            if result.plan != plan.digest:
                continue
            waiting.discard((result.shard, result.peer))
            self._hold(plan, result)

    def _hold(self, plan: RoundPlan, result: Result) -> None:
        if result.refused_upload is Reason.CONFLICT:
            self._member.disown()
        try:
            self._take(result)
        except Refused as refusal:
            _LOG.warning("round %d: shard %d: %s", plan.round, result.shard, refusal)
        if result.reason is not None:
            self._member.withhold(Withheld(plan.digest, result.shard, result.peer, result.reason))

    def _take(self, result: Result) -> None:
        if result.manifest is not None:
            self._member.second(result.manifest)
        if result.published is not None:
            proof = self._member.receive(result.published)
            if isinstance(proof, Equivocation):
                _LOG.error("peer %d signed two manifests for shard %d", proof.aggregator, result.shard)
