"""Run the cells of experiments, in worker processes or on Ray; what an earlier call finished is not repeated.

A cell's file is written atomically, so a run may be killed at any moment and the same call resumes it. If a worker
dies, its cell fails, and the row shows the reason; failed cells are tried again by the next call.
"""

from __future__ import annotations

import fcntl
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eris.atomic_file import write_atomically
from eris.errors import ConfigError
from eris.paper.experiment import Cell

__all__ = ["CellDone", "CellStore", "run_cells"]


@dataclass(frozen=True, slots=True)
class CellDone:
    """Notice that a cell has finished or failed."""

    cell: Cell
    failed: str
    seconds: float
    processor_seconds: float = 0.0


Notice = Callable[[CellDone], None]


class CellStore:
    """The folder in which results of cells are kept, one small file each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, cell: Cell) -> Path:
        """Return the path of a cell's result."""
        return self.folder / "cells" / f"{cell.key}.json"

    def scratch(self, cell: Cell) -> Path:
        """Return the folder for a cell's work in progress."""
        return self.folder / "scratch" / cell.key

    def find(self, cell: Cell) -> dict[str, Any] | None:
        """Return a cell's result, or None if it has not been run."""
        try:
            found: dict[str, Any] = json.loads(self.path(cell).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return found

    def missing(self, cells: Sequence[Cell]) -> list[Cell]:
        """Return the cells that have no result yet, or failed, each once."""
        different = {cell.key: cell for cell in cells}
        return [cell for cell in different.values() if "figures" not in (self.find(cell) or {})]

    def finished(self, cells: Sequence[Cell]) -> dict[str, tuple[Cell, float]]:
        """Return the finished cells with the processor seconds they took, by key."""
        found = {cell.key: (cell, self.find(cell)) for cell in cells}
        return {
            key: (cell, float(known["processor_seconds"]))
            for key, (cell, known) in found.items()
            if known is not None and "figures" in known and "processor_seconds" in known
        }

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Lock the folder for this process: two that run the same cells would interfere."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".claim").open("w") as claim:
            try:
                fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ConfigError(
                    "another process is doing experiments in this folder", fix="wait, or give another --out",
                    path=self.folder,
                ) from None  # fmt: skip
            yield


def run_cells(cells: Sequence[Cell], store: CellStore, notice: Notice, *, workers: int = 0, ray: bool = False) -> None:
    """Run every cell that is missing and tell `notice` of each.

    Args:
        cells: the cells wanted.
        store: where results are kept.
        notice: called with each cell that is done.
        workers: how many processes to use; 0 for as many as there are processors.
        ray: run on a Ray cluster instead.
    """
    missing = store.missing(cells)
    if not missing:
        return
    with store.claimed():
        (store.folder / "cells").mkdir(parents=True, exist_ok=True)
        if ray:
            _run_on_ray(missing, store, notice)
        else:
            _run_here(missing, store, notice, min(workers or cores(), len(missing)))


def cores() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _run_here(cells: Sequence[Cell], store: CellStore, notice: Notice, workers: int) -> None:
    waiting: queue.SimpleQueue[Cell] = queue.SimpleQueue()
    for cell in cells:
        waiting.put(cell)
    at_once, stop = threading.Lock(), threading.Event()
    pool = [_Worker() for _ in range(workers)]

    def work(worker: _Worker) -> None:
        while not stop.is_set():
            try:
                cell = waiting.get_nowait()
            except queue.Empty:
                return
            done = worker.do(cell, store)
            with at_once:
                if not stop.is_set():
                    notice(done)

    threads = [threading.Thread(target=work, args=(worker,), daemon=True) for worker in pool]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)  # with a timeout, so that Ctrl-C is noticed
    finally:
        stop.set()
        for worker in pool:
            worker.end()


class _Worker:
    """A process of `eris.paper.worker`, started when needed and replaced if it dies."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def do(self, cell: Cell, store: CellStore) -> CellDone:
        """Run one cell in the process."""
        process = self._process = self._process or _started()
        asked = {"cell": cell.plain(), "path": str(store.path(cell)), "scratch": str(store.scratch(cell))}
        answer = ""
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(asked) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except (OSError, ValueError):
            pass
        if not answer:
            code = process.wait()
            self.end()
            return _died(cell, store, code)
        return _told(cell, json.loads(answer))

    def end(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):  # unread output does not matter any more
                    pipe.close()


def _told(cell: Cell, found: Mapping[str, Any]) -> CellDone:
    return CellDone(cell, found.get("failed") or "", float(found["seconds"]), float(found["processor_seconds"]))


def _started() -> subprocess.Popen[str]:
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return subprocess.Popen(
        [sys.executable, "-m", "eris.paper.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        stderr=subprocess.DEVNULL, env={**os.environ, **threads},
    )  # fmt: skip


def _died(cell: Cell, store: CellStore, code: int) -> CellDone:
    why = f"the worker was ended by signal {-code}" if code < 0 else f"the worker ended with code {code}"
    why = f"{why} (out of memory?)"
    found = {"cell": cell.plain(), "failed": why, "seconds": 0.0}
    write_atomically(store.path(cell), (json.dumps(found, indent=1, ensure_ascii=False) + "\n").encode())
    return CellDone(cell, why, 0.0)


def _run_on_ray(cells: Sequence[Cell], store: CellStore, notice: Notice) -> None:
    """Run cells as Ray tasks; the folder must be one that all machines of the cluster share."""
    from eris.errors import MissingExtra
    from eris.paper.cell import do_cell

    try:
        import ray
    except ImportError as error:
        raise MissingExtra("ray", "ray", "cells on a cluster") from error
    ray.init(ignore_reinit_error=True, logging_level="ERROR", include_dashboard=False)
    remote = ray.remote(num_cpus=1, max_retries=0)(do_cell)
    running = {remote.remote(cell.plain(), store.path(cell), store.scratch(cell)): cell for cell in cells}
    while running:
        done, _ = ray.wait(list(running), num_returns=1)
        cell = running.pop(done[0])
        found = ray.get(done[0])
        notice(_told(cell, found))
