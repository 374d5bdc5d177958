"""A worker process: builds the task once, then does jobs until its engine goes away.

Requests and answers are short JSON texts over a pipe; vectors are in shared memory. Started as
``python -m eris.simulate.worker FD`` with the pipe's descriptor.
"""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from eris import errors
from eris.compose import Composition, compose, initial_seed
from eris.config import load_config
from eris.errors import ErisError, TaskError
from eris.local.task import Task
from eris.process_facts import peak_memory
from eris.simulate.job_memory import JobMemory, JobMemoryPlan, Slot
from eris.simulate.partial_sum import PartialSum
from eris.simulate.shared_memory import SharedBytes
from eris.simulate.task_facts import check_cohorts, evaluate, facts_of
from eris.simulate.user_code import failure
from eris.simulate.work import Job, Work, do_jobs

__all__ = ["Worker", "main", "raise_again"]

Message = dict[str, Any]


class Worker:
    """Answers one request at a time."""

    def __init__(self) -> None:
        self._task: Task | None = None
        self._composition: Composition | None = None
        self._memory: JobMemory | None = None
        self._sum = PartialSum()

    def answer(self, request: Message) -> Message:
        """Do what is asked and return the answer; an error is an answer too."""
        actions: dict[str, Callable[[Message], Message]] = {
            "build": self._build,
            "initial": self._initial,
            "begin": self._begin,
            "train": self._train,
            "sum": self._hand_over,
            "evaluate": self._evaluate,
            "memory": lambda _: {"bytes": peak_memory()},
        }
        try:
            return actions[request["do"]](request)
        except ErisError as error:
            return _described(error)
        except Exception as error:  # noqa: BLE001 - the engine must be told, whatever it is
            return _described(error if isinstance(error, MemoryError) else failure(request["do"], error))

    def _build(self, request: Message) -> Message:
        sys.path[:] = request["path"]
        module, _, name = request["factory"].partition(":")
        self._task = getattr(importlib.import_module(module), name)(**request["arguments"])
        return facts_of(self._task).to_dict() if request["facts"] else {}

    def _initial(self, request: Message) -> Message:
        task, shared = self._ready_task(), SharedBytes.open(request["memory"], request["size"])
        vector = task.initial(initial_seed(request["seed"]))
        shared.array(np.float32, 0, vector.size)[:] = vector
        return {}

    def _begin(self, request: Message) -> Message:
        task = self._ready_task()
        self._composition = compose(load_config(request["config"]), task.spec, request["samples"])
        check_cohorts(task, self._composition.config)
        plan = JobMemoryPlan.from_dict(request["places"])
        self._memory, self._sum = JobMemory(plan, SharedBytes.open(request["memory"], plan.size)), PartialSum()
        return {}

    def _train(self, request: Message) -> Message:
        (composition, memory), task = self._ready(), self._ready_task()
        recipe, config, (model, public) = composition.recipe, composition.config, memory.models[request["model"]]
        jobs = [_job(each) for each in request["jobs"]]
        slots = [(memory.slots[each["slot"]], each["state"]) for each in request["jobs"]]
        states = [slot.state[:size] if size else None for slot, size in slots]
        works = do_jobs(jobs, task, recipe, config.seed, model, public, states, cohort=config.local.cohort)
        if request["add_up"]:
            works = [self._sum.take(work) for work in works]
        return {"works": [_put_down(work, *place) for work, place in zip(works, slots, strict=True)]}

    def _hand_over(self, request: Message) -> Message:
        _, memory = self._ready()
        if (total := self._sum.hand_over()) is None:
            return {"there": False, "values": 0, "buffers": []}
        memory.slots[request["slot"]].values[: total.values.size].view(np.uint32)[:] = total.values
        return {"there": True, "values": total.values.size, "buffers": total.buffers.tolist()}

    def _evaluate(self, request: Message) -> Message:
        composition, memory = self._ready()
        model, _ = memory.models[request["model"]]
        return {"metrics": evaluate(self._ready_task(), model, composition.config)}

    def _ready_task(self) -> Task:
        assert self._task is not None
        return self._task

    def _ready(self) -> tuple[Composition, JobMemory]:
        assert self._composition is not None
        assert self._memory is not None
        return self._composition, self._memory


def _job(request: Message) -> Job:
    missing, rest = tuple(request["missing"]), ("reset", "limit", "weight", "among", "noise", "draw")
    return Job(request["round"], request["member"], missing, *(request[name] for name in rest))


def _put_down(work: Work, slot: Slot, state: int) -> Message:
    """Write a work's vectors into its slot and return the rest.

    A state that came in the slot was changed there; `state` is its size, 0 if none came.
    """
    slot.values[: work.values.size].view(work.values.dtype)[:] = work.values
    slot.buffers[: work.buffers.size] = work.buffers
    if not state:
        slot.state[: work.state.size] = work.state
    if work.support is not None:
        slot.support[: work.support.size] = work.support
    return {
        "values": work.values.size,
        "buffers": work.buffers.size,
        "support": work.support is not None,
        "state": work.state.size,
        "samples": work.samples,
        "steps": work.steps,
        "loss": work.loss,
        "payload": work.payload,
        "not_finite": work.not_finite,
        "seconds": work.seconds,
        "metrics": dict(work.metrics),
        "limited": work.limited,
        "figures": work.figures,
        "added": work.added,
    }


def _described(error: ErisError | MemoryError) -> Message:
    told = {"error": type(error).__name__, "traceback": "".join(traceback.format_exception(error))}
    if isinstance(error, MemoryError):
        return {**told, "what": str(error), "fix": "", "where": {}}
    return {**told, "what": error.what, "fix": error.fix, "where": {k: str(value) for k, value in error.where.items()}}


def raise_again(answer: Message) -> None:
    """Raise, in the engine's process, the error that an answer describes."""
    error = MemoryError(answer["what"]) if answer["error"] == "MemoryError" else _rebuilt(answer)
    error.add_note("in a worker process:\n" + answer["traceback"])
    raise error


def _rebuilt(answer: Message) -> ErisError:
    kind = getattr(errors, answer["error"], TaskError)
    error: ErisError = TaskError.__new__(kind if issubclass(kind, ErisError) else TaskError)
    ErisError.__init__(error, answer["what"], fix=answer["fix"], **answer["where"])
    return error


def main(descriptor: int) -> None:
    """Answer requests until the engine closes the pipe."""
    worker, connection = Worker(), Connection(descriptor)
    try:
        while True:
            request = json.loads(connection.recv_bytes())
            connection.send_bytes(json.dumps(worker.answer(request)).encode())
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


if __name__ == "__main__":
    main(int(sys.argv[1]))
