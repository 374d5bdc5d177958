"""How fast links are: one of them against a plain socket and a copy in memory, and all at once as in a round.

    python benchmarks/links.py [--size 47000000] [--peers 10] [--aggregators 10] [--n 11700000] [--repeats 7]

Prints one JSON object. `one_link`: GB/s and processor seconds for a GB between two processes, the ways taken in turn so
that a busy machine slows all. `round`: K peers as processes, of which the first A aggregate, and each dials all of them
over mutual TLS; in a round each sends every aggregator its shard, the aggregator sums and sends the sum to all; a
thread for each link end, no plan, no checks, no verdict ("bare"). `network.py` and `scale.py` have it beside a whole
round. The prototype of this design took 0.63 to 0.66 s for n = 11.7 M and K = 10 on two idle cores, the authors' C++ in
plain text (with its duties) 1.21 s.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from eris.transport import tls_stream
from eris.transport.authority import Authority
from eris.transport.credentials import Credentials
from eris.transport.link import Link, LinkLimits
from eris.transport.link_listener import LinkListener
from eris.transport.tls_link import Plaintext, dial

LIMITS = LinkLimits(header_size=160, max_payload=1 << 30, connect=60.0, handshake=60.0, idle=60.0)
HEADER = bytes(LIMITS.header_size)
FRAME = 1 << 20
Receive = Callable[[np.ndarray], None]
PROCESSES = multiprocessing.get_context("spawn")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=47_000_000, help="bytes of one payload on one link")
    parser.add_argument("--peers", type=int, default=10, help="K of the round")
    parser.add_argument("--aggregators", type=int, help="A of the round; K by default")
    parser.add_argument("--n", type=int, default=11_700_000, help="float32 values of the round")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--chunks", type=int, nargs="+", default=[tls_stream.CHUNK], help="bytes encrypted at once")
    options = parser.parse_args()
    case = Bare(options.peers, options.aggregators or options.peers, options.n)
    with tempfile.TemporaryDirectory() as folder:
        make_federation(Path(folder), options.peers)
        result = {
            "machine": {"cpus": os.cpu_count(), "platform": platform.platform(), "python": platform.python_version()},
            "one_link": one_link(Path(folder), options.size, options.repeats),
            "round": [a_round(Path(folder), case, options.repeats, chunk) for chunk in options.chunks],
        }
    print(json.dumps(result, indent=1))


def make_federation(folder: Path, peers: int) -> None:
    authority = Authority.create(folder, "bench")
    for peer in range(peers):
        authority.issue(f"peer-{peer}")


def credentials(folder: Path, peer: int) -> Credentials:
    return Credentials(folder / "peers" / f"peer-{peer}")


# One link -------------------------------------------------------------------------------------------------------------


def one_link(folder: Path, size: int, repeats: int) -> dict[str, Any]:
    control, theirs = PROCESSES.Pipe()
    sender = PROCESSES.Process(target=send_on_request, args=(theirs, folder, size))
    sender.start()
    target = np.ones(size, np.uint8)
    ways = receiving_ways(folder, control)
    timings: dict[str, list[tuple[float, float]]] = {name: [] for name in (*ways, "copy in memory")}
    source = np.zeros(size, np.uint8)
    for _ in range(repeats + 1):
        for name, receive in ways.items():
            timings[name].append(timed_receive(control, name, receive, target))
        timings["copy in memory"].append(timed(lambda: np.copyto(target, source)))
    control.send("end")
    sender.join()
    return {name: summary(values[1:], size) for name, values in timings.items()}


def receiving_ways(folder: Path, control: Connection) -> dict[str, Receive]:
    tls = LinkListener(credentials(folder, 0), ("127.0.0.1", 0), limits=LIMITS)
    plain = LinkListener(Plaintext("peer-0"), ("127.0.0.1", 0), limits=LIMITS)
    bare = socket.create_server(("127.0.0.1", 0))
    control.send([tls.address, plain.address, bare.getsockname()])
    links = [tls.accept(60), plain.accept(60)]
    connection = bare.accept()[0]
    tls.close(), plain.close(), bare.close()
    return {
        "TLS link": lambda target: receive_frames(links[0], memoryview(target)),
        "plain link": lambda target: receive_frames(links[1], memoryview(target)),
        "plain socket": lambda target: receive_all(connection, memoryview(target)),
    }


def send_on_request(control: Connection, folder: Path, size: int) -> None:
    tls_address, plain_address, bare_address = control.recv()
    tls = dial(tuple(tls_address), credentials(folder, 1), expected="peer-0", limits=LIMITS)
    plain = dial(tuple(plain_address), Plaintext("peer-1"), expected="peer-0", limits=LIMITS)
    bare = socket.create_connection(bare_address)
    payload = memoryview(np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8))
    ways = {
        "TLS link": lambda: send_frames(tls, payload),
        "plain link": lambda: send_frames(plain, payload),
        "plain socket": lambda: bare.sendall(payload),
    }
    while (way := control.recv()) != "end":
        control.send(timed(ways[way])[1])
    tls.close(), plain.close(), bare.close()


def timed_receive(control: Connection, name: str, receive: Receive, target: np.ndarray) -> tuple[float, float]:
    control.send(name)
    seconds, processor = timed(lambda: receive(target))
    return seconds, processor + control.recv()


def timed(work: Callable[[], object]) -> tuple[float, float]:
    started, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - started, time.process_time() - processor


def summary(timings: list[tuple[float, float]], size: int) -> dict[str, float]:
    seconds, processor = (statistics.median(values) for values in zip(*timings, strict=True))
    return {"GB/s": round(size / seconds / 1e9, 3), "processor seconds/GB": round(processor / size * 1e9, 3)}


def send_frames(link: Link, payload: memoryview) -> None:
    for start in range(0, payload.nbytes, FRAME):
        link.send(HEADER, payload[start : start + FRAME])


def receive_frames(link: Link, target: memoryview) -> None:
    for start in range(0, target.nbytes, FRAME):
        link.receive_header()
        link.receive_into(target[start : start + FRAME])


def receive_all(connection: socket.socket, target: memoryview) -> None:
    while target.nbytes:
        target = target[connection.recv_into(target) :]


# A round --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bare:
    """The messages of a round: K peers, of which the first A aggregate, and n values."""

    peers: int
    aggregators: int
    n: int

    @property
    def shard(self) -> int:
        """Values of a shard."""
        return self.n // self.aggregators

    def links_of(self, peer: int) -> tuple[list[int], list[int]]:
        """Return whom a peer dials, beginning with its neighbour, and who dials it."""
        others = [(peer + step) % self.peers for step in range(1, self.peers)]
        return [other for other in others if other < self.aggregators], others if peer < self.aggregators else []


def a_round(folder: Path, case: Bare, repeats: int, chunk: int = tls_stream.CHUNK) -> dict[str, Any]:
    """Play the bare messages of a round several times; the folder is that of the CA."""
    gate = PROCESSES.Barrier(case.peers + 1)
    pipes = [PROCESSES.Pipe() for _ in range(case.peers)]
    processes = [
        PROCESSES.Process(target=run_peer, args=(folder, peer, case, repeats + 1, chunk, gate, theirs), daemon=True)
        for peer, (_, theirs) in enumerate(pipes)
    ]
    for process in processes:
        process.start()
    ports = [ours.recv() for ours, _ in pipes]
    for ours, _ in pipes:
        ours.send(ports)
    seconds = [timed_round(gate) for _ in range(repeats + 1)][1:]
    reports = [ours.recv() for ours, _ in pipes]
    for process in processes:
        process.join()
    messages = sum(len(case.links_of(peer)[0]) for peer in range(case.peers))
    ideal = 2 * messages * case.shard * 4
    return {
        "K": case.peers, "A": case.aggregators, "n": case.n, "chunk": chunk,
        "seconds": round(statistics.median(seconds), 4),
        "fastest": round(min(seconds), 3), "slowest": round(max(seconds), 3),
        "processor seconds": round(sum(r["processor"] for r in reports) / (repeats + 1), 3),
        "bytes / ideal": round(sum(r["sent"] for r in reports) / (repeats + 1) / ideal, 4),
        "sums agree": len({r["digest"] for r in reports}) == 1,
    }  # fmt: skip


def timed_round(gate: Any) -> float:
    gate.wait()
    started = time.perf_counter()
    gate.wait()
    return time.perf_counter() - started


def run_peer(folder: Path, peer: int, case: Bare, rounds: int, chunk: int, gate: Any, control: Connection) -> None:
    tls_stream.CHUNK = chunk
    own = credentials(folder, peer)
    dials, members = case.links_of(peer)
    with LinkListener(own, ("127.0.0.1", 0), limits=LIMITS) as listener:
        control.send(listener.address)
        addresses = control.recv()
        dialled = {o: dial(tuple(addresses[o]), own, expected=f"peer-{o}", limits=LIMITS) for o in dials}
        accepted = {int(link.peer.name.removeprefix("peer-")): link for link in (listener.accept(60) for _ in members)}
    work = Peer(peer, case)
    threads = [threading.Thread(target=work.contribute, args=(o, dialled[o], rounds)) for o in dials]
    threads += [threading.Thread(target=work.aggregate, args=(o, accepted[o], rounds)) for o in members]
    for thread in threads:
        thread.start()
    processor = time.process_time()
    for _ in range(rounds):
        gate.wait()
        work.run_round()
        gate.wait()
    for thread in threads:
        thread.join()
    links = [*dialled.values(), *accepted.values()]
    sent = sum(link.traffic.wire_sent for link in links)
    control.send({"processor": time.process_time() - processor, "sent": sent, "digest": float(work.model[::97].sum())})
    for link in links:
        link.close()


class Peer:
    """Both roles of one peer: the bare movements of a round."""

    def __init__(self, peer: int, case: Bare) -> None:
        self.peer, self.shard, self.aggregates = peer, case.shard, peer < case.aggregators
        self.update = np.random.default_rng(peer).standard_normal(self.shard * case.aggregators).astype(np.float32)
        self.model = np.zeros_like(self.update)
        self.staged = np.empty((case.peers if self.aggregates else 0, self.shard), np.float32)
        self.total = np.empty(self.shard, np.float32)
        threads = 1 + sum(map(len, case.links_of(peer)))
        self.begin, self.end = threading.Barrier(threads), threading.Barrier(threads)
        self.complete = threading.Barrier(case.peers, action=self.fold)

    def run_round(self) -> None:
        """Take this peer's own part in a round and wait for all links."""
        self.begin.wait()
        if self.aggregates:
            self.staged[self.peer] = self.part(self.update, self.peer)
            self.complete.wait()
            self.part(self.model, self.peer)[:] = self.total
        self.end.wait()

    def contribute(self, aggregator: int, link: Link, rounds: int) -> None:
        """Send one aggregator its shard, then take the sum (one thread, all rounds)."""
        outgoing = memoryview(self.part(self.update, aggregator)).cast("B")
        incoming = memoryview(self.part(self.model, aggregator)).cast("B")
        for _ in range(rounds):
            self.begin.wait()
            send_frames(link, outgoing)
            receive_frames(link, incoming)
            self.end.wait()

    def aggregate(self, member: int, link: Link, rounds: int) -> None:
        """Take one member's shard, then send it the sum (one thread, all rounds)."""
        incoming = memoryview(self.staged[member]).cast("B")
        outgoing = memoryview(self.total).cast("B")
        for _ in range(rounds):
            self.begin.wait()
            receive_frames(link, incoming)
            self.complete.wait()
            send_frames(link, outgoing)
            self.end.wait()

    def fold(self) -> None:
        """Sum what is staged, in ascending member."""
        np.copyto(self.total, self.staged[0])
        for values in self.staged[1:]:
            self.total += values

    def part(self, vector: np.ndarray, shard: int) -> np.ndarray:
        """Return one shard of a vector."""
        return vector[shard * self.shard : (shard + 1) * self.shard]


if __name__ == "__main__":
    main()
