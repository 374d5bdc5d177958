"""The coordinator as a process: what peers call, and the clock that decides when nobody calls.

It takes members in, keeps the clock and writes verdicts (`run`). It never sees an update or a model.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import metadata
from pathlib import Path

from eris.coordinate.attendance import Present
from eris.coordinate.callers import Callers
from eris.coordinate.run import CoordinatorRun
from eris.coordinate.take_over import JOURNAL
from eris.errors import DiskError, ErisError, Reason, Refused
from eris.events import Listener
from eris.methods.masked import is_masked
from eris.peer.fault_points import FaultPoints
from eris.peer.federation_file import FederationFile
from eris.peer.folder_claim import FolderClaim
from eris.peer.journal import SqliteJournal
from eris.peer.mandates import Mandates
from eris.protocol.coordinator import Coordinator
from eris.protocol.false_manifest import FalseManifest
from eris.protocol.messages import BriefReport, FullReport, Idle, Manifest, NewKey, Wanted, Withheld
from eris.protocol.take_over import Kept, Mandate, Vote, first_epoch
from eris.transport.board import Board
from eris.transport.calls import (
    BookRequest,
    CertificateAnswer,
    CertificateRequest,
    DepartureAnswer,
    DepartureRequest,
    DialRequest,
    Done,
    FetchAnswer,
    FetchRequest,
    JoinAnswer,
    JoinRequest,
    KeptRounds,
    LeaveRequest,
    Overview,
    PeerStatus,
    PlayedRound,
    ProofAnswer,
    ProofRequest,
    ReportRequest,
    RosterAnswer,
    RosterRequest,
    RoundsAnswer,
    RoundsRequest,
    StandingAnswer,
    StandingRequest,
    StatusRequest,
    StopRequest,
)
from eris.transport.control_server import ControlServer, a_page
from eris.transport.credentials import Credentials
from eris.transport.document_sizes import require_document_sizes
from eris.transport.identity import PeerIdentity
from eris.transport.process_limits import (
    coordinator_descriptors,
    coordinator_memory,
    require_descriptors,
    require_process_memory,
)

__all__ = ["CoordinatorService"]

_LOG = logging.getLogger(__name__)
_TICK = 0.2  # seconds
_FINDINGS = 1000  # disagreements that are reported, the latest ones
_STANDSTILL = 1.0  # seconds by which the clock may tick late


class CoordinatorService:
    """One run's coordinator behind a gRPC server."""

    def __init__(
        self,
        federation: FederationFile,
        credentials: Credentials,
        folder: Path,
        *,
        listen: tuple[str, int],
        begin_with: int = 0,
        wait: float = 86_400.0,
        patience: float | None = None,
        linger: float = 60.0,
        lost_rounds: int = 10,
        listeners: Iterable[Listener] = (),
    ) -> None:
        """Listen; the run begins with `begin_with` peers (0: all), and ends if they have not come in `wait` seconds.

        `patience`, `linger`, `lost_rounds` and `listeners` are those of `CoordinatorRun`.

        Args:
            credentials: the coordinator's own.
            folder: holds the journal; an unfinished run in it goes on.
            listen: host and port at which peers call.
        """
        peers = len(federation.peers)
        config = federation.config
        sizes = require_document_sizes(
            peers,
            config.aggregators,
            names=federation.peers,
            replicas=config.shards.replicas,
            unmaskers=config.privacy.unmaskers if is_masked(config) else 0,
        )
        require_descriptors(coordinator_descriptors(peers), f"a coordinator of {peers:,} members")
        require_process_memory(coordinator_memory(peers, sizes.kept), f"a coordinator of {peers:,} members")
        self.federation, self._credentials, self.fault_points = federation, credentials, FaultPoints()
        self._callers = Callers(federation, credentials)
        self.failure: ErisError | None = None  # why it cannot go on
        self._journal = SqliteJournal(folder / JOURNAL)
        self._mandates = Mandates(federation, credentials, self._journal.mandates())
        try:
            self._mandates.require_own_term()
            self._claim = FolderClaim(folder)
        except ErisError:
            self._journal.close()
            raise
        self._gave_way = ""  # the coordinator we gave way to
        self._run = CoordinatorRun(
            federation,
            credentials,
            self._journal,
            self.fault_points,
            begin_with=begin_with,
            wait=wait,
            patience=patience,
            linger=linger,
            lost_rounds=lost_rounds,
            listeners=listeners,
        )
        self._lock, self._attendance, self._closed = self._run.lock, self._run.attendance, False
        calls = max(512, 2 * peers)  # everybody waits for news, and half of them report
        try:
            self._server = ControlServer(
                credentials,
                listen,
                self,
                board=self._run.board,
                capacity=calls,
                require_allowed=self._callers.require_allowed,
            )
        except ErisError:
            self._claim.release()
            raise
        self._clock = threading.Thread(target=self._tick, name="eris-clock", daemon=True)
        self._clock.start()

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        return self._server.address

    @property
    def name(self) -> str:
        """The name of this coordinator."""
        return self._credentials.name

    @property
    def board(self) -> Board:
        """The board that carries its bulletins."""
        return self._run.board

    @property
    def coordinator(self) -> Coordinator | None:
        """The role that decides, once the run has begun."""
        return self._run.coordinator

    def wait(self, seconds: float | None = None) -> str:
        """Wait for the end of the run and return how it ended; empty if it goes on."""
        with self._lock:
            self._lock.wait_for(lambda: bool(self._run.ended or self._gave_way), seconds)
            return self._run.ended or self._gave_way

    def linger(self, seconds: float = 5.0) -> None:
        """Wait until every present peer has heard of the end and left."""
        with self._lock:
            if self._gave_way:
                return
            self._lock.wait_for(lambda: all(peer.lost for peer in self._attendance.present.values()), seconds)

    def close(self) -> None:
        """Stop the server and the clock; restarting in this folder resumes the run."""
        with self._lock:
            self._closed = True
            self._lock.notify_all()
        self._clock.join()
        self._server.close()
        self._journal.close()
        self._claim.release()

    def overview(self) -> Overview:
        """Return who is there and how far the run has got, for callers on this machine."""
        with self._lock:
            coordinator, composition, course = self._run.coordinator, self._run.composition, self._run.course
            ways = self._attendance.ways()
            return Overview(
                federation=self.federation.name,
                digest=self.federation.digest,
                version=metadata.version("eris-fl"),
                time=time.time(),
                control=self._server.traffic,
                run=composition.run if composition else "",
                round=coordinator.round if coordinator else 0,
                rounds=self.federation.config.rounds,
                started=coordinator is not None,
                ended=self._run.ended,
                waiting=self._run.waiting,
                lost=dict(coordinator.lost_reasons) if coordinator else {},
                disagreements=tuple(map(str, coordinator.disagreements[-_FINDINGS:])) if coordinator else (),
                peers=tuple(self._peer_status(number, name, ways) for number, name in enumerate(self.federation.peers)),
                ways=ways,
                state=course.state,
                why=course.why,
                expires=self._credentials.identity.not_after,
                epoch=coordinator.epoch if coordinator else first_epoch(self._run.term),
            )

    # ── what peers call ──────────────────────────────────────────────────────────────────────────────────────────

    def join(self, caller: PeerIdentity, request: JoinRequest) -> JoinAnswer:
        """Take a peer into the run, or back into it."""
        number = self._callers.number(caller)
        if request.federation != self.federation.digest:
            raise Refused(
                Reason.WRONG_RUN, "this peer has another FEDERATION.toml", fix="use the same file", peer=caller.name
            )
        entry = self._callers.entry(number, caller, request)
        with self._deciding():
            present = Present(entry, request.address, caller.certificate, request, request.relays, request.mask_key)
            intact, under_way, board = self._run.join(present)
        _LOG.info("%s has joined: %d of %d", caller.name, len(self._attendance.present), len(self.federation.peers))
        return JoinAnswer(
            peer=number,
            intact=intact,
            plan=under_way.encoded if under_way else b"",
            ended=self._run.ended,
            dialled=entry.can_aggregate or (request.address is None and not request.relays),
            board=board,
            seal=self._run.sealed(under_way) if under_way else None,
            certificate=self._credentials.identity.certificate,
        )

    def report(self, caller: PeerIdentity, request: ReportRequest) -> Wanted:
        """Take a manifest, a report, a notice or the next mask key from a peer; return what else is wanted."""
        number = self._callers.number(caller)
        if isinstance(request, Mandate):
            self._give_way(request)
            return Wanted()
        if isinstance(request, Kept):
            with self._deciding():
                self._run.note_kept(number, request.verdict)
            return Wanted()
        with self._deciding():
            coordinator = self._run.running
            match request:
                case Manifest():
                    coordinator.manifest(request)
                case NewKey(shown):
                    self._attendance.show_key(number, shown)
                    coordinator.show_key(number, bytes.fromhex(shown.key))
                case FalseManifest():
                    coordinator.accused(request)
                case Withheld():
                    if request.aggregator != number:
                        raise Refused(
                            Reason.NOT_A_MEMBER, "only the aggregator itself can withhold its shard", peer=caller.name
                        )
                    coordinator.withheld(request)
                case Idle():
                    self._run.sit_out(number, request.plan)
                case Vote() | KeptRounds():
                    raise Refused(
                        Reason.WRONG_EPOCH, f"{self._credentials.name} coordinates already, and asks for no votes"
                    )
                case BriefReport():
                    coordinator.report_briefly(number, request)
                case FullReport():
                    coordinator.report(request.of(number))
            wanted = coordinator.wanted(number)
            self.fault_points("noted", round=coordinator.round, what=type(request).__name__)
        return wanted

    def fetch(self, caller: PeerIdentity, request: FetchRequest) -> FetchAnswer | bytes:
        """Return addresses (encoded), a roster, missed rounds, or whether a peer can be dialled where it listens."""
        match request:
            case DialRequest():
                return self._callers.dial(caller, request)
            case BookRequest(board, edition):
                with self._lock:
                    now = self.board.identity
                    return self._attendance.encoded_book(now, edition if board == now else 0)
            case StandingRequest():
                return StandingAnswer(self._mandates.all)
            case CertificateRequest():
                return CertificateAnswer(self._credentials.identity.certificate)
            case ProofRequest(peers):
                with self._lock:
                    return ProofAnswer(self._run.proofs(peers))
            case DepartureRequest(peers):
                return DepartureAnswer(self._journal.leaves(peers))
            case RosterRequest(digest, base):
                return self._roster(digest, base)
            case RoundsRequest(since):
                with self._lock:
                    pairs = [pair for pair in self._journal.since(since) if pair[1] != self._run.unsettled][:16]
                sealed = self._run.sealed
                rounds = [
                    PlayedRound(plan.encoded, verdict.encoded, (sealed(plan), sealed(verdict)))
                    for plan, verdict in pairs
                ]
                return RoundsAnswer(a_page(rounds, lambda played: len(played.plan) + len(played.verdict)))

    def _roster(self, digest: str, base: str) -> RosterAnswer:
        """Return a roster, as the difference from one that the caller knows where that is shorter."""
        roster = self._journal.find_roster(digest)
        with contextlib.suppress(Refused):
            change = self._journal.find_roster(base).change_to(roster)
            if 2 * len(change.entries) < len(roster):
                return RosterAnswer(change, b"")
        return RosterAnswer(None, roster.encoded)

    def status(self, caller: PeerIdentity, request: StatusRequest) -> Overview:
        """Return who is there and how far the run has got."""
        del caller, request
        return self.overview()

    def leave(self, caller: PeerIdentity, request: LeaveRequest) -> Done:
        """Let a peer go: for good, or because the run is over for it."""
        number, leave = self._callers.number(caller), request.leave
        if leave is not None and leave.claim.name != caller.name:
            raise Refused(Reason.NOT_A_MEMBER, f"{caller.name} cannot leave for {leave.claim.name}")
        with self._deciding():
            self._run.leave(number, leave)
        return Done()

    def stop(self, caller: PeerIdentity, request: StopRequest) -> Done:
        """End the run at once, without the round in flight, and record who asked, as signed."""
        claim, now = request.claim, self.overview()
        if (claim.run, claim.epoch) != (now.run, now.epoch):
            raise Refused(
                Reason.WRONG_EPOCH, f"{caller.name} wants to end another run, or an earlier epoch", fix="ask again"
            )
        stopped = self._callers.stopped(caller, request)
        with self._deciding():
            self._journal.append(stopped)
        self._run.end(f"stopped by {caller.name}")
        return Done()

    def heard(self, caller: PeerIdentity, *, waits: bool) -> None:
        """Note that a peer asks for news: it is present, or back."""
        with self._lock:
            present = self._attendance.heard(caller, waits=waits)
            if present and self.coordinator is not None and present.entry.peer in self.coordinator.absent:
                _LOG.info("%s is back", present.entry.name)
                self.coordinator.heard_again(present.entry.peer)

    def lost(self, caller: PeerIdentity) -> None:
        """Note that a peer's connection broke; it has a moment to dial again before the others go on without it."""
        with self._lock:
            self._attendance.lost(caller)

    def healthy(self) -> bool:
        """Return whether the clock is running."""
        return self._clock.is_alive()

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _tick(self) -> None:
        before = time.monotonic()
        while True:
            with self._lock:
                if self._run.ended or self._closed or self._gave_way:
                    return
                before = self._forgive_standstill(before)
                try:
                    self._run.decide()
                    self._run.tell_course()
                except Exception as error:  # noqa: BLE001 - a full disk, for one; nobody may wait for a dead clock
                    self._give_up(error)
                    return
                self._lock.wait(_TICK)

    def _forgive_standstill(self, before: float) -> float:
        """Give peers and round the time in which this process was frozen or starved; return the time of this tick."""
        now = time.monotonic()
        if (late := now - before - _TICK) > _STANDSTILL:
            _LOG.warning("this process stood still for %.1f s: the round gets as much more time", late)
            self._run.forgive(late)
        return now

    def _give_up(self, error: Exception) -> None:
        """End the run for everybody: this process cannot store what it would have to announce."""
        _LOG.exception("the coordinator cannot continue")
        if isinstance(error, ErisError):
            self.failure = error
        self._run.end(f"the coordinator cannot continue: {error}")

    @contextmanager
    def _deciding(self) -> Iterator[None]:
        """Hold the lock; afterwards wake those who wait for changes, and end the run if the disk is full."""
        with self._lock:
            try:
                yield
            except DiskError as error:
                self._give_up(error)
                raise
            finally:
                self._lock.notify_all()

    def _give_way(self, mandate: Mandate) -> None:
        """End when somebody shows that another coordinator was voted in for a later term; the run goes on there."""
        if self._mandates.learn(mandate) and mandate.term > self._run.term:
            votes = ", ".join(vote.voter for vote in mandate.votes)
            with self._lock:
                self._gave_way = f"{mandate.name} has taken over in term {mandate.term}, with the votes of {votes}"
                _LOG.warning("%s", self._gave_way)
                self._lock.notify_all()

    def _peer_status(self, number: int, name: str, ways: tuple[str, ...]) -> PeerStatus:
        present = self._attendance.present.get(number)
        absent = self.coordinator is not None and number in self.coordinator.absent
        unreached = self.coordinator is not None and number in self.coordinator.out_of_reach
        return PeerStatus(
            name=name,
            here=present is not None and not absent,
            aggregates=bool(present and present.entry.can_aggregate and not unreached),
            organisation=present.entry.organisation if present else "",
            entry=replace(present.entry, counter=0, signature="") if present else None,
            way=ways.index(present.reached) if present and present.reached in ways else -1,
            expires=self._credentials.identify(present.certificate).not_after if present else 0.0,
        )
