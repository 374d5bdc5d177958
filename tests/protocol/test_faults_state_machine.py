"""Any schedule of loss, delay, duplication, partition, crash and restart: every round ends, and all peers agree.

The state machine plays the network and the fate of every process. After each verdict the plain reference (one
aggregator, full vectors) makes the same step with the same (member, shard) pairs missing; every live member that stands
where the reference stands must hold the same bits: model, optimizer state, global and private reference.
"""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from eris.aggregate.figures import Figures
from eris.protocol.best_round import BestRound
from eris.protocol.false_manifest import FalseManifest
from eris.protocol.messages import Equivocation
from eris.protocol.round_plan import Deadlines, RoundPlan
from eris.protocol.seal import EpochBegun, Seal
from eris.protocol.verdict import Verdict
from tests.protocol.test_rounds import recipe, reference, world

MEMBERS = 5


class Federation(RuleBasedStateMachine):
    dsc = False
    figures: Figures | None = None

    @initialize(
        shards=st.sampled_from([1, 2, 3, 5]),
        participation=st.sampled_from([1.0, 1.0, 0.6]),
        schedule=st.sampled_from(["fixed", "redraw", "rotate"]),
        quorum=st.sampled_from([0, MEMBERS]),
    )
    def start(self, shards: int, participation: float, schedule: str, quorum: int) -> None:
        made = recipe(shards, dsc=self.dsc, schedule=schedule, figures=self.figures)
        deadlines = Deadlines(contribute=50.0, report=90.0)
        self.world = world(
            shards, MEMBERS, made=made, participation=participation, deadlines=deadlines, quorum=quorum, max_share=0.7
        )
        self.plain = reference(self.world, dsc=self.dsc)
        self.best, self.best_model = BestRound(), self.plain.x
        self.dead: set[int] = set()

    # ── the network ──

    @rule(number=st.integers(0, 10_000), times=st.integers(1, 12))
    def deliver(self, number: int, times: int) -> None:
        for _ in range(times):
            if self.world.mail:
                self.world.deliver(number % len(self.world.mail))

    @rule(letters=st.integers(1, 150))
    def sail_calmly(self, letters: int) -> None:
        """Let the federation run as it would, for a while: faults must also hit rounds that are far on."""
        for _ in range(letters):
            if self.world.mail:
                self.world.deliver(0)
                continue
            for peer in list(self.world.peers):
                self.world.work(peer)
            self.world.now += 1.0
            if not self.world.mail:
                self.the_clock_ticks()

    @precondition(lambda self: self.world.mail)
    @rule(number=st.integers(0, 10_000))
    def lose(self, number: int) -> None:
        self.world.mail.pop(number % len(self.world.mail))

    @precondition(lambda self: self.world.mail)
    @rule(number=st.integers(0, 10_000))
    def duplicate(self, number: int) -> None:
        self.world.mail.append(self.world.mail[number % len(self.world.mail)])

    @rule(peer=st.integers(0, MEMBERS - 1))
    def cut_off(self, peer: int) -> None:
        self.world.cut_off ^= {peer}

    # ── processes ──

    @rule()
    def everybody_works(self) -> None:
        for peer in list(self.world.peers):
            self.world.work(peer)

    @rule(peer=st.integers(0, MEMBERS - 1))
    def one_works(self, peer: int) -> None:
        if peer in self.world.peers:
            self.world.work(peer)

    @rule()
    def the_clock_ticks(self) -> None:
        self.world.clock()
        self._follow()

    @rule(seconds=st.sampled_from([1.0, 20.0, 60.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.now += seconds

    @rule(peer=st.integers(0, MEMBERS - 1))
    def save(self, peer: int) -> None:
        if peer in self.world.peers:
            self.world.save(peer)

    @precondition(lambda self: len(self.dead) < 2)
    @rule(peer=st.integers(0, MEMBERS - 1))
    def crash(self, peer: int) -> None:
        newest = max(p.member.round for p in self.world.peers.values())
        holders = [p for p, process in self.world.peers.items() if process.member.round == newest]
        if peer in self.world.peers and holders != [peer]:  # somebody must be left who knows the newest model
            self.world.crash(peer)
            self.dead.add(peer)

    @precondition(lambda self: self.dead)
    @rule(number=st.integers(0, MEMBERS), noticed=st.booleans())
    def restart(self, number: int, noticed: bool) -> None:
        peer = sorted(self.dead)[number % len(self.dead)]
        if self.world.coordinator is None:
            return  # it keeps trying until somebody answers
        if noticed:
            self.world.coordinator.gone(peer)
        self.world.restart(peer)
        self.dead.discard(peer)

    @precondition(lambda self: self.dead and self.world.coordinator)
    @rule()
    def notice_the_dead(self) -> None:
        for peer in self.dead:
            self.world.coordinator.gone(peer)

    @precondition(lambda self: self.world.coordinator)
    @rule()
    def crash_the_coordinator(self) -> None:
        self.world.crash_coordinator()

    @precondition(lambda self: self.world.coordinator is None)
    @rule()
    def restart_the_coordinator(self) -> None:
        self.world.restart_coordinator()

    # ── what must hold ──

    def _follow(self) -> None:
        for plan, verdict in self.world.verdicts[self.plain.round :]:
            self._judge(verdict)
            self.plain.step(plan, verdict)

    def _judge(self, verdict: Verdict) -> None:
        """Keep the best model that a round began with, by the figures of its verdict."""
        if self.figures is not None:
            before = self.best.round
            self.best = self.best.after(verdict.round, self.figures.score(verdict.figures))
            self.best_model = self.best_model if self.best.round == before else self.plain.x.copy()

    @invariant()
    def live_members_hold_the_reference(self) -> None:
        if not hasattr(self, "world"):
            return
        for peer, process in self.world.peers.items():
            member = process.member
            if member.round != self.plain.round:
                continue
            assert np.array_equal(member.replica.model, self.plain.x)
            assert np.array_equal(member.replica.optimizer["momentum"], -self.plain.m)
            if self.figures is not None:
                assert BestRound.of(member.replica.best_round) == self.best
                assert self.best.round < 0 or np.array_equal(member.replica.chosen, self.best_model)
            if self.dsc:
                assert np.array_equal(member.replica.public["0.reference"], self.plain.s)
                if member.reference_epoch == self.plain.epoch and member.plan is None:
                    mine = self.plain.s_k.get(peer, np.zeros_like(self.plain.s))
                    assert np.array_equal(member.private["0.reference"], mine)

    @invariant()
    def nobody_is_excluded(self) -> None:
        """Crashes, lost letters and restarts prove nothing against anybody: neither a peer nor the coordinator."""
        if hasattr(self, "world"):
            assert not [entry for entry in self.world.journal if isinstance(entry, Equivocation | FalseManifest)]

    def no_seal_contradicts_another(self) -> None:
        journal = self.world.journal
        epochs = {entry.epoch: entry.supersedes for entry in journal if isinstance(entry, EpochBegun)}
        signed = [Seal.of(e, epochs.get(e.epoch)) for e in journal if isinstance(e, RoundPlan | Verdict)]
        assert not [pair for pair in itertools.combinations(signed, 2) if pair[0].contradicts(pair[1])]

    def teardown(self) -> None:
        """Heal everything: rounds must end again, and all members must agree."""
        if not hasattr(self, "world"):
            return
        self.world.cut_off.clear()
        if self.world.coordinator is None:
            self.world.restart_coordinator()
        for peer in sorted(self.dead):
            self.world.restart(peer)
        self.world.settle(rounds=3)
        self._follow()
        assert self.world.coordinator is not None
        assert self.world.coordinator.best == self.best
        self.live_members_hold_the_reference()
        rounds = {process.member.round for process in self.world.peers.values()}
        assert rounds == {self.plain.round}, "a live member was left behind"
        assert len({process.member.replica.digest() for process in self.world.peers.values()}) == 1
        self.no_seal_contradicts_another()


class FederationWithShift(Federation):
    dsc = True
    figures = Figures(("loss",), keep_best=True)


budget = settings(
    max_examples=40, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
)
TestFederation = Federation.TestCase
TestFederation.settings = budget
TestFederationWithShift = FederationWithShift.TestCase
TestFederationWithShift.settings = budget
