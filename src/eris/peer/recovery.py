"""How a peer that is behind, or has strayed from the run, comes to stand where the others stand."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Mapping

from eris.errors import DiskError, Reason, Refused, RunStopped
from eris.local.spec import Vector
from eris.local.tensor_file import array_pieces
from eris.peer.book import Book
from eris.peer.chronicle import Chronicle
from eris.peer.conclusion import Conclusion
from eris.peer.couriers import Couriers
from eris.peer.federation import Federation
from eris.peer.inbox import Inbox
from eris.peer.past import Past
from eris.peer.training import Training
from eris.protocol.member import Member, Snapshot
from eris.protocol.round_plan import RoundPlan
from eris.protocol.verdict import GENESIS, Verdict
from eris.transport.link import LinkError

__all__ = ["Recovery", "model_digest"]

_LOG = logging.getLogger(__name__)
_PAUSE = 0.5  # seconds between two tries to come up to date
_LAST_WAIT = 1.0  # seconds that a peer goes on asking when the run has ended
Missed = Callable[[RoundPlan, Verdict], None]


class Recovery:
    """Brings one member up to date: by verdicts, by somebody's snapshot, or from its own past."""

    def __init__(
        self,
        federation: Federation,
        member: Member,
        training: Training,
        start: Callable[[], Mapping[str, Vector]],
        chronicle: Chronicle,
        inbox: Inbox,
        book: Book,
        couriers: Couriers,
        conclusion: Conclusion,
        past: Past,
        *,
        on_missed: Missed | None = None,
    ) -> None:
        self._federation, self._member, self._training, self._start = federation, member, training, start
        self._inbox, self._book, self._couriers, self._conclusion = inbox, book, couriers, conclusion
        self._chronicle, self._past, self._on_missed = chronicle, past, on_missed

    def snapshot(self) -> Snapshot:
        """Return where this peer stands, for another one: never in the middle of a step."""
        with self._conclusion.stepping:
            try:
                return self._member.snapshot()
            except DiskError as error:
                raise Refused(Reason.NO_ROOM, error.what, fix=error.fix, **error.where) from error

    def catch_up(self) -> None:
        """Follow the rounds that were missed by their verdicts, or take a snapshot of somebody further on."""
        if self.strayed():
            self._go_back()
        until = time.monotonic() + self._federation.settings.connect
        while pairs := self._missed():
            if self._take_snapshot(pairs) or self._replay(*pairs[0]):
                self._note_missed(pairs)
            elif time.monotonic() < until and self._inbox.failure is None:
                if self._inbox.has_end():  # nobody comes back; but who is still at the last round's end may have more
                    until = min(until, time.monotonic() + _LAST_WAIT)
                time.sleep(_PAUSE)  # others may come back with more, or the run go back to what there is
            else:
                raise RunStopped(
                    "nobody can bring this peer up to date",
                    fix="start it again when others are there",
                    peer=self._name,
                    round=self._member.round,
                )

    def _note_missed(self, pairs: list[tuple[RoundPlan, Verdict]]) -> None:
        for plan, verdict in pairs:
            if self._on_missed is not None and verdict.round < self._member.round:
                self._on_missed(plan, verdict)

    def strayed(self) -> bool:
        """Whether the run went back behind where we stand: all were down, and we had kept more than the others."""
        if self._member.round == 0:
            return False
        pairs = self._chronicle.since(self._member.round - 1)
        return not pairs or pairs[0][1].digest != self._member.chain

    def fetch_initial(self, plan: RoundPlan, agreed: str) -> bool:
        """Take x⁰ from a peer that has the agreed one: ours came out differently (another library version, say).

        Who has not heard of the round yet does not know us and is asked again. False if the round is over before that.
        """
        until, past = time.monotonic() + plan.deadlines.report, False  # whether anybody has the round behind it
        waiting = list(self._book.dialable(but=self._member.peer))
        while waiting:
            for peer in tuple(waiting):
                if (snapshot := self._snapshot_of(peer, until)) is None:
                    continue
                model = snapshot.state["model"]
                if snapshot.round == 0 and model_digest(model) == agreed:
                    with self._conclusion.stepping:
                        # All but the model is ours already, and vouched for by nobody else.
                        self._member.restore(Snapshot(0, GENESIS, {**self._member.replica.state(), "model": model}))
                    return True
                past = past or snapshot.round > 0
                waiting.remove(peer)
            over = self._inbox.is_over(plan) or self._inbox.is_stale(plan) or time.monotonic() >= until
            if over or self._inbox.failure is not None or self._inbox.closed.wait(_PAUSE):
                return False
        if past:
            return False
        raise RunStopped("the initial model differs and nobody has given us the agreed one", peer=self._name)

    def _go_back(self) -> None:
        """Stand at the newest checkpoint that the run still knows, or at its beginning."""
        for round in sorted(self._past.rounds(), reverse=True):
            with self._conclusion.stepping:
                found = self._past.go_back(round)
            if found and not self.strayed():
                _LOG.warning("the run went back: this peer goes on from round %d", round)
                return
        _LOG.warning("the run went back behind all that this peer kept: it begins anew")
        with self._conclusion.stepping:
            self._member.begin_anew(self._start())
            self._training.forget()

    def _missed(self) -> list[tuple[RoundPlan, Verdict]]:
        """Return plan and verdict of every round since ours, page by page."""
        pairs: list[tuple[RoundPlan, Verdict]] = []
        while page := self._chronicle.since(self._member.round + len(pairs)):
            pairs += page
        return pairs

    def _replay(self, plan: RoundPlan, verdict: Verdict) -> bool:
        """Follow a verdict; False if its shards are nowhere to be had, or it leads on from another state than ours."""
        if verdict.state and verdict.state != self._member.replica.digest():
            _LOG.info("round %d cannot be followed: most others began it with another model", plan.round)
            return False
        if self._member.plan is None or self._member.plan.digest != plan.digest:
            self._past.following = True
            self._member.begin(plan)
        try:
            self._conclusion.conclude(verdict, time.monotonic() + plan.deadlines.report)
        except RunStopped as stopped:
            _LOG.info("round %d cannot be followed: %s", plan.round, stopped)
            if self._past.following:
                self._member.plan = None
            return False
        finally:
            self._past.following = False
        return True

    def _take_snapshot(self, pairs: list[tuple[RoundPlan, Verdict]]) -> bool:
        chains = {verdict.digest: verdict.round for _, verdict in pairs}
        for peer in sorted(self._book.dialable(but=self._member.peer), key=lambda p: p in self._inbox.gone):
            snapshot = self._snapshot_of(peer, time.monotonic() + self._federation.settings.round)
            if snapshot is not None and chains.get(snapshot.chain) == snapshot.round - 1:
                with self._conclusion.stepping:
                    self._member.restore(snapshot, missed=[v for _, v in pairs if v.round < snapshot.round])
                return True
        return False

    def _snapshot_of(self, peer: int, deadline: float) -> Snapshot | None:
        try:
            return self._couriers.to(peer).snapshot(self._sizes(), deadline)
        except (LinkError, Refused) as error:
            _LOG.info("no snapshot from peer %d: %s", peer, error)
            return None

    def _sizes(self) -> dict[str, int]:
        return {name: int(value.size) for name, value in self._member.replica.state().items()}

    @property
    def _name(self) -> str:
        return self._federation.peers[self._member.peer]


def model_digest(model: Vector) -> str:
    """Return the sha256 of a model in spec order."""
    hasher = hashlib.sha256()
    for piece in array_pieces(model):
        hasher.update(piece)
    return hasher.hexdigest()
