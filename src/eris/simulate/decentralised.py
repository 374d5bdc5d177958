"""The round loop for methods in which members have their own models and nobody aggregates.

    train (engine, each from its own model) → exchange → move

It replaces `Simulation`: the same engines train, and the same events say what was sent. In these, every member is an
observer: `assignment` is the list of members, and what a member sent "to shard j" it sent to member j. All models are
held in memory, K·n values.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.compose import Composition
from eris.errors import CheckpointError
from eris.events import Event, Listener, MemberTrained, RoleBytes, RoundEnded, RoundStarted, RoundTraffic, Sent
from eris.local.spec import Vector
from eris.methods.exchange import Exchange, Message, Models
from eris.protocol.replica import Replica
from eris.protocol.verdict import GENESIS
from eris.simulate.clock import Links
from eris.simulate.engine import Engine, Pending
from eris.simulate.simulation import StoppedByHand
from eris.simulate.traffic import framed
from eris.simulate.work import Job
from eris.storage.state_store import StateStore

__all__ = ["DecentralisedSimulation", "ManyModels"]


@dataclass
class ManyModels:
    """The state of a run with many models: all of them, and what their exchange remembers."""

    models: Models = field(repr=False)
    exchange: Exchange

    @property
    def model(self) -> Vector:
        """The mean of all models."""
        total = np.zeros(self.models.shape[1], np.float64)
        for model in self.models:
            total += model
        return (total / len(self.models)).astype(np.float32)

    @property
    def chosen(self) -> Vector:
        """The model that is the run's result."""
        return self.model

    def choice(self) -> None:
        """Return nothing: there is no single model that members could have scored."""

    @property
    def consensus_distance(self) -> float:
        """The root of the mean squared distance of a member's model to the mean of all."""
        mean = self.model.astype(np.float64)
        return math.sqrt(math.fsum(float(np.sum((model - mean) ** 2)) for model in self.models) / len(self.models))

    def state(self) -> dict[str, NDArray[Any]]:
        """Return every array by name (views, for checkpoints)."""
        return {"models": self.models} | {f"exchange.{name}": value for name, value in self.exchange.state().items()}

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take over every array of a checkpoint."""
        for name, value in self.state().items():
            if state[name].shape != value.shape:
                raise CheckpointError(f"{name} has another shape in the checkpoint", fix="start the run afresh")
            np.copyto(value, state[name])


class DecentralisedSimulation:
    """One run of a method with its own exchange: give it an engine, then call `play`.

    Args:
        states: keeps what members remember between rounds, their models included.
        links: how fast each member sends and receives, for the virtual clock.
        stopped: asked after every job whether to stop.
    """

    def __init__(
        self,
        composition: Composition,
        engine: Engine,
        states: StateStore,
        links: Links,
        *,
        listeners: Sequence[Listener] = (),
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self.composition, self._engine, self.states, self._links = composition, engine, states, links
        self._listeners, self._stopped = tuple(listeners), stopped
        config, recipe, make = composition.config, composition.recipe, composition.method.exchange
        assert make is not None
        initial = engine.initial(config.seed)
        self._shown = Replica.start(recipe, initial)  # shows the engine one model at a time
        np.copyto(self._shown.public["0.model"], initial)
        exchange = make(config, recipe.spec, recipe.public)
        self.replica = ManyModels(self._starts(initial), exchange)
        self.round, self.chain, self.reference_epoch = 0, GENESIS, 0

    @property
    def model_digest(self) -> str:
        """The sha256 of the float32 values of all models, member by member."""
        return hashlib.sha256(self.replica.models.astype("<f4").tobytes()).hexdigest()

    def go_to(self, round: int, chain: str, reference_epoch: int) -> None:
        """Continue before a later round, as `Script.go_to` does; models and states are loaded separately."""
        self.round, self.chain, self.reference_epoch = round, chain, reference_epoch

    def listen(self, listeners: Sequence[Listener], stopped: Callable[[], bool]) -> None:
        """Send events to `listeners` from now on, and ask `stopped` whether to stop."""
        self._listeners, self._stopped = tuple(listeners), stopped

    def play(self, rounds: int, *, after_round: Callable[[], None] = lambda: None) -> None:
        """Play until `rounds` rounds are done; raise StoppedByHand if asked to stop."""
        self._engine.begin(self.composition)
        self._engine.publish(self._shown)
        if self.round == 0:
            self._begin()
        while self.round < rounds:
            self._play_round(last=self.round + 1 == rounds)
            after_round()

    def end_last_round(self) -> None:
        """Do nothing: a round is always ended at once."""

    def _starts(self, initial: Vector) -> Models:
        """Return the members' first models: the same for all, or one drawn for each."""
        config = self.composition.config
        models = np.repeat(initial[None], config.members, axis=0)
        if getattr(self.composition.method.settings(config), "start", "same") == "own":
            for member, model in enumerate(models):
                drawn = self.composition.recipe.public.child("own start", member).key[:7]
                np.copyto(model, self._engine.initial(int.from_bytes(drawn, "little")))
        return models

    def _begin(self) -> None:
        """Put the model that each member begins with into its state."""
        jobs = [Job(0, member, reset=True) for member in range(self.composition.config.members)]
        self._keep([work.state.copy() for work in self._engine.train(jobs, self.states)])

    def _play_round(self, *, last: bool) -> None:
        seconds: dict[str, float] = {}
        members = tuple(range(self.composition.config.members))
        self._emit(RoundStarted(self.round, members, members, models=self.replica.models))
        began = time.perf_counter()
        updates, states, loss = self._train()
        seconds["train"] = time.perf_counter() - began
        account = _Account(self.round, len(members), self.replica.exchange, self._emit)
        began = time.perf_counter()
        self.replica.exchange.play(self.round, self.replica.models, updates, account.send)
        self._keep(states)
        seconds["aggregate"] = time.perf_counter() - began
        metrics: dict[str, Any] = {"train_loss": loss, "consensus_distance": self.replica.consensus_distance}
        if last or (self.round + 1) % self.composition.config.evaluate_every == 0:
            began = time.perf_counter()
            metrics |= self._evaluate()
            seconds["evaluate"] = time.perf_counter() - began
        self._emit(RoundEnded(self.round, metrics, account.total(self._links), seconds))
        self.round += 1

    def _train(self) -> tuple[Models, list[Vector], float]:
        models, states, losses = self.replica.models, list[Vector](), list[float]()
        updates, members = np.zeros_like(models), range(len(models))
        for work in self._engine.train([Job(self.round, member) for member in members], self.states):
            if self._stopped():
                raise StoppedByHand("stopped by hand", fix="continue with `eris run --resume`", round=self.round)
            member = work.job.member
            self._emit(MemberTrained(self.round, member, work.samples, work.steps, work.loss, work.seconds))
            if not work.not_finite:  # a step that is not finite is not taken
                updates[member] = work.values
            states.append(work.state.copy())
            losses.append(work.loss)
        return updates, states, math.fsum(losses) / len(losses)

    def _keep(self, states: list[Vector]) -> None:
        """Put each member's new model into its state, beside what its optimizer remembers."""
        for member, (model, state) in enumerate(zip(self.replica.models, states, strict=True)):
            state[state.size - model.size :] = model
            self.states.write(member, state, trained=False)
        self.states.commit()

    def _evaluate(self) -> dict[str, Any]:
        """Evaluate every member's model: means of all, and the worst of them."""
        pending: list[Pending] = []
        for model in self.replica.models:
            np.copyto(self._shown.model, model)
            self._engine.publish(self._shown)
            pending.append(self._engine.evaluate())
        found = [result() for result in pending]
        means = {key: _mean([metrics[key] for metrics in found]) for key in found[0]}
        if "accuracy" in means:
            means["worst_accuracy"] = min(metrics["accuracy"] for metrics in found)
        if "loss" in means:
            means["worst_loss"] = max(metrics["loss"] for metrics in found)
        return means

    def _emit(self, event: Event) -> None:
        for listener in self._listeners:
            listener(event)


class _Account:
    """Counts the bytes of a round's messages, and announces through `emit` who got what."""

    def __init__(self, round: int, members: int, exchange: Exchange, emit: Listener) -> None:
        self._round, self._exchange, self._emit = round, exchange, emit
        self._sent, self._received = np.zeros((2, members), np.int64)

    def send(self, message: Message) -> None:
        """Count a message and announce it."""
        size = int(framed(np.array(message.payload)))
        copies = np.bincount(message.receivers, minlength=self._sent.size)
        self._sent[message.sender] += size * len(message.receivers)
        self._received += size * copies
        whole = self._exchange.chunks.shards == 1
        self._emit(
            Sent(
                round=self._round,
                member=message.sender,
                reached=tuple(sorted(set(message.receivers))),
                bytes=tuple((size * copies).tolist()),
                weight=1.0,
                steps=1.0,
                values=message.values,
                support=None if whole else self._exchange.chunks.coordinates(message.chunk),
                buffers=np.empty(0, np.float32),
            )
        )

    def total(self, links: Links) -> RoundTraffic:
        """Return the round's totals."""
        each = RoleBytes(float(self._sent.mean()), float(self._received.mean()))
        seconds = links.phase(self._sent, self._received)
        all_of_it = links.gathered(range(self._sent.size), self._sent, self._received)
        return RoundTraffic(each, RoleBytes(0.0, 0.0), int(self._sent.sum()), seconds, all_of_it)


def _mean(values: list[Any]) -> Any:
    if isinstance(values[0], list):
        return [_mean(list(each)) for each in zip(*values, strict=True)]
    return math.fsum(values) / len(values)
