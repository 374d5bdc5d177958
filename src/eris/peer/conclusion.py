"""How a peer moves on a verdict: it waits for it, gets what it lacks of it, and steps."""

from __future__ import annotations

import logging
import threading
import time

from eris.errors import CheckpointError, Reason, Refused, RunStopped
from eris.peer.book import Book
from eris.peer.chronicle import Chronicle
from eris.peer.couriers import Couriers
from eris.peer.inbox import Inbox
from eris.peer.node_settings import NodeSettings
from eris.peer.reporter import Reporter
from eris.protocol.member import Member, Missing
from eris.protocol.round_plan import RoundPlan
from eris.protocol.verdict import Verdict
from eris.transport.link import LinkError

__all__ = ["Conclusion"]

_LOG = logging.getLogger(__name__)


class Conclusion:
    """Ends rounds. `stepping` is held whenever the replica moves: nobody is shown a half step."""

    def __init__(
        self,
        settings: NodeSettings,
        member: Member,
        chronicle: Chronicle,
        inbox: Inbox,
        book: Book,
        couriers: Couriers,
        reporter: Reporter,
        *,
        connect: float,
    ) -> None:
        self._settings, self._member, self._chronicle, self._inbox = settings, member, chronicle, inbox
        self._book, self._couriers, self._reporter = book, couriers, reporter
        self._connect = connect
        self.stepping = threading.Lock()

    def await_verdict(self, plan: RoundPlan) -> Verdict | None:
        """Wait for the round's verdict; a coordinator that comes back asks for the report again."""
        while True:
            kind, document = self._inbox.next(self._member.round)
            if kind == "verdict" and document["verdict"]["plan"] == plan.digest:
                return Verdict.from_dict(document["verdict"])
            if kind == "end":
                self._inbox.put_back((kind, document))
                return None
            if kind == "plan" and document["read"].when > plan.when:
                self._inbox.put_back((kind, document))
                return self._verdict_of(plan)  # it was written, but never announced; or the run went back
            if kind == "plan" and document["read"].digest == plan.digest:
                self._reporter.report(plan)
            if kind == "gone":
                self._reporter.report_without(plan)

    def conclude(self, verdict: Verdict, deadline: float) -> None:
        """Step, once every committed shard is here."""
        self._require_same_state(verdict)
        with self.stepping:
            missing = self._member.conclude(verdict)
        if isinstance(missing, Missing):
            self._fetch_missing(missing, verdict, deadline)
            with self.stepping:
                missing = self._member.conclude(verdict)
            if missing is not None:
                raise RunStopped("a committed shard cannot be had from anybody", round=verdict.round)

    def _verdict_of(self, plan: RoundPlan) -> Verdict | None:
        """Return a verdict from the coordinator's journal; None if the run went another way."""
        verdicts = (verdict for _, verdict in self._chronicle.since(plan.round))
        return next((verdict for verdict in verdicts if verdict.plan == plan.digest), None)

    def _require_same_state(self, verdict: Verdict) -> None:
        if verdict.state and self._reporter.state not in ("", verdict.state):
            raise CheckpointError(
                "this peer's model is not the one that most others hold",
                fix="look for who gave it a snapshot; remove its checkpoint folder and start again",
                peer=self._settings.name,
                round=verdict.round,
            )

    def _fetch_missing(self, missing: Missing, verdict: Verdict, deadline: float) -> None:
        """Ask one peer after another: who stays silent uses up its own time, and none of the others'."""
        gone, others = self._inbox.gone, self._book.dialable(but=self._member.peer)
        for shard, digest in missing.hashes.items():
            aggregator = verdict.shards[shard].aggregator
            # Its aggregator comes last: it had the whole round to bring it to us.
            for peer in sorted(others, key=lambda p: (p in gone, p == aggregator)):
                until = max(deadline, time.monotonic() + self._connect)
                try:
                    published = self._couriers.to(peer).fetch(digest, verdict.round, until)
                    if published.manifest.shard != shard:
                        raise Refused(Reason.WRONG_SHARD, f"shard {published.manifest.shard} came", peer=peer)
                    self._member.accept_fetched(published, verdict)
                    break
                except (LinkError, Refused) as error:
                    _LOG.info("shard %d is not to be had from peer %d: %s", shard, peer, error)
