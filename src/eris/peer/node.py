"""One peer of a real federation: trains, sends its parts, aggregates its own shards, and follows verdicts.

Threads: the main one plays the rounds (play_round); two read bulletins and act on them (news); one watches all idle
links (transport/link_loop), and others move what is long: parts to aggregators (aggregator_client), shards to members
(shard_server). Everything that decides is in `protocol/`; here it is only driven.
"""

from __future__ import annotations

from collections.abc import Iterable

from eris.compose import compose
from eris.errors import RunStopped
from eris.events import EventStream, Listener
from eris.local.task import Task
from eris.peer.address_book import AddressBook
from eris.peer.admission import Admission
from eris.peer.catch_up import CatchUp, Checkpoints, NoCheckpoints, model_digest
from eris.peer.coordinator_line import CoordinatorLine
from eris.peer.fault_points import FaultPoints
from eris.peer.federation_file import FederationFile
from eris.peer.news import NewsReader
from eris.peer.node_settings import NodeSettings
from eris.peer.peer_links import PeerLinks
from eris.peer.play_round import RoundPlayer
from eris.peer.reporter import Reporter
from eris.peer.roles import build_roles, require_memory, require_sockets
from eris.peer.run_events import RunEvents
from eris.peer.training import Training
from eris.privacy import masking
from eris.protocol.round_plan import RoundPlan
from eris.seeds import Seed
from eris.transport.bulletins import Bulletin, PlanBulletin, RoundsDone, RunEnd
from eris.transport.credentials import Credentials
from eris.transport.link import LinkClosed, LinkTimeout

__all__ = ["Node"]


class Node:
    """A peer in a process of its own: `line` leads to the coordinator, `links` to other peers.

    `listeners` hear what it sees (`eris.events`) from the start of the run to its end: its own training and what it
    sent to whom, what it received as an aggregator, what was published and decided. They are called one at a time, by
    whichever thread saw the event; a listener that wants only some kinds of events says so with `eris.events.hears`.

    Args:
        task: this peer's learning problem.
        private: its private root of randomness.
        settings: what this peer decides for itself.
        checkpoints: where its state is saved; None: nowhere.
        evaluate: score the model with the task.
        reproducible: its noise comes from the run's seed, and protects nobody.
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
        self.federation, self.settings, self.credentials = federation, settings, credentials
        self.number, config = federation.number(settings.name), federation.config
        # Only our own samples are known here; the roster brings those of others.
        self.composition = compose(config, task.spec, [task.samples(self.number)] * config.members)
        self.recipe, self.reproducible = self.composition.recipe, reproducible
        settings.floor.check_figures(self.recipe, peer=settings.name)
        self._emit, self.fault_points = EventStream(listeners), FaultPoints()
        require_memory(federation, settings, self.recipe, task)
        self._book = book = AddressBook(
            credentials, self.composition.run, peers=federation.peers, federation=federation.digest
        )
        roles = build_roles(federation, self.composition, task, private, settings, book)
        self.member = member = roles.member
        self._mask_key = key = roles.key
        initial = self.model_digest()
        self.training = Training(task, member, private, seed=config.seed, pool=roles.pool)
        self.training.rehearse_scores()
        self.line = line = CoordinatorLine(federation, credentials, settings, self.composition.run)
        self._reporter = Reporter(line.control, member, line.inbox, self.fault_points)
        self.links = PeerLinks(
            federation,
            credentials,
            settings,
            roles,
            book,
            line,
            self._reporter,
            snapshot=lambda: self._catch_up.snapshot(),
            emit=self._emit,
            fault_points=self.fault_points,
        )
        self._catch_up = CatchUp(
            federation=federation,
            member=member,
            training=self.training,
            client=line.control,
            inbox=line.inbox,
            clients=self.links.clients,
            checkpoints=checkpoints or NoCheckpoints(),
            emit=self._emit,
            rosters=line.rosters,
            witness=line.witness,
            allegiance=line.allegiance,
        )
        self._admission = Admission(
            federation,
            settings,
            credentials,
            line,
            self.links,
            member,
            self._reporter,
            self._catch_up,
            weight=self.composition.roster[self.number].weight,
            initial=initial,
            key=book.shown(self.number, key) if key is not None else None,
        )
        self._news = NewsReader(federation, credentials, line, self.links, book, self._admission, self._emit)
        self._player = RoundPlayer(
            member=member,
            training=self.training,
            line=line,
            links=self.links,
            reporter=self._reporter,
            admission=self._admission,
            catch_up=self._catch_up,
            emit=self._emit,
            fault_points=self.fault_points,
            name=settings.name,
            initial=initial,
        )
        self.events = RunEvents(
            self._emit,
            self.composition,
            member,
            self.training,
            self.links.carried,
            evaluate=evaluate,
            reproducible=reproducible,
        )
        self._ended, self._on_roster = "", False  # of a plan so far
        self._kept = ""  # the run's last verdict, once the model it leads to is on our disk

    # ── life ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> str:
        """Join, play rounds until the run ends, and return how it ended."""
        self.events.started()
        try:
            self._admission.port = self.links.open()
            ended = self._play_to_the_end()
        finally:
            self.close()
        return self.events.ended(ended, moves=self._moves)

    def _play_to_the_end(self) -> str:
        try:
            self.line.start()
            self._admission.join_patiently()
            self._news.start()
            while not (ended := self._ended or self._admission.ended):
                self._handle(self.line.inbox.next(self.member.round))
        except (LinkClosed, LinkTimeout, RunStopped) as error:
            if self.member.round < self.events.rounds:
                raise
            self.events.note(f"the coordinator could not be asked whether this is the end of the run: {error.what}")
            return "finished"  # and nobody is left to serve the model to
        return ended

    def stop(self, how: str) -> None:
        """End the run for this peer before its next step; may be called from any thread."""
        self._admission.stop()
        self._news.take_up(RunEnd(how))

    def close(self) -> None:
        """Leave, and close links, threads and sockets."""
        if self.line.inbox.closed.is_set():
            return
        self.line.inbox.closed.set()
        self.links.close()
        self._admission.leave()
        self.line.close()

    def model_digest(self) -> str:
        """Return the sha256 of the model in spec order."""
        return model_digest(self.member.replica.model)

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
                    self.events.concluded(played)
                    if plan.checkpoint and plan.round:
                        self.events.examine(moves=self._moves)
            case PlanBulletin() if self._on_roster:  # otherwise it is a plan from before we came
                self._ended = "left"
        # a verdict outside a round is one that this peer has already caught up with

    @property
    def _moves(self) -> bool:
        """Whether the model should have moved: after the last verdict it stays as it is."""
        return self._kept != self.member.chain

    def _renew_key(self, plan: RoundPlan) -> None:
        """Show others a new mask key every so many rounds, again if it was not heard; a later plan will show it."""
        key = self._mask_key
        if key is None or ((plan.round + 1) % masking.KEY_ROUNDS and not key.renewing):
            return
        if plan.keys.get(self.number) == key.public:  # otherwise it has only just replaced the last one
            shown = self._book.shown(self.number, key.renew())
            self._admission.key = shown
            self._reporter.show_key(shown)
