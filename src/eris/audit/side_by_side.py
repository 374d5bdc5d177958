"""The work of an audit in processes of their own, several at once, each with one compute thread."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.pool import Pool
from typing import Any, Protocol, TypeVar

from eris.events import Listener, RunEnded

__all__ = ["Map", "in_processes", "side_by_side"]

_Job = TypeVar("_Job", bound=tuple[Any, ...])
_Item = TypeVar("_Item")
_Done = TypeVar("_Done")
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def side_by_side(
    work: Callable[[_Job], _Done], jobs: Sequence[_Job], processes: int, listeners: Sequence[Listener]
) -> list[_Done]:
    """Return what `work` makes of each job, in their order; a job is a tuple that begins with a training's `Config`.

    Args:
        work: trains, in a process of its own: a function of a module.
        jobs: what it is called with.
        processes: how many trainings run at once.
        listeners: hear that a training is done, but not what happens in it.
    """
    made = []
    with _pool(processes) as pool:
        for done, (config, *_) in zip(pool.imap(work, jobs), jobs, strict=True):
            made.append(done)
            for listener in listeners:
                listener(RunEnded(config.rounds, True, "", 0.0))
    return made


class Map(Protocol):
    """Python's `map`, or one whose work is done in other processes."""

    def __call__(self, work: Callable[[_Item], _Done], jobs: Iterable[_Item], /) -> Iterable[_Done]:
        """Yield what `work` makes of each job, in their order."""
        ...


@contextmanager
def in_processes(count: int) -> Iterator[Map]:
    """Give a `map` that works in so many processes at once; with one, Python's own, here."""
    if count < 2:
        yield map
        return
    with _pool(count) as pool:
        yield pool.imap


def _pool(count: int) -> Pool:
    with _one_thread_each():
        return multiprocessing.get_context("spawn").Pool(count, _leave_interrupts)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Give each process started inside the block one compute thread, so that they do not compete for cores."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _leave_interrupts() -> None:
    """Ignore Ctrl-C in a worker: the parent process handles it and ends the workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
