"""The local engine: worker processes of one thread each, vectors in shared memory.

Jobs are given out in ascending member id and their results handed on in that order. A slot is free again when its
result has been folded; there are only a few, so memory does not grow with the number of members, and a fast worker can
run ahead of a slow one by that much and no more.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, cast

import numpy as np

from eris.compose import Composition
from eris.local.spec import Vector
from eris.protocol.replica import Replica
from eris.simulate.desk import Desk, DeskPlan
from eris.simulate.engine import Pending, ReadState
from eris.simulate.memory import peak_memory
from eris.simulate.shared_memory import SharedBytes
from eris.simulate.task_facts import TaskFacts
from eris.simulate.work import Job, Work
from eris.simulate.worker import Message
from eris.simulate.worker_process import TaskSource, WorkerProcess

__all__ = ["ProcessEngine"]


class ProcessEngine:
    """Do jobs in worker processes."""

    def __init__(self, source: TaskSource, workers: int) -> None:
        self._workers = [WorkerProcess(number) for number in range(workers)]
        self._slots_wanted = 3 * workers + 2  # being worked on, waiting at a worker, done but not their turn
        self._desk: Desk | None = None
        self._model = 0  # which of the two places holds the published one
        self._evaluations: deque[_Evaluation] = deque()
        try:
            self.facts = self._build(source)
        except BaseException:
            self.close()
            raise

    def _build(self, source: TaskSource) -> TaskFacts:
        request = {"do": "build", "path": sys.path, "factory": source.factory, "arguments": source.arguments}
        for worker in self._workers:
            worker.ask({**request, "facts": worker.number == 0})
        answers = [worker.answer()[1] for worker in self._workers]
        return TaskFacts.from_dict(answers[0])

    def initial(self, seed: int) -> Vector:
        """Return x⁰, from the first worker."""
        n = self.facts.spec.n
        memory = SharedBytes.create(4 * n)
        try:
            self._workers[0].ask({"do": "initial", "seed": seed, "memory": str(memory.path), "size": memory.size})
            self._workers[0].answer()
            return memory.array(np.float32, 0, n).astype(np.float32)
        finally:
            memory.unlink()

    def begin(self, composition: Composition) -> None:
        """Lay out the shared memory and tell every worker the recipe."""
        plan = DeskPlan.of(composition.recipe, self._slots_wanted, max(self.facts.memory_sizes, default=0))
        memory = SharedBytes.create(plan.size)
        config = composition.config.model_dump(mode="json", exclude_none=True)
        request = {"do": "begin", "config": config, "desk": plan.to_dict(), "memory": str(memory.path)}
        try:
            for worker in self._workers:
                worker.ask(request)
            for worker in self._workers:
                worker.answer()
        finally:
            memory.unlink()
        self._desk = Desk(plan, memory)

    def publish(self, replica: Replica) -> None:
        """Copy model and public state into the place that nobody reads."""
        self._finish_evaluations(self._model ^ 1)
        self._model ^= 1
        model, public = self._open_desk().models[self._model]
        np.copyto(model, replica.model)
        for name, value in public.items():
            np.copyto(value, replica.public[name])

    def train(self, jobs: Sequence[Job], read: ReadState) -> Iterator[Work]:
        """Keep every worker busy; yield results in the order of the jobs."""
        desk = self._open_desk()
        waiting, free = deque(jobs), list(range(desk.plan.slots))
        done: dict[Job, tuple[int, Message]] = {}
        self._give(waiting, free, read)
        for job in jobs:
            while job not in done:
                done |= {training.job: (training.slot, answer) for training, answer in self._collect()}
                self._give(waiting, free, read)  # before the result is worked on: nobody waits for that
            slot, answer = done.pop(job)
            yield _work(job, desk, slot, answer)
            free.append(slot)

    def evaluate(self) -> Pending:
        """Queue an evaluation of the published model; it is done beside the next round's training."""
        evaluation = _Evaluation(self._model)
        self._evaluations.append(evaluation)
        return lambda: self._finished(evaluation)

    def peak_memory(self) -> int:
        """Return the largest resident sizes of this process and all workers, added up."""
        while any(worker.purposes for worker in self._workers):
            self._collect()
        for worker in self._workers:
            worker.ask({"do": "memory"})
        return peak_memory() + sum(int(worker.answer()[1]["bytes"]) for worker in self._workers)

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers:
            worker.close()

    def _open_desk(self) -> Desk:
        assert self._desk is not None
        return self._desk

    def _give(self, waiting: deque[Job], free: list[int], read: ReadState) -> None:
        """Hand out what there is: evaluations to idle workers, then jobs, of which each has one more in advance."""
        while self._evaluations and (worker := self._least_busy(below=1)):
            evaluation = self._evaluations.popleft()
            worker.ask({"do": "evaluate", "model": evaluation.model}, evaluation)
        while waiting and free:
            many = len(waiting) > 2 * len(self._workers)  # towards the end nobody should sit on two jobs
            if (worker := self._least_busy(below=2 if many else 1)) is None:
                return
            self._give_training(worker, waiting.popleft(), free.pop(), read)

    def _give_training(self, worker: WorkerProcess, job: Job, slot: int, read: ReadState) -> None:
        state = read(job.member)
        if state is not None:
            self._open_desk().slots[slot].state[: state.size] = state
        request = {
            "do": "train", "round": job.round, "member": job.member, "missing": job.missing, "reset": job.reset,
            "slot": slot, "model": self._model, "state": 0 if state is None else state.size,
        }  # fmt: skip
        worker.ask(request, _Training(job, slot))

    def _least_busy(self, below: int) -> WorkerProcess | None:
        """Return the worker with the fewest requests, if they are fewer than that; one that evaluates is left alone."""
        able = [worker for worker in self._workers if not any(isinstance(p, _Evaluation) for p in worker.purposes)]
        worker = min(able, key=lambda worker: len(worker.purposes), default=None)
        return worker if worker is not None and len(worker.purposes) < below else None

    def _collect(self) -> list[tuple[_Training, Message]]:
        """Wait until a worker is done; return the jobs that are."""
        done = []
        busy = {worker.connection: worker for worker in self._workers if worker.purposes}
        for connection in wait(list(busy)):
            purpose, answer = busy[cast(Connection, connection)].answer()
            if isinstance(purpose, _Evaluation):
                purpose.metrics = answer["metrics"]
            elif isinstance(purpose, _Training):
                done.append((purpose, answer))
        return done

    def _finished(self, evaluation: _Evaluation) -> dict[str, Any]:
        while evaluation.metrics is None:
            self._give(deque(), [], _nothing)
            self._collect()
        return evaluation.metrics

    def _finish_evaluations(self, model: int) -> None:
        """Wait for evaluations of a place that is to be written again."""
        open_ones = [*self._evaluations, *(p for worker in self._workers for p in worker.purposes)]
        for purpose in open_ones:
            if isinstance(purpose, _Evaluation) and purpose.model == model:
                self._finished(purpose)


@dataclass
class _Evaluation:
    model: int
    metrics: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class _Training:
    job: Job
    slot: int


def _nothing(member: int) -> None:
    del member


def _work(job: Job, desk: Desk, number: int, answer: Message) -> Work:
    slot, count = desk.slots[number], answer["values"]
    return Work(
        job=job,
        values=slot.values[:count],
        support=slot.support[:count] if answer["support"] else None,
        buffers=slot.buffers,
        state=slot.state[: answer["state"]],
        samples=answer["samples"],
        steps=answer["steps"],
        loss=answer["loss"],
        payload=tuple(answer["payload"]),
        not_finite=tuple(answer["not_finite"]),
        seconds=answer["seconds"],
    )
