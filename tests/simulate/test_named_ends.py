"""What a person must mend ends a run with a sentence and an exit code: a disk that is full, memory that ran out."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from eris.errors import CheckpointError, DiskError, RunStopped, TaskError
from eris.events import VerdictWritten
from eris.exposure import BitRows
from eris.local.numpy_task import QuadraticTask
from eris.protocol.roster import RosterEntry
from eris.protocol.round_plan import RoundPlan
from eris.protocol.verdict import GENESIS, Verdict
from eris.simulate import memory
from eris.simulate.process_engine import ProcessEngine
from eris.simulate.run import resume, run
from eris.simulate.run_folder import RunFolder
from eris.simulate.shared_memory import SharedBytes
from eris.simulate.worker_process import TaskSource
from eris.storage.state_store import StateStore
from tests.simulate.setting import play, prepare, settings


@contextmanager
def largest_file(size):
    """Let no file of this process grow beyond a size, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_line_that_has_no_room(tmp_path):
    folder = RunFolder(tmp_path)
    folder.create(settings())
    plan = RoundPlan("run", 0, 0, GENESIS, "ab" * 32, (RosterEntry(0, "a", 1.0),), participants=(0,), assignment=(0,))
    line = VerdictWritten(0, plan, Verdict("run", 0, 0, plan.digest, GENESIS, ()))
    with (
        largest_file(100),
        pytest.raises(DiskError, match=r"verdicts\.jsonl cannot be written: File too large.*--resum"),
    ):
        folder(line)
    (tmp_path / "verdicts.jsonl").unlink()
    (tmp_path / "verdicts.jsonl").mkdir()
    with pytest.raises(CheckpointError, match="Is a directory"):  # wrong, but not for want of room
        folder(line)


def test_a_state_that_has_no_room(tmp_path):
    store = StateStore(tmp_path / "states", 2, budget=0)
    with largest_file(100), pytest.raises(DiskError, match=r"000001-0\.state cannot be written: File too large"):
        store.write(1, np.ones(100, np.float32))


def test_exposure_that_has_no_room(tmp_path):
    rows = BitRows(tmp_path / "seen", 8000, budget=0)
    with largest_file(100), pytest.raises(DiskError, match="seen cannot be written"):
        rows.add(0, np.ones(1000, np.uint8))


def test_shared_memory_that_has_no_room(tmp_path, monkeypatch):
    monkeypatch.setattr("eris.simulate.shared_memory._MEMORY_FILES", tmp_path)
    with largest_file(100), pytest.raises(DiskError, match="for 5000 bytes that workers share"):
        SharedBytes.create(5000)
    assert list(tmp_path.iterdir()) == []


def test_a_run_whose_disk_filled_up_goes_on_where_there_is_room_again(tmp_path):
    config = settings("rounds=6", method="eris+dsc")
    whole = run(config, tmp_path / "whole")
    size = (tmp_path / "whole" / "verdicts.jsonl").stat().st_size
    with largest_file(max(size // 2, 8000)), pytest.raises(DiskError, match="cannot be written"):
        run(config, tmp_path / "half", checkpoint_seconds=0.0)
    assert resume(tmp_path / "half").summaries[0]["model_digest"] == whole.summaries[0]["model_digest"]


def ended(*words, cwd, limit=lambda: None):
    """Return the exit code and the words of a command."""
    command = [sys.executable, "-m", "eris", "run", *(part for word in words for part in ("--set", word)), "--quiet"]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, preexec_fn=limit, timeout=60
    )
    return done.returncode, done.stdout + done.stderr


QUADRATIC = ("method=eris+dsc", "data.name=synthetic-quadratic", "members=7", "rounds=50")


def test_a_full_disk_has_an_exit_code(tmp_path):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    code, said = ended(*QUADRATIC, "workers=1", cwd=tmp_path, limit=limit)
    assert code == 22, said
    assert "cannot be written: File too large" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("workers", [1, 2])
def test_memory_that_ran_out_has_an_exit_code(workers, tmp_path):
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (2 * 2**30, 2 * 2**30))

    changes = (*QUADRATIC, f"workers={workers}", "model.options={n=400_000_000}")
    code, said = ended(*changes, cwd=tmp_path, limit=limit)
    assert code == 23, said
    assert "too little memory" in said
    assert "Traceback" not in said


class Hungry(QuadraticTask):
    """Runs out of memory in one of the ways there are, or is killed."""

    way = ""

    def train(self, member, model, memory, *, round, seed):
        if member == 2:
            self.fail()
        return super().train(member, model, memory, round=round, seed=seed)

    def fail(self):
        if self.way == "numpy":
            np.empty(1 << 60, np.uint8)
        if self.way == "torch":
            raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1")
        if self.way == "system":
            raise OSError(12, "Cannot allocate memory")
        if self.way == "wrapped":
            try:
                np.empty(1 << 60, np.uint8)
            except MemoryError as error:
                raise ValueError("no batch") from error
        if self.way == "other":
            raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")
        os.kill(os.getpid(), signal.SIGKILL)


def hungry(way):
    from eris.seeds import public_root

    task = Hungry.synthetic(7, 10, public_root(1))
    task.way = way
    return task


def with_workers(way, folder):
    engine = ProcessEngine(TaskSource("tests.simulate.test_named_ends:hungry", {"way": way}), workers=2)
    try:
        prepare(settings(), folder, engine=engine).simulation.play(1)
    finally:
        engine.close()


@pytest.mark.parametrize("way", ["numpy", "torch", "system", "wrapped"])
def test_training_that_runs_out_of_memory_says_so(way, tmp_path):
    said = r"local training failed with .* \[peer=2, round=0\]"
    with pytest.raises(MemoryError, match=said):
        play(settings(), tmp_path, task=hungry(way))


def test_it_says_so_from_a_worker_too(tmp_path):
    with pytest.raises(MemoryError, match=r"peer=2, round=0") as failed:
        with_workers("numpy", tmp_path)
    assert "test_named_ends.py" in failed.value.__notes__[0]  # where in the user's own code


def test_other_failures_are_not_memorys(tmp_path):
    with pytest.raises(TaskError, match="shapes cannot be multiplied"):
        play(settings(), tmp_path, task=hungry("other"))


def test_an_evaluation_that_fails_is_the_tasks(tmp_path):
    class Blind(QuadraticTask):
        def evaluate(self, model):
            raise ZeroDivisionError("no samples")

    from eris.seeds import public_root

    with pytest.raises(TaskError, match="evaluation failed with ZeroDivisionError: no samples"):
        play(settings(), tmp_path, task=Blind.synthetic(7, 10, public_root(1)))


def test_a_worker_that_was_killed_is_memorys_if_the_system_says_so(tmp_path, monkeypatch):
    counts = tmp_path / "vmstat"
    monkeypatch.setattr(memory, "_COUNTS", counts)
    counts.write_text("nr_free_pages 3\noom_kill 4\n")
    with pytest.raises(RunStopped, match=r"died while asked to train \(exit code -9\)"):  # by hand, perhaps
        with_workers("killed", tmp_path / "a")
    engine = ProcessEngine(TaskSource("tests.simulate.test_named_ends:hungry", {"way": "killed"}), workers=2)
    counts.write_text("nr_free_pages 3\noom_kill 5\n")
    with pytest.raises(MemoryError, match="the system killed it because memory ran out; use fewer workers"):
        prepare(settings(), tmp_path / "b", engine=engine).simulation.play(1)
    engine.close()


def test_a_system_that_does_not_count_its_kills(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "_COUNTS", Path(tmp_path / "nowhere"))
    assert memory.memory_kills() == 0
