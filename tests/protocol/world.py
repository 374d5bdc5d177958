"""A federation in one process, with a network that loses, repeats and delays, and processes that die.

`World` is the driver that a real peer process would be: it carries messages between the roles, keeps what a disk would
keep, and catches up peers that fell behind. It decides nothing about the protocol.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from blake3 import blake3

from eris.errors import Reason, Refused, RunStopped
from eris.local.scores import Scores
from eris.local.spec import Vector
from eris.local.task import LocalResult
from eris.privacy.masking import MaskKey
from eris.protocol.aggregator import Aggregator
from eris.protocol.coordinator import Coordinator
from eris.protocol.floor import Floor
from eris.protocol.journal import Entry
from eris.protocol.member import Member, Missing, Snapshot
from eris.protocol.messages import Manifest, Published, Report, Upload, Withheld
from eris.protocol.recipe import Recipe
from eris.protocol.roster import RosterEntry
from eris.protocol.round_plan import RoundPlan
from eris.protocol.rules import Rules
from eris.protocol.unmasker import Cut, Unmasker, Unmasking
from eris.protocol.verdict import Verdict
from eris.seeds import private_root

COORDINATOR = -1
Message = Upload | Published | Withheld | Manifest | Report | RoundPlan | Verdict | Cut | Unmasking


def sign_as(peer: int):
    return lambda message: blake3(message, derive_key_context=f"peer {peer}").hexdigest()


def verify(peer: int, message: bytes, signature: str) -> bool:
    return sign_as(peer)(message) == signature


def pretend_to_train(model: Vector, peer: int, round: int, samples: int = 1) -> LocalResult:
    """A step towards a point of the member's own, in elementwise float32: depends on the model, so errors compound."""
    target = np.sin(np.arange(model.size, dtype=np.float64) * (peer + 1)).astype(np.float32)
    update = (model - target) * np.float32(0.3 + 0.01 * round)
    return LocalResult(update, samples, steps=1.0 + peer % 3)


def pretend_to_score(model: Vector, peer: int) -> Scores:
    """What a member makes of a model: another number for each of both."""
    return {"loss": (float(np.abs(model - np.float32(0.1 * peer)).sum(dtype=np.float64)), 1.0 + peer)}


@dataclass
class Disk:
    """What survives a peer's death."""

    round: int
    reference_epoch: int
    private: dict[str, Vector]


@dataclass
class Peer:
    member: Member
    aggregator: Aggregator
    unmasker: Unmasker | None = None  # with masked shards
    shown: set[tuple[str, float]] = field(default_factory=set)  # cuts, and when they were sent
    trained: bool = False
    reported: Report | None = None


@dataclass
class Letter:
    sender: int
    to: int
    message: Message


@dataclass
class World:
    recipe: Recipe
    rules: Rules
    roster: list[RosterEntry]
    model: Vector
    floor: Floor = field(default_factory=lambda: Floor(min_contributors=1, share_figures=True))
    now: float = 0.0

    def __post_init__(self) -> None:
        self.journal: list[Entry] = []
        self.keys: dict[int, MaskKey] = {}
        if self.recipe.unmaskers:
            self.keys = {entry.peer: MaskKey(0) for entry in self.roster}
        self.coordinator: Coordinator | None = self._new_coordinator()
        self.peers: dict[int, Peer] = {entry.peer: self._new_peer(entry.peer) for entry in self.roster}
        self.disks: dict[int, Disk] = {}
        self.mail: list[Letter] = []
        self.cut_off: set[int] = set()
        self.verdicts: list[tuple[RoundPlan, Verdict]] = []
        self.refusals: list[Refused] = []
        self.forgotten: set[int] = set()

    # ── processes ──

    def _new_coordinator(self) -> Coordinator:
        coordinator = Coordinator(self.recipe, self.rules, self.roster, self.journal, verify=verify)
        coordinator.restart_clock(self.now)
        for peer, key in self.keys.items():
            coordinator.show_key(peer, key.public)
        return coordinator

    def _new_peer(self, peer: int) -> Peer:
        key, seed = self.keys.get(peer), private_root(0, peer)
        member = Member(peer, self.recipe, self.model, seed, floor=self.floor, verify=verify, key=key)
        signed = {"sign": sign_as(peer), "verify": verify}
        unmasker = Unmasker(peer, self.recipe, key, **signed) if key is not None else None
        return Peer(member, Aggregator(peer, self.recipe, **signed), unmasker)

    def crash(self, peer: int) -> None:
        del self.peers[peer]
        self.mail = [letter for letter in self.mail if letter.to != peer]

    def crash_coordinator(self) -> None:
        self.coordinator = None
        self.mail = [letter for letter in self.mail if letter.to != COORDINATOR]

    def restart_coordinator(self) -> None:
        self.coordinator = self._new_coordinator()
        for peer in self.peers.values():
            peer.reported = None  # peers notice the new connection and report again

    def save(self, peer: int) -> None:
        member = self.peers[peer].member
        private = {name: value.copy() for name, value in member.private.items()}
        self.disks[peer] = Disk(member.round, member.reference_epoch, private)

    def restart(self, peer: int) -> None:
        """Start a dead peer again: public state from a living one, private state from its disk if there is one."""
        if self.recipe.unmaskers:
            self.keys[peer] = MaskKey(0)
        fresh = self._new_peer(peer)
        disk = self.disks.get(peer)
        if disk is None:
            fresh.member.forget_reference()
        else:
            fresh.member.reference_epoch = disk.reference_epoch
            for name, value in disk.private.items():
                np.copyto(fresh.member.private[name], value)
        fresh.member.restore(self._best_snapshot())
        self.peers[peer] = fresh
        if self.coordinator is not None and self.recipe.unmaskers:
            self.coordinator.show_key(peer, self.keys[peer].public)
        if self.coordinator is not None and self.coordinator.in_flight is not None:
            if fresh.unmasker is not None:
                fresh.unmasker.abstain(self.coordinator.in_flight)
            for notice in fresh.aggregator.abstain(self.coordinator.in_flight):
                self._send_out(peer, notice, self.coordinator.in_flight)
        self._announce_return(peer, disk.round if disk else -1)

    def _best_snapshot(self) -> Snapshot:
        return max((p.member for p in self.peers.values()), key=lambda member: member.round).snapshot()

    def _announce_return(self, peer: int, private_round: int) -> None:
        if self.coordinator is None:
            return
        member = self.peers[peer].member
        if not self.coordinator.returned(peer, private_round=private_round, reference_epoch=member.reference_epoch):
            member.forget_reference()

    # ── the network ──

    def send(self, sender: int, to: int, message: Message) -> None:
        if sender in self.cut_off or to in self.cut_off:
            return
        self.mail.append(Letter(sender, to, message))

    def deliver(self, number: int) -> None:
        letter = self.mail.pop(number)
        try:
            if letter.to == COORDINATOR:
                if self.coordinator is not None:
                    self._to_coordinator(letter)
            elif letter.to in self.peers:
                self._to_peer(letter.to, letter)
        except Refused as refusal:
            self.refusals.append(refusal)

    def _to_coordinator(self, letter: Letter) -> None:
        coordinator, message = self.coordinator, letter.message
        assert coordinator is not None
        if isinstance(message, Manifest):
            coordinator.manifest(message)
        elif isinstance(message, Withheld):
            coordinator.withheld(message)
        elif isinstance(message, Report):
            for shard in coordinator.report(message):
                peer = self.peers.get(message.peer)
                manifest = peer.member.manifest(shard) if peer and peer.member.plan else None
                if manifest is not None and manifest.plan == message.plan:
                    coordinator.manifest(manifest)

    def _to_peer(self, peer: int, letter: Letter) -> None:
        message, me = letter.message, self.peers[peer]
        if isinstance(message, RoundPlan):
            self._begin(peer, message)
        elif isinstance(message, Upload):
            try:
                me.aggregator.receive(message, letter.sender)
            except Refused as refusal:
                if refusal.reason is Reason.CONFLICT and message.member in self.peers:
                    self.peers[message.member].member.disown()
                raise
        elif isinstance(message, Cut) and me.unmasker is not None:
            if (answer := me.unmasker.unmask(message, self.now)) is not None:
                self.send(peer, letter.sender, answer)
        elif isinstance(message, Unmasking):
            me.aggregator.take_off(message, letter.sender)
        elif isinstance(message, Published):
            assert me.member.receive(message) is None
        elif isinstance(message, Withheld):
            me.member.withhold(message)
        elif isinstance(message, Verdict):
            self._conclude(peer, message)

    def _begin(self, peer: int, plan: RoundPlan) -> None:
        me = self.peers[peer]
        if me.aggregator.plan is None or me.aggregator.plan.digest != plan.digest:
            me.aggregator.begin(plan, self.now)
            self._begin_to_unmask(me, plan)
        if me.member.plan is not None and me.member.plan.digest == plan.digest:
            return
        if me.member.round > plan.round:
            return  # an old letter
        if me.member.round < plan.round:
            self._catch_up(peer)
        me.member.begin(plan)
        me.trained, me.reported = False, None
        self._tell_if_reference_is_lost(peer)

    def _begin_to_unmask(self, me: Peer, plan: RoundPlan) -> None:
        if me.unmasker is None:
            return
        try:
            me.unmasker.begin(plan, self.now)
        except Refused:  # from before a restart
            me.unmasker.abstain(plan)

    def _catch_up(self, peer: int) -> None:
        """Follow the verdicts that were missed, one after another, or take a snapshot of somebody further on."""
        member = self.peers[peer].member
        while (missed := self._verdict_after(member)) is not None:
            best = self._best_snapshot()
            if best.round > member.round:
                between = range(member.round, best.round)
                member.restore(best, missed=[v for _, v in self.verdicts if v.round in between])
                continue
            if member.plan is None or member.plan.digest != missed[0].digest:
                member.begin(missed[0])
            before = member.round
            self._conclude(peer, missed[1])
            if member.round == before:
                return

    def _verdict_after(self, member: Member) -> tuple[RoundPlan, Verdict] | None:
        return next((pair for pair in self.verdicts if pair[1].previous == member.chain), None)

    def _tell_if_reference_is_lost(self, peer: int) -> None:
        member = self.peers[peer].member
        if member.lost_reference:
            self._announce_return(peer, member.round)

    def _conclude(self, peer: int, verdict: Verdict) -> None:
        member = self.peers[peer].member
        if member.plan is None or verdict.plan != member.plan.digest:
            return
        missing = member.conclude(verdict)
        if isinstance(missing, Missing):
            for digest in missing.hashes.values():
                found = [p.member.serve(digest) for p in self.peers.values()]
                published = next((item for item in found if item is not None), None)
                if published is None:
                    return
                member.accept_fetched(published, verdict)
            assert member.conclude(verdict) is None
        self._tell_if_reference_is_lost(peer)

    # ── what processes do by themselves ──

    def work(self, peer: int) -> None:
        """Let one peer do what it can: train, cut, publish, report."""
        me = self.peers[peer]
        plan = me.member.plan
        for outcome in me.aggregator.tick(self.now):
            self._send_out(peer, outcome, me.aggregator.plan)
        for cut in me.aggregator.cuts():
            if (cut.digest, self.now) not in me.shown:
                me.shown.add((cut.digest, self.now))
                for unmasker in me.aggregator.plan.unmaskers_of(cut.shard):
                    self.send(peer, unmasker, cut)
        if plan is None:
            return
        if not me.trained and peer in plan.participants and not me.member.lost_reference:
            me.trained = True
            result = pretend_to_train(me.member.start(), peer, plan.round)
            for upload in self._contributed(me, result):
                self.send(peer, plan.assignment[upload.shard], upload)
        report = me.member.report()
        if report != me.reported:
            me.reported = report
            self.send(peer, COORDINATOR, report)

    def _contributed(self, me: Peer, result: LocalResult) -> list[Upload]:
        try:
            return me.member.contribute(result, pretend_to_score(me.member.replica.model, me.member.peer))
        except Refused as refusal:  # the plan shows the key of before a restart
            self.refusals.append(refusal)
            return []

    def _send_out(self, peer: int, outcome: Published | Withheld, plan: RoundPlan) -> None:
        self.send(peer, COORDINATOR, outcome.manifest if isinstance(outcome, Published) else outcome)
        for entry in plan.roster:
            self.send(peer, entry.peer, outcome)

    def clock(self) -> None:
        """Let the coordinator do what it can: announce the plan, write the verdict."""
        if self.coordinator is None:
            return
        verdict = self.coordinator.decide(self.now)
        if verdict is not None:
            self._announce(verdict)
        try:
            plan = self.coordinator.plan(self.now)
        except RunStopped:
            return
        for entry in plan.roster:
            self.send(COORDINATOR, entry.peer, plan)

    def _announce(self, verdict: Verdict) -> None:
        plan = next(e for e in reversed(self.journal) if isinstance(e, RoundPlan) and e.digest == verdict.plan)
        self.verdicts.append((plan, verdict))
        for entry in plan.roster:
            self.send(COORDINATOR, entry.peer, verdict)

    # ── plain sailing ──

    def settle(self, rounds: int, limit: int = 10_000) -> None:
        """Deliver everything in order until so many verdicts are written."""
        target = len(self.verdicts) + rounds
        for _ in range(limit):
            if len(self.verdicts) >= target and not self.mail:
                return
            if self.mail:
                self.deliver(0)
                continue
            for peer in list(self.peers):
                self.work(peer)
            if not self.mail:
                self.now += 10.0
                if len(self.verdicts) < target:
                    self.clock()
        raise AssertionError(f"no verdict within {limit} steps: the round hangs")
