"""One peer or the coordinator in a process of its own, with a fault that happens at a named moment."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eris.peer.coordinate import CoordinatorNode
from eris.peer.federation import load_federation
from eris.peer.node_settings import NodeSettings
from eris.peer.peer_folder import PeerFolder
from eris.peer.session import Session
from eris.protocol.floor import Floor
from eris.seeds import private_root
from eris.tasks import build_task
from eris.transport.credentials import Credentials
from eris.wire import frames


@dataclass(frozen=True)
class Fault:
    """What happens to a process, and when: the n-th time that a moment comes in a round."""

    moment: str
    do: str = "kill"  # or "stop", "cut", "leave", "end", "raise", "nan"; for the moment "return" who is to return
    round: int = 2
    nth: int = 1


@dataclass(frozen=True)
class Job:
    """What a process is to be."""

    folder: str
    name: str
    port: int
    fault: Fault | None = None


def main(job: Job) -> None:
    """Be that process; everything it says goes to a file of lines."""
    os.environ["OMP_NUM_THREADS"] = "1"
    lines = Lines(Path(job.folder) / f"{job.name}.lines")
    sys.stderr = sys.stdout = (Path(job.folder) / f"{job.name}.log").open("a", buffering=1)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(name)s %(message)s")
    frames.__kwdefaults__["chunk"] = 64  # small models, many chunks
    if job.name == "coordinator":
        _coordinate(job, lines)
    else:
        _join(job, lines)


class Lines:
    """A file that others read while it grows; a line is there whole or not at all."""

    def __init__(self, path: Path) -> None:
        self._file, self._lock = path.open("ab", buffering=0), threading.Lock()

    def __call__(self, line: dict[str, Any]) -> None:
        with self._lock:
            self._file.write(json.dumps(line).encode() + b"\n")


class Doom:
    """Listens to the moments of this process and strikes once."""

    def __init__(self, fault: Fault | None, lines: Lines, links: Any, client: Any = None) -> None:
        self._fault, self._lines, self._links, self._client, self._count = fault, lines, links, client, 0
        self._lock = threading.Lock()

    def __call__(self, moment: str, facts: dict[str, Any]) -> None:
        if moment in ("stepped", "written"):
            self._lines({"event": moment, "time": time.time(), **facts})
        fault = self._fault
        with self._lock:
            if fault is None or moment != fault.moment or facts.get("round", fault.round) != fault.round:
                return
            self._count += 1
            if self._count != fault.nth:
                return
        self._lines({"event": "fault", "do": fault.do, "time": time.time()})
        if fault.do == "cut":
            for link in self._links():
                link._stream.wake()  # the cable is pulled, nobody says goodbye
        elif fault.do == "leave":  # what `eris leave` says
            self._client.leave({"for_good": True})
        elif fault.do == "end":  # what `eris stop` says
            self._client.stop()
        else:
            os.kill(os.getpid(), signal.SIGKILL if fault.do == "kill" else signal.SIGSTOP)


def _coordinate(job: Job, lines: Lines) -> None:
    folder = Path(job.folder)
    node = CoordinatorNode(
        load_federation(folder / "FEDERATION.toml"),
        Credentials(folder / "ca/peers/coordinator"),
        folder / "state",
        listen=("127.0.0.1", job.port),
    )
    node.moments.listener = Doom(job.fault, lines, list)
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
    if job.fault is not None and job.fault.moment == "train":
        _spoil(task, job.fault, lines)
    elif job.fault is not None and job.fault.moment == "return":
        _wait_in_training(task, job.fault, folder / "coordinator.log")
    session = Session(
        federation,
        Credentials(folder / "ca/peers" / job.name),
        task,
        private_root(federation.config.seed, number),
        NodeSettings(job.name, listen=("127.0.0.1", 0), floor=Floor(min_contributors=1), patience=60.0, wait=60.0),
        PeerFolder(folder / "peers" / job.name, federation, job.name),
        reproducible=True,
        evaluate=False,
        listeners=[lines],
    )
    node = session.node

    def links() -> list[Any]:
        dialled = [courier._link for courier in node._couriers._couriers.values() if courier._link is not None]
        return dialled + (list(node._host._links) if node._host is not None else [])

    node.moments.listener = Doom(job.fault, lines, links, node._client)
    if job.fault is not None and job.fault.moment == "checkpoint":
        _die_in_checkpoints(job.fault, lines)
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
            if log.read_text(encoding="utf-8").count(f"{fault.do} is here") > 1:
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
