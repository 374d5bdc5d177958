"""One peer or the coordinator in a process of its own, with a fault that happens at a named point."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eris import checkpoint
from eris.coordinate.service import CoordinatorService
from eris.coordinate.take_over import take_over
from eris.events import Event, RunEnded, RunStarted, hears
from eris.peer.federation_file import load_federation
from eris.peer.node_settings import NodeSettings
from eris.peer.peer_folder import PeerFolder
from eris.peer.session import Session
from eris.protocol.floor import Floor
from eris.seeds import private_root
from eris.tasks import build_task
from eris.transport import greeting
from eris.transport.credentials import Credentials
from eris.wire import frame, frames, schema, version
from eris.wire.version import VERSION


@dataclass(frozen=True)
class Fault:
    """What happens to a process, and when: the n-th time that a point is passed in a round."""

    point: str
    do: str = "kill"  # or "stop", "cut", "drop", "full", "leave", "end", "half", "raise", "nan"; who is to "return"
    round: int = 2
    nth: int = 1


@dataclass(frozen=True)
class Job:
    """What a process is to be."""

    folder: str
    name: str
    place: tuple[str, int]  # where the coordinator listens; peers listen on the same host
    fault: Fault | None = None
    state: str = "state"  # the coordinator's folder
    linger: float = 5.0  # seconds that the coordinator stays for who lacks the model
    standbys: tuple[tuple[str, tuple[str, int]], ...] = ()  # where each listens; it takes over when it is started
    home: tuple[str, str] | None = None  # a network namespace of its own, and its address there
    newer: bool = False  # of the next release, whose wire is one version further


def main(job: Job) -> None:
    """Be that process; everything it says goes to a file of lines."""
    os.environ["OMP_NUM_THREADS"] = "1"
    if job.home is not None:
        _move_to(job.home[0])
    lines = Lines(Path(job.folder) / f"{job.name}.lines")
    sys.stderr = sys.stdout = (Path(job.folder) / f"{job.name}.log").open("a", buffering=1)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(name)s %(message)s")
    frames.__kwdefaults__["chunk"] = 64  # small models, many chunks
    if job.newer:
        _speak_the_next_version()
    if job.name == "coordinator" or job.name in dict(job.standbys):
        _coordinate(job, lines)
    else:
        _join(job, lines)


def _speak_the_next_version() -> None:
    for module in (version, schema, frame, greeting):
        module.VERSION = VERSION + 1
    schema._PREFIX = bytes((schema.MARK, VERSION + 1))


def _move_to(namespace: str) -> None:
    """Have this process, and every thread that it starts, in a network namespace."""
    import ctypes

    with Path("/run/netns", namespace).open("rb") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), 0x4000_0000):  # CLONE_NEWNET
            raise OSError(ctypes.get_errno(), f"no way into {namespace}")


class Lines:
    """A file that others read while it grows; a line is there whole or not at all."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file, self._lock = path.open("ab", buffering=0), threading.Lock()

    def __call__(self, line: dict[str, Any]) -> None:
        with self._lock:
            self._file.write(json.dumps(line).encode() + b"\n")

    @hears(RunStarted, RunEnded)
    def hear(self, event: Event) -> None:
        """Write down that a peer has begun, or how it ended."""
        if isinstance(event, RunEnded):
            self({"event": "end", "how": event.how, "model_digest": event.model_digest})
        else:
            self({"event": "start", "pid": os.getpid()})


class Doom:
    """Listens at the fault points of this process and strikes once."""

    def __init__(self, fault: Fault | None, lines: Lines, links: Any, client: Any = None) -> None:
        self._fault, self._lines, self._links, self._client, self._count = fault, lines, links, client, 0
        self._lock = threading.Lock()

    def __call__(self, point: str, facts: dict[str, Any]) -> None:
        if point in ("stepped", "written"):
            self._lines({"event": point, "time": time.time(), **facts})
        fault = self._fault
        with self._lock:
            if fault is None or point != fault.point or facts.get("round", fault.round) != fault.round:
                return
            self._count += 1
            if self._count != fault.nth:
                return
        self._lines({"event": "fault", "do": fault.do, "time": time.time()})
        if fault.do == "cut":
            for link in self._links():
                link._stream.wake()  # the cable is pulled, nobody says goodbye
        elif fault.do == "drop":
            for link in self._links():
                _swallow(link._stream._wire)
        elif fault.do == "half":
            _kill_coordinator_as_the_third(self._lines.path.parent)
        elif fault.do == "full":
            _fill_disk(self._lines.path)
        elif fault.do == "leave":  # what `eris leave` says
            self._client.leave(for_good=True)
        elif fault.do == "end":  # what `eris stop` says
            self._client.stop()
        else:
            # To this very thread: a signal to the process may be taken by another one, which on a busy machine is a
            # while later, and what was to happen after the fault has happened by then.
            signal.pthread_kill(threading.get_ident(), signal.SIGKILL if fault.do == "kill" else signal.SIGSTOP)


def _fill_disk(lines: Path) -> None:
    """Let no file grow beyond this process's verdicts as they are now, as on a disk without room."""
    import resource

    size = (lines.parent / "peers" / lines.stem / "verdicts.jsonl").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def _swallow(wire: Any) -> None:
    """Let a connection lead nowhere: what is sent is gone, nothing comes, and neither end hears of it."""
    with socket.create_server(("127.0.0.1", 0)) as nowhere:
        end = socket.create_connection(nowhere.getsockname())
        wire.hidden = wire._socket, nowhere.accept()[0]  # both stay open: nobody is told that it is over
    wire._socket, wire._wait = end, 0.0


def _kill_coordinator_as_the_third(folder: Path) -> None:
    """Kill the coordinator if two of the five peers have come here before this one."""
    for number in range(5):
        with contextlib.suppress(FileExistsError):
            os.close(os.open(folder / f"here-{number}", os.O_CREAT | os.O_EXCL))
            break
    if number == 2:
        first = (folder / "coordinator.lines").read_text(encoding="utf-8").splitlines()[0]
        os.kill(json.loads(first)["pid"], signal.SIGKILL)


def _coordinate(job: Job, lines: Lines) -> None:
    folder = Path(job.folder)
    federation, own = load_federation(folder / "FEDERATION.toml"), Credentials(folder / "ca/peers" / job.name)
    place, state = dict(job.standbys).get(job.name, job.place), folder / job.state
    if job.name in dict(job.standbys):
        state = folder / f"{job.state}-{job.name}"
        take_over(federation, own, state, listen=place, wait=60.0)
    patience = 120.0 if job.standbys else None  # a side that waits must not end before the test looks at it
    node = CoordinatorService(federation, own, state, listen=place, linger=job.linger, patience=patience)
    node.fault_points.listener = Doom(job.fault, lines, list)
    lines({"event": "start", "pid": os.getpid()})
    ended = node.wait()
    node.linger()
    node.close()
    lines({"event": "end", "how": ended})


def _join(job: Job, lines: Lines) -> None:
    folder = Path(job.folder)
    federation = load_federation(folder / "FEDERATION.toml")
    number = federation.number(job.name)
    task = build_task(federation.config.model_dump(mode="json"))
    if job.fault is not None and job.fault.point == "train":
        _spoil(task, job.fault, lines)
    elif job.fault is not None and job.fault.point == "return":
        _wait_in_training(task, job.fault, folder / "coordinator.log")
    session = Session(
        federation,
        Credentials(folder / "ca/peers" / job.name),
        task,
        private_root(federation.config.seed, number),
        NodeSettings(
            job.name,
            listen=(job.home[1] if job.home else job.place[0], 0),
            floor=Floor(min_contributors=1),
            patience=60.0,
            wait=60.0,
        ),
        PeerFolder(folder / "peers" / job.name, federation, job.name),
        reproducible=True,
        evaluate=False,
        listeners=[lines.hear],
    )
    node = session.node

    def links() -> list[Any]:
        dialled = [client._link for client in node.links.clients._clients.values() if client._link is not None]
        return dialled + node.links.server._every_link()

    node.fault_points.listener = Doom(job.fault, lines, links, node.line.control)
    if job.fault is not None and job.fault.point == "checkpoint":
        _die_in_checkpoints(job.fault, lines)
    elif job.fault is not None and job.fault.point == "half a checkpoint":
        _die_half_way_in_checkpoints(job.fault, lines)
    session.run()


def _spoil(task: Any, fault: Fault, lines: Lines) -> None:
    """Let the member's own code fail in one round."""
    import numpy as np

    honest = task.train

    def train(peer: int, model: Any, memory: Any, *, round: int, seed: Any) -> Any:
        result = honest(peer, model, memory, round=round, seed=seed)
        if round != fault.round:
            return result
        lines({"event": "fault", "do": fault.do, "time": time.time()})
        if fault.do == "raise":
            raise ZeroDivisionError("a mistake in somebody's own code")
        if fault.do == "memory":
            _fill_memory()
        changed = {
            "nan": np.full_like(result.update, np.nan),
            "shape": result.update[:-1],
            "float64": result.update.astype(np.float64),
            "strided": np.repeat(result.update, 2)[::2],
        }
        update, samples = changed.get(fault.do, result.update), 0 if fault.do == "no samples" else result.samples
        return type(result)(update, samples, result.steps, result.loss, result.metrics)

    task.train = train


def _wait_in_training(task: Any, fault: Fault, log: Path) -> None:
    """Train, in one round, until the coordinator has taken in a peer a second time."""
    honest = task.train

    def train(peer: int, model: Any, memory: Any, *, round: int, seed: Any) -> Any:
        until = time.monotonic() + 40.0
        while round == fault.round and time.monotonic() < until:
            if log.read_text(encoding="utf-8").count(f"{fault.do} has joined") > 1:
                break
            time.sleep(0.1)
        return honest(peer, model, memory, round=round, seed=seed)

    task.train = train


def _fill_memory() -> None:
    """Ask for more than this process may have."""
    import resource

    import numpy as np

    resource.setrlimit(resource.RLIMIT_AS, (2**34, resource.RLIM_INFINITY))
    np.ones(2**35, np.uint8)


def _die_in_checkpoints(fault: Fault, lines: Lines) -> None:
    """Die when a checkpoint is written beside the others and has not got its name yet."""
    rename = Path.replace

    def replace(path: Path, target: Path) -> Path:
        if target.name == f"round-{fault.round:06d}.safetensors":
            lines({"event": "fault", "do": "kill", "time": time.time()})
            os.kill(os.getpid(), signal.SIGKILL)
        return rename(path, target)

    Path.replace = replace  # type: ignore[method-assign]


def _die_half_way_in_checkpoints(fault: Fault, lines: Lines) -> None:
    """Die when half of a checkpoint's bytes are on disk."""
    pieces, opened = checkpoint.file_pieces, os.fdopen

    def half(arrays: Any, header: dict[str, str]) -> Iterator[bytes]:
        data = b"".join(pieces(arrays, header))
        if json.loads(header["facts"])["round"] == fault.round:
            yield data[: len(data) // 2]
            lines({"event": "fault", "do": "kill", "time": time.time()})
            os.kill(os.getpid(), signal.SIGKILL)
        yield data

    def unbuffered(file: int, mode: str, *rest: Any) -> Any:
        return opened(file, mode, 0) if mode == "wb" else opened(file, mode, *rest)

    checkpoint.file_pieces, os.fdopen = half, unbuffered
