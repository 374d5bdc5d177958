"""A small audited federation in plain numpy, whose events can be changed and listened to again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from eris.audit.canaries import PlantedTask, plant_in
from eris.audit.membership import MembershipAudit
from eris.audit.observer import Observer, RoundTranscript, TranscriptRecorder, parse_observer
from eris.compose import Composition, compose
from eris.config import Config, load_config
from eris.events import Event, RoundStarted, Sent, ShardPublished
from eris.local.numpy_task import Descent, LogisticTask
from eris.local.spec import Vector
from eris.methods import with_defaults
from eris.simulate.clock import links_of
from eris.simulate.decentralised import DecentralisedSimulation
from eris.simulate.inline_engine import InlineEngine
from eris.simulate.script import LiveScript
from eris.simulate.simulation import Simulation
from eris.storage.state_store import StateStore

MEMBERS = 5


@dataclass
class Audited:
    composition: Composition
    problem: PlantedTask
    events: list[Event]
    simulation: Simulation | DecentralisedSimulation
    updates: dict[tuple[int, int], Vector]  # (round, member) → g, which no observer is given

    def audit(self, *observers: str, events: Sequence[Event] | None = None, views: int = 8) -> MembershipAudit:
        audit = MembershipAudit(self.composition, self.problem, [parse_observer(o) for o in observers], views=views)
        for event in self.events if events is None else events:
            audit(event)
        return audit

    def records(self) -> list[RoundTranscript]:
        found: list[RoundTranscript] = []
        recorder = TranscriptRecorder(self.composition.recipe, found.append)
        for event in self.events:
            recorder(event)
        return found


def train(folder: Path, *changes: str, **options: Any) -> Audited:
    """Train softmax regression with canaries and keep every event; the options are those of `problem_of`."""
    return play(folder, *problem_of(*changes, **options))


def problem_of(
    *changes: str,
    method: str = "eris",
    samples: int = 24,
    features: int = 40,
    lr: float = 0.5,
    momentum: float = 0.0,
    seed: int = 1,
    heeding: bool = True,
) -> tuple[Config, PlantedTask]:
    """Return settings and softmax regression with canaries; unless `heeding` coins, all canaries are trained on."""
    few = [
        "data.name=synthetic-clouds",
        f"members={MEMBERS}",
        "rounds=3",
        f"seed={seed}",
        "workers=1",
        f"local.lr={lr}",
        "local.batch=full",  # the settings say what the task does: attackers read them
        "local.epochs=1",
        f"local.momentum={momentum}",
    ]
    config = with_defaults(load_config(changes=[*few, f"method={method}", *changes]), method)
    rows = [_noise(samples, features, 100 * seed + member) for member in range(config.members)]
    task = LogisticTask(rows, _noise(60, features, 7), classes=3, descent=Descent(lr, momentum))
    planted = plant_in(task, config.seed)
    return config, planted if heeding else replace(planted, task=task)


def play(folder: Path, config: Config, problem: PlantedTask) -> Audited:
    """Train what the problem says and keep every event."""
    counts = [problem.task.samples(member) for member in range(config.members)]
    composition = compose(config, problem.task.spec, counts)
    links = links_of(config.network, config.members, [], 1.0)
    events: list[Event] = []
    updates = _spied(problem.task)
    engine, states = InlineEngine(problem.task), StateStore(folder, config.members)
    listeners = [lambda event: events.append(_kept(event))]
    if composition.method.exchange is None:
        simulation = Simulation(composition, engine, LiveScript(composition, links), states, links, listeners=listeners)
    else:
        simulation = DecentralisedSimulation(composition, engine, states, links, listeners=listeners)
    simulation.play(config.rounds)
    return Audited(composition, problem, events, simulation, updates)


def _noise(rows: int, features: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows with labels that do not follow from them: all that can be learned is the rows themselves."""
    generator = np.random.default_rng(seed)
    return generator.standard_normal((rows, features)), generator.integers(3, size=rows)


def _spied(task: LogisticTask) -> dict[tuple[int, int], Vector]:
    updates, honest = {}, task.train

    def train(member, model, memory, *, round, seed):
        result = honest(member, model, memory, round=round, seed=seed)
        updates[round, member] = result.update.copy()
        return result

    task.train = train
    return updates


def _kept(event: Event) -> Event:
    """Copy the arrays, which the engine uses again."""
    if isinstance(event, Sent):
        return replace(event, values=event.values.copy(), buffers=event.buffers.copy())
    if isinstance(event, RoundStarted) and event.model is not None:
        return replace(event, model=event.model.copy())
    if isinstance(event, RoundStarted) and event.models is not None:
        return replace(event, models=event.models.copy())
    if isinstance(event, ShardPublished) and event.values is not None:
        return replace(event, values=event.values.copy())
    return event


def scrambled(events, audit, victim, observer, *, supports=False):
    """Return the events with all values replaced that the one who looks at the victim was not shown, of any member.

    With `supports` it is hidden too where the unseen values were kept.
    """
    generator, found, owners = np.random.default_rng(0), [], ()
    (place,) = audit.places[observer][victim]
    watcher = place.estimator
    for event in events:
        if isinstance(event, RoundStarted):
            owners = (event.assignment, event.witnesses)
        if isinstance(event, Sent) and event.member not in watcher.vantage.peers:
            layout = audit._composition.recipe.layout(event.round)
            seen = watcher.vantage.shards(event, *owners)
            event = _unseen_replaced(event, layout, seen, generator, supports=supports)
        found.append(event)
    return found


def _unseen_replaced(sent, layout, seen, generator, *, supports):
    plan = layout.trainable
    support = np.arange(plan.n) if sent.support is None else sent.support
    hidden = ~np.isin(plan.owners_of(support), seen)
    values = np.where(hidden, generator.standard_normal(support.size).astype(np.float32), sent.values)
    noise = generator.standard_normal(sent.buffers.size).astype(np.float32)
    buffers = np.where(np.isin(layout.buffers.owners_of(np.arange(layout.buffers.n)), seen), sent.buffers, noise)
    if not supports:
        return replace(sent, values=values, buffers=buffers)
    others = np.flatnonzero((generator.random(plan.n) < 0.4) & ~np.isin(plan.owners_of(np.arange(plan.n)), seen))
    places = np.concatenate([support[~hidden], others])
    drawn = generator.standard_normal(others.size).astype(np.float32)
    order = np.argsort(places)
    values = np.concatenate([sent.values[~hidden], drawn])[order]
    return replace(sent, values=values, support=places[order], buffers=buffers)


AGGREGATOR = Observer("aggregator")
