"""The round loop of a simulated federation.

    plan → faults → train (engine) → fold → cut → verdict → step

Listeners hear of a round (and write) while the next one is already training, so that nobody waits. Plans and verdicts
are the coordinator's; every step of a member or an aggregator is a function of `protocol.steps`, the same that the
roles call. This module only decides how one machine plays all peers: contributions are folded whole before they are
cut, nothing is put into messages, one replica stands for everybody's, and members' states are settled before the
verdict, assuming the expected one. Tests compare it with the roles and their messages, bit for bit.
"""

from __future__ import annotations

import hashlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from eris.aggregate.fixed_point import RingScale
from eris.compose import Composition
from eris.errors import RunStopped
from eris.events import (
    Event,
    Listener,
    RoundEnded,
    RoundStarted,
    RoundTraffic,
    ShardPublished,
    VerdictWritten,
    asks_for_views,
)
from eris.protocol import steps
from eris.protocol.messages import Published, Withheld
from eris.protocol.replica import Replica
from eris.protocol.verdict import GENESIS, Verdict
from eris.simulate.clock import Links
from eris.simulate.engine import Engine, Pending
from eris.simulate.intake import Intake, jobs_of
from eris.simulate.script import Script
from eris.simulate.work import Job, Work
from eris.storage.state_store import StateStore

__all__ = ["Simulation", "StoppedByHand"]


class StoppedByHand(RunStopped):
    """The run was asked to stop; what is done is kept."""


class Simulation:
    """One run of one method: give it an engine, then call `play`.

    Args:
        script: where plans, faults and verdicts come from.
        states: keeps what members remember between rounds.
        links: how fast each peer sends and receives, for the virtual clock.
        stopped: asked after every job whether to stop.
    """

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
        """Send events to `listeners` from now on, and ask `stopped` whether to stop."""
        self._listeners, self._stopped = tuple(listeners), stopped

    def play(self, rounds: int, *, after_round: Callable[[], None] = lambda: None) -> None:
        """Play until `rounds` rounds are done; raise StoppedByHand if asked to stop."""
        self._engine.begin(self.composition)
        self._engine.publish(self.replica)
        begun = None if self.is_done(rounds) else self._begin_round()
        while begun is not None:
            played = self._play_round(begun)
            self._engine.publish(self.replica)
            pending = self._engine.evaluate() if self._due(rounds) else None
            begun = None if self.is_done(rounds) else self._begin_round()  # the workers are busy while we write
            ended = self._announce(played)
            self.end_last_round()
            self._open = replace(ended, pending=pending)
            after_round()
        self.end_last_round()

    def is_done(self, rounds: int) -> bool:
        """Return whether no round follows: all were played, or patience has run out."""
        return self.round >= rounds or self.replica.is_done

    def end_last_round(self) -> None:
        """Wait for the evaluation of the last round and announce that the round has ended."""
        if (ended := self._open) is None:
            return
        self._open = None
        with _timed(ended.seconds, "evaluate"):
            metrics = {**ended.metrics, **(ended.pending() if ended.pending is not None else {})}
        if ended.not_finite:
            metrics = {"not_finite": ended.not_finite, **metrics}
        if ended.limited:
            metrics = {"limited": ended.limited, **metrics}
        self._emit(
            RoundEnded(ended.round, {"train_loss": ended.loss, **metrics}, ended.traffic, ended.seconds, ended.lost)
        )

    @property
    def model_digest(self) -> str:
        """The sha256 of the float32 values, in spec order, of the model that is the result."""
        return hashlib.sha256(self.replica.chosen.astype("<f4").tobytes()).hexdigest()

    def go_to(self, round: int, chain: str, reference_epoch: int) -> None:
        """Continue before a later round, as `Script.go_to` does; replica and states are loaded separately."""
        self.round, self.chain, self.reference_epoch = round, chain, reference_epoch
        self._script.go_to(round, chain, reference_epoch)

    def _due(self, rounds: int) -> bool:
        return self.round % self.composition.config.evaluate_every == 0 or self.is_done(rounds)

    def _begin_round(self) -> _Round:
        """Plan the next round and hand out its work."""
        seconds: dict[str, float] = defaultdict(float)
        with _timed(seconds, "plan"):
            plan = self._script.plan()
            outages = self._script.outages(plan)
            if plan.reference_epoch != self.reference_epoch:
                self._begin_reference_epoch(plan.reference_epoch)
            jobs = jobs_of(plan, outages, self.composition.recipe, self.replica.scale_in(plan))
            add_up = self.replica.scale is not None and not asks_for_views(self._listeners)
            works = self._engine.train(jobs, self.states, add_up=add_up)  # at once: workers wait for this
            return _Round(Intake(plan, self.composition, outages, jobs), works, seconds, add_up)

    def _play_round(self, current: _Round) -> _Played:
        intake, seconds, plan = current.intake, current.seconds, current.intake.plan
        who, model = (plan.participants, plan.assignment), self.replica.model
        self._emit(RoundStarted(plan.round, *who, model, witnesses=plan.witnesses, unmaskers=plan.unmaskers))
        with _timed(seconds, "train"):
            self._take(current)
        with _timed(seconds, "aggregate"):
            outcomes = intake.cut()
            verdict = self._script.conclude(plan, outcomes)
        published = {each.manifest.shard: each for each in outcomes if isinstance(each, Published)}
        withheld = {each.shard: each for each in outcomes if isinstance(each, Withheld)}
        with _timed(seconds, "settle"):
            self._do_again(intake, verdict)
        scale = self.replica.scale_in(plan)
        with _timed(seconds, "step"):
            steps.apply(self.replica, plan, published, verdict)
            self.round, self.chain = verdict.round + 1, verdict.digest
        return _Played(current, published, withheld, verdict, scale)

    def _take(self, current: _Round) -> None:
        intake = current.intake
        for work in current.works:
            if self._stopped():
                self.states.discard()
                raise StoppedByHand("stopped by hand", fix="continue with `eris run --resume`", round=self.round)
            self._emit(intake.trained(work))
            self._emit(intake.take(work))
            self.states.write(work.job.member, work.state)
        for total in self._engine.sums() if current.add_up else ():
            intake.take_sum(total)

    def _do_again(self, intake: Intake, verdict: Verdict) -> None:
        """Repeat the jobs that assumed another verdict than the one that came, then commit the members' states."""
        if self.composition.recipe.chain.private_state(0):  # what members keep depends on what was accepted
            jobs = [replace(job, missing=verdict.missing(job.member)) for job in intake.jobs]
            again = [job for job, before in zip(jobs, intake.jobs, strict=True) if job != before]
            if again and self.composition.config.local.cohort > 1:
                again = jobs  # the same cohorts as before, hence the same bits
            for work in self._engine.train(again, self.states):
                self.states.write(work.job.member, work.state)
        self.states.commit()

    def _begin_reference_epoch(self, epoch: int) -> None:
        """Let every member restart from the public reference, whether it takes part in the round or not."""
        members = range(self._engine.facts.samples.size)
        for work in self._engine.train([Job(self.round, k, reset=True) for k in members], self.states):
            self.states.write(work.job.member, work.state)
        self.states.commit()
        self.reference_epoch = epoch

    def _announce(self, played: _Played) -> _Ended:
        """Announce what was published and decided, and sum up the round."""
        intake, verdict, published, withheld = played.round.intake, played.verdict, played.published, played.withheld
        sizes = intake.bytes.published({s: p.values.nbytes + p.buffers.nbytes for s, p in published.items()})
        for entry in verdict.shards:
            shard, who, mean = entry.shard, entry.contributors, None
            if shard in published:
                values = published[shard].values
                mean = values if played.scale is None else played.scale.decode_sum(values)
            elif shard in withheld:
                who = withheld[shard].contributors
            size = sizes.get(shard, 0)
            self._emit(ShardPublished(verdict.round, shard, entry.aggregator, who, size, entry.lost, mean))
        self._emit(VerdictWritten(verdict.round, intake.plan, verdict))
        traffic = intake.bytes.total(self._links, self.composition.config.network.deadline)
        return _Ended(
            verdict.round,
            traffic,
            played.round.seconds,
            intake.mean_loss,
            len(verdict.lost_shards),
            intake.not_finite,
            {**intake.mean_metrics, **steps.members_figures(self.composition.recipe, verdict)},
            intake.limited,
        )

    def _emit(self, event: Event) -> None:
        for listener in self._listeners:
            listener(event)


@dataclass(frozen=True)
class _Round:
    """A round whose work has been handed out."""

    intake: Intake
    works: Iterator[Work]  # results, as they come
    seconds: dict[str, float]  # by stage, so far
    add_up: bool  # workers keep the values, and tell their sums


@dataclass(frozen=True)
class _Played:
    """A round that has been played but not announced yet."""

    round: _Round
    published: dict[int, Published]  # by shard
    withheld: dict[int, Withheld]  # by shard
    verdict: Verdict
    scale: RingScale | None  # how its values were written


@dataclass(frozen=True)
class _Ended:
    """A round that is over but perhaps not evaluated yet."""

    round: int
    traffic: RoundTraffic
    seconds: dict[str, float]  # by stage
    loss: float  # of the members' training
    lost: int  # shards
    not_finite: int  # members whose values were refused as not finite
    metrics: dict[str, float]  # of the members' training, besides the loss
    limited: int  # values that lay outside the limit of fixed point
    pending: Pending | None = field(default=None, repr=False)


@contextmanager
def _timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    seconds[stage] = seconds.get(stage, 0.0) + time.perf_counter() - began
