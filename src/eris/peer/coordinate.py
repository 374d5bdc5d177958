"""The coordinator as a process: takes members in, keeps the clock, writes verdicts. It never sees an update or a model.

It speaks in bulletins that everybody reads in order: "plan", "verdict", "end". The run begins when all listed peers are
there, or as many as were asked for; one that comes later, or comes back, is on the roster of the next plan.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from eris.errors import DiskError, ErisError, Reason, Refused
from eris.peer.attendance import Present, can_be_dialled
from eris.peer.federation import Federation
from eris.peer.folder_claim import FolderClaim
from eris.peer.journal import SqliteJournal
from eris.peer.moments import Moments
from eris.peer.proceedings import Proceedings
from eris.peer.wish import Wish
from eris.protocol.coordinator import Coordinator
from eris.protocol.messages import Manifest, Report, Withheld
from eris.protocol.round_plan import RosterEntry
from eris.transport.board import Board
from eris.transport.control_server import ControlServer, a_page
from eris.transport.credentials import Credentials
from eris.transport.identity import PeerIdentity

__all__ = ["CoordinatorNode"]

_LOG = logging.getLogger(__name__)
_TICK = 0.2  # seconds
_STANDSTILL = 1.0  # seconds by which the clock may tick late
Document = dict[str, Any]


class CoordinatorNode:
    """One run's coordinator behind a gRPC server: what peers call, and the clock that decides when nobody calls."""

    def __init__(
        self,
        federation: Federation,
        credentials: Credentials,
        folder: Path,
        *,
        listen: tuple[str, int],
        begin_with: int = 0,
        wait: float = 86_400.0,
    ) -> None:
        """Listen; the run begins with `begin_with` peers (0: all), and ends if they have not come in `wait` seconds."""
        self.federation, self.moments = federation, Moments()
        self._closed = False
        self._idle: set[tuple[str, int]] = set()  # the plan in flight, and who sends nothing under it
        self.failure: ErisError | None = None  # why it cannot go on
        self._journal = SqliteJournal(folder / "coordinator.sqlite")
        self._claim = FolderClaim(folder)
        self._run = Proceedings(federation, credentials, self._journal, self.moments, begin_with=begin_with, wait=wait)
        self._lock, self._attendance = self._run.lock, self._run.attendance
        try:
            self._server = ControlServer(credentials, listen, self)
        except ErisError:
            self._claim.release()
            raise
        self._run.board, self._run.renew_board = self._server.board, self._server.renew_board
        self._clock = threading.Thread(target=self._tick, name="eris-clock", daemon=True)
        self._clock.start()

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        return self._server.address

    @property
    def board(self) -> Board:
        """Where bulletins are put up."""
        return self._run.board

    @property
    def coordinator(self) -> Coordinator | None:
        """The role that decides, once the run has begun."""
        return self._run.coordinator

    def wait(self, seconds: float | None = None) -> str:
        """Wait for the end of the run and return how it ended; empty if it goes on."""
        with self._lock:
            self._lock.wait_for(lambda: bool(self._run.ended), seconds)
            return self._run.ended

    def linger(self, seconds: float = 5.0) -> None:
        """Wait until every present peer has heard of the end and left."""
        with self._lock:
            self._lock.wait_for(lambda: all(peer.lost for peer in self._attendance.present.values()), seconds)

    def close(self) -> None:
        """End server and clock; a run that is not over goes on when a coordinator starts again in this folder."""
        with self._lock:
            self._closed = True
            self._lock.notify_all()
        self._clock.join()
        self._server.close()
        self._journal.close()
        self._claim.release()

    def overview(self) -> Document:
        """Return who is there and how far the run is, for whoever asks on this machine."""
        with self._lock:
            coordinator, composition = self._run.coordinator, self._run.composition
            return {
                "federation": self.federation.name,
                "digest": self.federation.digest,
                "version": metadata.version("eris-fl"),
                "time": time.time(),
                "control": asdict(self._server.traffic),
                "run": composition.run if composition else "",
                "round": coordinator.round if coordinator else 0,
                "rounds": self.federation.config.rounds,
                "started": coordinator is not None,
                "ended": self._run.ended,
                "waiting": self._run.waiting,
                "lost": dict(coordinator.lost_reasons) if coordinator else {},
                "disagreements": [str(finding) for finding in coordinator.disagreements] if coordinator else [],
                "peers": [self._peer_status(number, name) for number, name in enumerate(self.federation.peers)],
            }

    # ── what peers call ──────────────────────────────────────────────────────────────────────────────────────────

    def join(self, caller: PeerIdentity, request: Document) -> Document:
        """Take a peer into the run, or back into it."""
        number = self._number(caller)
        wish = Wish.from_dict(request)
        if wish.federation != self.federation.digest:
            raise Refused(
                Reason.WRONG_RUN, "this peer has another FEDERATION.toml", fix="use the same file", peer=caller.name
            )
        entry = self._entry(number, caller, wish)
        with self._deciding():
            if self.coordinator is not None:
                self.coordinator.require_honest(number)
            elif self._run.spec is None or not (self._run.composition or self._attendance.present):
                self._run.spec = wish.spec  # who was here first, with another model, has left
            assert self._run.spec is not None
            self._run.spec.require_same(wish.spec.digest, where=f"peer {caller.name}")
            moved = self._attendance.enter(Present(entry, wish.address, caller.certificate, wish))
            under_way, board = self.coordinator.in_flight if self.coordinator else None, self.board.identity
            intact = self._run.take_in(entry, wish)
            if under_way is not None:
                self._run.excuse(number, moved=moved, contributes=intact)
        plan = under_way.to_dict() if under_way else None
        _LOG.info("%s is here: %d of %d", caller.name, len(self._attendance.present), len(self.federation.peers))
        dialled = entry.can_aggregate or wish.address is None
        ended = self._run.ended
        return {"peer": number, "intact": intact, "plan": plan, "ended": ended, "dialled": dialled, "board": board}

    def report(self, caller: PeerIdentity, request: Document) -> Document:
        """Take a manifest, a notice, the list of what a member holds, or that it sends nothing."""
        number = self._number(caller)
        with self._deciding():
            coordinator = self._running()
            wanted: tuple[int, ...] = ()
            if "manifest" in request:
                coordinator.manifest(Manifest.from_dict(request["manifest"]))
            elif "withheld" in request:
                notice = Withheld.from_dict(request["withheld"])
                if notice.aggregator != number:
                    raise Refused(Reason.NOT_A_MEMBER, "only the aggregator itself withholds", peer=caller.name)
                coordinator.withheld(notice)
            elif "idle" in request:
                self._excuse(coordinator, number, request["idle"])
            else:
                wanted = coordinator.report(Report.from_dict(request.get("report", {}), number))
            self.moments("noted", round=coordinator.round, what=next(iter(request), ""))
        return {"wanted": list(wanted)}

    def fetch(self, caller: PeerIdentity, request: Document) -> Document:
        """Return the address book, the rounds a peer missed, or whether a peer can be dialled where it listens."""
        del caller
        if "dial" in request:
            return {"dialled": can_be_dialled((str(request["dial"][0]), int(request["dial"][1])))}
        if "book" in request:
            with self._lock:
                return {"book": {str(number): peer.page() for number, peer in self._attendance.present.items()}}
        pairs = self._journal.since(int(request["since"]))[:16]
        return {"rounds": a_page([{"plan": plan.to_dict(), "verdict": verdict.to_dict()} for plan, verdict in pairs])}

    def status(self, caller: PeerIdentity, request: Document) -> Document:
        """Return who is there and how far the run is."""
        del caller, request
        return self.overview()

    def leave(self, caller: PeerIdentity, request: Document) -> Document:
        """Let a peer go: for good, or because the run is over for it."""
        number = self._number(caller)
        with self._deciding():
            self._attendance.leave(number)
            if self.coordinator is not None and not self._run.ended:
                if request.get("for_good"):
                    self.coordinator.leave(number)
                else:
                    self._run.gone(self.coordinator, number)
        return {}

    def stop(self, caller: PeerIdentity, request: Document) -> Document:
        """End the run after the round in flight; recorded with the name of who asked."""
        del request
        self._run.end(f"stopped by {caller.name}")
        return {}

    def heard(self, caller: PeerIdentity, *, waits: bool) -> None:
        """Note that a peer asks for news: it is there, or there again."""
        with self._lock:
            present = self._attendance.heard(caller, waits=waits)
            if present and self.coordinator is not None and present.entry.peer in self.coordinator.absent:
                _LOG.info("%s is there again", present.entry.name)
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
                if self._run.ended or self._closed:
                    return
                before = self._forgive_standstill(before)
                try:
                    self._run.decide()
                except Exception as error:  # noqa: BLE001 - a full disk, for one; nobody may wait for a dead clock
                    self._give_up(error)
                    return
                self._lock.wait(_TICK)

    def _forgive_standstill(self, before: float) -> float:
        """Give peers and round the time in which this process was frozen, or starved; return the time of this tick."""
        now = time.monotonic()
        if (late := now - before - _TICK) > _STANDSTILL:
            _LOG.warning("this process stood still for %.1f s: the round gets as much more time", late)
            self._run.forgive(late)
        return now

    def _give_up(self, error: Exception) -> None:
        """End the run for everybody: this process cannot keep what it would have to announce."""
        _LOG.exception("the coordinator cannot go on")
        if isinstance(error, ErisError):
            self.failure = error
        self._run.end(f"the coordinator cannot go on: {error}")

    @contextmanager
    def _deciding(self) -> Iterator[None]:
        """Hold the lock; whoever waits hears of what changed, and of a disk that is full."""
        with self._lock:
            try:
                yield
            except DiskError as error:
                self._give_up(error)
                raise
            finally:
                self._lock.notify_all()

    def _excuse(self, coordinator: Coordinator, number: int, plan: str) -> None:
        """Let nobody wait for who sends nothing in the round in flight; however often it says so, all hear it once."""
        said = (plan, number)
        if said in self._idle or coordinator.in_flight is None or coordinator.in_flight.digest != plan:
            return
        self._idle = {other for other in self._idle if other[0] == plan} | {said}
        self._run.excuse(number, moved=False, contributes=False)

    def _number(self, caller: PeerIdentity) -> int:
        try:
            return self.federation.number(caller.name)
        except ErisError:
            raise Refused(
                Reason.NOT_A_MEMBER, f"{caller.name} is not listed", fix="add it to FEDERATION.toml"
            ) from None

    def _entry(self, number: int, caller: PeerIdentity, wish: Wish) -> RosterEntry:
        return RosterEntry(
            peer=number,
            name=caller.name,
            weight=wish.weight,
            fingerprint=caller.fingerprint,
            organisation=wish.organisation,
            can_aggregate=self._may_aggregate(caller.name, wish.address),
        )

    def _may_aggregate(self, name: str, address: tuple[str, int] | None) -> bool:
        """Whether a peer may be given shards: it is meant to have some, and others can reach it."""
        chosen = self.federation.settings.aggregators
        if address is None or (chosen and name not in chosen):
            return False
        if not can_be_dialled(address):
            _LOG.warning("%s cannot be dialled at %s:%d: it is given no shard", name, *address)
            return False
        return True

    def _running(self) -> Coordinator:
        if self.coordinator is None:
            raise Refused(Reason.WRONG_ROUND, "the run has not begun")
        return self.coordinator

    def _peer_status(self, number: int, name: str) -> Document:
        present = self._attendance.present.get(number)
        absent = self.coordinator is not None and number in self.coordinator.absent
        unreached = self.coordinator is not None and number in self.coordinator.out_of_reach
        return {
            "name": name,
            "here": present is not None and not absent,
            "aggregates": bool(present and present.entry.can_aggregate and not unreached),
            "organisation": present.entry.organisation if present else "",
            "entry": asdict(present.entry) if present else None,
        }
