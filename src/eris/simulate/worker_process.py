"""A worker process as its engine sees it: it answers requests in order, or says what went wrong."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from collections import deque
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe
from typing import Any, NoReturn

from eris.errors import RunStopped
from eris.local.devices import WORKER
from eris.local.task import Task
from eris.simulate.memory import memory_kills
from eris.simulate.worker import Message, raise_again

__all__ = ["TaskSource", "WorkerProcess", "worker_environment"]

# By default glibc gives the memory of every larger tensor back when it is freed. Fetching it anew, page by page, is
# a tenth of the work of a small gradient, so a worker keeps some.
_KEPT = {"mmap_threshold": 1 << 25, "trim_threshold": 1 << 28, "top_pad": 1 << 24}  # bytes
_ALLOCATOR = {"GLIBC_TUNABLES": ":".join(f"glibc.malloc.{name}={value}" for name, value in _KEPT.items())}
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass(frozen=True, slots=True)
class TaskSource:
    """Where a worker gets the task from: an importable function and plain arguments."""

    factory: str  # package.module:function
    arguments: dict[str, Any] = field(default_factory=dict)

    def task(self) -> Task:
        """Build it here."""
        module, _, name = self.factory.partition(":")
        task: Task = getattr(importlib.import_module(module), name)(**self.arguments)
        return task


class WorkerProcess:
    """One process and the pipe to it."""

    def __init__(self, number: int) -> None:
        self.number, self.purposes = number, deque[Any]()  # of the requests that are not answered yet
        self._kills = memory_kills()  # until now
        mine, theirs = Pipe()
        command = [sys.executable, "-m", "eris.simulate.worker", str(theirs.fileno())]
        # In its own session: Ctrl-C is for the engine, which then decides what happens to the workers.
        self._process = subprocess.Popen(
            command,
            pass_fds=[theirs.fileno()],
            env={**worker_environment(), WORKER: str(number)},
            start_new_session=True,
        )
        theirs.close()
        self.connection: Connection = mine

    def ask(self, request: Message, purpose: Any = None) -> None:
        """Send a request; answers come in the order of the requests, each with its purpose."""
        self.purposes.append(purpose)
        self._asked = request["do"]
        try:
            self.connection.send_bytes(json.dumps(request).encode())
        except (BrokenPipeError, ConnectionResetError):
            self._report_death()

    def answer(self) -> tuple[Any, Message]:
        """Wait for the next answer; an error over there is raised here."""
        try:
            answer: Message = json.loads(self.connection.recv_bytes())
        except (EOFError, ConnectionResetError):
            self._report_death()
        if "error" in answer:
            raise_again(answer)
        return self.purposes.popleft(), answer

    def close(self) -> None:
        """End the process."""
        self.connection.close()
        self._process.terminate()
        self._process.wait()

    def _report_death(self) -> NoReturn:
        code = self._process.wait()
        died = f"worker {self.number} died while asked to {self._asked} (exit code {code})"
        if code == -signal.SIGKILL and memory_kills() > self._kills:
            raise MemoryError(f"{died}: the system killed it because memory ran out; use fewer workers") from None
        raise RunStopped(
            died,
            fix="if memory ran out, use fewer workers; `eris run --resume` continues from the last checkpoint",
        ) from None


def worker_environment() -> dict[str, str]:
    """Return the environment of a worker: ours, with one thread; unless ours says otherwise, it keeps freed memory."""
    return {**_ALLOCATOR, **os.environ, **_ONE_THREAD}
