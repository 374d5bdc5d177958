"""What does the live page cost the coordinator?

    python benchmarks/live_page.py [--peers 200] [--clients 10] [--seconds 60]

A coordinator's process with so many peers present and one round's plan and verdict a second. It is measured (psutil,
user and system time of the process) while nobody looks at its page and while so many clients do, each reading the
stream to its end. Prints one JSON object; ends with 1 if the difference is 1 % of a core or more.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import sys
import tempfile
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from eris.config import load_config
from eris.coordinate.attendance import Present
from eris.coordinate.service import CoordinatorService
from eris.events import RoundStarted, VerdictWritten
from eris.peer.federation_file import FederationFile
from eris.protocol.roster import RosterEntry
from eris.protocol.round_plan import RoundPlan
from eris.protocol.verdict import ShardVerdict, Verdict
from eris.transport.authority import Authority
from eris.transport.credentials import Credentials
from eris.web.live_facts import LiveFacts
from eris.web.live_page import LivePage
from eris.web.overview_facts import note_overview

MOST = 0.01  # of a core


def coordinate(peers: int, folder: Path, line: Connection) -> None:
    """Be a coordinator of so many peers; say where the page is, and end when told."""
    names = [f"peer-{number:03}" for number in range(peers)]
    authority = Authority.create(folder / "certs", "bench")
    for name in ("coordinator", *names):
        authority.issue(name)
    config = load_config(changes=[f"members={peers}", 'method="eris"', "rounds=100000"])
    federation = FederationFile({"name": "bench", "coordinator": "127.0.0.1:0", "peers": names}, config)
    own = Credentials(folder / "certs" / "peers" / "coordinator")
    facts = LiveFacts("bench", names, kind="coordinator")
    node = CoordinatorService(federation, own, folder / "state", listen=("127.0.0.1", 0), begin_with=peers + 1)
    roster = tuple(entries(folder, names, node))
    with LivePage(facts, refresh=lambda: note_overview(facts, node.overview())) as page:
        line.send(page.address)
        round = 0
        while not line.poll(1.0):
            tell(facts, roster, round)
            round += 1
    node.close()


def entries(folder: Path, names: list[str], node: CoordinatorService) -> list[RosterEntry]:
    """Let everybody be here, with a certificate of its own."""
    found = []
    for number, name in enumerate(names):
        certificate = Credentials(folder / "certs" / "peers" / name).identity.certificate
        entry = RosterEntry(
            peer=number, name=name, weight=1.0, fingerprint=f"{number:064x}", organisation=f"org {number % 9}"
        )
        found.append(entry)
        node._attendance.enter(Present(entry, ("10.0.0.1", 7444), certificate, None))  # type: ignore[arg-type]  # as if it had joined
    return found


def tell(facts: LiveFacts, roster: tuple[RosterEntry, ...], round: int) -> None:
    """Tell of a round: a plan and a verdict, with two lost shards and five who were late."""
    everybody = tuple(entry.peer for entry in roster)
    plan = RoundPlan("bench", 0, round, "0" * 64, "0" * 64, roster, everybody, everybody)
    lost = {(7 * round) % len(roster), (13 * round + 1) % len(roster)}
    shards = tuple(
        ShardVerdict(shard, shard, lost="late") if shard in lost else ShardVerdict(shard, shard, "0" * 64, everybody)
        for shard in everybody
    )
    late = tuple(sorted({(3 * round + step) % len(roster) for step in range(5)}))
    verdict = Verdict("bench", 0, round, plan.digest, "0" * 64, shards, late)
    facts(RoundStarted(round, plan.participants, plan.assignment))
    facts(VerdictWritten(round, plan, verdict))


def read(address: str, counts: list[int], stop: threading.Event) -> None:
    """Read the stream until told to stop, and count events."""
    parts = urlsplit(address)
    line = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    line.request("GET", parts.path + "events")
    answer, seen = line.getresponse(), 0
    while not stop.is_set() and (text := answer.readline()):
        seen += text.startswith(b"data:")
    counts.append(seen)
    line.close()


def share_of_a_core(process: psutil.Process, seconds: float) -> float:
    before, began = process.cpu_times(), time.monotonic()
    time.sleep(seconds)
    after, took = process.cpu_times(), time.monotonic() - began
    return (after.user + after.system - before.user - before.system) / took


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=int, default=200)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = multiprocessing.Pipe()
        child = multiprocessing.Process(target=coordinate, args=(options.peers, Path(folder), theirs))
        child.start()
        address, process = ours.recv(), psutil.Process(child.pid)
        time.sleep(3.0)
        alone = share_of_a_core(process, options.seconds)
        stop, counts = threading.Event(), list[int]()
        readers = [threading.Thread(target=read, args=(address, counts, stop)) for _ in range(options.clients)]
        for reader in readers:
            reader.start()
        time.sleep(3.0)
        watched = share_of_a_core(process, options.seconds)
        stop.set()
        for reader in readers:
            reader.join()
        ours.send("end")
        child.join()
    result = {
        "peers": options.peers,
        "clients": options.clients,
        "seconds": options.seconds,
        "core_alone": round(alone, 5),
        "core_watched": round(watched, 5),
        "core_of_the_page": round(watched - alone, 5),
        "events_of_a_client": [min(counts), max(counts)],
        "met": watched - alone < MOST and min(counts) >= options.seconds * 0.9,
    }
    print(json.dumps(result, indent=2))
    return 0 if result["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
