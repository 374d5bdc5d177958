"""How near a real round comes to the planner's bound when every peer's link is slow.

    sudo python benchmarks/bandwidth.py [--cases '11.7M-A10-*' …] [--seconds 300] [--json FILE]

Peers are processes with network namespaces of their own, joined by a bridge in one more; the link of each is held to
its rate in both directions by token-bucket filters (`tc … tbf`) at its two ends. The coordinator has a link without a
limit. A peer is the same `Node` as in `eris join`, over mutual TLS; its task returns a fixed vector without training.
A round is measured from the first byte of a contribution that any peer sends to the last byte of a published shard that
any peer receives; CLOCK_MONOTONIC is one clock for all. The median is over the rounds after one to warm up, in which
links are dialled. Two phases are told apart by the last receipt for a contribution.

The bound is `eris.planner.distribution_time` with frame headers. What Ethernet, IP and TCP add to a full packet (66
bytes to 1,448, or 4.6 %) counts for the filters, but not for the bound. A bucket holds a hundredth of what the busiest
link carries in a phase (16 to 256 KiB); by that much a link may be ahead of its rate.

"plain" is the same exchange over the same links and in the same run by bare sockets, without frames, encryption, sums
or a coordinator: what this machine's links and processors give at that moment.

Prints a table; `--json` also writes everything to a file; progress goes to stderr. Linux, root, and `ip` and `tc` of
iproute2 are needed; without them it says so and ends. Nothing outside the namespaces is touched, and they are removed
at the end, also after Ctrl-C.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import fnmatch
import json
import os
import platform
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from network import KEEP, FixedTask, hear, process, say

from eris import planner
from eris.config import load_config
from eris.coordinate.service import CoordinatorService
from eris.events import Event, VerdictWritten, hears
from eris.peer import framing
from eris.peer.federation_file import FederationFile
from eris.peer.node import Node
from eris.peer.node_settings import NodeSettings
from eris.protocol.messages import Published, Receipt, Upload
from eris.seeds import private_root
from eris.transport.authority import Authority
from eris.transport.control import load_grpc
from eris.transport.credentials import Credentials
from eris.transport.link import Link
from eris.wire.frame import CHUNK, HEADER_BYTES

PEERS = 10
WARM_UP = 1
BLOCK = 1024
SMALLEST_BUCKET, LARGEST_BUCKET = 16 * 1024, 256 * 1024  # bytes; small ones cost much time in the kernel
PORT = 7000  # of bare sockets
QUEUE = 1 << 20  # bytes that wait for a bucket before packets are dropped
HUB, COORDINATOR = "hub", "coordinator"
NETWORK = "198.18.0"  # set aside for measurements (RFC 2544): no real network has it
CLONE_NEWNET = 0x40000000
RATES = {"20MB/s": 20e6, "100Mbit/s": 12.5e6}
SIZES = {"1.65M": 1_650_000, "11.7M": 11_700_000}


@dataclass(frozen=True)
class Case:
    """One federation to measure."""

    n: int
    aggregators: int
    rate: float  # bytes a second, each way
    dsc: bool

    @property
    def method(self) -> str:
        """The method's name."""
        return "eris+dsc" if self.dsc else "eris"

    @property
    def phases(self) -> list[float]:
        """The planner's least seconds of both phases."""
        fleet = planner.Fleet.uniform(PEERS, self.rate)
        keep = KEEP if self.dsc else 1.0
        scenario = planner.scenario(
            n=self.n, fleet=fleet, aggregators=self.aggregators, keep=keep, header=HEADER_BYTES, chunk=CHUNK
        )
        return [bottleneck.seconds for bottleneck in planner.bottlenecks(self.method, scenario)]

    @property
    def bound(self) -> float:
        """The planner's least seconds of a round."""
        return sum(self.phases)

    @property
    def bucket(self) -> int:
        """Bytes a token bucket holds."""
        carried = int(max(self.phases) * self.rate)
        return max(SMALLEST_BUCKET, min(LARGEST_BUCKET, carried // 100))

    @property
    def rounds(self) -> int:
        """Measured ones: as many as fit into a minute, 2 to 7."""
        return max(2, min(7, int(60 / self.bound)))


CASES = {
    f"{size}-A{aggregators}-{rate}{'-dsc' if dsc else ''}": Case(SIZES[size], aggregators, RATES[rate], dsc)
    for rate in RATES
    for size in SIZES
    for dsc in (False, True)
    for aggregators in (1, 2, 5, 10)
}
NAMES = [f"peer-{number}" for number in range(PEERS)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=["*"], metavar="CASE", help=f"names or patterns: {list(CASES)}")
    parser.add_argument("--seconds", type=float, default=300.0, help="a case that takes longer is given up")
    parser.add_argument("--rounds", type=int, help="measured rounds, instead of each case's own")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all results there")
    options = parser.parse_args()
    chosen = [name for name in CASES if any(fnmatch.fnmatch(name, pattern) for pattern in options.cases)]
    if not chosen:
        parser.error(f"no case is named like {options.cases}")
    if hindrance := cannot():
        say(f"skipped: {hindrance}")
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that namespaces are removed then, too
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    results: dict[str, dict[str, Any]] = {}
    try:
        for name in chosen:
            results[name] = measure(name, CASES[name], options.rounds or CASES[name].rounds, options.seconds)
            say(f"{name}: {json.dumps(results[name])}")
    finally:  # a case that fails does not take the others' numbers with it
        print(table(results))
        if options.json:
            options.json.write_text(json.dumps({"machine": machine(), "results": results}, indent=1) + "\n")


def cannot() -> str:
    """Return what keeps this machine from measuring; empty if nothing does."""
    if platform.system() != "Linux" or os.geteuid() != 0:
        return "network namespaces need Linux and root"
    if missing := [program for program in ("ip", "tc") if shutil.which(program) is None]:
        return f"{' and '.join(missing)} not found: install iproute2"
    name = f"{prefix()}-try"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"no network namespace can be made: {made.stderr.strip()}"
    run("ip", "netns", "delete", name)
    return ""


def machine() -> dict[str, Any]:
    congestion = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    return {"cpus": os.cpu_count(), "platform": platform.platform(), "load": os.getloadavg(), "tcp": congestion}


def table(results: dict[str, dict[str, Any]]) -> str:
    """Return the results as Markdown."""
    titles = ["case", "rounds", "bound s", "measured s", "ratio", "up", "down", "plain", "start apart s", "load"]
    lines = [f"| {' | '.join(titles)} |", "|---|" + "--:|" * (len(titles) - 1)]
    for name, result in results.items():
        if "notice" in result:
            lines.append(f"| {name} | {result['notice']} |")
            continue
        cells = [result["rounds"], f"{result['bound']:.3f}", f"{result['seconds']:.3f}", f"{result['ratio']:.2f}"]
        cells += [f"{ratio:.2f}" for ratio in (*result["phase ratios"], result["plain ratio"])]
        cells += [f"{result['start apart']:.3f}", result["load"]]
        lines.append(f"| {name} | {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def measure(name: str, case: Case, rounds: int, seconds: float) -> dict[str, Any]:
    say(f"{name}: at least {case.bound:.3f} s a round, {WARM_UP} + {rounds} rounds")
    with tempfile.TemporaryDirectory() as folder, namespaces(case):
        authority = Authority.create(Path(folder) / "ca", "bench")
        for peer in (COORDINATOR, *NAMES):
            authority.issue(peer)
        try:
            measured = play(case, Path(folder), rounds, seconds)
            plain = play_plainly(case, rounds, seconds)
            return {**measured, "plain seconds": round(plain, 5), "plain ratio": round(plain / case.bound, 3)}
        except TimeoutError as error:
            return {"notice": str(error)}


# Namespaces -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def namespaces(case: Case) -> Iterator[None]:
    """Join a namespace for each peer and the coordinator by a bridge; all of it is gone after the block."""
    with contextlib.ExitStack() as stack:
        for name in (HUB, COORDINATOR, *NAMES):
            delete = ["ip", "netns", "delete", space(name)]
            stack.callback(subprocess.run, delete, check=False)  # first: Ctrl-C may come while it is being made
            run("ip", "netns", "add", space(name))
        run("ip", "-n", space(HUB), "link", "add", "bridge", "type", "bridge")
        run("ip", "-n", space(HUB), "link", "set", "bridge", "up")
        for name in (COORDINATOR, *NAMES):
            connect(name)
        for name in NAMES:
            limit(case, space(name), "uplink")  # what the peer sends
            limit(case, space(HUB), name)  # what it receives
        yield


def connect(name: str) -> None:
    """Lay a cable from a namespace to the bridge."""
    here, hub = ("ip", "-n", space(name)), ("ip", "-n", space(HUB))
    run(*hub, "link", "add", name, "type", "veth", "peer", "name", "uplink", "netns", space(name))
    run(*hub, "link", "set", name, "master", "bridge", "up")
    run(*here, "link", "set", "lo", "up")
    run(*here, "address", "add", f"{address(name)}/24", "dev", "uplink")
    run(*here, "link", "set", "uplink", "up")


def limit(case: Case, where: str, device: str) -> None:
    """Hold what leaves through a device to the rate."""
    shape = ["rate", f"{case.rate * 8:.0f}bit", "burst", str(case.bucket), "limit", str(QUEUE)]
    run("tc", "-n", where, "qdisc", "add", "dev", device, "root", "tbf", *shape)


def prefix() -> str:
    return f"eris-{os.getpid()}"


def space(name: str) -> str:
    return f"{prefix()}-{name}"


def address(name: str) -> str:
    return f"{NETWORK}.{(COORDINATOR, *NAMES).index(name) + 1}"


def run(*command: str) -> None:
    subprocess.run(command, check=True)


def enter(name: str) -> None:
    """Move this process, which has one thread yet, into a namespace."""
    library = ctypes.CDLL(None, use_errno=True)
    with Path("/run/netns", name).open("rb") as handle:
        if library.setns(handle.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter the namespace {name}")


# The federation -------------------------------------------------------------------------------------------------------


def play(case: Case, folder: Path, rounds: int, seconds: float) -> dict[str, Any]:
    """Run a federation and return how long its rounds took."""
    deadline = time.monotonic() + seconds
    with (
        process(run_coordinator, case, folder, space(COORDINATOR), rounds) as control,
        contextlib.ExitStack() as stack,
    ):
        port = hear(control, deadline, "the coordinator did not start")
        peers = [
            stack.enter_context(process(run_peer, case, folder, space(name), rounds, name, port)) for name in NAMES
        ]
        reports = []
        for number in range(WARM_UP + rounds):
            reports.append([hear(pipe, deadline, f"round {number} did not end") for pipe in peers])
            say(f"  round {number}: {span(reports[-1]):.3f} s")
        digests = {hear(pipe, deadline, "peers did not leave") for pipe in peers}
        control.send("end")
    return summary(case, reports[WARM_UP:], one_digest=len(digests) == 1)


def span(reports: list[dict[str, Any]]) -> float:
    """Return the seconds from the first byte of a round to its last."""
    return float(max(report["last"] for report in reports) - min(report["first"] for report in reports))


def summary(case: Case, rounds: list[list[dict[str, Any]]], *, one_digest: bool) -> dict[str, Any]:
    spans = [span(reports) for reports in rounds]
    received = [max(report["receipt"] for report in reports) for reports in rounds]
    up = statistics.median(
        moment - min(report["first"] for report in reports) for moment, reports in zip(received, rounds, strict=True)
    )
    seconds, phases = statistics.median(spans), case.phases
    return {
        "n": case.n, "A": case.aggregators, "K": PEERS, "rate": case.rate, "dsc": case.dsc, "rounds": len(rounds),
        "bound": round(case.bound, 5), "seconds": round(seconds, 5), "ratio": round(seconds / case.bound, 3),
        "fastest": round(min(spans), 5), "slowest": round(max(spans), 5),
        "phase ratios": [round(up / phases[0], 3), round((seconds - up) / phases[1], 3)],
        "start apart": round(statistics.median(apart(reports) for reports in rounds), 4),
        "one digest": one_digest,
        "contributions missing": sum(reports[0]["missing"] for reports in rounds),
        "load": round(os.getloadavg()[0], 1),
    }  # fmt: skip


def apart(reports: list[dict[str, Any]]) -> float:
    """Return how much later the last peer began to send than the first."""
    firsts = [report["first"] for report in reports if report["first"] < float("inf")]
    return float(max(firsts) - min(firsts))


def federation(case: Case, port: int, rounds: int) -> FederationFile:
    document = {
        "method": case.method,
        "members": PEERS,
        "aggregators": case.aggregators,
        "rounds": WARM_UP + rounds,
        "shards": {"block": BLOCK},
        "compression": {"keep": KEEP},
    }
    where = {"name": "bench", "coordinator": f"{address(COORDINATOR)}:{port}", "peers": NAMES}
    return FederationFile({**where, "round": 60 + 4 * case.bound}, load_config(document))


def run_coordinator(pipe: Connection, case: Case, folder: Path, where: str, rounds: int) -> None:
    enter(where)
    credentials = Credentials(folder / "ca" / "peers" / COORDINATOR)
    shared = federation(case, 1, rounds)
    node = CoordinatorService(shared, credentials, folder / COORDINATOR, listen=(address(COORDINATOR), 0))
    pipe.send(node.address[1])
    pipe.recv()
    node.close()


class Stamps:
    """When this peer's clients first sent, were last given a receipt, and last received, round by round."""

    def __init__(self) -> None:
        self.first: dict[int, float] = {}
        self.receipt: dict[int, float] = {}
        self.last: dict[int, float] = {}
        self._round = 0

    def watch(self) -> None:
        """Stand between the clients and what they do."""
        send, acknowledge, receive = framing.send_upload, framing.receive_receipt, framing.receive_published

        def sending(link: Link, upload: Upload, *rest: Any, **named: Any) -> None:
            self._round = upload.round
            self.first.setdefault(upload.round, time.monotonic())
            send(link, upload, *rest, **named)

        def acknowledged(*rest: Any, **named: Any) -> Receipt:
            receipt = acknowledge(*rest, **named)
            self.receipt[self._round] = time.monotonic()
            return receipt

        def receiving(*rest: Any, **named: Any) -> Published:
            published = receive(*rest, **named)
            self.last[published.manifest.round] = time.monotonic()
            return published

        framing.send_upload, framing.receive_receipt, framing.receive_published = sending, acknowledged, receiving

    def report(self, round: int) -> dict[str, float]:
        """Return the moments of a round; a peer that sent or received nothing does not count."""
        ways = {"first": (self.first, float("inf")), "receipt": (self.receipt, 0.0), "last": (self.last, 0.0)}
        return {name: moments.pop(round, without) for name, (moments, without) in ways.items()}


def run_peer(pipe: Connection, case: Case, folder: Path, where: str, rounds: int, name: str, port: int) -> None:
    enter(where)
    load_grpc()
    stamps, shared = Stamps(), federation(case, port, rounds)
    stamps.watch()
    number = shared.number(name)

    @hears(VerdictWritten)
    def report(event: Event) -> None:
        assert isinstance(event, VerdictWritten)
        missing = sum(PEERS - len(shard.contributors) for shard in event.verdict.shards)
        pipe.send({**stamps.report(event.round), "missing": missing})

    task = FixedTask(PEERS, number, case.n)
    settings = NodeSettings(name, listen=(address(name), 0), advertise=address(name))
    credentials = Credentials(folder / "ca" / "peers" / name)
    node = Node(shared, credentials, task, private_root(0, number), settings, listeners=[report])
    node.run()
    pipe.send(node.model_digest())


# The same bytes without a protocol ------------------------------------------------------------------------------------


def play_plainly(case: Case, rounds: int, seconds: float) -> float:
    """Return the seconds of a round of bare sockets."""
    deadline = time.monotonic() + seconds
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(process(run_plainly, case, space(name), rounds, name)) for name in NAMES]
        for pipe in peers:
            hear(pipe, deadline, "a peer does not listen")
        for pipe in peers:
            pipe.send("dial")
        spans = []
        for number in range(rounds):
            for pipe in peers:
                hear(pipe, deadline, "bare sockets were not connected")
            for pipe in peers:
                pipe.send("go")
            spans.append(span([hear(pipe, deadline, f"bare round {number} did not end") for pipe in peers]))
        say(f"  bare sockets: {', '.join(f'{seconds:.3f}' for seconds in spans)} s")
    return statistics.median(spans)


def run_plainly(pipe: Connection, case: Case, where: str, rounds: int, name: str) -> None:
    enter(where)
    owners = NAMES[: case.aggregators]
    size = 4 * int(case.n * (KEEP if case.dsc else 1)) // case.aggregators
    listener = socket.create_server((address(name), PORT), backlog=PEERS)
    pipe.send("listening")
    pipe.recv()
    dialled = [socket.create_connection((address(owner), PORT)) for owner in owners if owner != name]
    accepted = [listener.accept()[0] for _ in range(PEERS - 1 if name in owners else 0)]
    complete = threading.Barrier(max(1, len(accepted)))
    for _ in range(rounds):
        pipe.send("ready")
        pipe.recv()
        work = [threading.Thread(target=contribute, args=(link, size)) for link in dialled]
        work += [threading.Thread(target=collect, args=(link, size, complete)) for link in accepted]
        first = time.monotonic() if dialled else float("inf")
        for thread in work:
            thread.start()
        for thread in work:
            thread.join()
        pipe.send({"first": first, "last": time.monotonic()})


def contribute(link: socket.socket, size: int) -> None:
    link.sendall(bytes(size))
    swallow(link, size)


def collect(link: socket.socket, size: int, complete: threading.Barrier) -> None:
    swallow(link, size)
    complete.wait()
    link.sendall(bytes(size))


def swallow(link: socket.socket, size: int) -> None:
    scratch = bytearray(1 << 18)
    while size:
        received = link.recv_into(scratch, min(size, len(scratch)))
        if not received:
            raise ConnectionError("the other side is gone")
        size -= received


if __name__ == "__main__":
    main()
