"""What worker processes do when things go wrong, and that they leave nothing behind."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from eris.config import load_config
from eris.errors import ConfigError, RunStopped, TaskError
from eris.local.numpy_task import QuadraticTask
from eris.simulate.job_memory import JobMemoryPlan
from eris.simulate.process_engine import ProcessEngine
from eris.simulate.run import open_engine, run
from eris.simulate.shared_memory import SharedBytes
from eris.simulate.work import Job, do_jobs
from eris.simulate.worker_process import TaskSource, worker_environment
from eris.storage.state_store import StateStore
from tests.simulate.setting import SMALL, NoStates, play, prepare, settings


class Stumbling(QuadraticTask):
    """Fails for one member, or ends the process it runs in."""

    def train(self, member, model, memory, *, round, seed):
        if member == 2 and round == 1:
            if self.fatal:
                os._exit(3)
            raise ZeroDivisionError("one by none")
        return super().train(member, model, memory, round=round, seed=seed)


def stumbling(fatal=False):
    from eris.seeds import public_root

    task = Stumbling.synthetic(7, 10, public_root(1))
    task.fatal = fatal
    return task


def engine_of(factory, **arguments):
    return ProcessEngine(TaskSource(f"tests.simulate.test_engines:{factory}", arguments), workers=2)


def test_an_error_in_a_worker_names_member_and_round(tmp_path):
    engine = engine_of("stumbling")
    played = prepare(settings(), tmp_path, engine=engine)
    with pytest.raises(TaskError, match="ZeroDivisionError: one by none") as failed:
        played.simulation.play(4)
    engine.close()
    assert failed.value.where == {"peer": "2", "round": "1"}
    assert "in a worker process" in failed.value.__notes__[0]
    assert "test_engines.py" in failed.value.__notes__[0]  # where in the user's own code


def test_the_same_error_without_processes(tmp_path):
    with pytest.raises(TaskError, match="ZeroDivisionError: one by none"):
        play(settings(), tmp_path, task=stumbling())


def test_a_worker_that_dies_ends_the_run_with_a_reason(tmp_path):
    engine = engine_of("stumbling", fatal=True)
    played = prepare(settings(), tmp_path, engine=engine)
    with pytest.raises(RunStopped, match=r"died while asked to train \(exit code 3\)"):
        played.simulation.play(4)
    engine.close()


def test_a_task_that_cannot_be_built(tmp_path):
    before = set(psutil.Process().children())
    with pytest.raises(ConfigError, match="did you mean rounds"):
        ProcessEngine(TaskSource("eris.tasks:build_task", {"config": {"round": 1}}), workers=2)
    with pytest.raises(TaskError, match="No module named 'nowhere'"):
        ProcessEngine(TaskSource("nowhere:task"), workers=1)
    assert set(psutil.Process().children()) <= before


def test_closing_leaves_nothing_behind(tmp_path):
    shared = Path("/dev/shm")
    before = set(shared.glob("eris-*")) if shared.exists() else set()
    engine = engine_of("stumbling")
    workers = [worker._process.pid for worker in engine._workers]
    prepare(settings("rounds=1"), tmp_path, engine=engine).simulation.play(1)
    assert not (set(shared.glob("eris-*")) - before if shared.exists() else set())
    engine.close()
    assert not any(psutil.pid_exists(pid) for pid in workers)


def test_workers_end_when_their_engine_is_killed(tmp_path):
    import subprocess

    program = (
        "from eris.simulate.process_engine import *\n"
        "from eris.simulate.worker_process import *\n"
        "engine = ProcessEngine(TaskSource('tests.simulate.test_engines:stumbling'), 2)\n"
        "print(*[worker._process.pid for worker in engine._workers], flush=True)\n"
        "import time; time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    pids = [int(pid) for pid in process.stdout.readline().split()]
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    deadline = time.monotonic() + 20
    while any(psutil.pid_exists(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(pids) == 2
    assert not any(psutil.pid_exists(pid) for pid in pids)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told what to keep")
def test_workers_keep_freed_memory():
    again = "for _ in range(20): [np.ones(1 << 18) for _ in range(8)]"
    faults = "resource.getrusage(resource.RUSAGE_SELF).ru_minflt"
    program = f"import resource, numpy as np\n{again}\nbefore = {faults}\n{again}\nprint({faults} - before)"
    command, environment = [sys.executable, "-c", program], worker_environment()
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert int(found.stdout) < 1000  # of the 81,920 pages that are written to


def test_one_worker_needs_no_process():
    assert type(open_engine(load_config(changes=SMALL))).__name__ == "InlineEngine"


def test_a_job_can_be_done_twice(tmp_path):
    played = prepare(settings("local.keep_state=true", method="eris+dsc"), tmp_path)
    recipe, task, replica = played.composition.recipe, played.simulation._engine.task, played.simulation.replica
    jobs, states = [Job(0, 1)] * 2, [None] * 2
    first, second = do_jobs(jobs, task, recipe, 1, replica.model, replica.public, states)
    assert np.array_equal(first.values, second.values)
    assert np.array_equal(first.state, second.state)


def test_places_in_the_job_memory_do_not_overlap(tmp_path):
    from eris.simulate.job_memory import JobMemory

    plan = JobMemoryPlan(slots=3, n_trainable=13, n_buffer=5, support=13, state=7, public=(("a", 3), ("b", 2)))
    assert JobMemoryPlan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
    memory = SharedBytes.create(plan.size)
    mine, other = JobMemory(plan, memory), JobMemory(plan, SharedBytes.open(str(memory.path), plan.size))
    memory.unlink()
    places = [model for model, _ in mine.models] + [value for _, public in mine.models for value in public.values()]
    places += [array for slot in mine.slots for array in (slot.values, slot.buffers, slot.support, slot.state)]
    for number, place in enumerate(places):
        place[:] = number
    for number, place in enumerate(places):
        assert (place == number).all()
    assert (other.slots[2].state == places[-1][0]).all()


def test_memory_does_not_grow_with_the_members(tmp_path):
    """Only one accumulator and a few slots are held, however many members contribute."""
    import tracemalloc

    peaks = {}
    for members in (20, 80):
        config = settings(f"members={members}", "aggregators=5", "rounds=2", method="eris+dsc")
        played = prepare(config, tmp_path / str(members), task=Wide(members))
        played.simulation._listeners = ()
        played.simulation.states._budget = 1 << 20  # a few states; the rest goes to files
        tracemalloc.start()
        played.simulation.play(2)
        peaks[members] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peaks[80] < 1.25 * peaks[20]


class Wide:
    """A task whose model dwarfs everything else and whose members differ by a number."""

    def __init__(self, members, n=40_000):
        from eris.local.spec import ModelSpec

        self.members, self.spec = members, ModelSpec.flat(n)

    def samples(self, member):
        return 1 + member % 3

    def initial(self, seed):
        return np.zeros(self.spec.n, np.float32)

    def memory(self, member):
        return {}

    def train(self, member, model, memory, *, round, seed):
        from eris.local.task import LocalResult

        return LocalResult(np.full(self.spec.n, 0.001 * member, np.float32), self.samples(member))

    def evaluate(self, model):
        return {"loss": float(model[0])}


def test_real_digits_are_the_same_bits_with_one_worker_and_two(tmp_path):
    pytest.importorskip("torch")
    changes = [
        "members=4", "aggregators=4", "data.samples=20", "data.test_samples=50", "local.steps=1", "rounds=2",
        "method=eris+dsc",
    ]  # fmt: skip
    digests = {
        run(load_config(changes=[*changes, *more]), tmp_path / str(number)).summaries[0]["model_digest"]
        for number, more in enumerate((["workers=1"], ["workers=2"], ["workers=1", "aggregators=1"]))
    }
    assert len(digests) == 1


def test_states_survive_in_another_process(tmp_path):
    store = StateStore(tmp_path, 2)
    store.write(1, np.arange(3, dtype=np.float32))
    store.commit()
    again = StateStore(tmp_path, 2)
    again.load(store.save())
    assert again.read(1).tolist() == [0, 1, 2]


def test_workers_that_wait_for_a_free_slot_get_on(tmp_path, monkeypatch):
    """With one slot nobody is at work whenever a result has been taken; what waits must then be handed out."""
    engine = engine_of("stumbling")
    monkeypatch.setattr(engine, "_groups", 1)
    monkeypatch.setattr("eris.simulate.process_engine._GROUP", 1)
    played = prepare(settings(), tmp_path, engine=engine)
    played.simulation.play(1)
    engine.close()
    assert played.simulation.round == 1


def test_an_evaluation_waited_for_loses_no_training(tmp_path):
    """What workers finish meanwhile is kept until it is asked for."""
    engine = engine_of("stumbling")
    played = prepare(settings(), tmp_path, engine=engine)
    engine.begin(played.composition)
    engine.publish(played.simulation.replica)
    works = engine.train([Job(0, member) for member in range(7)], NoStates())
    assert "loss" in engine.evaluate()()
    assert [work.job.member for work in works] == list(range(7))
    engine.close()


def test_a_run_is_composed_once(tmp_path, monkeypatch):
    from eris.simulate import task_facts
    from eris.simulate.run import run

    composed, compose = [], task_facts.compose

    def counted(config, spec, samples):
        composed.append(config.methods)
        return compose(config, spec, samples)

    monkeypatch.setattr(task_facts, "compose", counted)
    assert run(settings("method=['eris', 'fedavg']", "rounds=1"), tmp_path / "run").finished
    assert composed == [("eris",), ("fedavg",)]
