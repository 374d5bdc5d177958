"""One peer of a real federation: trains, sends its parts, aggregates what is its own to aggregate, follows verdicts.

Threads: the main one plays the rounds; one hears bulletins; one for each aggregator carries parts there (couriers); one
for each member that dialled in serves it (host). Everything that decides is in `protocol/`; here it is only driven.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from eris.aggregate.shelf import Shelf
from eris.aggregate.staging import all_finite
from eris.compose import compose, initial_seed, training_seed
from eris.errors import CheckpointError, ErisError, Reason, Refused, RunStopped, TaskError
from eris.events import RoleBytes
from eris.local.spec import as_vector
from eris.local.task import LocalResult, Memory, Task
from eris.peer.account import Account
from eris.peer.book import Book
from eris.peer.coordinate import MANIFEST_PURPOSE
from eris.peer.courier import Courier, Errand, Result
from eris.peer.desk import Desk
from eris.peer.federation import Federation
from eris.peer.host import Host
from eris.peer.moments import Moments
from eris.protocol.aggregator import Aggregator
from eris.protocol.floor import Floor
from eris.protocol.member import Member, Missing, Snapshot
from eris.protocol.messages import Equivocation, Published, Upload, Withheld
from eris.protocol.recipe import Recipe
from eris.protocol.replica import Replica
from eris.protocol.round_plan import RoundPlan
from eris.protocol.verdict import GENESIS, Verdict
from eris.seeds import Seed
from eris.transport.board import Bulletin
from eris.transport.control import ControlTraffic
from eris.transport.control_client import ControlClient
from eris.transport.credentials import Credentials
from eris.transport.link import LinkClosed, LinkError, LinkLimits, LinkRefused, LinkTimeout
from eris.transport.listener import Listener
from eris.wire import HEADER_BYTES
from eris.wire.frame import LONGEST_CHUNK

__all__ = ["Node", "NodeSettings", "RoundReport"]

_LOG = logging.getLogger(__name__)
_REPORT_PAUSES = (0.2, 0.5, 1.0, 2.0)  # a coordinator that is away longer asks again when it is back
_NEWS_SECONDS = 5.0  # the coordinator misses a peer that does not ask again


@dataclass(frozen=True)
class NodeSettings:
    """What a peer decides for itself."""

    name: str
    listen: tuple[str, int] | None = ("", 0)  # None: this peer cannot be dialled and never aggregates
    advertise: str = ""  # host others dial; empty: the address of this machine towards the coordinator
    organisation: str = ""
    floor: Floor = field(default_factory=Floor)
    patience: float = 300.0  # seconds without a word from the coordinator until this peer gives up
    wait: float = 60.0  # seconds to wait at the start for a coordinator that is not there yet


@dataclass(frozen=True, slots=True)
class RoundReport:
    """How a round went, as this peer saw it."""

    plan: RoundPlan
    verdict: Verdict
    loss: float
    seconds: float
    member: RoleBytes  # what went over links this peer dialled: its own parts up, published shards down
    aggregator: RoleBytes  # over links others dialled: published shards up, contributions down

    @property
    def bytes_up(self) -> int:
        """All bytes this peer sent."""
        return int(self.member.up + self.aggregator.up)

    @property
    def bytes_down(self) -> int:
        """All bytes this peer received."""
        return int(self.member.down + self.aggregator.down)


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
        on_missed: Callable[[RoundPlan, Verdict], None] | None = None,
    ) -> None:
        self.federation, self.settings, self._task, self._credentials = federation, settings, task, credentials
        self._on_round, self._on_missed, self._private = on_round, on_missed, private
        self.number = federation.number(settings.name)
        # Only our own samples are known here; what others have comes with the roster.
        composition = compose(federation.config, task.spec, [task.samples(self.number)] * federation.config.members)
        self.recipe: Recipe = composition.recipe
        self.noise, self.run_name = composition.noise, composition.run
        self._weight = composition.roster[self.number].weight
        self.moments = Moments()
        self._book = Book(credentials)
        initial = as_vector(task.initial(initial_seed(federation.config.seed)), task.spec.n, what="initial model")
        self._start = initial
        self._initial = hashlib.sha256(initial.data).hexdigest()
        self._shelf = Shelf()
        self.member = Member(
            self.number,
            self.recipe,
            initial,
            private,
            floor=settings.floor,
            verify=self._book.verify,
            shelf=self._shelf,
        )
        self.memory: Memory = task.memory(self.number)
        self._trained: Memory = {}
        self._client = ControlClient(credentials, federation.coordinator)
        self._desk = Desk(Aggregator(self.number, self.recipe, sign=self._sign, shelf=self._shelf), self._tell_outcome)
        self._limits = LinkLimits(
            HEADER_BYTES, LONGEST_CHUNK, connect=federation.settings.connect, idle=federation.settings.idle
        )
        self._results: queue.Queue[Result] = queue.Queue()
        self._news: queue.Queue[tuple[str, dict[str, Any]]] = queue.Queue()
        self._couriers: dict[int, Courier] = {}
        self._host: Host | None = None
        self._listener: Listener | None = None
        self._closed, self._stopped = threading.Event(), threading.Event()
        self._joined, self._ended, self._heard = False, "", time.monotonic()
        self._turned_away: LinkRefused | None = None
        self.checkpoints: Callable[[], list[int]] = list  # rounds that are kept on disk
        self.go_back: Callable[[int], bool] = lambda _: False  # to one of them
        self._stepping = threading.Lock()
        self._reported_state = ""  # what we said of our replica in this round
        self._gone: set[int] = set()  # whom nobody waits for in this round
        self._edition = ""  # of the address book

    # ── life ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> str:
        """Join, play rounds until the run ends, and return how it ended."""
        try:
            self._listen()
            self._join_patiently()
            threading.Thread(target=self._hear, name="eris-news", daemon=True).start()
            while not self._ended:
                self._handle(*self._next_news())
        finally:
            self.close()
        return self._ended

    def stop(self, how: str) -> None:
        """Let the run end for this peer before its next step; may be called from any thread."""
        self._stopped.set()
        self._take_up("end", {"how": how})

    def close(self) -> None:
        """Leave quietly: links, threads, sockets."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._desk.close()
        for courier in self._couriers.values():
            courier.close()
        if self._host is not None:
            self._host.close()
        if self._joined:
            self._say_goodbye()
        self._client.close()

    def _say_goodbye(self) -> None:
        try:
            self._client.leave({}, seconds=2.0)
        except ErisError as error:
            _LOG.info("could not say goodbye: %s", error)

    @property
    def control(self) -> ControlTraffic:
        """What this peer said to the coordinator and heard from it."""
        return self._client.traffic

    def model_digest(self) -> str:
        """Return the sha256 of the model in spec order."""
        return hashlib.sha256(self.member.replica.model.astype("<f4", copy=False).data).hexdigest()

    def dialled(self) -> list[Account]:
        """Return what went over links this peer dialled, for each aggregator."""
        couriers = sorted(self._couriers.items())
        return [replace(courier.account, peer=self.federation.peers[number]) for number, courier in couriers]

    def accepted(self) -> list[Account]:
        """Return what went over links that others dialled."""
        return self._host.accounts() if self._host else []

    def _listen(self) -> None:
        if self.settings.listen is None:
            return
        self._listener = Listener(
            self._credentials, self.settings.listen, limits=self._limits, roster=self._book.roster
        )
        self._host = Host(
            self._listener,
            self._desk,
            peer_of=self._book.number,
            find=self.member.serve,
            snapshot=self._snapshot,
            moments=self.moments,
        )

    def _snapshot(self) -> Snapshot:
        """Return where this peer stands, for another one: never in the middle of a step."""
        with self._stepping:
            return self.member.snapshot()

    def _join_patiently(self) -> None:
        """Join; a coordinator that is not there yet is waited for, one that refuses us is not."""
        until = time.monotonic() + self.settings.wait
        while not self._joined and not self._stopped.is_set():
            try:
                self._join()
            except (LinkClosed, LinkTimeout) as error:
                if time.monotonic() >= until:
                    raise
                _LOG.info("the coordinator is not there yet: %s", error)
                self._client.close()  # a fresh channel tries at once, an old one waits longer every time
                time.sleep(0.2)

    def _join(self) -> None:
        answer = self._client.join(
            {
                "federation": self.federation.digest,
                "spec": [[t.name, list(t.shape), t.dtype, t.role] for t in self.recipe.spec.tensors],
                "weight": self._weight,
                "organisation": self.settings.organisation,
                "address": self._address(),
                "initial": self._initial,
                # With a round open we still know what we sent in it, and will settle it by its verdict.
                "private_round": self.member.round + (self.member.plan is not None),
                "reference_epoch": self.member.reference_epoch,
                "checkpoints": self.checkpoints(),
            },
            seconds=self.federation.settings.connect,
        )
        self._joined, self._heard = True, time.monotonic()
        if not answer["intact"]:
            self.member.forget_reference()
        if not answer["dialled"] and self._listener is not None:
            _LOG.warning(
                "this peer is given no shard: %s cannot be dialled, or it is not meant to aggregate", self._address()
            )
        plan = RoundPlan.from_dict(answer["plan"]) if answer["plan"] is not None else None
        if plan is not None and (self._desk.plan is None or plan.round > self._desk.plan.round):
            # We came into the middle of a round: what we published in it before, if anything, is forgotten.
            for notice in self._desk.abstain(plan):
                self._tell_outcome(notice)
        if answer["ended"]:
            self._ended = str(answer["ended"])

    def _address(self) -> list[Any] | None:
        if self._listener is None:
            return None
        return [self.settings.advertise or own_address(self.federation.coordinator), self._listener.address[1]]

    # ── news ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _hear(self) -> None:
        """Bring bulletins to the main thread; open the aggregator's round at once, however busy that thread is."""
        board, silent = "", False
        while not self._closed.is_set():
            try:
                bulletins = self._client.news(_NEWS_SECONDS)
                if board and self._client.board != board:  # the coordinator was started anew and knows nobody yet
                    self._join()
            except LinkRefused as refused:  # revoked or expired: waiting does not help
                self._turned_away = refused
                return
            except ErisError as error:
                if self._closed.wait(0.5):
                    return
                _LOG.log(logging.INFO if silent else logging.WARNING, "no news: %s", error)
                silent = True
                continue
            board, silent, self._heard = self._client.board, False, time.monotonic()
            newest = max(map(_planned_round, bulletins), default=-1)
            for bulletin in bulletins:
                if bulletin.kind != "plan" or _planned_round(bulletin) == newest:  # others are over already
                    self._take_up(bulletin.kind, bulletin.document)

    def _take_up(self, kind: str, document: dict[str, Any]) -> None:
        """Do at once what cannot wait for the main thread; then let it hear."""
        try:
            if kind == "plan":
                plan = RoundPlan.from_dict(document["plan"])
                document = {**document, "read": plan}
                self._open_round(plan, document["book"])
                self._gone = set(document["absent"])
                self._desk.without(self._gone)
            elif kind == "gone":
                self._gone.add(document["peer"])
                self._desk.without(self._gone)
            elif kind == "end":
                self._desk.close()  # who waits for a shard of ours, we among them, waits in vain
            elif kind == "revoked":
                self._credentials.adopt_revocations(base64.b64decode(document["list"]))
        except (KeyError, TypeError, ValueError, ErisError) as error:
            _LOG.error("the coordinator said something that is no %s: %r", kind, error)
            return
        self._news.put((kind, document))

    def _open_round(self, plan: RoundPlan, edition: str) -> None:
        if self._book.lacks(plan) or edition != self._edition:
            try:
                self._book.learn(self._client.fetch({"book": True}))
                self._edition = edition
            except ErisError as error:
                _LOG.warning("the address book could not be fetched: %s", error)
        self._book.follow(plan)
        self._credentials.refresh()
        if self._host is not None:
            self._host.review(lambda peer: self._credentials.refusal(peer, roster=self._book.roster()))
        if self._desk.plan is None or plan.round > self._desk.plan.round:  # a board shows old plans to a newcomer
            self._desk.begin(plan)

    def _next_news(self) -> tuple[str, dict[str, Any]]:
        """Wait for the next bulletin, however long that takes, as long as the coordinator can be reached."""
        while time.monotonic() < self._heard + self.settings.patience:
            if self._turned_away is not None:
                raise self._turned_away
            with contextlib.suppress(queue.Empty):
                return self._news.get(timeout=1.0)
        raise RunStopped(
            f"no word from the coordinator for {self.settings.patience:g} s",
            fix="see whether it runs (`eris status`); this peer goes on where it was when started again",
            peer=self.settings.name,
            round=self.member.round,
        )

    def _handle(self, kind: str, document: dict[str, Any]) -> None:
        if kind == "end":
            self._ended = str(document["how"])
        elif kind == "plan":
            plan: RoundPlan = document["read"]
            if self.number in {entry.peer for entry in plan.roster}:
                self._play(plan, document["initial"])
            else:
                self._ended = "left"
        # a verdict outside a round is one this peer has caught up with already

    # ── the round ────────────────────────────────────────────────────────────────────────────────────────────────

    def _play(self, plan: RoundPlan, initial: str) -> None:
        began, self._reported_state = time.monotonic(), ""
        if self._is_stale(plan) or (plan.round < self.member.round and not self._strayed()):
            return
        if initial and plan.round == 0 and initial != self._initial:
            self._fetch_initial(plan)
        if (plan.round, plan.chain) != (self.member.round, self.member.chain):
            self._catch_up()
        if plan.round < self.member.round:  # it is over already: somebody gave us a snapshot from after it
            return
        self.member.begin(plan)
        self.moments("plan", round=plan.round)
        if self.member.lost_reference:
            self._announce_loss()
        deadline = began + plan.deadlines.report
        before = self._traffic()
        result = self._train(plan)
        self._exchange(plan, self.member.contribute(result) if result is not None else [], deadline)
        self.moments("reported", round=plan.round)
        verdict = self._await_verdict(plan)
        if verdict is None:
            return
        self._conclude(verdict, deadline)
        self.moments("stepped", round=plan.round)
        if result is not None:
            self.memory = self._trained
        roles = [
            RoleBytes(now.up - then.up, now.down - then.down) for now, then in zip(self._traffic(), before, strict=True)
        ]
        loss = result.loss if result is not None else float("nan")
        if self._on_round is not None:
            self._on_round(RoundReport(plan, verdict, loss, time.monotonic() - began, *roles))

    def _train(self, plan: RoundPlan) -> LocalResult | None:
        """Train if it is our turn; our own code failing costs our own contribution and is shown here."""
        if self.number not in plan.participants or self.member.lost_reference:
            return None
        seed = training_seed(self._private, plan.round)
        self._trained = {name: value.copy() for name, value in self.memory.items()}  # counts when the round does
        try:
            result = self._task.train(self.number, self.member.start(), self._trained, round=plan.round, seed=seed)
            return checked(result, self.recipe.spec.n, self.number, plan.round)
        except Exception:  # noqa: BLE001 - whatever the user's code raises
            _LOG.exception("round %d: local training failed; the round goes on without this member", plan.round)
            return None

    def _exchange(self, plan: RoundPlan, uploads: list[Upload], deadline: float) -> None:
        """Send parts to all aggregators at once, hold what they publish, then report."""
        owners = sorted(set(plan.assignment) - {self.number}, key=lambda peer: (peer - self.number - 1) % 2**31)
        for owner in owners:
            shards = plan.shards_of(owner)
            parts = tuple(upload for upload in uploads if upload.shard in shards)
            self._courier(owner).go(Errand(plan, parts, shards, deadline))
        mine = plan.shards_of(self.number)
        for upload in uploads:
            if upload.shard in mine:
                self._contribute_to_myself(upload)
        waiting = set(range(plan.shards))
        for shard in mine:
            self._hold_own(plan, shard, deadline)
            waiting.discard(shard)
        self._hold_results(plan, waiting, deadline)
        self._report(plan)

    def _contribute_to_myself(self, upload: Upload) -> None:
        try:
            self._desk.receive(upload, self.number)
        except Refused as refusal:
            _LOG.warning("round %d: our own part: %s", upload.round, refusal)
            if refusal.reason is Reason.CONFLICT:
                self.member.disown()

    def _hold_own(self, plan: RoundPlan, shard: int, deadline: float) -> None:
        try:
            outcome = self._desk.outcome(plan.digest, shard, deadline)
        except Refused as refusal:
            _LOG.warning("round %d: our own shard %d: %s", plan.round, shard, refusal)
            return
        if isinstance(outcome, Withheld):
            self.member.withhold(outcome)
        else:
            self.member.receive(outcome)

    def _hold_results(self, plan: RoundPlan, waiting: set[int], deadline: float) -> None:
        """Take what couriers bring until all shards are accounted for, the round's time is up, or it has a verdict."""
        while waiting and time.monotonic() < deadline and not self._is_over(plan):
            for shard in [shard for shard in waiting if plan.assignment[shard] in self._gone]:
                waiting.discard(shard)
                self.member.withhold(Withheld(plan.digest, shard, plan.assignment[shard], Reason.GONE))
            try:
                result = self._results.get(timeout=0.2)
            except queue.Empty:
                continue
            if result.plan != plan.digest:
                continue
            waiting.discard(result.shard)
            self._hold(plan, result)

    def _hold(self, plan: RoundPlan, result: Result) -> None:
        if result.refused_upload is Reason.CONFLICT:
            self.member.disown()
        if result.published is not None:
            try:
                proof = self.member.receive(result.published)
            except Refused as refusal:
                _LOG.warning("round %d: shard %d: %s", plan.round, result.shard, refusal)
                return
            if isinstance(proof, Equivocation):
                _LOG.error("peer %d signed two manifests for shard %d", proof.aggregator, result.shard)
        elif result.reason is not None:
            notice = Withheld(plan.digest, result.shard, plan.assignment[result.shard], result.reason)
            self.member.withhold(notice)

    def _report(self, plan: RoundPlan) -> None:
        report = self.member.report()
        self._reported_state = report.state
        held = {str(shard): digest for shard, digest in report.held.items()}
        document = {"plan": report.plan, "held": held, "complete": report.complete, "state": report.state}
        for pause in _REPORT_PAUSES:
            try:
                self._send_report(document)
                return
            except LinkRefused as refused:
                self._turned_away = refused
                return
            except ErisError as error:
                _LOG.warning("round %d: the report did not arrive: %s", plan.round, error)
                if not isinstance(error, LinkError) or self._is_over(plan) or self._closed.wait(pause):
                    return

    def _send_report(self, document: dict[str, Any]) -> None:
        for shard in self._client.report({"report": document})["wanted"]:
            if (manifest := self.member.manifest(int(shard))) is not None:
                self._client.report({"manifest": asdict(manifest)})

    def _tell_outcome(self, outcome: Published | Withheld) -> None:
        """Send the coordinator what became of one of our shards; called by whichever thread cut it."""
        where = {"round": self._desk.plan.round if self._desk.plan else -1}
        self.moments("cut", **where)
        try:
            if isinstance(outcome, Withheld):
                self._client.report({"withheld": {**asdict(outcome), "reason": outcome.reason.value}})
            else:
                self._client.report({"manifest": asdict(outcome.manifest)})
                self.moments("manifest", **where)
        except ErisError as error:
            _LOG.warning("the coordinator did not hear of a shard: %s", error)

    # ── verdicts ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _is_over(self, plan: RoundPlan) -> bool:
        """Whether the round's verdict, or the end of the run, is among the news."""
        with self._news.mutex:
            return any(
                kind == "end" or (kind == "verdict" and doc["verdict"]["plan"] == plan.digest)
                for kind, doc in self._news.queue
            )

    def _is_stale(self, plan: RoundPlan) -> bool:
        """Whether a later round is under way: this one is followed by its verdict, not by training."""
        with self._news.mutex:
            return any(kind == "plan" and doc["plan"]["round"] > plan.round for kind, doc in self._news.queue)

    def _await_verdict(self, plan: RoundPlan) -> Verdict | None:
        """Wait for the round's verdict; a coordinator that comes back asks for the report again."""
        while True:
            kind, document = self._next_news()
            if kind == "verdict" and document["verdict"]["plan"] == plan.digest:
                return Verdict.from_dict(document["verdict"])
            if kind == "end":
                self._ended = str(document["how"])
                return None
            if kind == "plan" and document["plan"]["round"] > plan.round:
                with self._news.mutex:
                    self._news.queue.appendleft((kind, document))
                return self._verdict_of(plan)  # it was written, but never announced
            if kind == "plan" and document["read"].digest == plan.digest:
                self._report(plan)
            if kind == "gone":
                self._report_without(plan)

    def _verdict_of(self, plan: RoundPlan) -> Verdict | None:
        """Return a verdict from the coordinator's journal; None if the run went another way."""
        rounds = self._client.fetch({"since": plan.round})["rounds"]
        found = (Verdict.from_dict(entry["verdict"]) for entry in rounds)
        return next((verdict for verdict in found if verdict.plan == plan.digest), None)

    def _report_without(self, plan: RoundPlan) -> None:
        """Report again when somebody is gone whose shard we still waited for."""
        lacking = [s for s in range(plan.shards) if plan.assignment[s] in self._gone and not self.member.manifest(s)]
        for shard in lacking:
            self.member.withhold(Withheld(plan.digest, shard, plan.assignment[shard], Reason.GONE))
        if lacking:
            self._report(plan)

    def _conclude(self, verdict: Verdict, deadline: float) -> None:
        if verdict.state and self._reported_state not in ("", verdict.state):
            raise CheckpointError(
                "this peer's model is not the one that most others hold",
                fix="look for who gave it a snapshot; remove its checkpoint folder and start again",
                peer=self.settings.name,
                round=verdict.round,
            )
        with self._stepping:
            missing = self.member.conclude(verdict)
        if isinstance(missing, Missing):
            self._fetch_missing(missing, verdict, max(deadline, time.monotonic() + self.federation.settings.connect))
            with self._stepping:
                missing = self.member.conclude(verdict)
            if missing is not None:
                raise RunStopped("a committed shard cannot be had from anybody", round=verdict.round)
        if self.member.lost_reference:
            self._announce_loss()

    def _fetch_missing(self, missing: Missing, verdict: Verdict, deadline: float) -> None:
        for shard, digest in missing.hashes.items():
            aggregator = verdict.shards[shard].aggregator
            for peer in sorted(self._book.dialable(but=self.number), key=lambda p: (p in self._gone, p != aggregator)):
                try:
                    self.member.accept_fetched(self._courier(peer).fetch(digest, verdict.round, deadline), verdict)
                    break
                except (LinkError, Refused) as error:
                    _LOG.info("shard %d is not to be had from peer %d: %s", shard, peer, error)

    def _catch_up(self) -> None:
        """Follow the rounds that were missed by their verdicts, or take a snapshot of somebody further on."""
        if self._strayed():
            self._go_back()
        while pairs := self._missed():
            before = self.member.round
            if not self._take_snapshot(pairs):
                self._replay(*pairs[0])
            if self.member.round == before:
                raise RunStopped("nobody can bring this peer up to date", peer=self.settings.name, round=before)
            for plan, verdict in pairs:
                if self._on_missed is not None and verdict.round < self.member.round:
                    self._on_missed(plan, verdict)

    def _strayed(self) -> bool:
        """Whether the run went back behind where we stand: all were down, and we had kept more than the others."""
        if self.member.round == 0:
            return False
        rounds = self._client.fetch({"since": self.member.round - 1})["rounds"]
        return not rounds or Verdict.from_dict(rounds[0]["verdict"]).digest != self.member.chain

    def _go_back(self) -> None:
        """Stand at the newest checkpoint that the run still knows, or at its beginning."""
        for round in sorted(self.checkpoints(), reverse=True):
            with self._stepping:
                found = self.go_back(round)
            if found and not self._strayed():
                _LOG.warning("the run went back: this peer goes on from round %d", round)
                return
        _LOG.warning("the run went back behind all that this peer kept: it begins anew")
        with self._stepping:
            self.member.restore(Snapshot(0, GENESIS, Replica.start(self.recipe, self._start).state()))
            self.member.forget_reference()

    def _missed(self) -> list[tuple[RoundPlan, Verdict]]:
        """Return plan and verdict of every round since ours, page by page."""
        pairs: list[tuple[RoundPlan, Verdict]] = []
        while rounds := self._client.fetch({"since": self.member.round + len(pairs)})["rounds"]:
            pairs += [(RoundPlan.from_dict(r["plan"]), Verdict.from_dict(r["verdict"])) for r in rounds]
        return pairs

    def _replay(self, plan: RoundPlan, verdict: Verdict) -> None:
        if self.member.plan is None or self.member.plan.digest != plan.digest:
            self.member.begin(plan)
        self._conclude(verdict, time.monotonic() + plan.deadlines.report)

    def _take_snapshot(self, pairs: list[tuple[RoundPlan, Verdict]]) -> bool:
        sizes = {name: int(value.size) for name, value in self.member.replica.state().items()}
        chains = {verdict.digest: verdict.round for _, verdict in pairs}
        for peer in sorted(self._book.dialable(but=self.number), key=lambda p: p in self._gone):
            try:
                snapshot = self._courier(peer).snapshot(sizes, time.monotonic() + self.federation.settings.round)
            except (LinkError, Refused) as error:
                _LOG.info("no snapshot from peer %d: %s", peer, error)
                continue
            if chains.get(snapshot.chain) == snapshot.round - 1:
                with self._stepping:
                    self.member.restore(snapshot, missed=[v for _, v in pairs if v.round < snapshot.round])
                return True
        return False

    def _fetch_initial(self, plan: RoundPlan) -> None:
        """Take x⁰ from a peer that has the agreed one: ours came out differently (another library version, say)."""
        sizes = {name: int(value.size) for name, value in self.member.replica.state().items()}
        for peer in self._book.dialable(but=self.number):
            try:
                snapshot = self._courier(peer).snapshot(sizes, time.monotonic() + plan.deadlines.report)
            except (LinkError, Refused):
                continue
            if snapshot.round == 0:
                with self._stepping:
                    self.member.restore(snapshot)
                return
        raise RunStopped("the initial model differs and nobody can be asked for it", peer=self.settings.name)

    def _announce_loss(self) -> None:
        """Tell the coordinator that our reference is lost: a reference epoch begins with the next plan."""
        self._join()

    # ── parts ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _courier(self, peer: int) -> Courier:
        if peer not in self._couriers:
            self._couriers[peer] = Courier(
                peer,
                self._book,
                self._credentials,
                self.recipe,
                self._limits,
                self._results.put,
                self.moments,
                self._shelf,
            )
        return self._couriers[peer]

    def _sign(self, message: bytes) -> str:
        return self._credentials.sign(MANIFEST_PURPOSE, message).hex()

    def _traffic(self) -> tuple[RoleBytes, RoleBytes]:
        """Return what went over links so far: those this peer dialled, and those others did."""
        dialled = [courier.carried for courier in self._couriers.values()]
        accepted = self._host.carried() if self._host is not None else (0, 0)
        return RoleBytes(sum(sent for sent, _ in dialled), sum(heard for _, heard in dialled)), RoleBytes(*accepted)


def _planned_round(bulletin: Bulletin) -> int:
    plan = bulletin.document.get("plan") if bulletin.kind == "plan" else None
    round = plan.get("round") if isinstance(plan, dict) else None
    return round if isinstance(round, int) else -1


def checked(result: LocalResult, n: int, peer: int, round: int) -> LocalResult:
    """Return a training result fit to be sent: float64 is rounded, other layouts are copied, nonsense is refused."""
    update = np.ascontiguousarray(result.update)
    if update.dtype == np.float64:
        update = update.astype(np.float32)
    if update.dtype != np.float32 or update.shape != (n,):
        raise TaskError(f"the update is {update.dtype} {update.shape}, not float32 ({n},)", peer=peer, round=round)
    if not all_finite(update):
        raise TaskError("the update is not finite", fix="look for a diverging loss", peer=peer, round=round)
    if result.samples <= 0:
        raise TaskError("training used no samples", fix="leave members without samples out", peer=peer, round=round)
    return LocalResult(update, result.samples, result.steps, result.loss, result.metrics)


def own_address(towards: tuple[str, int]) -> str:
    """Return this machine's address on the way to another one (no packet is sent)."""
    import socket

    family = socket.AF_INET6 if ":" in towards[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(towards)
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
