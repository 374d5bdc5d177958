"""Processes that `eris up` starts, listens to and ends: each by its id, and none outlives its parent."""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from eris.cli.networking.event_lines import read_event_line
from eris.events import Event
from eris.local.devices import WORKER

__all__ = ["Child", "Children"]

_GRACE = 10.0  # seconds a child has to end by itself
Heard = tuple[str, Event | None]  # which child says what; None: it has ended


class Child:
    """One eris command in its own process; its events go to the queue, its logs to a file.

    Args:
        name: of the peer or the coordinator.
        words: the command, without `eris`.
        log: the file for its logs.
        events: the queue.
        worker: its number among the peers, by which accelerators are shared.
    """

    def __init__(self, name: str, words: list[str], log: Path, events: queue.Queue[Heard], worker: int = 0) -> None:
        self.name, self.log = name, log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as errors:
            # One thread for numbers, as in a simulation's workers; its own session, so that Ctrl-C reaches only us.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "eris", *words, "--json", "--log-json", "--with-parent"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", WORKER: str(worker)},
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, args=(events,), name=f"eris-child {name}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it runs."""
        return self._process.poll()

    def ask_to_end(self) -> None:
        """Ask it to end."""
        with contextlib.suppress(OSError):
            self._process.terminate()

    def wait(self, until: float) -> None:
        """Wait for it to end; kill it when time is up."""
        try:
            self._process.wait(max(until - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(timeout=5.0)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def _read(self, events: queue.Queue[Heard]) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(KeyError, TypeError, ValueError):  # such as what a library prints
                events.put((self.name, read_event_line(line)[1]))
        events.put((self.name, None))


class Children:
    """All children; a context manager that ends those still running."""

    def __init__(self) -> None:
        self.events: queue.Queue[Heard] = queue.Queue()
        self._children: dict[str, Child] = {}

    def start(self, name: str, words: list[str], log: Path) -> Child:
        """Start an eris command.

        `name` is what events call it, `words` the command without `eris`, `log` the file for its logs.
        """
        before = max(0, len(self._children) - 1)  # the first is the coordinator: peers take accelerators in turn
        self._children[name] = Child(name, words, log, self.events, before)
        return self._children[name]

    def __iter__(self) -> Iterator[Child]:
        return iter(self._children.values())

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def end(self) -> None:
        """End all that are still running: first by asking, then by force."""
        for child in self:
            if child.exit_code is None:
                child.ask_to_end()
        until = time.monotonic() + _GRACE
        for child in self:
            child.wait(until)
