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
        owners = sorted(set(plan.assignment) - {me}, key=lambda peer: (peer - me - 1) % 2**31)
        for owner in owners:
            shards = plan.shards_of(owner)
            parts = tuple(upload for upload in uploads if upload.shard in shards)
            self._couriers.to(owner).go(Errand(plan, parts, shards, deadline))
        mine = plan.shards_of(me)
        for upload in uploads:
            if upload.shard in mine:
                self._contribute_to_myself(upload)
        waiting = set(range(plan.shards))
        for shard in mine:
            self._hold_own(plan, shard, deadline)
            waiting.discard(shard)
        self._hold_results(plan, waiting, deadline)

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
        except Refused as refusal:
            _LOG.warning("round %d: our own shard %d: %s", plan.round, shard, refusal)
            return
        if isinstance(outcome, Withheld):
            self._member.withhold(outcome)
        else:
            self._member.receive(outcome)

    def _hold_results(self, plan: RoundPlan, waiting: set[int], deadline: float) -> None:
        """Take what couriers bring until all shards are accounted for, the round's time is up, or it has a verdict."""
        while waiting and time.monotonic() < deadline and not self._inbox.is_over(plan):
            for shard in [shard for shard in waiting if plan.assignment[shard] in self._inbox.gone]:
                waiting.discard(shard)
                self._member.withhold(Withheld(plan.digest, shard, plan.assignment[shard], Reason.GONE))
            try:
                result = self._couriers.results.get(timeout=0.2)
            except queue.Empty:
                continue
            if result.plan != plan.digest:
                continue
            waiting.discard(result.shard)
            self._hold(plan, result)

    def _hold(self, plan: RoundPlan, result: Result) -> None:
        if result.refused_upload is Reason.CONFLICT:
            self._member.disown()
        if result.published is not None:
            try:
                proof = self._member.receive(result.published)
            except Refused as refusal:
                _LOG.warning("round %d: shard %d: %s", plan.round, result.shard, refusal)
                return
            if isinstance(proof, Equivocation):
                _LOG.error("peer %d signed two manifests for shard %d", proof.aggregator, result.shard)
        elif result.reason is not None:
            notice = Withheld(plan.digest, result.shard, plan.assignment[result.shard], result.reason)
            self._member.withhold(notice)
