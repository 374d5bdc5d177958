"""One peer of a real federation: trains, sends its parts, aggregates what is its own to aggregate, follows verdicts.

Threads: the main one plays the rounds; one hears bulletins (hearing); one for each aggregator carries parts there
(couriers); one for each member that dialled in serves it (host). Everything that decides is in `protocol/`; here it is
only driven.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

from eris.compose import compose, initial_seed
from eris.errors import RunStopped
from eris.events import RoleBytes
from eris.local.spec import Vector, as_vector
from eris.local.task import BlockTask, Memory, Task
from eris.peer.account import Account
from eris.peer.admission import Admission
from eris.peer.book import MANIFEST_PURPOSE, Book
from eris.peer.chronicle import Chronicle
from eris.peer.conclusion import Conclusion
from eris.peer.couriers import Couriers
from eris.peer.desk import Desk
from eris.peer.disk_need import shelf_for
from eris.peer.exchange import Exchange
from eris.peer.federation import Federation
from eris.peer.hearing import Hearing
from eris.peer.host import Host
from eris.peer.inbox import Inbox
from eris.peer.moments import Moments
from eris.peer.node_settings import NodeSettings
from eris.peer.past import Past
from eris.peer.recovery import Missed, Recovery, model_digest
from eris.peer.reporter import Reporter
from eris.peer.round_report import RoundReport
from eris.peer.training import Trained, Training
from eris.protocol.aggregator import Aggregator
from eris.protocol.member import Member
from eris.protocol.messages import Published, Withheld
from eris.protocol.recipe import Recipe
from eris.protocol.replica import Replica
from eris.protocol.round_plan import RoundPlan
from eris.protocol.verdict import Verdict
from eris.seeds import Seed
from eris.transport.control import ControlTraffic
from eris.transport.control_client import ControlClient
from eris.transport.credentials import Credentials
from eris.transport.link import LinkLimits
from eris.transport.listener import Listener
from eris.wire import HEADER_BYTES
from eris.wire.frame import LONGEST_CHUNK

__all__ = ["Node"]

_LOG = logging.getLogger(__name__)


class Node:
    """A peer in a process of its own."""

    def __init__(
        self,
        federation: Federation,
        credentials: Credentials,
        task: Task,
        private: Seed,
        settings: NodeSettings,
        *,
        on_round: Callable[[RoundReport], None] | None = None,
        on_missed: Missed | None = None,
    ) -> None:
        self.federation, self.settings, self._credentials, self._on_round = federation, settings, credentials, on_round
        self.number = federation.number(settings.name)
        # Only our own samples are known here; what others have comes with the roster.
        composition = compose(federation.config, task.spec, [task.samples(self.number)] * federation.config.members)
        self.recipe: Recipe = composition.recipe
        self.noise, self.run_name = composition.noise, composition.run
        self.moments, self.past, self._inbox = Moments(), Past(), Inbox(settings)
        self._task, self._book = task, Book(credentials)
        self._shelf = shelf_for(
            self.recipe, settings, members=federation.config.members, in_blocks=isinstance(task, BlockTask)
        )
        self.member = Member(
            self.number,
            self.recipe,
            self._start(),
            private,
            floor=settings.floor,
            verify=self._book.verify,
            shelf=self._shelf,
        )
        self._initial = self.model_digest()
        self._training = Training(task, self.member, private)
        self._limits = LinkLimits(
            HEADER_BYTES, LONGEST_CHUNK, connect=federation.settings.connect, idle=federation.settings.idle
        )
        self._host: Host | None = None
        self._ended = ""
        self._on_roster = False  # of a plan so far
        self._reported = RoleBytes(0, 0), RoleBytes(0, 0)  # what had gone over links at the last report
        self._connect_parts(composition.roster[self.number].weight, on_missed)

    def _start(self) -> Vector | Iterable[Vector]:
        """Return x⁰ as our task makes it; made anew where it is needed again, as it is as long as the model."""
        task, seed = self._task, initial_seed(self.federation.config.seed)
        if isinstance(task, BlockTask):
            return task.initial_blocks(seed)
        return as_vector(task.initial(seed), task.spec.n, what="initial model")

    def _connect_parts(self, weight: float, on_missed: Missed | None) -> None:
        """Give every part of this peer the others it works with."""
        federation, member, inbox, book = self.federation, self.member, self._inbox, self._book
        self._client = ControlClient(self._credentials, federation.coordinator)
        self._couriers = Couriers(book, self._credentials, self.recipe, self._limits, self.moments, self._shelf)
        self._reporter = Reporter(self._client, member, inbox, self.moments)
        aggregator = Aggregator(self.number, self.recipe, sign=self._sign, shelf=self._shelf)
        self._desk = Desk(aggregator, self._tell_outcome)
        self._admission = Admission(
            federation,
            self.settings,
            self._client,
            member,
            self._desk,
            inbox,
            self._reporter,
            self.past,
            weight=weight,
            initial=self._initial,
        )
        self._hearing = Hearing(
            self._client,
            inbox,
            self._desk,
            book,
            self._credentials,
            join=self._admission.join,
            review=self._review_links,
        )
        self._exchange = Exchange(member, self._desk, self._couriers, inbox)
        chronicle = Chronicle(self._client, inbox)
        self._conclusion = Conclusion(
            self.settings,
            member,
            chronicle,
            inbox,
            book,
            self._couriers,
            self._reporter,
            connect=federation.settings.connect,
        )
        self._recovery = Recovery(
            federation,
            member,
            self._training,
            lambda: Replica.start(self.recipe, self._start(), shelf=self._shelf).state(),
            chronicle,
            inbox,
            book,
            self._couriers,
            self._conclusion,
            self.past,
            on_missed=on_missed,
        )

    # ── life ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> str:
        """Join, play rounds until the run ends, and return how it ended."""
        try:
            self._listen()
            self._admission.join_patiently()
            self._hearing.start()
            while not (ended := self._ended or self._admission.ended):
                self._handle(*self._inbox.next(self.member.round))
        finally:
            self.close()
        rounds = self.federation.config.rounds
        if ended == "finished" and self.member.round < rounds:
            ended = f"the others have finished, this peer has {self.member.round} of {rounds} rounds"
        return ended

    def stop(self, how: str) -> None:
        """Let the run end for this peer before its next step; may be called from any thread."""
        self._admission.stop()
        self._hearing.take_up("end", {"how": how})

    def close(self) -> None:
        """Leave quietly: links, threads, sockets."""
        if self._inbox.closed.is_set():
            return
        self._inbox.closed.set()
        self._desk.close()
        self._couriers.close()
        if self._host is not None:
            self._host.close()
        self._admission.leave()
        self._client.close()

    def _listen(self) -> None:
        if self.settings.listen is None:
            return
        listener = Listener(self._credentials, self.settings.listen, limits=self._limits, roster=self._book.roster)
        self._admission.port = listener.address[1]
        self._host = Host(
            listener,
            self._desk,
            peer_of=self._book.number,
            find=self.member.serve,
            snapshot=self._recovery.snapshot,
            moments=self.moments,
            under_way=self._couriers.under_way,
        )

    # ── what others may know ─────────────────────────────────────────────────────────────────────────────────────

    @property
    def memory(self) -> Memory:
        """What this member's training remembers between rounds."""
        return self._training.memory

    @property
    def control(self) -> ControlTraffic:
        """What this peer said to the coordinator and heard from it."""
        return self._client.traffic

    def model_digest(self) -> str:
        """Return the sha256 of the model in spec order."""
        return model_digest(self.member.replica.model)

    def dialled(self) -> list[Account]:
        """Return what went over links this peer dialled, for each aggregator."""
        return self._couriers.accounts(self.federation.peers)

    def accepted(self) -> list[Account]:
        """Return what went over links that others dialled."""
        return self._host.accounts() if self._host else []

    # ── the round ────────────────────────────────────────────────────────────────────────────────────────────────

    def _handle(self, kind: str, document: dict[str, Any]) -> None:
        if kind == "end":
            self._ended = str(document["how"])
        elif kind == "plan":
            plan: RoundPlan = document["read"]
            if self.number in {entry.peer for entry in plan.roster}:
                self._on_roster = True
                self._play(plan, document["initial"])
            elif self._on_roster:  # else it is a plan from before we came
                self._ended = "left"
        # a verdict outside a round is one this peer has caught up with already

    def _play(self, plan: RoundPlan, initial: str) -> None:
        began, self._reporter.state = time.monotonic(), ""
        if not self._stand_before(plan, initial):
            return
        self.member.begin(plan)
        self.moments("plan", round=plan.round)
        if self.member.lost_reference:  # asked here only: a plan that begins an epoch may be there with the verdict
            self._admission.ask_for_reference()
        deadline = began + plan.deadlines.report
        result = self._training.train(plan)
        if result is None and self.number in plan.participants:
            self._reporter.sit_out(plan)
        self._exchange.run(plan, result.uploads if result is not None else [], deadline)
        self._reporter.report(plan)
        self.moments("reported", round=plan.round)
        verdict = self._conclusion.await_verdict(plan)
        if verdict is None:
            return
        if result is not None:
            self._training.keep()
        if self._step(verdict, deadline) and self._on_round is not None:
            self._on_round(self._round_report(plan, verdict, result, time.monotonic() - began))

    def _step(self, verdict: Verdict, deadline: float) -> bool:
        """Follow the verdict; False if somebody's snapshot took us past it: nobody gave us what it committed."""
        try:
            self._conclusion.conclude(verdict, deadline)
        except RunStopped as lacking:
            if self._book.number(self.settings.name) is None:  # the others play on without us, and owe us nothing more
                self._ended = "left"
                return False
            _LOG.warning("%s; this peer takes a snapshot", lacking)
            self._recovery.catch_up()
            return False
        self.moments("stepped", round=verdict.round)
        return True

    def _stand_before(self, plan: RoundPlan, initial: str) -> bool:
        """Come to stand where the round begins; False if it is over already, or will be before we could be of use."""
        if self._inbox.is_stale(plan) or (plan.round < self.member.round and not self._recovery.strayed()):
            return False
        if (plan.round, plan.chain) != (self.member.round, self.member.chain):
            self._recovery.catch_up()
        differs = initial and plan.round == self.member.round == 0 and initial != self._initial
        if differs and not self._recovery.fetch_initial(plan, initial):
            return False
        # else somebody gave us a snapshot from after it, or the run went back before it
        return (plan.round, plan.chain) == (self.member.round, self.member.chain)

    def _round_report(
        self,
        plan: RoundPlan,
        verdict: Verdict,
        result: Trained | None,
        seconds: float,
    ) -> RoundReport:
        """Sum a round up; what came since the last report counts, for others may be faster and send before we begin."""
        before, self._reported = self._reported, self._traffic()
        pairs = zip(self._reported, before, strict=True)
        roles = [RoleBytes(now.up - then.up, now.down - then.down) for now, then in pairs]
        return RoundReport(plan, verdict, result.loss if result is not None else float("nan"), seconds, *roles)

    # ── what the parts ask of each other ─────────────────────────────────────────────────────────────────────────

    def _tell_outcome(self, outcome: Published | Withheld) -> None:
        self._reporter.tell(outcome, self._desk.plan.round if self._desk.plan else -1)

    def _review_links(self) -> None:
        if self._host is not None:
            self._host.review(lambda peer: self._credentials.refusal(peer, roster=self._book.roster()))

    def _sign(self, message: bytes) -> str:
        return self._credentials.sign(MANIFEST_PURPOSE, message).hex()

    def _traffic(self) -> tuple[RoleBytes, RoleBytes]:
        """Return what went over links so far: those this peer dialled, and those others did."""
        return self._couriers.carried(), RoleBytes(*(self._host.carried() if self._host is not None else (0, 0)))
