"""The coordinator as a process: takes members in, keeps the clock, writes verdicts. It never sees an update or a model.

It speaks in bulletins that everybody reads in order: "plan", "verdict", "end". The run begins when all listed peers are
there; one that comes later, or comes back, is on the roster of the next plan.
"""

from __future__ import annotations

import base64
import logging
import math
import threading
import time
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from eris.compose import Composition, compose
from eris.errors import ErisError, Reason, Refused, RunStopped
from eris.local.spec import ModelSpec
from eris.peer.federation import Federation
from eris.peer.journal import SqliteJournal
from eris.peer.moments import Moments
from eris.peer.wish import Wish
from eris.protocol.coordinator import Coordinator, Rules
from eris.protocol.messages import Manifest, Report, Withheld
from eris.protocol.round_plan import RosterEntry, RoundPlan
from eris.protocol.verdict import Verdict
from eris.transport.board import Board
from eris.transport.control_server import ControlServer
from eris.transport.credentials import REVOKED, Credentials
from eris.transport.identity import PeerIdentity
from eris.transport.link import LinkError
from eris.transport.signatures import verify_message
from eris.transport.socket_stream import connect

__all__ = ["MANIFEST_PURPOSE", "CoordinatorNode"]

_LOG = logging.getLogger(__name__)
MANIFEST_PURPOSE = "manifest"
_DIAL_SECONDS = 2.0
_MOMENT = 1.5  # seconds to dial again after a connection broke
_SILENCE = 5.0  # seconds between two calls for news
Document = dict[str, Any]


@dataclass
class _Present:
    """A peer that joined: its place on the roster, where it can be dialled, and its certificate."""

    entry: RosterEntry
    address: tuple[str, int] | None
    certificate: bytes
    wish: Wish
    joined: float = field(default_factory=time.monotonic)
    waits: bool = False  # for news, in a call of its own
    heard: float = field(default_factory=time.monotonic)
    lost: float | None = None  # since when its connection is broken

    def silent(self, now: float) -> bool:
        """Whether it hung up and did not dial again, or has asked for no news for too long (frozen, or cut off)."""
        broken = self.lost is not None and self.lost < now - _MOMENT
        return broken or (not self.waits and self.heard < now - _SILENCE)


class CoordinatorNode:
    """One run's coordinator behind a gRPC server."""

    def __init__(
        self, federation: Federation, credentials: Credentials, folder: Path, *, listen: tuple[str, int]
    ) -> None:
        self.federation, self.moments = federation, Moments()
        self._lock = threading.Condition()
        self._present: dict[int, _Present] = {}
        self._certificates: dict[int, bytes] = {}  # also of peers that left: their last manifests are still to come
        self._edition = 0  # of the address book
        self._spec: ModelSpec | None = None
        self._composition: Composition | None = None
        self._coordinator: Coordinator | None = None
        self._ended, self._closed = "", False
        self._credentials, self._known_revocations = credentials, 0
        self._told = 0  # number of the list of revocations everybody has heard of
        self._journal = SqliteJournal(folder / "coordinator.sqlite")
        self._server = ControlServer(credentials, listen, self)
        self._clock = threading.Thread(target=self._tick, name="eris-clock", daemon=True)
        self._clock.start()

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        return self._server.address

    @property
    def board(self) -> Board:
        """Where bulletins are put up."""
        return self._server.board

    def wait(self, seconds: float | None = None) -> str:
        """Wait for the end of the run and return how it ended; empty if it goes on."""
        with self._lock:
            self._lock.wait_for(lambda: bool(self._ended), seconds)
            return self._ended

    def linger(self, seconds: float = 5.0) -> None:
        """Wait until every present peer has heard of the end and left."""
        with self._lock:
            self._lock.wait_for(lambda: all(present.lost for present in self._present.values()), seconds)

    def close(self) -> None:
        """End server and clock; a run that is not over goes on when a coordinator starts again in this folder."""
        with self._lock:
            self._closed = True
            self._lock.notify_all()
        self._clock.join()
        self._server.close()
        self._journal.close()

    # ── what peers call ──────────────────────────────────────────────────────────────────────────────────────────

    def join(self, caller: PeerIdentity, request: Document) -> Document:
        """Take a peer into the run, or back into it."""
        number = self._number(caller)
        wish = Wish.from_dict(request)
        if wish.federation != self.federation.digest:
            raise Refused(
                Reason.WRONG_RUN, "this peer has another FEDERATION.toml", fix="use the same file", peer=caller.name
            )
        spec, address = wish.spec, wish.address
        entry = RosterEntry(
            peer=number,
            name=caller.name,
            weight=wish.weight,
            fingerprint=caller.fingerprint,
            organisation=wish.organisation,
            can_aggregate=self._may_aggregate(caller.name, address),
        )
        with self._lock:
            if self._spec is None:
                self._spec = spec
            self._spec.require_same(spec.digest, where=f"peer {caller.name}")
            self._edition += self._present.get(number) is None or self._present[number].address != address
            self._present[number] = _Present(entry, address, caller.certificate, wish)
            self._certificates[number] = caller.certificate
            under_way = self._coordinator.in_flight if self._coordinator else None
            intact = self._take_in(entry, wish)
            self._lock.notify_all()
        plan = under_way.to_dict() if under_way else None
        _LOG.info("%s is here: %d of %d", caller.name, len(self._present), len(self.federation.peers))
        dialled = entry.can_aggregate or address is None
        return {"peer": number, "intact": intact, "plan": plan, "ended": self._ended, "dialled": dialled}

    def report(self, caller: PeerIdentity, request: Document) -> Document:
        """Take a manifest, a notice or the list of what a member holds."""
        number = self._number(caller)
        with self._lock:
            coordinator = self._running()
            wanted: tuple[int, ...] = ()
            if "manifest" in request:
                coordinator.manifest(Manifest.from_dict(request["manifest"]))
            elif "withheld" in request:
                notice = Withheld.from_dict(request["withheld"])
                if notice.aggregator != number:
                    raise Refused(Reason.NOT_A_MEMBER, "only the aggregator itself withholds", peer=caller.name)
                coordinator.withheld(notice)
            else:
                wanted = coordinator.report(Report.from_dict(request.get("report", {}), number))
            self._lock.notify_all()
        return {"wanted": list(wanted)}

    def fetch(self, caller: PeerIdentity, request: Document) -> Document:
        """Return the address book, the rounds a peer missed, or whether a peer can be dialled where it listens."""
        del caller
        if "dial" in request:
            return {"dialled": can_be_dialled((str(request["dial"][0]), int(request["dial"][1])))}
        if "book" in request:
            with self._lock:
                return {"book": {str(number): self._page(p) for number, p in self._present.items()}}
        pairs = self._journal.since(int(request["since"]))[:16]
        return {"rounds": [{"plan": plan.to_dict(), "verdict": verdict.to_dict()} for plan, verdict in pairs]}

    def status(self, caller: PeerIdentity, request: Document) -> Document:
        """Return who is there and how far the run is."""
        del caller, request
        return self.overview()

    def overview(self) -> Document:
        """Return who is there and how far the run is, for whoever asks on this machine."""
        with self._lock:
            coordinator = self._coordinator
            return {
                "federation": self.federation.name,
                "digest": self.federation.digest,
                "version": metadata.version("eris-fl"),
                "time": time.time(),
                "control": asdict(self._server.traffic),
                "run": self._composition.run if self._composition else "",
                "round": coordinator.round if coordinator else 0,
                "rounds": self.federation.config.rounds,
                "started": coordinator is not None,
                "ended": self._ended,
                "lost": dict(coordinator.lost_reasons) if coordinator else {},
                "peers": [self._peer_status(number, name) for number, name in enumerate(self.federation.peers)],
            }

    def leave(self, caller: PeerIdentity, request: Document) -> Document:
        """Let a peer go: for good, or because the run is over for it."""
        number = self._number(caller)
        with self._lock:
            self._present.pop(number, None)
            if self._coordinator is not None and not self._ended:
                if request.get("for_good"):
                    self._coordinator.leave(number)
                else:
                    self._coordinator.gone(number)
                    self.board.post("gone", {"peer": number})
            self._lock.notify_all()
        return {}

    def stop(self, caller: PeerIdentity, request: Document) -> Document:
        """End the run after the round in flight; recorded with the name of who asked."""
        del request
        self._end(f"stopped by {caller.name}")
        return {}

    def heard(self, caller: PeerIdentity, *, waits: bool) -> None:
        """Note that a peer asks for news: it is there, or there again."""
        with self._lock:
            present = self._present_as(caller)
            if present is None:
                return
            present.waits, present.heard = waits, time.monotonic()
            if caller.fingerprint == present.entry.fingerprint:  # renewed with the same key, perhaps
                present.certificate = self._certificates[present.entry.peer] = caller.certificate
            if not waits:
                return
            present.lost = None
            if self._coordinator is not None and present.entry.peer in self._coordinator.absent:
                _LOG.info("%s is there again", present.entry.name)
                self._coordinator.absent.discard(present.entry.peer)

    def lost(self, caller: PeerIdentity) -> None:
        """Note that a peer's connection broke; it has a moment to dial again before the others go on without it."""
        with self._lock:
            present = self._present_as(caller)
            if present is not None and present.lost is None:
                present.waits, present.lost = False, time.monotonic()

    def healthy(self) -> bool:
        """Return whether the clock is running."""
        return self._clock.is_alive()

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _number(self, caller: PeerIdentity) -> int:
        try:
            return self.federation.number(caller.name)
        except ErisError:
            raise Refused(
                Reason.NOT_A_MEMBER, f"{caller.name} is not listed", fix="add it to FEDERATION.toml"
            ) from None

    def _present_as(self, caller: PeerIdentity) -> _Present | None:
        return next((p for p in self._present.values() if p.entry.name == caller.name), None)

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
        if self._coordinator is None:
            raise Refused(Reason.WRONG_ROUND, "the run has not begun")
        return self._coordinator

    def _take_in(self, entry: RosterEntry, wish: Wish) -> bool:
        """Bring a peer onto the roster; begin the run when the last one is there."""
        if self._coordinator is None:
            members = {known.peer for known in self._journal.roster()} or set(range(len(self.federation.peers)))
            if members <= self._present.keys():
                self._begin()
            return True
        self._coordinator.join(entry)
        return self._coordinator.returned(
            entry.peer, private_round=wish.private_round, reference_epoch=wish.reference_epoch
        )

    def _begin(self) -> None:
        assert self._spec is not None
        config, settings = self.federation.config, self.federation.settings
        known = {entry.peer: entry for entry in self._journal.roster()}
        known |= {number: present.entry for number, present in self._present.items()}
        roster = [known[number] for number in sorted(known)]
        samples = [int(known[number].weight) if number in known else 1 for number in range(config.members)]
        self._composition = compose(config, self._spec, samples)
        able = [entry.peer for entry in roster if entry.can_aggregate]
        shards = self._composition.recipe.policy.shards
        if len(able) < shards:
            self._end(f"{shards} aggregators are needed, {len(able)} peers can be dialled")
            return
        rules = Rules(
            run=self._composition.run,
            aggregators=tuple(able[:shards]),
            participation=config.participation,
            normalisation=config.server.normalisation,
            min_contributors=config.server.min_contributors,
            quorum=settings.quorum,
            max_share=settings.max_share,
            checkpoint_every=settings.checkpoint_every,
            deadlines=self.federation.deadlines,
        )
        self._coordinator = Coordinator(self._composition.recipe, rules, roster, self._journal, verify=self._verify)
        self._coordinator.restart_clock(time.monotonic())
        for entry in roster:
            if (present := self._present.get(entry.peer)) is None:
                self._coordinator.gone(entry.peer)
            else:
                self._take_in(entry, present.wish)
        self._rewind_if_nobody_knows(self._coordinator)
        _LOG.info("the run begins with %d peers at round %d", len(self._present), self._coordinator.round)
        self._announce_plan()

    def _rewind_if_nobody_knows(self, coordinator: Coordinator) -> None:
        """Go back to the newest round that is durable at all peers, if none of them has what came after it."""
        wishes = [present.wish for present in self._present.values()]
        if max(wish.private_round for wish in wishes) >= coordinator.round:
            return
        common = set.intersection(*({0, *wish.checkpoints} for wish in wishes))
        target = max(round for round in common if round <= coordinator.round)
        _LOG.warning("nobody has round %d any more: the run goes on from round %d", coordinator.round, target)
        coordinator.rewind(target)

    def _verify(self, peer: int, message: bytes, signature: str) -> bool:
        certificate = self._certificates.get(peer)
        try:
            signed = bytes.fromhex(signature)
        except ValueError:
            return False
        return certificate is not None and verify_message(certificate, MANIFEST_PURPOSE, message, signed)

    def _drop_unwelcome(self, coordinator: Coordinator) -> None:
        """Take peers whose certificate was revoked or has expired off the roster, and pass on what the CA revoked."""
        self._credentials.refresh()
        for number, certificate in self._certificates.items():
            refusal = self._credentials.refusal(self._credentials.identify(certificate))
            if refusal is not None and number in coordinator.roster:
                _LOG.warning("%s is taken off the roster: %s", coordinator.roster[number].name, refusal.value)
                coordinator.leave(number)
                self._present.pop(number, None)
        if self._credentials.revocations.number > self._told:
            self._told = self._credentials.revocations.number
            self.board.post("revoked", {"list": base64.b64encode(self._credentials.read(REVOKED)).decode()})

    def _announce_plan(self) -> None:
        coordinator = self._running()
        self._drop_unwelcome(coordinator)
        if coordinator.round >= self.federation.config.rounds:
            self._end("finished")
            return
        if len(coordinator.roster) < coordinator.rules.min_contributors:
            self._end(f"{len(coordinator.roster)} members are left, too few to publish anything")
            return
        try:
            plan = coordinator.plan(time.monotonic())
        except RunStopped as stopped:
            self._end(str(stopped))
            return
        self.board.post(
            "plan",
            {
                "plan": plan.to_dict(),
                "initial": self._initial(plan),
                "absent": sorted(coordinator.absent),
                "book": f"{self.board.identity}-{self._edition}",  # another start counts from the beginning
            },
        )

    def _initial(self, plan: RoundPlan) -> str:
        """Return the digest of x⁰ most peers computed, in the first round."""
        if plan.round:
            return ""
        digests = [present.wish.initial for present in self._present.values()]
        return max(sorted(set(digests)), key=digests.count)

    def _tick(self) -> None:
        while True:
            with self._lock:
                if self._ended or self._closed:
                    return
                try:
                    self._decide()
                except Exception as error:  # noqa: BLE001 - a full disk, for one; nobody may wait for a dead clock
                    _LOG.exception("the coordinator cannot go on")
                    self._end(f"the coordinator cannot go on: {error}")
                    return
                self._lock.wait(0.2)

    def _give_up_lost(self) -> None:
        """Go on without peers whose connection stays broken: nobody waits for their contribution or their shard."""
        assert self._coordinator is not None
        self._give_up_revoked()
        now = time.monotonic()
        for number, present in self._present.items():
            if number in self._coordinator.absent or not present.silent(now):
                continue
            _LOG.warning("%s is gone: the round goes on without it", present.entry.name)
            self._coordinator.gone(number)
            self.board.post("gone", {"peer": number})

    def _give_up_revoked(self) -> None:
        """Count peers as gone as soon as the CA withdraws their certificate; the next plan is without them."""
        self._credentials.refresh()
        if self._credentials.revocations.number == self._known_revocations:
            return
        self._known_revocations = self._credentials.revocations.number
        for present in self._present.values():
            if self._credentials.refusal(self._credentials.identify(present.certificate)) is not None:
                present.lost = -math.inf

    def _begin_again(self) -> None:
        """Go on, after a restart, with a quorum of the members if the others do not come back in time."""
        members = len(self._journal.roster())
        waited = time.monotonic() - min((present.joined for present in self._present.values()), default=math.inf)
        quorum = self.federation.settings.quorum or members // 2 + 1
        if members and len(self._present) >= quorum and waited > self.federation.settings.connect:
            self._begin()

    def _decide(self) -> None:
        if self._coordinator is None:
            self._begin_again()
            return
        self._give_up_lost()
        verdict = self._coordinator.decide(time.monotonic())
        if verdict is not None:
            self.moments("written", round=verdict.round)
            with self.board.together():
                self._tell(verdict)
                self._announce_plan()

    def _tell(self, verdict: Verdict) -> None:
        for entry in verdict.shards:
            if not entry.committed:
                _LOG.warning("round %d: shard %d is lost: %s", verdict.round, entry.shard, entry.lost)
        self.board.post("verdict", {"verdict": verdict.to_dict()})

    def _end(self, how: str) -> None:
        with self._lock:
            if not self._ended:
                self._ended = how
                self.board.post("end", {"how": how})
            self._lock.notify_all()

    def _page(self, present: _Present) -> Document:
        return {
            "name": present.entry.name,
            "address": list(present.address) if present.address else None,
            "certificate": base64.b64encode(present.certificate).decode(),
        }

    def _peer_status(self, number: int, name: str) -> Document:
        present = self._present.get(number)
        absent = self._coordinator is not None and number in self._coordinator.absent
        here = present is not None and not absent
        return {
            "name": name,
            "here": here,
            "aggregates": bool(present and present.entry.can_aggregate),
            "organisation": present.entry.organisation if present else "",
            "entry": asdict(present.entry) if present else None,
        }


def can_be_dialled(address: tuple[str, int]) -> bool:
    """Return whether somebody listens there, as seen from this machine; who it is, links will find out."""
    try:
        connect(address, _DIAL_SECONDS).shut()
    except LinkError:
        return False
    return True
