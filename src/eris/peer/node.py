"""One peer of a real federation: trains, sends its parts, aggregates what is its own to aggregate, follows verdicts.

Threads: the main one plays the rounds (play_round); two read and take up bulletins (news); one has all links that rest
(transport/link_loop), and others move what is long: parts to aggregators (aggregator_client), shards to members
(shard_server). Everything that
decides is in `protocol/`; here it is only driven.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Mapping
from functools import partial

from blake3 import blake3

from eris.aggregate.staging import all_finite
from eris.compose import compose
from eris.errors import ConfigError, Reason, Refused, RunStopped
from eris.events import (
    NO_PROGRESS,
    EventStream,
    Listener,
    RoleBytes,
    RoundEnded,
    RoundTraffic,
    RunCourseChanged,
    RunEnded,
    RunStarted,
    RunState,
)
from eris.local.devices import device_note
from eris.local.scores import means_of
from eris.local.task import Task
from eris.local.tensor_file import array_pieces
from eris.peer.address_book import AddressBook
from eris.peer.admission import Admission
from eris.peer.aggregator_client import AggregatorClients
from eris.peer.allegiance import Allegiance
from eris.peer.catch_up import CatchUp, Checkpoints, NoCheckpoints, model_digest
from eris.peer.coordinator_watch import CoordinatorWatch
from eris.peer.fault_points import FaultPoints
from eris.peer.federation_file import FederationFile
from eris.peer.inbox import Inbox
from eris.peer.news import NewsReader, news_seconds
from eris.peer.node_settings import NodeSettings
from eris.peer.play_round import ConcludedRound, RoundPlayer
from eris.peer.reporter import Reporter
from eris.peer.roles import build_roles, require_memory, require_sockets
from eris.peer.roster_cache import RosterCache
from eris.peer.roster_check import roster_watch
from eris.peer.shard_server import ShardServer
from eris.peer.shared_aggregator import SharedAggregator
from eris.peer.shared_unmasker import SharedUnmasker
from eris.peer.training import Training
from eris.peer.witness import Witness
from eris.privacy import masking
from eris.protocol.messages import Published, Withheld
from eris.protocol.round_plan import RoundPlan
from eris.protocol.seal import CertifiedSeal, Contradiction
from eris.protocol.steps import members_figures
from eris.seeds import Seed
from eris.transport.bulletins import Bulletin, PlanBulletin, RoundsDone, RunEnd
from eris.transport.calls import CertificateAnswer, CertificateRequest
from eris.transport.control_client import ControlClient
from eris.transport.credentials import Credentials
from eris.transport.link import LinkClosed, LinkTimeout
from eris.transport.link_loop import LinkLoop

__all__ = ["NOISE_NOTE", "Node"]

_LOG = logging.getLogger(__name__)
NOISE_NOTE = "noise reproducible: no privacy claim"
_NOTHING = RoleBytes(0, 0)
_PASS_ON = 5.0  # seconds that others have to take a proof


class Node:
    """A peer in a process of its own.

    `listeners` hear what it sees (`eris.events`), from the start of the run to its end: its own training and what it
    sent to whom, what it received as an aggregator, what was published and decided. They are called one at a time, by
    whichever thread saw it; one that only hears some kinds of events says so with `eris.events.hears`.
    """

    def __init__(
        self,
        federation: FederationFile,
        credentials: Credentials,
        task: Task,
        private: Seed,
        settings: NodeSettings,
        *,
        listeners: Iterable[Listener] = (),
        checkpoints: Checkpoints | None = None,
        evaluate: bool = False,
        reproducible: bool = False,
    ) -> None:
        require_sockets(federation, settings)
        self.federation, self.settings, self._credentials = federation, settings, credentials
        self.number, config = federation.number(settings.name), federation.config
        # Only our own samples are known here; what others have comes with the roster.
        self.composition = compose(config, task.spec, [task.samples(self.number)] * config.members)
        self.recipe, self.reproducible, self._evaluate = self.composition.recipe, reproducible, evaluate
        settings.floor.check_figures(self.recipe, peer=settings.name)
        self._emit, self.fault_points, self._inbox = EventStream(listeners), FaultPoints(), Inbox(settings)
        require_memory(federation, settings, self.recipe, task)
        self._book = book = AddressBook(
            credentials, self.composition.run, peers=federation.peers, federation=federation.digest
        )
        roles = build_roles(federation, self.composition, task, private, settings, book)
        self.member = member = roles.member
        pool = roles.pool
        key = self._mask_key = roles.key
        unmasker = SharedUnmasker(roles.unmasker, self.fault_points) if roles.unmasker is not None else None
        initial = self.model_digest()
        self.training = Training(task, member, private, seed=config.seed, pool=pool)
        self.training.rehearse_scores()
        self.control = ControlClient(
            credentials, federation.coordinator, proxy=settings.proxy, patience=federation.settings.connect
        )
        rosters = RosterCache(self.control)
        self.allegiance = allegiance = _allegiance(federation, credentials, settings)
        self.witness = witness = Witness(
            credentials,
            self.composition.run,
            lambda: self.control.fetch(CertificateRequest(), CertificateAnswer).certificate,
            settings.folder,
            allegiance=allegiance,
            names=federation.coordinators,
        )
        self._reporter = Reporter(self.control, member, self._inbox, self.fault_points)
        self._loop = LinkLoop(f"eris-links {settings.name}")
        self._aggregator = SharedAggregator(roles.aggregator, self._tell_in_thread, self._emit)
        self.clients = AggregatorClients(
            book,
            credentials,
            self.recipe,
            federation.link_limits,
            self.fault_points,
            pool,
            settings.proxy,
            self._compare,
            unmasker.unmask if unmasker is not None else None,
            self._loop,
        )
        self._catch_up = CatchUp(
            federation,
            member,
            self.training,
            self.control,
            self._inbox,
            self.clients,
            checkpoints or NoCheckpoints(),
            self._emit,
            rosters,
            witness,
            allegiance,
        )
        self.server = ShardServer(
            self._aggregator,
            peer_of=book.number,
            find=member.serve,
            snapshot=self._catch_up.snapshot,
            fault_points=self.fault_points,
            under_way=self.clients.under_way,
            sealed=lambda: witness.last,
            accuse=self._accuse,
            loop=self._loop,
            behind=federation.settings.connect,
        )
        self._admission = Admission(
            federation,
            settings,
            credentials,
            self.control,
            member,
            self._aggregator,
            self._inbox,
            self._reporter,
            self._catch_up,
            rosters,
            witness,
            weight=self.composition.roster[self.number].weight,
            initial=initial,
            key=book.shown(self.number, key) if key is not None else None,
            unmasker=unmasker,
            allegiance=allegiance,
        )
        self._news = NewsReader(
            self.control,
            self._inbox,
            self._aggregator,
            book,
            credentials,
            self._admission,
            self.server,
            rosters,
            self._emit,
            witness,
            roster_watch(federation.digest, book, credentials, self.control),
            unmasker,
            allegiance,
            news_seconds(len(federation.peers)),
        )
        self._watch: CoordinatorWatch | None = None
        if allegiance is not None:
            told = self.control, self._inbox, settings.proxy
            self._watch = CoordinatorWatch(federation, credentials, allegiance, *told)
        self._player = RoundPlayer(
            member,
            self.training,
            self._aggregator,
            self.clients,
            self._inbox,
            self._reporter,
            self._admission,
            self._catch_up,
            self._emit,
            self.fault_points,
            name=settings.name,
            initial=initial,
            witness=witness,
        )
        self._ended, self._on_roster = "", False  # of a plan so far
        self._kept = ""  # the last verdict of the run, when the model it leads to is on our disk
        self._evaluate_failed = False
        self._examined = b""  # digest of the model when it was last looked at
        self.notes = [NOISE_NOTE] if reproducible and self.composition.noise is not None else []
        if (note := device_note(config.local.device)) is not None:
            self.notes.append(note)
        self._counted = _NOTHING, _NOTHING  # what had gone over links at the end of the last round

    # ── life ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> str:
        """Join, play rounds until the run ends, and return how it ended."""
        began = time.monotonic()
        self._tell_of_start()
        try:
            self._open_to_others()
            ended = self._play_to_the_end()
        finally:
            self.close()
        rounds, done, digest = self._rounds, self.member.round, model_digest(self.member.replica.chosen)
        if (choice := self.member.replica.choice()) is not None:
            self.notes.append(str(choice))
        if ended == "finished" and done < rounds:
            ended = f"the others have finished, this peer has {done} of {rounds} rounds"
        elif ended == "finished" and not self._examine():
            ended = f"{NO_PROGRESS}: the model is not finite"
        if self._emit.wants(RunEnded):
            seconds, finished = time.monotonic() - began, done >= rounds and not ended.startswith(NO_PROGRESS)
            self._emit(RunEnded(done, finished, digest, seconds, ended))
        return ended

    def _play_to_the_end(self) -> str:
        try:
            if self._watch is not None:
                self._watch.start()
            self._admission.join_patiently()
            self._news.start()
            while not (ended := self._ended or self._admission.ended):
                self._handle(self._inbox.next(self.member.round))
        except (LinkClosed, LinkTimeout, RunStopped) as error:
            if self.member.round < self._rounds:
                raise
            self._note(f"nobody could be asked whether this is the end of the run: {error.what}")
            return "finished"  # and nobody is left to serve the model to
        return ended

    def stop(self, how: str) -> None:
        """Let the run end for this peer before its next step; may be called from any thread."""
        self._admission.stop()
        self._news.take_up(RunEnd(how))

    def close(self) -> None:
        """Leave quietly: links, threads, sockets."""
        if self._inbox.closed.is_set():
            return
        self._inbox.closed.set()
        self._aggregator.close()
        if self.witness.proof is not None:
            self.clients.accuse(self.witness.proof, self.number, _PASS_ON)
        self.clients.close()
        self.server.close()
        self._loop.close()
        self._admission.leave()
        self.control.close()
        if self.allegiance is not None:
            self.allegiance.close()

    def _tell_in_thread(self, outcome: Published | Withheld, round: int) -> None:
        """Tell the coordinator what became of a shard; whoever cut it has others to serve in the meantime."""
        self.fault_points("cut", round=round)
        self._loop.hand_over(partial(self._reporter.tell, outcome, round))

    def _compare(self, seal: CertifiedSeal) -> None:
        """Look at the seal of another peer's plan; if the coordinator told the two of us different things, it ends."""
        try:
            self.witness.compare(seal)
        except Refused as refusal:
            self._give_up(refusal)

    def _accuse(self, proof: Contradiction) -> None:
        """Take a proof against the coordinator from another peer; refuse what is none."""
        try:
            self.witness.convict(proof)
        except Refused as refusal:
            if refusal.reason is not Reason.EQUIVOCATION:
                raise
            self._give_up(refusal)

    def _give_up(self, refusal: Refused) -> None:
        """End here: nothing that this coordinator says is worth waiting for, nor a round that it planned."""
        self._inbox.failure = refusal
        self._aggregator.close()

    @property
    def _rounds(self) -> int:
        """How many rounds the run has: what was agreed, or fewer if patience is over."""
        return self.member.round if self.member.replica.is_done else self.federation.config.rounds

    def model_digest(self) -> str:
        """Return the sha256 of the model in spec order."""
        return model_digest(self.member.replica.model)

    def _open_to_others(self) -> None:
        """Listen, or wait at relays, or both; a peer that only dials out does neither."""
        settings, limits = self.settings, self.federation.link_limits
        if not settings.reachable:
            return
        self._admission.port = self.server.listen(self._credentials, settings.listen, limits, self._book.roster)
        if settings.relays:
            self.server.wait_at(
                settings.relays, self._credentials, settings.wait, connect=limits.connect, proxy=settings.proxy
            )

    def _handle(self, bulletin: Bulletin) -> None:
        match bulletin:
            case RunEnd(how):
                self._ended = how
            case RoundsDone() if not self._kept or self._kept != self.member.chain:
                self._catch_up.catch_up_patiently()
                self._kept = self.member.chain
                self._admission.say_where_we_stand()  # we serve it until the run ends
            case PlanBulletin(plan) if self.number in {entry.peer for entry in plan.roster}:
                self._on_roster = True
                played = self._player.play(bulletin)
                if self._player.left:
                    self._ended = "left"
                elif played is not None:
                    self._renew_key(plan)
                    if self._emit.wants(RoundEnded):
                        self._emit(self._summed_up(played))
                    if plan.checkpoint and plan.round:
                        self._examine()
            case PlanBulletin() if self._on_roster:  # else it is a plan from before we came
                self._ended = "left"
        # a verdict outside a round is one this peer has caught up with already

    def _renew_key(self, plan: RoundPlan) -> None:
        """Show others another mask key every so many rounds, again if it was not heard; a later plan will show it."""
        key = self._mask_key
        if key is None or ((plan.round + 1) % masking.KEY_ROUNDS and not key.renewing):
            return
        if plan.keys.get(self.number) == key.public:  # else it has just taken its place
            shown = self._book.shown(self.number, key.renew())
            self._admission.key = shown
            self._reporter.show_key(shown)

    def _examine(self) -> bool:
        """Look whether the model has moved since the last time, and is finite; what is wrong is said once."""
        seen = blake3()  # not the sha256 that people compare: this is looked at every few rounds
        for piece in array_pieces(self.member.replica.model):
            seen.update(piece)
        before, self._examined = self._examined, seen.digest()
        finite = all_finite(self.member.replica.model)
        if not finite:
            self._degraded("the model is not finite: look for a diverging loss, a smaller learning rate helps")
        elif before == self._examined and self._kept != self.member.chain:
            self._degraded("the model does not move: look for lost shards, a learning rate of 0, or frozen tensors")
        return finite

    def _degraded(self, why: str) -> None:
        if self._note(why):
            self._emit(RunCourseChanged(RunState.DEGRADED, why))

    def _note(self, what: str) -> bool:
        """Keep what a reader of the summary must know, and say it in the log, once."""
        new = what not in self.notes
        if new:
            self.notes.append(what)
            _LOG.warning("%s", what)
        return new

    # ── what is told of it ───────────────────────────────────────────────────────────────────────────────────────

    def _tell_of_start(self) -> None:
        config = self.federation.config
        self._emit(
            RunStarted(
                run=self.composition.run,
                method=self.composition.method.name,
                rounds=config.rounds,
                first_round=self.member.round,
                members=config.members,
                aggregators=self.recipe.policy.shards,
                n=self.recipe.spec.n,
                chain=self.recipe.describe(),
                notes=tuple(self.notes),
            )
        )

    def _summed_up(self, played: ConcludedRound) -> RoundEnded:
        """Sum a round up; what came since the last one counts, for others may be faster and send before we begin."""
        before, self._counted = self._counted, (self.clients.carried(), RoleBytes(*self.server.carried()))
        pairs = zip(self._counted, before, strict=True)
        member, aggregator = (RoleBytes(now.up - then.up, now.down - then.down) for now, then in pairs)
        total = int(member.up + aggregator.up)  # what each peer sent adds up to what went over all links
        return RoundEnded(
            played.plan.round,
            {
                "train_loss": played.loss,
                **played.metrics,
                **members_figures(self.recipe, played.verdict),
                **self._evaluated(played.plan.round + 1),
                "largest_share": played.largest_share,
            },
            RoundTraffic(member, aggregator, total, seconds=math.nan, round_seconds=played.seconds["round"]),
            played.seconds,
            len(played.verdict.lost_shards),
        )

    def _evaluated(self, done: int) -> Mapping[str, float]:
        config = self.federation.config
        if not self._evaluate or (done % config.evaluate_every and done != self._rounds):
            return {}
        try:
            return means_of(self.training.task.evaluate(self.member.replica.model))
        except Exception as error:  # noqa: BLE001 - the user's own code; its training may be fine
            if not self._evaluate_failed:
                _LOG.exception("evaluate failed; training goes on without its figures")
                self.notes.append(f"evaluate failed, first after {done} rounds: {type(error).__name__}: {error}")
            self._evaluate_failed = True
            return {}


def _allegiance(federation: FederationFile, credentials: Credentials, settings: NodeSettings) -> Allegiance | None:
    """Return what this peer promised and keeps, where another coordinator may take over; it must be on a disk."""
    if not federation.settings.standbys:
        return None
    if settings.folder is None:
        raise ConfigError(
            "this federation lists standbys, and this peer has no folder to keep verdicts and promises in",
            fix="give it one (--out)",
            peer=settings.name,
        )
    return Allegiance(federation, credentials, settings.folder)
