"""Moves a peer along by verdicts: that of its round, those it missed, or past them with another peer's snapshot."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from typing import Protocol

from eris.errors import CheckpointError, DiskError, Reason, Refused, RunStopped
from eris.events import EventStream, VerdictWritten
from eris.local.spec import Vector
from eris.local.tensor_file import array_pieces
from eris.peer.aggregator_client import AggregatorClients
from eris.peer.allegiance import Allegiance
from eris.peer.federation_file import FederationFile
from eris.peer.inbox import Inbox
from eris.peer.rosters import RosterCache
from eris.peer.training import Training
from eris.peer.verdict_history import VerdictHistory
from eris.peer.witness import Witness
from eris.protocol.member import Member, Missing, Snapshot
from eris.protocol.round_plan import RoundPlan
from eris.protocol.verdict import GENESIS, Verdict
from eris.transport.control_client import ControlClient
from eris.transport.link import LinkError

__all__ = ["CatchUp", "Checkpoints", "NoCheckpoints", "model_digest"]

_LOG = logging.getLogger(__name__)
_PAUSE = 0.5  # seconds between two attempts to get up to date
_LAST_WAIT = 1.0  # seconds for which a peer goes on asking after the run has ended


class Checkpoints(Protocol):
    """The rounds a peer could go back to."""

    def rounds(self) -> list[int]:
        """Return the rounds that are kept."""
        ...

    def restore(self, member: Member, training: Training, round: int | None = None) -> bool:
        """Restore the checkpoint of a round (None: the newest) into `member` and `training`; False if there is none."""
        ...

    def save(self, member: Member, training: Training) -> None:
        """Save this peer's current state."""
        ...


class NoCheckpoints:
    """The checkpoints of a peer without a folder: none."""

    def rounds(self) -> list[int]:
        """Return no rounds."""
        return []

    def restore(self, member: Member, training: Training, round: int | None = None) -> bool:
        """Return False: there is nothing to restore."""
        del member, training, round
        return False

    def save(self, member: Member, training: Training) -> None:
        """Save nothing."""
        del member, training


class CatchUp:
    """Brings one member from verdict to verdict.

    `stepping` is held whenever the replica moves, so that nobody is shown half a step; `following` says that we took no
    part in the open round.
    """

    def __init__(
        self,
        federation: FederationFile,
        member: Member,
        training: Training,
        client: ControlClient,
        inbox: Inbox,
        clients: AggregatorClients,
        checkpoints: Checkpoints,
        emit: EventStream,
        rosters: RosterCache,
        witness: Witness,
        allegiance: Allegiance | None = None,
    ) -> None:
        """Prepare to follow verdicts.

        Args:
            client: asks the coordinator for past rounds.
            inbox: who is gone, and whether the run is over.
            clients: fetch missing shards and snapshots from other peers.
            checkpoints: the states that this peer could go back to.
            emit: told of verdicts that were missed.
            rosters: finds what past plans cite.
            witness: checks the seals of past rounds.
            allegiance: this peer's own log of verdicts; None without standbys.
        """
        self._allegiance = allegiance
        self._federation, self._member, self._training = federation, member, training
        self._history, self._inbox, self._clients = VerdictHistory(client, inbox, rosters, witness), inbox, clients
        self.checkpoints, self._emit = checkpoints, emit
        self.stepping, self.following = threading.Lock(), False

    def snapshot(self) -> Snapshot:
        """Return this peer's state for another one; never in the middle of a step."""
        with self.stepping:
            try:
                return self._member.snapshot()
            except DiskError as error:
                raise Refused(Reason.NO_ROOM, error.what, fix=error.fix, **error.where) from error

    def keeps_up_to(self, chain: str) -> bool:
        """Whether all verdicts before a plan are on our disk, where that is required; missing ones are fetched."""
        own = self._allegiance
        if own is None or own.keeps_up_to(chain):
            return True
        self.keep_up()
        return own.keeps_up_to(chain)

    def keep_up(self) -> None:
        """Bring our log on disk up to the coordinator that we follow; needed only with standbys."""
        if self._allegiance is not None:
            self._allegiance.align(self._history.sealed_since)

    # ── one verdict ──────────────────────────────────────────────────────────────────────────────────────────────

    def conclude(self, verdict: Verdict, deadline: float, *, stated: str = "") -> None:
        """Take the step once every committed shard is here.

        Args:
            deadline: until when a peer may take to bring a missing shard; each has at least the time to connect.
            stated: the replica digest that we reported; empty: none.
        """
        if verdict.state and stated not in ("", verdict.state):
            raise CheckpointError(
                "this peer's model is not the one that most others hold",
                fix="find out which peer gave it a snapshot; remove its checkpoint folder and start again",
                peer=self._name,
                round=verdict.round,
            )
        with self.stepping:
            missing = self._member.conclude(verdict)
        if isinstance(missing, Missing):
            self._fetch_missing(missing, verdict, deadline)
            with self.stepping:
                missing = self._member.conclude(verdict)
            if missing is not None:
                raise RunStopped("no peer can supply a committed shard", round=verdict.round)

    def _fetch_missing(self, missing: Missing, verdict: Verdict, deadline: float) -> None:
        """Ask one peer after another for what is missing; a silent one uses up its own time and none of the others'."""
        gone, others = self._inbox.gone, self._clients.book.dialable(but=self._member.peer)
        for shard, digest in missing.hashes.items():
            aggregator = verdict.shards[shard].aggregator
            # Its aggregator comes last: it had the whole round to bring it to us.
            for peer in sorted(others, key=lambda p: (p in gone, p == aggregator)):
                until = max(deadline, time.monotonic() + self._federation.settings.connect)
                try:
                    published = self._clients.to(peer).fetch(digest, verdict.round, until)
                    if published.manifest.shard != shard:
                        raise Refused(
                            Reason.WRONG_SHARD, f"received shard {published.manifest.shard} instead", peer=peer
                        )
                    self._member.accept_fetched(published, verdict)
                    break
                except (LinkError, Refused) as error:
                    _LOG.info("shard %d cannot be fetched from peer %d: %s", shard, peer, error)

    def verdict_of(self, plan: RoundPlan) -> Verdict | None:
        """Return a round's verdict from the coordinator's journal; None if the run went another way."""
        verdicts = (verdict for _, verdict in self._history.since(plan.round))
        return next((verdict for verdict in verdicts if verdict.plan == plan.digest), None)

    # ── verdicts that were missed ────────────────────────────────────────────────────────────────────────────────

    def catch_up(self) -> None:
        """Follow the missed rounds by their verdicts, or take a snapshot from a peer that is further on."""
        if self.strayed():
            self._go_back()
        until = time.monotonic() + self._federation.settings.connect
        while pairs := self._missed():
            if self._take_snapshot(pairs) or self._replay(*pairs[0]):
                self._tell_of(pairs)
            elif time.monotonic() < until and self._inbox.failure is None:
                if self._inbox.has_end():  # nobody comes back; but peers still ending the last round may have more
                    until = min(until, time.monotonic() + _LAST_WAIT)
                time.sleep(_PAUSE)  # others may come back with more, or the run go back to what there is
            else:
                raise RunStopped(
                    "no other peer can bring this one up to date",
                    fix="start it again when others are reachable",
                    peer=self._name,
                    round=self._member.round,
                )

    def catch_up_patiently(self) -> None:
        """Follow up to the last verdict, and save that; peers that have the model may still be on their way here."""
        while True:
            try:
                self.catch_up()
                break
            except RunStopped:
                if self._inbox.has_end() or self._inbox.closed.is_set():
                    raise
                self._inbox.require_patience(self._member.round)
        self.checkpoints.save(self._member, self._training)

    def strayed(self) -> bool:
        """Whether the run went back behind our state: all were down, and we had kept more than the others."""
        if self._member.round == 0:
            return False
        pairs = self._history.since(self._member.round - 1)
        return not pairs or pairs[0][1].digest != self._member.chain

    def _go_back(self) -> None:
        """Restore the newest checkpoint that the run still knows, or its beginning."""
        for round in sorted(self.checkpoints.rounds(), reverse=True):
            with self.stepping:
                found = self.checkpoints.restore(self._member, self._training, round)
            if found and not self.strayed():
                _LOG.warning("the run went back: this peer continues from round %d", round)
                return
        _LOG.warning("the run went back beyond everything that this peer kept: it starts afresh")
        with self.stepping:
            self._training.begin_anew()

    def _missed(self) -> list[tuple[RoundPlan, Verdict]]:
        """Return plan and verdict of every round since ours, page by page."""
        pairs: list[tuple[RoundPlan, Verdict]] = []
        while page := self._history.since(self._member.round + len(pairs)):
            pairs += page
        return pairs

    def _tell_of(self, pairs: list[tuple[RoundPlan, Verdict]]) -> None:
        for plan, verdict in pairs:
            if verdict.round < self._member.round:
                self._emit(VerdictWritten(verdict.round, plan, verdict))

    def _replay(self, plan: RoundPlan, verdict: Verdict) -> bool:
        """Follow a verdict; return False if no peer has its shards, or if it starts from a different state."""
        if verdict.state and verdict.state != self._member.replica.digest():
            _LOG.info("round %d cannot be followed: most others began it with another model", plan.round)
            return False
        if self._member.plan is None or self._member.plan.digest != plan.digest:
            self.following = True
            self._member.begin(plan)
        try:
            self.conclude(verdict, time.monotonic() + plan.deadlines.report)
        except RunStopped as stopped:
            _LOG.info("round %d cannot be followed: %s", plan.round, stopped)
            if self.following:
                self._member.plan = None
            return False
        finally:
            self.following = False
        return True

    # ── snapshots ────────────────────────────────────────────────────────────────────────────────────────────────

    def _take_snapshot(self, pairs: list[tuple[RoundPlan, Verdict]]) -> bool:
        chains = {verdict.digest: verdict.round for _, verdict in pairs}
        others = self._clients.book.dialable(but=self._member.peer)
        for peer in sorted(others, key=lambda p: p in self._inbox.gone):
            snapshot = self._snapshot_of(peer, time.monotonic() + self._federation.settings.round)
            if snapshot is not None and chains.get(snapshot.chain) == snapshot.round - 1:
                with self.stepping:
                    self._member.restore(snapshot, missed=[v for _, v in pairs if v.round < snapshot.round])
                return True
        return False

    def fetch_initial(self, plan: RoundPlan, agreed: str) -> bool:
        """Take x⁰ from peers that have the agreed one: ours came out differently (another library version, say).

        A model crafted for the purpose exposes what it is trained on. So the coordinator's word is not enough: more
        than half of the roster must have it, each asked over its own link. A peer that has not heard of the round yet
        does not know us, and is asked again. False if the round is over before that.
        """
        until, past = time.monotonic() + plan.deadlines.report, False  # whether anybody is past the round
        waiting, have = list(self._clients.book.dialable(but=self._member.peer)), 0
        while waiting:
            for peer in tuple(waiting):
                if (snapshot := self._snapshot_of(peer, until)) is None:
                    continue
                model = snapshot.state["model"]
                if snapshot.round == 0 and model_digest(model) == agreed:
                    have += 1
                    if 2 * have > len(plan.roster):
                        with self.stepping:
                            # All but the model is ours already, and no other peer vouches for it.
                            state = {**self._member.replica.state(), "model": model}
                            self._member.restore(Snapshot(0, GENESIS, state))
                        return True
                past = past or snapshot.round > 0
                waiting.remove(peer)
            over = self._inbox.is_over(plan) or self._inbox.is_stale(plan) or time.monotonic() >= until
            if over or self._inbox.failure is not None or (waiting and self._inbox.closed.wait(_PAUSE)):
                return False
        if past:
            return False
        raise Refused(
            Reason.WRONG_DIGEST,
            f"this peer's initial model is not the one that the coordinator names, which {have} of {len(plan.roster)} "
            "peers have (more than half must)",
            fix="build the model with the same library versions everywhere, or from the same file of weights",
            peer=self._name,
        )

    def _snapshot_of(self, peer: int, deadline: float) -> Snapshot | None:
        sizes = {name: int(value.size) for name, value in self._member.replica.state().items()}
        try:
            return self._clients.to(peer).snapshot(sizes, deadline)
        except (LinkError, Refused) as error:
            _LOG.info("no snapshot from peer %d: %s", peer, error)
            return None

    @property
    def _name(self) -> str:
        return self._federation.peers[self._member.peer]


def model_digest(model: Vector) -> str:
    """Return the sha256 of a model in spec order."""
    hasher = hashlib.sha256()
    for piece in array_pieces(model):
        hasher.update(piece)
    return hasher.hexdigest()
