"""A long run with broken links: does anything grow?

    python benchmarks/soak.py [--rounds 1000] [--reconnects 100] [--peers 4] [--n 62000]

A coordinator and peers, each a process of its own, over real TLS; every so many rounds a peer cuts a link that is in
use without a goodbye. Prints one JSON object: for every process its resident memory, what of it is in use (as the C
library counts, and in Python objects), threads and descriptors, at a tenth of the run, at its half and at its end (each
the median of nine rounds), and whether they stayed flat. In the second half: 1 % more objects, 0.5 MB more in use and
2 MB more resident at most (an allocator keeps room); threads and descriptors: a handful more since a tenth of the run.
Ends with 1 if not. The peers' model is checked to be one.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import logging
import multiprocessing
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, cast

import psutil
from network import FixedTask

from eris.cli.networking.allocator import keep_few_arenas
from eris.config import Config, load_config
from eris.coordinate.service import CoordinatorService
from eris.events import Event, VerdictWritten, hears
from eris.peer.federation_file import FederationFile
from eris.peer.node import Node
from eris.peer.node_settings import NodeSettings
from eris.protocol.floor import Floor
from eris.seeds import private_root
from eris.transport.authority import Authority
from eris.transport.credentials import Credentials

LOCAL = ("127.0.0.1", 0)
LOOKS = 9  # rounds before a mark in which to look: in any one of them a process is somewhere in its work
_MALLINFO = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")

Look = dict[str, float]


class Scales:
    """What one process weighed at the marks of the run."""

    def __init__(self, rounds: int) -> None:
        self._marks = (rounds // 10, rounds // 2, rounds - 1)
        self._looks = defaultdict[int, list[Look]](list)

    def after(self, done: int) -> None:
        """Look, if a mark is near."""
        for mark in self._marks:
            if mark - LOOKS < done <= mark:
                self._looks[mark].append(_look())

    @property
    def measured(self) -> dict[int, Look]:
        """Each quantity's median at each mark."""
        return {
            mark: {name: statistics.median(look[name] for look in looks) for name in looks[0]}
            for mark, looks in self._looks.items()
        }


@dataclass(frozen=True)
class Outcome:
    """What a peer says at its end."""

    name: str
    digest: str
    cuts: int
    lost_shards: int
    measured: dict[int, Look]


def play(number: int, name: str, credentials: Path, place: str, given: argparse.Namespace, main: Connection) -> None:
    """Be a peer: play all rounds, cut one of its links when its turn comes, report each round."""
    keep_few_arenas()  # as `eris join` does
    logging.getLogger("eris").setLevel(logging.ERROR)
    chance, scales = random.Random(number), Scales(given.rounds)
    cuts = lost = 0

    @hears(VerdictWritten)
    def after(event: Event) -> None:
        nonlocal cuts, lost
        assert isinstance(event, VerdictWritten)
        done, every = event.round + 1, max(1, given.rounds // max(1, given.reconnects))
        lost += len(event.verdict.lost_shards)
        if done % every == 0 and done // every % given.peers == number and done // every <= given.reconnects:
            cuts += cut_a_link(node, chance)
        scales.after(done)
        main.send(done)

    node = Node(
        _federation(place, given),
        Credentials(credentials),
        FixedTask(given.peers, number, given.n),
        private_root(1, number),
        NodeSettings(name, listen=LOCAL, advertise="127.0.0.1", floor=Floor(min_contributors=1)),
        listeners=[after],
    )
    node.run()
    main.send(Outcome(name, node.model_digest(), cuts, lost, scales.measured))


def soak(folder: Path, given: argparse.Namespace) -> tuple[list[Outcome], dict[int, Look]]:
    """Be the coordinator of all rounds; return what the peers and its own scales say."""
    keep_few_arenas()  # as `eris coordinator` does
    authority, names = Authority.create(folder / "certs", "soak"), _names(given)
    own = {name: authority.issue(name) for name in ("coordinator", *names)}
    coordinator = CoordinatorService(
        _federation("127.0.0.1:1", given), Credentials(own["coordinator"]), folder / "state", listen=LOCAL
    )
    place = f"127.0.0.1:{coordinator.address[1]}"
    context, scales = multiprocessing.get_context("spawn"), Scales(given.rounds)
    pipes = list[Connection]()
    for number, name in enumerate(names):
        here, there = context.Pipe(duplex=False)
        context.Process(target=play, args=(number, name, own[name], place, given, there), daemon=True).start()
        there.close()  # so that a peer that dies is noticed here
        pipes.append(here)
    outcomes, first = list[Outcome](), pipes[0]
    while pipes:
        for pipe in cast(list[Connection], wait(pipes)):
            said = pipe.recv()  # EOFError: a peer died before its end, and so does this script
            if isinstance(said, Outcome):
                outcomes.append(said)
                pipes.remove(pipe)
            elif pipe is first:
                scales.after(said)
    coordinator.close()
    return outcomes, scales.measured


def cut_a_link(node: Node, chance: random.Random) -> int:
    """Cut a link that a peer dialled, without a goodbye; return how many were cut."""
    clients = list(node.links.clients._clients.values())
    links = [client._link for client in clients if client._link is not None]
    if links:
        chance.choice(links)._stream.wake()
    return min(1, len(links))


def _names(given: argparse.Namespace) -> list[str]:
    return [f"peer-{number}" for number in range(given.peers)]


def _federation(place: str, given: argparse.Namespace) -> FederationFile:
    return FederationFile({"name": "soak", "coordinator": place, "peers": _names(given)}, _config(given))


def _config(given: argparse.Namespace) -> Config:
    changes = [f"members={given.peers}", f"rounds={given.rounds}", "method=eris", "server.min_contributors=1"]
    return load_config(changes=[*changes, "data.name=synthetic-quadratic"])


def _look() -> Look:
    gc.collect()
    process = psutil.Process()
    return {
        "resident_mb": process.memory_info().rss / 1e6,
        "threads": threading.active_count(),
        "descriptors": process.num_fds(),
        "objects": sys.getallocatedblocks(),
        "heap_in_use_mb": _heap_in_use() / 1e6,
    }


def _heap_in_use() -> int:
    """Return the bytes that are in use by the C library's own count: what is resident beyond it is room it keeps."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallinfo2"):
        return 0

    class Mallinfo(ctypes.Structure):
        _fields_ = tuple((name, ctypes.c_size_t) for name in _MALLINFO)

    library.mallinfo2.restype = Mallinfo
    info = library.mallinfo2()
    return int(info.uordblks + info.hblkhd)


def _flat(first: Look, half: Look, last: Look) -> dict[str, bool]:
    return {
        "resident": last["resident_mb"] - half["resident_mb"] <= 2.0,
        "in_use": last["heap_in_use_mb"] - half["heap_in_use_mb"] <= 0.5,
        "objects": last["objects"] <= 1.01 * half["objects"],
        "threads": last["threads"] - first["threads"] <= 4,
        "descriptors": last["descriptors"] - first["descriptors"] <= 8,
    }


def main() -> int:
    """Run, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--reconnects", type=int, default=100)
    parser.add_argument("--peers", type=int, default=4)
    parser.add_argument("--n", type=int, default=62_000)
    given = parser.parse_args()
    logging.getLogger("eris").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        outcomes, of_coordinator = soak(Path(folder), given)
        seconds = time.monotonic() - began
    measured = {"coordinator": of_coordinator} | {outcome.name: outcome.measured for outcome in outcomes}
    held = {name: _flat(*looks.values()) for name, looks in sorted(measured.items())}
    one_model = len({outcome.digest for outcome in outcomes}) == 1
    result: dict[str, Any] = {
        "rounds": given.rounds,
        "reconnects": sum(outcome.cuts for outcome in outcomes),
        "n": given.n,
        "seconds": seconds,
        "lost_shards": outcomes[0].lost_shards,
        "one_model": one_model,
        "measured": dict(sorted(measured.items())),
        "held": held,
    }
    sys.stdout.write(json.dumps(result, indent=2) + "\n")
    return 0 if one_model and all(all(flat.values()) for flat in held.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
