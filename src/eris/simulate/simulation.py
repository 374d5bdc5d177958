"""The round loop of a simulated federation.

    plan → faults → train (engine) → fold → cut → verdict → step

Plans, verdicts, scaling, reassembly and the step are the protocol's own code, the same that real peers run. Only the
middle is a shortcut: contributions are folded whole instead of shard by shard (`fold`), and nothing is put into
messages. A test holds it to the message path bit for bit.
"""

from __future__ import annotations

import hashlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from eris.compose import Composition
from eris.errors import RunStopped
from eris.events import (
    Event,
    Listener,
    MemberTrained,
    RoundEnded,
    RoundStarted,
    Sent,
    ShardPublished,
    Traffic,
    VerdictWritten,
)
from eris.protocol.canonical import plain
from eris.protocol.member import gather_mean
from eris.protocol.messages import Published, Withheld
from eris.protocol.replica import Replica
from eris.protocol.round_plan import RoundPlan
from eris.protocol.verdict import GENESIS, Verdict
from eris.simulate.clock import Links
from eris.simulate.engine import Engine, Pending
from eris.simulate.faults import Outages
from eris.simulate.fold import Fold, MeanFold, begin_fold
from eris.simulate.published import Contributors, cut
from eris.simulate.script import Script
from eris.simulate.state_store import StateStore
from eris.simulate.traffic import RoundBytes
from eris.simulate.work import Job, Work

__all__ = ["Simulation", "StoppedByHand"]


class StoppedByHand(RunStopped):
    """Somebody asked the run to stop: what is done is kept."""


class Simulation:
    """One run of one method: give it an engine, call `play`."""

    def __init__(
        self,
        composition: Composition,
        engine: Engine,
        script: Script,
        states: StateStore,
        links: Links,
        *,
        listeners: Sequence[Listener] = (),
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self.composition, self._engine, self._script = composition, engine, script
        self.states, self._links, self._listeners, self._stopped = states, links, tuple(listeners), stopped
        self.replica = Replica.start(composition.recipe, engine.initial(composition.config.seed))
        self.round, self.chain, self.reference_epoch = 0, GENESIS, 0
        self._open: _Ended | None = None  # the last round, until its evaluation is in

    def listen(self, listeners: Sequence[Listener], stopped: Callable[[], bool]) -> None:
        """Tell these what happens from now on, and ask this one whether to stop."""
        self._listeners, self._stopped = tuple(listeners), stopped

    def play(self, rounds: int, *, after_round: Callable[[], None] = lambda: None) -> None:
        """Go on until `rounds` rounds are done; raise StoppedByHand if asked to."""
        self._engine.begin(self.composition)
        self._engine.publish(self.replica)
        while self.round < rounds:
            ended = self._play_round()
            self.settle_evaluation()
            self._engine.publish(self.replica)
            self._open = ended
            if self._due(rounds):
                ended.pending = self._engine.evaluate()
            after_round()
        self.settle_evaluation()

    def settle_evaluation(self) -> None:
        """Wait for the evaluation of the last round and announce that the round has ended."""
        if (ended := self._open) is None:
            return
        self._open = None
        with _timed(ended.seconds, "evaluate"):
            metrics = ended.pending() if ended.pending is not None else {}
        self._emit(
            RoundEnded(ended.round, {"train_loss": ended.loss, **metrics}, ended.traffic, ended.seconds, ended.lost)
        )

    @property
    def model_digest(self) -> str:
        """The sha256 of the model's float32 values in spec order."""
        return hashlib.sha256(self.replica.model.astype("<f4").tobytes()).hexdigest()

    def go_to(self, round: int, chain: str, reference_epoch: int) -> None:
        """Stand before a later round; replica and states are loaded separately."""
        self.round, self.chain, self.reference_epoch = round, chain, reference_epoch
        self._script.go_to(round, chain, reference_epoch)

    def _due(self, rounds: int) -> bool:
        return self.round % self.composition.config.evaluate_every == 0 or self.round == rounds

    def _play_round(self) -> _Ended:
        seconds: dict[str, float] = defaultdict(float)
        with _timed(seconds, "plan"):
            plan = self._script.plan()
            outages = self._script.outages(plan)
            hand = _Hand(plan, self.composition, outages)
            if plan.reference_epoch != self.reference_epoch:
                self._begin_reference_epoch(plan.reference_epoch)
        self._emit(RoundStarted(plan.round, plan.participants, plan.assignment, self.replica.model))
        with _timed(seconds, "train"):
            self._train(hand)
        with _timed(seconds, "aggregate"):
            published, withheld = hand.cut()
            verdict = self._script.conclude(plan, published, withheld)
        with _timed(seconds, "settle"):
            self._settle(hand, verdict)
        with _timed(seconds, "step"):
            self._step(plan, published, verdict)
        return self._ended(hand, published, withheld, verdict, seconds)

    def _train(self, hand: _Hand) -> None:
        for work in self._engine.train(hand.jobs, self.states.read):
            if self._stopped():
                self.states.discard()
                raise StoppedByHand("stopped by hand", fix="go on with `eris run --resume`", round=self.round)
            self._emit(hand.trained(work))
            self._emit(hand.take(work))
            self.states.write(work.job.member, work.state)

    def _settle(self, hand: _Hand, verdict: Verdict) -> None:
        """Do again what was done for another verdict than the one that came, then let the members' states count."""
        if self.composition.recipe.chain.private_state(0):  # what members keep depends on what was accepted
            again = [
                Job(job.round, job.member, missing)
                for job in hand.jobs
                if (missing := verdict.missing(job.member)) != job.missing
            ]
            for work in self._engine.train(again, self.states.read):
                self.states.write(work.job.member, work.state)
        self.states.commit()

    def _step(self, plan: RoundPlan, published: list[Published], verdict: Verdict) -> None:
        recipe = self.composition.recipe
        layout = recipe.layout(plan.round)
        committed = {entry.shard for entry in verdict.shards if entry.committed}
        chosen = [shard for shard in published if shard.manifest.shard in committed]
        self.replica.apply(*gather_mean(chosen, plan, recipe, layout), layout)
        self.round, self.chain = verdict.round + 1, verdict.digest

    def _begin_reference_epoch(self, epoch: int) -> None:
        """Let every member begin anew from the public reference, whether it takes part in the round or not."""
        members = range(len(self._engine.facts.samples))
        for work in self._engine.train([Job(self.round, k, reset=True) for k in members], self.states.read):
            self.states.write(work.job.member, work.state)
        self.states.commit()
        self.reference_epoch = epoch

    def _ended(
        self,
        hand: _Hand,
        published: list[Published],
        withheld: list[Withheld],
        verdict: Verdict,
        seconds: dict[str, float],
    ) -> _Ended:
        sizes = {p.manifest.shard: 4 * (p.values.size + p.buffers.size) for p in published}
        means = {p.manifest.shard: p.values for p in published}
        held_back = {notice.shard: notice.contributors for notice in withheld}
        for entry in verdict.shards:
            size = hand.bytes.published(entry.shard, sizes[entry.shard]) if entry.shard in sizes else 0
            who = entry.contributors or held_back.get(entry.shard, ())
            mean = means.get(entry.shard)
            self._emit(ShardPublished(verdict.round, entry.shard, entry.aggregator, who, size, entry.lost, mean))
        self._emit(VerdictWritten(verdict.round, plain(hand.plan), plain(verdict)))
        traffic = hand.bytes.total(self._links)
        return _Ended(verdict.round, traffic, dict(seconds), hand.mean_loss, len(verdict.lost_shards))

    def _emit(self, event: Event) -> None:
        for listener in self._listeners:
            listener(event)


class _Hand:
    """What a round has in hand while contributions come in."""

    def __init__(self, plan: RoundPlan, composition: Composition, outages: Outages) -> None:
        recipe = composition.recipe
        layout = recipe.layout(plan.round)
        self.plan, self._recipe, self._outages = plan, recipe, outages
        self._mask = recipe.shared_mask(plan.round)
        self._fold: Fold = begin_fold(recipe.rule, layout.trainable, self._mask, len(plan.participants))
        self._buffers = MeanFold(layout.buffers, None)
        self._buffer_bytes = 4 * layout.buffers.sizes
        self._contributors = Contributors()
        self._all = range(plan.shards)
        self._losses: list[tuple[float, float]] = []
        self.bytes = RoundBytes(plan, composition.method.server)
        self.jobs = [Job(plan.round, member, missing) for member, missing in self._expected_missing().items()]

    def trained(self, work: Work) -> MemberTrained:
        """Note a member's training."""
        job = work.job
        self._losses.append((float(self.plan.weights[job.member]), work.loss))
        return MemberTrained(job.round, job.member, work.samples, work.steps, work.loss, work.seconds)

    def take(self, work: Work) -> Sent:
        """Fold one member's contribution, where it arrived."""
        member, plan = work.job.member, self.plan
        silent = self._outages.unreached(member, plan.shards)
        refused = tuple(sorted({*silent, *work.not_finite}))
        if len(refused) < plan.shards:
            weight = plan.weights[member]
            self._fold.add(member, weight, work.values, work.support, refused)
            self._buffers.add(member, weight, work.buffers, None, refused)
        self._contributors.add(member, work.steps, refused)
        reached = [shard for shard in range(plan.shards) if shard not in silent] if silent else self._all
        return Sent(
            round=plan.round,
            member=member,
            reached=tuple(reached),
            bytes=self.bytes.sent(member, np.asarray(work.payload) + self._buffer_bytes, silent),
            weight=float(plan.weights[member]),
            steps=work.steps,
            values=work.values,
            support=self._mask if work.support is None else work.support,
            buffers=work.buffers,
        )

    def cut(self) -> tuple[list[Published], list[Withheld]]:
        """Return what the aggregators publish and what they withhold."""
        values = self._fold.result([self._contributors.of(shard) for shard in self._all])
        buffers = self._buffers.result([])
        return cut(self.plan, self._recipe, self._contributors, values, buffers, self._outages.away)

    @property
    def mean_loss(self) -> float:
        """The members' weighted mean training loss."""
        total = sum(weight for weight, _ in self._losses)
        return sum(weight * loss for weight, loss in self._losses) / total if total else float("nan")

    def _expected_missing(self) -> dict[int, tuple[int, ...]]:
        """Return, for each member, the shards that will be lost or come without it, if all values are finite."""
        plan = self.plan
        silent = {member: self._outages.unreached(member, plan.shards) for member in plan.participants}
        counts = np.full(plan.shards, len(plan.participants))
        for shards in silent.values():
            counts[list(shards)] -= 1
        lost = np.flatnonzero(counts < max(plan.min_contributors, 1)).tolist()
        return {member: tuple(sorted({*shards, *lost, *self._outages.away})) for member, shards in silent.items()}


@dataclass
class _Ended:
    """A round that is over but perhaps not evaluated yet."""

    round: int
    traffic: Traffic
    seconds: dict[str, float]
    loss: float
    lost: int
    pending: Pending | None = field(default=None, repr=False)


@contextmanager
def _timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    seconds[stage] = seconds.get(stage, 0.0) + time.perf_counter() - began
