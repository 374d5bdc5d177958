"""A long run with broken links: does anything grow?

    python benchmarks/soak.py [--rounds 1000] [--reconnects 100] [--peers 4] [--n 62000]

A coordinator and peers in one process, over real TLS; every so many rounds a link that is in use is cut without a
goodbye. Prints one JSON object: resident memory, what of it is in use (as the C library counts, and in Python objects),
threads and descriptors, at a tenth of the run, at its half and at its end, and whether they stayed flat. In the second
half: 1 % more objects, 1 MB more in use and 1 MB more resident for each peer and the coordinator at most (an allocator
keeps room); threads and descriptors: a handful more since a tenth of the run. Ends with 1 if not. The peers' model is
checked to be one.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import logging
import random
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil
from network import FixedTask

from eris.config import Config, load_config
from eris.peer.coordinate import CoordinatorNode
from eris.peer.federation import Federation
from eris.peer.node import Node
from eris.peer.node_settings import NodeSettings
from eris.peer.round_report import RoundReport
from eris.protocol.floor import Floor
from eris.seeds import private_root
from eris.transport.authority import Authority
from eris.transport.credentials import Credentials

LOCAL = ("127.0.0.1", 0)
_MALLINFO = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")


class Soak:
    """The run, the scissors and the scales."""

    def __init__(self, folder: Path, given: argparse.Namespace) -> None:
        self._given, self._chance = given, random.Random(1)
        names = [f"peer-{number}" for number in range(given.peers)]
        authority = Authority.create(folder / "certs", "soak")
        own = {name: Credentials(authority.issue(name)) for name in ("coordinator", *names)}
        config = _config(given)
        self.coordinator = CoordinatorNode(
            Federation({"name": "soak", "coordinator": "127.0.0.1:1", "peers": names}, config),
            own["coordinator"],
            folder / "state",
            listen=LOCAL,
        )
        place = f"127.0.0.1:{self.coordinator.address[1]}"
        federation = Federation({"name": "soak", "coordinator": place, "peers": names}, config)
        self.nodes = [
            Node(
                federation,
                own[name],
                FixedTask(given.peers, number, given.n),
                private_root(1, number),
                NodeSettings(name, listen=LOCAL, advertise="127.0.0.1", floor=Floor(min_contributors=1)),
                on_round=self._after if number == 0 else None,
            )
            for number, name in enumerate(names)
        ]
        self.cuts, self.measured = 0, dict[int, dict[str, float]]()
        self.lost = 0

    def run(self) -> None:
        """Play all rounds."""
        threads = [threading.Thread(target=node.run, daemon=True) for node in self.nodes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.coordinator.close()

    def _after(self, report: RoundReport) -> None:
        done, given = report.plan.round + 1, self._given
        self.lost += len(report.verdict.lost_shards)
        if done % max(1, given.rounds // max(1, given.reconnects)) == 0 and self.cuts < given.reconnects:
            self._cut()
        if done in (given.rounds // 10, given.rounds // 2, given.rounds - 1):
            self.measured[done] = _measure()

    def _cut(self) -> None:
        couriers = list(self._chance.choice(self.nodes)._couriers._couriers.values())
        links = [courier._link for courier in couriers if courier._link is not None]
        if links:
            self._chance.choice(links)._stream.wake()
            self.cuts += 1


def _config(given: argparse.Namespace) -> Config:
    changes = [f"members={given.peers}", f"rounds={given.rounds}", "method=eris", "server.min_contributors=1"]
    return load_config(changes=[*changes, "data.name=synthetic-quadratic"])


def _measure() -> dict[str, float]:
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
        soak = Soak(Path(folder), given)
        soak.run()
        seconds = time.monotonic() - began
    first, half, last = (soak.measured[done] for done in sorted(soak.measured))
    held = {
        "one_model": len({node.model_digest() for node in soak.nodes}) == 1,
        "resident": last["resident_mb"] - half["resident_mb"] <= given.peers + 1.0,
        "in_use": last["heap_in_use_mb"] - half["heap_in_use_mb"] <= 1.0,
        "objects": last["objects"] <= 1.01 * half["objects"],
        "threads": last["threads"] - first["threads"] <= 4,
        "descriptors": last["descriptors"] - first["descriptors"] <= 8,
    }
    result: dict[str, Any] = {
        "rounds": given.rounds,
        "reconnects": soak.cuts,
        "n": given.n,
        "seconds": seconds,
        "lost_shards": soak.lost,
        "measured": soak.measured,
        "held": held,
    }
    sys.stdout.write(json.dumps(result, indent=2) + "\n")
    return 0 if all(held.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
