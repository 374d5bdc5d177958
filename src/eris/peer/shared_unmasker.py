"""The unmasking role behind a lock: cuts arrive on the threads that wait for published shards."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable

from eris.errors import Reason, Refused
from eris.peer.fault_points import FaultPoints
from eris.protocol.round_plan import RoundPlan
from eris.protocol.unmasker import Cut, Unmasker, Unmasking

__all__ = ["SharedUnmasker"]


class SharedUnmasker:
    """A peer's unmasker, shared by its threads."""

    def __init__(self, unmasker: Unmasker, fault_points: FaultPoints) -> None:
        self._unmasker, self._fault_points = unmasker, fault_points
        self._changed = threading.Condition()

    def begin(self, plan: RoundPlan) -> None:
        """Open a round; a plan that shows another key for us predates our start, and is sat out."""
        with self._changed:
            try:
                self._unmasker.begin(plan, time.monotonic())
            except Refused:
                self._unmasker.abstain(plan)
            self._changed.notify_all()

    def abstain(self, plan: RoundPlan) -> None:
        """Answer nothing in this round."""
        with self._changed:
            self._unmasker.abstain(plan)
            self._changed.notify_all()

    def without(self, peers: Iterable[int], *, away: bool = True) -> None:
        """Do not expect aggregators to wait for peers that are gone or, without `away`, merely send nothing."""
        with self._changed:
            self._unmasker.without(peers, away=away)
            self._changed.notify_all()

    def unmask(self, cut: Cut, deadline: float) -> Unmasking:
        """Answer a cut as soon as it may be answered: we may hear later than its aggregator that a peer is gone."""
        plan = self._unmasker.plan
        place = {"round": plan.round if plan is not None else -1, "shard": cut.shard}
        self._fault_points("shown", **place)
        with self._changed:
            while (answer := self._unmasker.unmask(cut, time.monotonic())) is None:
                now, whole = time.monotonic(), self._unmasker.whole_until
                if now >= deadline:
                    raise Refused(Reason.LATE, "members or the shard's other aggregator are missing", shard=cut.shard)
                self._changed.wait(min(deadline, whole if whole > now else math.inf) - now)
            self._changed.notify_all()
        self._fault_points("unmasked", **place)
        return answer
