"""The course of a run, as the coordinator's process conducts it: begin, announce, decide, end."""

from __future__ import annotations

import base64
import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from itertools import islice

from eris.compose import Composition, compose
from eris.errors import RunStopped
from eris.local.spec import ModelSpec
from eris.peer.attendance import Attendance
from eris.peer.federation import Federation
from eris.peer.journal import SqliteJournal
from eris.peer.moments import Moments
from eris.peer.resumption import Resumption, is_older
from eris.peer.wish import Wish
from eris.protocol.coordinator import Coordinator
from eris.protocol.messages import Disagreement
from eris.protocol.round_plan import RosterEntry, RoundPlan
from eris.protocol.rules import Rules
from eris.protocol.verdict import Verdict
from eris.transport.board import Board
from eris.transport.credentials import REVOKED, Credentials

__all__ = ["Proceedings"]

_LOG = logging.getLogger(__name__)
_MOST_STANDSTILLS = 3  # in a round that gets more time for them: nobody may draw it out for ever by keeping us busy
_UNREACHED_ROUNDS = 2  # one round may be a link that broke; a second one is a closed port


class Proceedings:
    """One run; every call but `end` is made with `lock` held. It speaks in bulletins on the board."""

    def __init__(
        self,
        federation: Federation,
        credentials: Credentials,
        journal: SqliteJournal,
        moments: Moments,
        *,
        begin_with: int = 0,
        wait: float = math.inf,
    ) -> None:
        self.federation, self._credentials, self._journal, self._moments = federation, credentials, journal, moments
        self.lock = threading.Condition()
        self.attendance = Attendance(credentials, patience=federation.settings.connect)
        self.board = Board()  # the server brings its own, and knows how to put up another one
        self.renew_board: Callable[[], Board] = Board
        self.spec: ModelSpec | None = None
        self.composition: Composition | None = None
        self.coordinator: Coordinator | None = None
        self.ended = ""
        self._begin_with = begin_with or len(federation.peers)
        self._waits, self._waits_until = "", time.monotonic() + wait  # why there is no round any more, and how long
        self._planned = math.inf  # when the last plan was announced
        self._stood_still = 0  # times in the round in flight
        self._told = 0  # number of the list of revocations everybody has heard of

    def take_in(self, entry: RosterEntry, wish: Wish) -> bool:
        """Bring a peer onto the roster; begin the run when the last one is there. Whether its reference still holds."""
        if self.coordinator is None:
            members, present = {known.peer for known in self._journal.roster()}, self.attendance.present.keys()
            if members <= present if members else len(present) >= self._begin_with:
                self._begin()
            return True
        self.coordinator.join(entry)
        return self.coordinator.returned(
            entry.peer, private_round=wish.private_round, reference_epoch=wish.reference_epoch
        )

    def decide(self) -> None:
        """Do what is due: begin again without those who stay away, go on without the silent, write the verdict."""
        if self.coordinator is None:
            self._begin_again()
            return
        self._give_up_silent(self.coordinator)
        if self._nobody_is_in_the_round(self.coordinator):
            self._take_back(self.coordinator)
            return
        verdict = self.coordinator.decide(time.monotonic())
        if verdict is not None:
            self._moments("written", round=verdict.round)
            with self.board.together():
                self._tell(verdict)
                self._announce_plan(self.coordinator)

    @property
    def waiting(self) -> str:
        """Why there is no round, while too few members are here."""
        if self.coordinator is not None or self.ended:
            return ""
        missing = [name for number, name in enumerate(self.federation.peers) if number not in self.attendance.present]
        return self._waits or f"waiting for {', '.join(missing)}"

    def forgive(self, seconds: float) -> None:
        """Count a time in which this process stood still (frozen, or starved) for nobody: we could not have heard."""
        self.attendance.forgive(seconds)
        self._stood_still += 1
        if self.coordinator is not None and self._stood_still <= _MOST_STANDSTILLS:
            self.coordinator.postpone(seconds)

    def gone(self, coordinator: Coordinator, peer: int) -> None:
        """Let everybody know that nobody waits for a peer any more."""
        coordinator.gone(peer)
        self.board.post("gone", {"peer": peer})

    def excuse(self, peer: int, *, moved: bool, contributes: bool) -> None:
        """Let nobody wait in this round for who came back into its middle, before it was missed.

        Who has moved cannot be dialled before the next plan; who lost its reference sends nothing.
        """
        if moved:
            self.board.post("gone", {"peer": peer})
        elif not contributes:
            self.board.post("idle", {"peer": peer})

    def end(self, how: str) -> None:
        """End the run, once, and say how."""
        with self.lock:
            if not self.ended:
                self.ended = how
                self.board.post("end", {"how": how})
            self.lock.notify_all()

    # ── beginning ────────────────────────────────────────────────────────────────────────────────────────────────

    def _begin(self) -> None:
        self._waits, self._waits_until = "", math.inf
        wishes = {number: present.wish for number, present in self.attendance.present.items()}
        if is_older(self._journal, wishes):
            self.end("the coordinator's database is older than the run: most members know verdicts that are not in it")
            return
        roster = self._roster()
        self.composition = self._compose(roster)
        homes = self._homes(roster, self.composition.recipe.policy.shards)
        if homes is None:
            return
        rules = self._rules(self.composition, homes)
        verify = self.attendance.verify
        coordinator = Coordinator(self.composition.recipe, rules, roster, self._journal, verify=verify)
        self.coordinator = coordinator
        coordinator.restart_clock(time.monotonic())
        for entry in roster:
            present = self.attendance.present.get(entry.peer)
            if present is None or entry.peer in coordinator.excluded:
                coordinator.gone(entry.peer)
            else:
                self.take_in(entry, present.wish)
        self._go_back(coordinator, wishes)
        _LOG.info("the run begins with %d peers at round %d", len(self.attendance.present), coordinator.round)
        self._announce_plan(coordinator)

    def _go_back(self, coordinator: Coordinator, wishes: Mapping[int, Wish]) -> None:
        """Go on from a round that the members have, under a plan that none of them can contradict itself under."""
        resumption = Resumption(self._journal, wishes, coordinator.round)
        target = resumption.goes_back_to(self._quorum(len(coordinator.roster)))
        if target is not None:
            _LOG.warning("not all have round %d any more: the run goes on from round %d", coordinator.round, target)
            coordinator.rewind(target)
        elif resumption.aggregator_forgot(coordinator.in_flight):
            coordinator.rewind(coordinator.round)

    def _homes(self, roster: list[RosterEntry], shards: int) -> tuple[int, ...] | None:
        """Return who aggregates each shard when all are here; None, and the end, if too few ever could.

        Shards whose home has left, is yet to come, or cannot be dialled after a restart, are given to others.
        """
        able = [entry.peer for entry in roster if entry.can_aggregate][:shards]
        if len(able) < shards and len(roster) == len(self.federation.peers) and not self._journal.roster():
            self.end(f"{shards} aggregators are needed, {len(able)} peers can be dialled")
            return None
        others = (number for number in range(len(self.federation.peers)) if number not in able)
        return tuple(sorted([*able, *islice(others, shards - len(able))]))

    def _begin_again(self) -> None:
        """Go on, after a restart, with a quorum of the members if the others do not come back in time."""
        members, present = len(self._journal.roster()), self.attendance.present
        waited = time.monotonic() - min((peer.joined for peer in present.values()), default=math.inf)
        if members and len(present) >= self._quorum(members) and waited > self.federation.settings.connect:
            self._begin()
        elif time.monotonic() > self._waits_until:
            self.end(f"not enough members came in time: {self.waiting}")

    def _await_members(self, why: str) -> None:
        """Begin anew, as after a restart of this process, when the members are back; they have a round's time for it.

        Who is still here joins again, because the board is another one.
        """
        _LOG.warning("%s; waiting for members for %g s", why, self.federation.settings.round)
        self._waits, self._waits_until = why, time.monotonic() + self.federation.settings.round
        self.coordinator, self.board = None, self.renew_board()
        self.attendance.present.clear()

    def _roster(self) -> list[RosterEntry]:
        """Return the members that the journal knows, as they present themselves now, and those that are new."""
        known = {entry.peer: entry for entry in self._journal.roster()}
        known |= {number: present.entry for number, present in self.attendance.present.items()}
        return [known[number] for number in sorted(known)]

    def _compose(self, roster: list[RosterEntry]) -> Composition:
        assert self.spec is not None
        weights, config = {entry.peer: int(entry.weight) for entry in roster}, self.federation.config
        return compose(config, self.spec, [weights.get(number, 1) for number in range(config.members)])

    def _rules(self, composition: Composition, aggregators: tuple[int, ...]) -> Rules:
        config, settings = self.federation.config, self.federation.settings
        return Rules(
            run=composition.run,
            aggregators=aggregators,
            participation=config.participation,
            normalisation=config.server.normalisation,
            min_contributors=config.server.min_contributors,
            quorum=settings.quorum,
            max_share=settings.max_share,
            checkpoint_every=settings.checkpoint_every,
            unreached_rounds=_UNREACHED_ROUNDS,
            deadlines=self.federation.deadlines,
        )

    def _quorum(self, members: int) -> int:
        return self.federation.settings.quorum or members // 2 + 1

    # ── going on ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _announce_plan(self, coordinator: Coordinator) -> None:
        self._drop_unwelcome(coordinator)
        if coordinator.round >= self.federation.config.rounds:
            self.end("finished")
            return
        if len(coordinator.roster) < coordinator.rules.min_contributors:
            self.end(f"{len(coordinator.roster)} members are left, too few to publish anything")
            return
        for peer in sorted(coordinator.out_of_reach & set(coordinator.rules.aggregators)):
            _LOG.warning(
                "round %d: too few members can dial %s: it is given no shard until it joins again, with its port open",
                coordinator.round,
                coordinator.roster[peer].name if peer in coordinator.roster else peer,
            )
        try:
            plan = coordinator.plan(time.monotonic())
        except RunStopped as stopped:
            if coordinator.has_quorum:
                self.end(str(stopped))
            else:
                self._await_members(str(stopped))
            return
        self._planned, self._stood_still = time.monotonic(), 0
        self._moments("planned", round=plan.round)
        self.board.post(
            "plan",
            {
                "plan": plan.to_dict(),
                "initial": self._initial(plan),
                "absent": sorted(coordinator.absent),
                "book": f"{self.board.identity}-{self.attendance.edition}",  # another start counts from the beginning
            },
        )

    def _initial(self, plan: RoundPlan) -> str:
        """Return the digest of x⁰ most peers computed, in the first round."""
        if plan.round:
            return ""
        digests = [present.wish.initial for present in self.attendance.present.values()]
        return max(sorted(set(digests)), key=digests.count)

    def _tell(self, verdict: Verdict) -> None:
        for finding in self._running_findings(verdict.round):
            _LOG.error("two aggregators do not say the same: %s", finding)
        for entry in verdict.shards:
            if not entry.committed:
                _LOG.warning("round %d: shard %d is lost: %s", verdict.round, entry.shard, entry.lost)
        self.board.post("verdict", {"verdict": verdict.to_dict()})

    def _running_findings(self, round: int) -> list[Disagreement]:
        found = self.coordinator.disagreements if self.coordinator is not None else []
        return [finding for finding in found if finding.first.round == round]

    def _give_up_silent(self, coordinator: Coordinator) -> None:
        """Go on without peers whose connection stays broken: nobody waits for their contribution or their shard."""
        for present in self.attendance.silent():
            if present.entry.peer not in coordinator.absent:
                _LOG.warning("%s is gone: the round goes on without it", present.entry.name)
                self.gone(coordinator, present.entry.peer)

    def _nobody_is_in_the_round(self, coordinator: Coordinator) -> bool:
        """Whether all who were in it are gone: nobody is here, or only who came after its plan and would sit it out."""
        here = [present for number, present in self.attendance.present.items() if number not in coordinator.absent]
        came = (p.joined > self._planned and p.wish.private_round <= coordinator.round for p in here)
        return coordinator.in_flight is not None and all(came)

    def _take_back(self, coordinator: Coordinator) -> None:
        """Strike out the plan in flight, as nobody could hold what it brings: the round is played when all are back."""
        coordinator.rewind(coordinator.round)
        if coordinator.has_quorum:
            self._await_members(f"all who are here came back in the middle of round {coordinator.round}")
        else:
            self._announce_plan(coordinator)

    def _drop_unwelcome(self, coordinator: Coordinator) -> None:
        """Take peers whose certificate was revoked or has expired off the roster, and pass on what the CA revoked."""
        self._credentials.refresh()
        for number, refusal in self.attendance.unwelcome():
            if number in coordinator.roster:
                _LOG.warning("%s is taken off the roster: %s", coordinator.roster[number].name, refusal)
                coordinator.leave(number)
                self.attendance.leave(number)
        if self._credentials.revocations.number > self._told:
            self._told = self._credentials.revocations.number
            self.board.post("revoked", {"list": base64.b64encode(self._credentials.read(REVOKED)).decode()})
