"""Small federations for the tests of the simulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from eris.compose import Composition
from eris.config import Config, load_config
from eris.events import Event
from eris.local.task import Task
from eris.simulate.clock import links_of
from eris.simulate.engine import Engine
from eris.simulate.faults import slow_members
from eris.simulate.inline_engine import InlineEngine
from eris.simulate.script import LiveScript
from eris.simulate.simulation import Simulation
from eris.storage.state_store import StateStore
from eris.tasks import build_task

BATCHES = "local.batch=5"
SMALL = ["data.name=synthetic-clouds", BATCHES, "local.lr=0.1", "rounds=4", "members=7", "workers=1"]


class NoStates:
    """Members that remember nothing."""

    def read(self, member: int) -> None:
        del member

    def stamp(self, member: int) -> int:
        return 0 * member


@dataclass
class Played:
    """A simulation that was played, and what happened."""

    config: Config
    composition: Composition
    simulation: Simulation
    events: list[Event]

    @property
    def digest(self) -> str:
        return self.simulation.model_digest

    def of(self, kind: type) -> list:
        return [event for event in self.events if isinstance(event, kind)]


def settings(*changes: str, method: str = "eris") -> Config:
    made_up = "data.name=synthetic-quadratic" in changes  # has no samples to make batches of
    small = [change for change in SMALL if not (made_up and change == BATCHES)]
    return load_config(changes=[*small, f"method={method}", *changes])


def prepare(
    config: Config, folder: Path, *, task: Task | None = None, engine: Engine | None = None, listeners: Sequence = ()
) -> Played:
    task = task or build_task(config.model_dump(mode="json", exclude_none=True))
    engine = engine or InlineEngine(task)
    composition = engine.facts.compose(config)
    slow = slow_members(config.faults, config.members, composition.recipe.public)
    links = links_of(config.network, config.members, slow, config.faults.slow_factor)
    events: list[Event] = []
    simulation = Simulation(
        composition,
        engine,
        LiveScript(composition, links),
        StateStore(folder, config.members),
        links,
        listeners=[events.append, *listeners],
    )
    return Played(config, composition, simulation, events)


def play(config: Config, folder: Path, **options: object) -> Played:
    played = prepare(config, folder, **options)
    played.simulation.play(config.rounds)
    return played
