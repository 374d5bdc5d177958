"""Run one method from its first round, or from its last checkpoint, to its summary."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.checkpoint import load_checkpoint, save_checkpoint
from eris.compose import Composition
from eris.errors import CheckpointError, ConfigError
from eris.events import Keeper, Listener, RunEnded
from eris.exposure import ExposureLedger
from eris.local.task import leave_behind
from eris.process_facts import versions
from eris.simulate.clock import Links, links_of
from eris.simulate.decentralised import DecentralisedSimulation
from eris.simulate.engine import Engine
from eris.simulate.faults import slow_members
from eris.simulate.peer_exposure import PeerExposure
from eris.simulate.run_folder import RunFolder
from eris.simulate.script import LiveScript, Replay, Rounds, Script
from eris.simulate.simulation import Simulation, StoppedByHand
from eris.simulate.summary import notes_of, summarise
from eris.storage.state_store import StateStore

__all__ = ["MethodRun"]

CHECKPOINT_SECONDS = 5.0  # how much work a killed run may lose
_CHEAP = 0.25  # seconds that a checkpoint may take; slower ones are made less often, in proportion
_KEPT = "kept/"  # prefix of the names of listeners' state in a checkpoint


class MethodRun:
    """Drives a simulation and writes its folder; its checkpoints hold the state of listeners that are `Keeper`s.

    Args:
        engine: trains; whoever opened it closes it.
        stopped: asked after every job whether to stop.
        replay: plans and verdicts to repeat, instead of a live coordinator's.
        checkpoint_seconds: how much work a killed run may lose, unless checkpoints are slow.
    """

    def __init__(
        self,
        composition: Composition,
        folder: Path,
        engine: Engine,
        *,
        listeners: Sequence[Listener] = (),
        stopped: Callable[[], bool] = lambda: False,
        replay: Rounds | None = None,
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
    ) -> None:
        self.composition, self.folder, self._engine = composition, RunFolder(folder), engine
        self.config = config = composition.config
        slow = slow_members(config.faults, config.members, composition.recipe.public)
        links = links_of(config.network, config.members, slow, config.faults.slow_factor)
        self.simulation: Simulation | DecentralisedSimulation
        self._ledger: ExposureLedger | PeerExposure
        self.simulation, self._ledger = self._prepared(links, replay)
        self.folder.ledger = self._ledger
        seen: tuple[Listener, ...] = () if self.composition.method.trusted else (self._ledger,)
        self._listeners: tuple[Listener, ...] = (*seen, self.folder, *listeners)
        self._keepers = [listener for listener in listeners if isinstance(listener, Keeper)]
        self.simulation.listen(self._listeners, stopped)
        self._seconds_before, self._began = 0.0, time.perf_counter()
        self._checkpoint_seconds, self._checkpointed = checkpoint_seconds, time.perf_counter()
        self._checkpoint_took = 0.0

    def _prepared(
        self, links: Links, replay: Rounds | None
    ) -> tuple[Simulation, ExposureLedger] | tuple[DecentralisedSimulation, PeerExposure]:
        composition, members = self.composition, self.config.members
        states = StateStore(self.folder.checkpoints / "states", members)
        if composition.method.exchange is not None:
            if replay is not None:
                raise ConfigError(
                    f"{composition.method.name} has no verdicts to replay", fix="run it again from its configuration"
                )
            own = DecentralisedSimulation(composition, self._engine, states, links)
            return own, PeerExposure(own.replica.exchange.chunks, members)
        script: Script = LiveScript(composition, links) if replay is None else Replay(replay, composition)
        recipe, server = composition.recipe, composition.method.server
        ledger = ExposureLedger(recipe, members, self.folder.checkpoints, server=server)
        return Simulation(composition, self._engine, script, states, links), ledger

    def run(self, *, resume: bool = False) -> dict[str, Any]:
        """Run to the last round, or until stopped; write everything and return the summary.

        With `resume`, continue from the last checkpoint; a run that was killed before its first one starts afresh.
        """
        if resume and self.folder.has_checkpoint:
            self._resume()
        else:
            self.folder.create(self.config)
            self._checkpoint()
        self._began = time.perf_counter()
        self._announce()
        try:
            self.simulation.play(self.config.rounds, after_round=self._after_round)
        except StoppedByHand:
            self.simulation.end_last_round()
        except Exception:
            with contextlib.suppress(Exception):  # announce the round before, if that is still possible
                self.simulation.end_last_round()
            raise
        self._checkpoint()
        return self._conclude()

    def _after_round(self) -> None:
        wait = self._checkpoint_seconds * max(1.0, self._checkpoint_took / _CHEAP)
        if time.perf_counter() - self._checkpointed >= wait:
            self.simulation.end_last_round()
            self._checkpoint()

    def _checkpoint(self) -> None:
        simulation, began = self.simulation, time.perf_counter()
        facts = {
            "config": self.config.digest,
            "chain": simulation.chain,
            "reference_epoch": simulation.reference_epoch,
            "lines": self.folder.sizes(),
            "exposure": self._ledger.state(),
            "seconds": self._seconds,
        }
        arrays: dict[str, NDArray[Any]] = {**simulation.replica.state(), "slots": simulation.states.save()}
        for place, keeper in enumerate(self._keepers):
            arrays |= {f"{_KEPT}{place}/{name}": part for name, part in keeper.memory().items()}
        save_checkpoint(self.folder.checkpoints, simulation.round, arrays, facts)
        simulation.states.saved()
        self._checkpointed = time.perf_counter()
        self._checkpoint_took = self._checkpointed - began

    def _resume(self) -> None:
        checkpoint = load_checkpoint(self.folder.checkpoints)
        facts = checkpoint.facts
        if facts["config"] != self.config.digest:
            raise CheckpointError(
                "the checkpoint belongs to another configuration",
                fix="resume with the folder's own config.toml",
                path=self.folder.path,
            )
        own = {name: part for name, part in checkpoint.arrays.items() if not name.startswith(_KEPT)}
        self.simulation.replica.load({name: part for name, part in own.items() if name != "slots"})
        self.simulation.states.load(checkpoint.arrays["slots"].astype(np.int8))
        self.simulation.go_to(checkpoint.round, facts["chain"], facts["reference_epoch"])
        self.folder.cut_back(facts["lines"])
        self._ledger.load(facts["exposure"])
        self._seconds_before = facts["seconds"]
        for place, keeper in enumerate(self._keepers):
            keeper.remember(self._kept(checkpoint.arrays, f"{_KEPT}{place}/"))

    def _kept(self, arrays: dict[str, NDArray[Any]], start: str) -> dict[str, NDArray[Any]]:
        kept = {name.removeprefix(start): part for name, part in arrays.items() if name.startswith(start)}
        if not kept:
            raise CheckpointError(
                "a listener that must see every round missed the first ones",
                fix="resume with the same listeners, or start a new run",
                path=self.folder.path,
            )
        return kept

    def _announce(self) -> None:
        event = self.composition.started(self.simulation.round, notes_of(self.composition))
        for listener in self._listeners:
            listener(event)

    def _conclude(self) -> dict[str, Any]:
        simulation, exposure = self.simulation, self._ledger.summary()
        summary = summarise(
            self.composition,
            self.folder.rounds(),
            digest=simulation.model_digest,
            seconds=self._seconds,
            exposure=exposure,
            peak_memory=self._engine.peak_memory(),
            versions=versions(),
            choice=simulation.replica.choice(),
            verdicts=self.folder.verdicts() if self.composition.recipe.noise is not None else (),
        )
        self.folder.write_model(self.composition.recipe.spec, simulation.replica.chosen)
        leave_behind(getattr(self._engine, "task", None), simulation.replica.chosen, self.folder.path)
        self.folder.write("exposure.json", exposure)
        self.folder.write("summary.json", summary)
        event = RunEnded(simulation.round, summary["finished"], simulation.model_digest, self._seconds)
        for listener in self._listeners:
            listener(event)
        return summary

    @property
    def _seconds(self) -> float:
        return self._seconds_before + time.perf_counter() - self._began
