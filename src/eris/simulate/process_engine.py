"""The local engine: worker processes of one thread each, vectors in shared memory.

Jobs are handed out in ascending member id and their results passed on in that order. Short jobs go out in small groups:
waking a worker for each of them would take a tenth of the time of its work. A slot is free again when its result has
been folded. There are only a few slots, so memory does not grow with the number of members, and a fast worker can get
only that far ahead of a slow one.
"""

from __future__ import annotations

import selectors
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eris.compose import Composition
from eris.local.spec import Vector
from eris.process_facts import peak_memory
from eris.protocol.replica import Replica
from eris.simulate.engine import Pending, States
from eris.simulate.job_memory import JobMemory, JobMemoryPlan
from eris.simulate.partial_sum import Total
from eris.simulate.shared_memory import SharedBytes
from eris.simulate.task_facts import TaskFacts
from eris.simulate.work import Job, Work, in_cohorts
from eris.simulate.worker import Message
from eris.simulate.worker_process import TaskSource, WorkerProcess

__all__ = ["ProcessEngine"]

Cohorts = deque[tuple[Job, ...]]  # what is trained in one call; see `in_cohorts`

_GROUP, _GROUP_BYTES = 8, 1 << 21  # jobs handed out together: so many, if their vectors are no larger than that


class ProcessEngine:
    """Does jobs in worker processes."""

    def __init__(self, source: TaskSource, workers: int) -> None:
        self._workers = [WorkerProcess(number) for number in range(workers)]
        self._groups = 3 * workers + 2  # being worked on, waiting at a worker, done but not their turn
        self._group, self._cohort = 1, 1  # cohorts in a group, jobs in a cohort
        self._add_up = False  # whether workers add up their results and return only the sum
        self._memory: JobMemory | None = None
        self._model = 0  # which of the two places holds the published one
        self._evaluations: deque[_Evaluation] = deque()
        self._done: dict[Job, tuple[int, Message]] = {}  # with slots and answers, until it is their turn
        self._selector = selectors.DefaultSelector()
        for worker in self._workers:
            self._selector.register(worker.connection, selectors.EVENT_READ, worker)
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
        self._finish()  # a run that was stopped leaves unfinished work
        self._done.clear()
        plan = JobMemoryPlan.of(composition.recipe, self._groups, self.facts.memory_size)
        self._cohort = composition.config.local.cohort
        self._group = max(1, min(_GROUP, _GROUP_BYTES // plan.slot_bytes) // self._cohort)
        plan = replace(plan, slots=self._groups * self._group * self._cohort)
        memory = SharedBytes.create(plan.size)
        config = composition.config.model_dump(mode="json", exclude_none=True)
        request = {
            "do": "begin",
            "config": config,
            "samples": self.facts.samples.tolist(),
        }  # some tasks train to count them
        request |= {"places": plan.to_dict(), "memory": str(memory.path)}
        try:
            for worker in self._workers:
                worker.ask(request)
            for worker in self._workers:
                worker.answer()
        finally:
            memory.unlink()
        self._memory = JobMemory(plan, memory)

    def publish(self, replica: Replica) -> None:
        """Copy model and public state into the place that no worker is reading."""
        self._finish_evaluations(self._model ^ 1)
        self._model ^= 1
        model, public = self._open_memory().models[self._model]
        np.copyto(model, replica.model)
        for name, value in public.items():
            np.copyto(value, replica.public[name])

    def train(self, jobs: Sequence[Job], states: States, *, add_up: bool = False) -> Iterator[Work]:
        """Start keeping every worker busy; yield results in the order of the jobs (see `Engine`)."""
        cohorts = in_cohorts(jobs, self._cohort, self.facts.samples.item)
        waiting, free = deque(cohorts), list(range(self._open_memory().plan.slots))
        self._add_up = add_up
        self._give(waiting, free, states)
        return self._results(jobs, waiting, free, states)

    def _results(self, jobs: Sequence[Job], waiting: Cohorts, free: list[int], states: States) -> Iterator[Work]:
        memory = self._open_memory()
        for job in jobs:
            while job not in self._done:
                self._give(waiting, free, states)  # slots have come free since, and perhaps nobody is at work
                self._collect()
                self._give(waiting, free, states)  # before the result is worked on: nobody waits for that
            slot, answer = self._done.pop(job)
            yield _work(job, memory, slot, answer)
            free.append(slot)

    def sums(self) -> Iterator[Total]:
        """Let every worker put its sum into a slot; all slots are free once all results have been fetched."""
        asked = [_Sum(worker.number) for worker in self._workers]
        for worker, wanted in zip(self._workers, asked, strict=True):
            worker.ask({"do": "sum", "slot": wanted.slot}, wanted)
        for wanted in asked:
            while wanted.buffers is None:
                self._collect()
            if wanted.there:
                values = self._open_memory().slots[wanted.slot].values[: wanted.size].view(np.uint32)
                yield Total(values, np.array(wanted.buffers, np.uint64))

    def evaluate(self) -> Pending:
        """Queue an evaluation of the published model, to run alongside the next round's training."""
        evaluation = _Evaluation(self._model)
        self._evaluations.append(evaluation)
        return lambda: self._finished(evaluation)

    def peak_memory(self) -> int:
        """Return the sum of the largest resident sizes of this process and all workers."""
        self._finish()
        for worker in self._workers:
            worker.ask({"do": "memory"})
        return peak_memory() + sum(int(worker.answer()[1]["bytes"]) for worker in self._workers)

    def close(self) -> None:
        """End the workers."""
        self._selector.close()
        for worker in self._workers:
            worker.close()

    def _finish(self) -> None:
        """Wait for all outstanding requests."""
        while any(worker.purposes for worker in self._workers):
            self._collect()

    def _open_memory(self) -> JobMemory:
        assert self._memory is not None
        return self._memory

    def _give(self, waiting: Cohorts, free: list[int], states: States | None) -> None:
        """Hand out work: evaluations to idle workers, then jobs; each worker has at most one request waiting.

        What is handed out is taken from the `waiting` cohorts, and its slots from the `free` ones.
        """
        while self._evaluations and (worker := self._least_busy(below=1)):
            evaluation = self._evaluations.popleft()
            worker.ask({"do": "evaluate", "model": evaluation.model}, evaluation)
        while waiting and len(free) >= self._cohort:
            last = len(waiting) <= len(self._workers)  # these wait until somebody is idle
            if (worker := self._least_busy(below=1 if last else 2)) is None:
                return
            share = -(-len(waiting) // (2 * len(self._workers)))  # groups get smaller towards the end
            count = min(share, self._group, len(free) // self._cohort)
            group = {job: free.pop() for _ in range(count) for job in waiting.popleft()}
            assert states is not None
            jobs = [self._described(job, slot, states.read(job.member)) for job, slot in group.items()]
            request = {"do": "train", "model": self._model, "jobs": jobs, "add_up": self._add_up}
            worker.ask(request, _Training(group))

    def _described(self, job: Job, slot: int, state: Vector | None) -> Message:
        """Put the member's `state` (None: it has none yet) into the slot and return the request for a worker."""
        if state is not None:
            self._open_memory().slots[slot].state[: state.size] = state
        return {
            "round": job.round, "member": job.member, "missing": job.missing, "reset": job.reset,
            "limit": job.limit, "weight": job.weight, "among": job.among, "noise": job.noise,
            "draw": job.draw,
            "slot": slot, "state": 0 if state is None else state.size,
        }  # fmt: skip

    def _least_busy(self, below: int) -> WorkerProcess | None:
        """Return the worker with the fewest requests, if fewer than `below`; one that evaluates is left alone."""
        able = [worker for worker in self._workers if not any(isinstance(p, _Evaluation) for p in worker.purposes)]
        worker = min(able, key=lambda worker: len(worker.purposes), default=None)
        return worker if worker is not None and len(worker.purposes) < below else None

    def _collect(self) -> None:
        """Wait until a worker is done, and keep what it has done."""
        assert any(worker.purposes for worker in self._workers), "nobody was asked, so this would wait forever"
        for key, _ in self._selector.select():
            purpose, answer = key.data.answer()
            if isinstance(purpose, _Evaluation):
                purpose.metrics = answer["metrics"]
            elif isinstance(purpose, _Sum):
                purpose.there, purpose.size, purpose.buffers = answer["there"], answer["values"], answer["buffers"]
            elif isinstance(purpose, _Training):
                for (job, slot), part in zip(purpose.group.items(), answer["works"], strict=True):
                    self._done[job] = slot, part

    def _finished(self, evaluation: _Evaluation) -> dict[str, Any]:
        while evaluation.metrics is None:
            self._give(deque(), [], None)
            self._collect()
        return evaluation.metrics

    def _finish_evaluations(self, model: int) -> None:
        """Wait for evaluations that still read a place which is about to be overwritten."""
        open_ones = [*self._evaluations, *(p for worker in self._workers for p in worker.purposes)]
        for purpose in open_ones:
            if isinstance(purpose, _Evaluation) and purpose.model == model:
                self._finished(purpose)


@dataclass
class _Evaluation:
    model: int
    metrics: dict[str, Any] | None = None


@dataclass
class _Sum:
    slot: int  # where the worker puts it
    there: bool = False  # whether anything was added up
    size: int = 0  # values of the sum
    buffers: list[int] | None = None  # None until the worker has answered


@dataclass(frozen=True, slots=True)
class _Training:
    group: dict[Job, int]  # each with its slot


def _work(job: Job, memory: JobMemory, number: int, answer: Message) -> Work:
    slot, count = memory.slots[number], answer["values"]
    return Work(
        job=job,
        values=slot.values[:count].view(np.uint32 if job.limit else np.float32),
        support=slot.support[:count] if answer["support"] else None,
        buffers=slot.buffers[: answer["buffers"]],
        state=slot.state[: answer["state"]],
        samples=answer["samples"],
        steps=answer["steps"],
        loss=answer["loss"],
        payload=None if answer["payload"] is None else tuple(answer["payload"]),
        not_finite=tuple(answer["not_finite"]),
        seconds=answer["seconds"],
        metrics=answer["metrics"],
        limited=answer["limited"],
        figures=tuple(answer["figures"]),
        added=answer["added"],
    )
