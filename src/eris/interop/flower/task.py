"""The ClientApp as a task that trains and evaluates, for the members of a simulation or for one peer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eris.config import Config, load_config
from eris.errors import ConfigError, ErisError, TaskError
from eris.interop.flower.app import FlowerApp, require_same_app
from eris.interop.flower.first_message import FirstMessage
from eris.interop.flower.records import (
    Arrays,
    checked,
    count_of,
    figures_of,
    only_arrays,
    read_state,
    roles,
    write_state,
)
from eris.interop.foreign_call import foreign_call, in_our_words
from eris.local.spec import ModelSpec, Vector
from eris.local.task import LocalResult, Memory
from eris.seeds import Seed, public_root

__all__ = ["FlowerTask", "flower_peer", "flower_task"]

_MEMORY = "context"  # key of context.state in a member's memory


def flower_task(folder: str, config: Mapping[str, Any]) -> FlowerTask:
    """Build the task of a simulation: every member runs the app, with its number as `partition-id`."""
    settings = load_config(config)
    app = FlowerApp.load(Path(folder))
    nodes = {member: {"partition-id": member, "num-partitions": settings.members} for member in range(settings.members)}
    return FlowerTask(app, settings, nodes)


def flower_peer(folder: Path, node_config: Mapping[str, Any]) -> Callable[[Config, int], FlowerTask]:
    """Return a function that makes the task of one peer, which has its own node config."""

    def make(config: Config, peer: int) -> FlowerTask:
        return FlowerTask(FlowerApp.load(folder), config, {peer: dict(node_config)})

    return make


class FlowerTask:
    """The ClientApp as an `eris.Task`; `nodes` holds the node config of every member that trains here."""

    def __init__(self, app: FlowerApp, config: Config, nodes: Mapping[int, Mapping[str, Any]]) -> None:
        require_same_app(app, config)
        if config.server.optimizer == "fednova":
            raise ConfigError(
                "FedNova divides by local steps, but a Flower app does not say how many it took",
                fix="use server.optimizer = 'fedavg'",
                key="server.optimizer",
            )
        self.members = config.members
        self._app, self._nodes, self._options = app, nodes, dict(config.model.options)
        self._first = FirstMessage(app, self._options, self.members)
        start = self._first.arrays(public_root(0))
        self._start = start
        self.spec = ModelSpec.of(start, roles=roles(start))
        self._counts: dict[int, int] = {}

    def samples(self, member: int) -> int:
        """Return the number of examples that the member's `train` reports; it is run once just for that."""
        if member not in self._counts:
            self.rehearse([member])
        return self._counts[member]

    def rehearse(self, members: Sequence[int] | None = None) -> None:
        """Train once from the initial model, so that the app's mistakes show before anything is written."""
        for member in members if members is not None else self._nodes:
            if member not in self._counts:
                model = self.spec.flatten(self._start)
                seed = public_root(0).child("rehearsal", member)
                self._counts[member] = self._trained(member, model, self.memory(member), 0, seed).samples

    def initial(self, seed: Seed) -> Vector:
        """Return the arrays of the ServerApp's first message, drawn with this seed."""
        return self.spec.flatten(checked(self._first.arrays(seed), self._start, "the ServerApp's first message"))

    def memory(self, member: int) -> Memory:
        """Return room for the member's `context.state`, empty."""
        del member
        return {_MEMORY: np.zeros(-(-self._app.state_bytes // 4) + 2, np.float32)}

    def train(self, member: int, model: Vector, memory: Memory, *, round: int, seed: Seed) -> LocalResult:
        """Let the ClientApp train, and return how far it moved the model."""
        result = self._trained(member, model, memory, round, seed.require_private("what the app draws"))
        if result.samples != (before := self._counts.setdefault(member, result.samples)):
            _refuse_count(before, result.samples, member, round)
        return result

    def evaluate(self, model: Vector) -> dict[str, float]:
        """Return the app's own figures, weighted by the examples of the members here."""
        found = [answer for member in self._nodes if (answer := self._evaluated(member, model)) is not None]
        total = sum(count for count, _ in found)
        names = dict.fromkeys(name for _, figures in found for name in figures)
        return {
            name: sum(count * figures[name] for count, figures in found) / total
            for name in names
            if total and all(name in figures for _, figures in found)
        }

    def score(self, member: int, model: Vector, memory: Memory) -> dict[str, tuple[float, float]]:
        """Return the app's figures of one member as sums over its examples."""
        del memory
        count, figures = self._evaluated(member, model) or (0, {})
        return {name: (count * value, count) for name, value in figures.items()}

    def _trained(self, member: int, model: Vector, memory: Memory, round: int, seed: Seed) -> LocalResult:
        state, kept, counted = read_state(memory[_MEMORY])
        content = self._content("fit" if self._app.classic else "train", {**self._arrays(model), **kept}, round)
        reply, state = self._answer("train", content, member, state, seed, round)
        arrays = checked(only_arrays(reply, "train's answer"), self._start, "train's answer")
        count, figures = count_of(reply, "fitres"), figures_of(reply)
        if counted not in (0, count):
            _refuse_count(counted, count, member, round)
        kept = {name: arrays[name] for name in arrays if self.spec.tensor(name).role == "local"}
        write_state(memory[_MEMORY], state, kept, count)
        loss = figures.get("train_loss", figures.get("loss", float("nan")))
        return LocalResult(model - self.spec.flatten(arrays), count, loss=loss, metrics=figures)

    def _evaluated(self, member: int, model: Vector) -> tuple[int, dict[str, float]] | None:
        from flwr.app import RecordDict

        if not self._app.evaluates:
            return None
        content = self._content("evaluate", self._arrays(model), None)
        seed = public_root(0).child("evaluation", member)
        reply, _ = self._answer("evaluate", content, member, RecordDict(), seed, None)
        return (count_of(reply, "evaluateres"), in_our_words(figures_of(reply))) if reply is not None else None

    def _arrays(self, model: Vector) -> Arrays:
        """Return the model as the app knows it: every array in its own shape and type, counters at their start."""
        flat = self.spec.unflatten(model)
        return {name: flat[name].astype(start.dtype) if name in flat else start for name, start in self._start.items()}

    def _content(self, what: str, arrays: Arrays, round: int | None) -> Any:
        """Return the records of a message in a round (evaluation: None), as Flower's strategies would send them.

        `what` is fit or evaluate, the word in the names of a classic app's records.
        """
        from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

        record = ArrayRecord({name: Array(np.ascontiguousarray(array)) for name, array in arrays.items()})
        if self._app.classic:
            config = self._first.config(round) if what == "fit" else {}
            return RecordDict({f"{what}ins.parameters": record, f"{what}ins.config": ConfigRecord(config)})
        said = self._first.config(round) if round is not None else {}
        return RecordDict({self._first.arrays_key: record, self._first.config_key: ConfigRecord(said)})

    def _answer(
        self, kind: str, content: Any, member: int, state: Any, seed: Seed, round: int | None
    ) -> tuple[Any, Any]:
        """Call the ClientApp; return the records of its answer (None: it has no evaluation) and its new state.

        Args:
            kind: of the message: train, evaluate, …
            content: its records.
            state: the member's context.state.
            seed: of all randomness while the app runs.
            round: None where it belongs to none.
        """
        from flwr.app import Context, Message, Metadata
        from flwr.app.constants import DEFAULT_TTL

        context = Context(1, member + 1, dict(self._nodes[member]), state, dict(self._options))
        metadata = Metadata(1, "", 0, member + 1, "", str(round or ""), time.time(), DEFAULT_TTL, kind)
        where = {"peer": member} | ({} if round is None else {"round": round})
        try:
            with foreign_call(seed):
                reply = self._app.client(Message(metadata=metadata, content=content), context)
        except ErisError:
            raise
        except Exception as error:
            raise TaskError(
                f"the ClientApp's {kind} failed with {type(error).__name__}: {error}",
                fix=_hint(error, self._nodes[member]),
                **where,
            ) from error
        if reply.has_error():
            raise TaskError(
                f"the ClientApp answered with an error: {reply.error.reason}", fix="correct the app", **where
            )
        status = reply.content.config_records.get("evaluateres.status" if kind == "evaluate" else "fitres.status")
        if status is not None and status["code"] != 0:
            if kind == "evaluate" and "not implement" in str(status["message"]):
                return None, context.state
            raise TaskError(f"the client's {kind} answered: {status['message']}", fix="correct the app", **where)
        return reply.content, context.state


def _refuse_count(before: int, now: int, member: int, round: int) -> None:
    raise TaskError(
        f"the ClientApp trained on {now} examples, but on {before} before",
        fix="keep a member's examples the same for the whole run: their number is its weight",
        peer=member,
        round=round,
    )


def _hint(error: Exception, node: Mapping[str, Any]) -> str:
    if isinstance(error, KeyError) and str(error).strip("'\"") in ("partition-id", "num-partitions") and not node:
        return (
            "this peer has no node config: give --node-config 'partition-id=0 num-partitions=2', or what the app reads"
        )
    return "correct the app: it must also run under Flower itself"
