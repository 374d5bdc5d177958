"""How fast a real network of peers is, and how much memory a peer needs: all duties of a round, mutual TLS, loopback.

    python benchmarks/network.py [--cases 62k 62k-relay 11.7M …] [--seconds 300] [--without grpc gloo]

Prints one JSON object; progress goes to stderr. Every peer and the coordinator are processes of their own, driven by
the same `Node` and `CoordinatorService` as `eris up`. The task returns a fixed vector, so a round is nothing but the
protocol: plan, cut, send, stage, check, fold, hash, sign, publish, report, verdict, step. A round lasts from the moment
the last peer is through one verdict until the last is through the next; medians are over the rounds after two to warm
up. Beside each case, in the same run and of the same number of bytes or values:

    links  the same messages over the same links, a thread for each end, and not a single duty (links.py): what is left
           to gain
    grpc   the bytes of a round in one stream between two processes, raw, in messages of 1 MiB, with mutual TLS
    calls  three empty calls of each of K processes to one gRPC server with mutual TLS: what a round says at least to
           the coordinator (a manifest, a report, a question for news), without anything in it
    flower Flower's gRPC server with TLS and K clients that return a vector, in an environment of its own (notice if it
           cannot be installed); messages up to 512 MB, the most it allows
    secagg beside masked cases, Flower's SecAgg+ on vectors of the same length, its clients and server joined by pipes
    gloo   torch.distributed's all-reduce of n values among K processes: no encryption, all alive or all dead

A case NAME-fixed is NAME in fixed point, NAME-masked with masked shards (fixed point too): plain and masked in one run.
A case NAME-relay is NAME with peers that open no port: every link goes through one relay, another process.

Bytes come from the kernel's counters (TCP_INFO) of all sockets of a peer, or of Flower's server. Memory is a peer's
peak over what it had when everything was imported and nothing built. The authors' C++ in plain text is what was
measured on two idle cores before.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import json
import multiprocessing
import os
import platform
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import links
import numpy as np
from environments import FLOWER, flower_environment, why_not

from eris.config import load_config
from eris.coordinate.service import CoordinatorService
from eris.events import Event, VerdictWritten, hears
from eris.local.spec import ModelSpec, TensorSpec, Vector
from eris.local.task import LocalResult
from eris.peer.federation_file import FederationFile
from eris.peer.node import Node
from eris.peer.node_settings import NodeSettings
from eris.seeds import Seed, private_root
from eris.transport.authority import Authority
from eris.transport.control import load_grpc
from eris.transport.credentials import CERTIFICATE, KEY, ROOT, Credentials
from eris.transport.relay import RelayServer

WARM_UP = 2
MESSAGE = 1 << 20
KEEP = 0.01
MIB = 1 << 20
PROCESSES = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Case:
    """One federation to measure."""

    peers: int
    aggregators: int
    n: int
    rounds: int  # measured ones
    authors: float | None = None  # seconds a round of the authors' C++ in plain text
    block: int = 1024
    dsc: bool = False
    encoding: str = "float"  # or "fixed", or "masked"
    relayed: bool = False  # no peer opens a port: all links go through one relay, a process of its own

    @property
    def sent(self) -> int:
        """Values of an update that travel."""
        return int(self.n * KEEP) if self.dsc else self.n

    @property
    def round_bytes(self) -> int:
        """What all peers together must send: K − 1 contributions to every shard, and every shard to K − 1 peers."""
        return 2 * (self.peers - 1) * self.sent * 4

    @property
    def must_hold(self) -> float:
        """Vectors of n a peer cannot do without: model, update, staged contributions, published shards, references."""
        in_flight = self.peers if self.encoding == "float" else 2  # whole numbers are added up as they come
        staged = in_flight / self.aggregators * self.sent / self.n
        return 2 + staged + self.sent / self.n + (2 if self.dsc else 0)

    @property
    def links(self) -> int:
        """Link ends of an aggregating peer."""
        return self.peers - 1 + self.aggregators - 1


DENSE = {
    "62k": Case(10, 10, 62_000, 40, 0.0115),
    "1.65M": Case(10, 10, 1_650_000, 10, 0.286),
    "11.7M": Case(10, 10, 11_700_000, 7, 1.21),
    "67M": Case(4, 4, 67_000_000, 5, 4.03),
    "K50": Case(50, 10, 62_000, 20, 0.069),
}
CASES = {
    **DENSE,
    **{f"{name}-dsc": replace(case, dsc=True, rounds=max(10, case.rounds)) for name, case in DENSE.items()},
    "11.7M-coordinates": replace(DENSE["11.7M"], block=1),
    **{
        f"{name}-{encoding}": replace(DENSE[name], encoding=encoding, authors=None)
        for name in ("62k", "1.65M", "11.7M")
        for encoding in ("fixed", "masked")
    },
    **{f"{name}-relay": replace(DENSE[name], relayed=True, authors=None) for name in ("62k", "1.65M", "11.7M")},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--seconds", type=float, default=300.0, help="a case that takes longer is given up")
    parser.add_argument("--rounds", type=int, help="measured rounds, instead of each case's own")
    parser.add_argument(
        "--without",
        nargs="+",
        choices=("links", "grpc", "calls", "flower", "secagg", "gloo"),
        default=[],
        help="comparisons to leave out",
    )
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    results = {}
    for name in options.cases:
        case = CASES[name] if options.rounds is None else replace(CASES[name], rounds=options.rounds)
        results[name] = measure(name, case, options.seconds, options.without)
        say(f"{name}: {json.dumps(results[name])}")
    compared = {
        "dense / DSC": ratios(results, "", "-dsc"),
        "relay / direct": ratios(results, "-relay", ""),
        "masked / plain": ratios(results, "-masked", ""),
        "masked / fixed point": ratios(results, "-masked", "-fixed"),
    }
    print(json.dumps({"machine": machine(), "results": results, **compared}, indent=1))


def machine() -> dict[str, Any]:
    return {"cpus": os.cpu_count(), "platform": platform.platform(), "load": os.getloadavg(), "numpy": np.__version__}


def ratios(results: dict[str, dict[str, Any]], above: str, below: str) -> dict[str, float]:
    """Return how many times longer a round of one kind takes than the same of another, for the cases with both."""
    pairs = {name: (results.get(name + above, {}), results.get(name + below, {})) for name in DENSE}
    return {
        name: round(long["seconds"] / short["seconds"], 2)
        for name, (long, short) in pairs.items()
        if "seconds" in long and "seconds" in short
    }


def measure(name: str, case: Case, seconds: float, without: list[str]) -> dict[str, Any]:
    say(f"{name}: {case.peers} peers, {case.aggregators} aggregators, n = {case.n:,}")
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority.create(Path(folder) / "ca", "bench")
        for peer in ("coordinator", "relay", *names(case)):
            authority.issue(peer)
        try:
            result = federation_round(case, Path(folder), seconds)
        except TimeoutError as error:
            return {"notice": str(error)}
        if case.encoding == "masked" and "secagg" not in without:
            result["secagg"] = beside(result["seconds"], lambda: flower_secagg(case, seconds))
        if case.relayed or case.encoding != "float":  # stands beside the same case with direct links
            return result
        if "links" not in without and not case.dsc:
            result["links"] = beside(result["seconds"], lambda: bare_links(case, Path(folder)))
        if "grpc" not in without:
            result["grpc"] = beside(result["seconds"], lambda: grpc_stream(case, Path(folder), seconds))
        if "calls" not in without:
            result["calls"] = beside(result["seconds"], lambda: empty_calls(case, Path(folder), seconds))
        if "flower" not in without and not case.dsc:
            result["flower"] = beside(result["seconds"], lambda: flower_server(case, authority, seconds))
        if "gloo" not in without:
            result["gloo"] = beside(result["seconds"], lambda: gloo_all_reduce(case, seconds))
    return result


def beside(ours: float, other: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what a comparison took, and our time in its own."""
    try:
        theirs = other()
    except (TimeoutError, ImportError) as error:
        return {"notice": str(error)}
    except (subprocess.SubprocessError, OSError, ValueError, IndexError) as error:
        return {"notice": why_not(error)}
    return {**theirs, "ours / theirs": round(ours / theirs["seconds"], 2)}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# The federation -------------------------------------------------------------------------------------------------------


class FixedTask:
    """A task without training: every member returns the same vector in every round."""

    def __init__(self, members: int, member: int, n: int) -> None:
        self.members, self.spec = members, ModelSpec((TensorSpec("weights", (n,), "float32", "trainable"),))
        self._update = np.random.default_rng(member).standard_normal(n, np.float32)

    def samples(self, member: int) -> int:
        """Return the same weight for all."""
        del member
        return 1

    def initial(self, seed: Seed) -> Vector:
        """Begin at zero."""
        del seed
        return np.zeros(self.spec.n, np.float32)

    def memory(self, member: int) -> dict[str, Vector]:
        """Keep nothing."""
        del member
        return {}

    def train(self, member: int, model: Vector, memory: dict[str, Vector], *, round: int, seed: Seed) -> LocalResult:
        """Return the vector."""
        del member, model, memory, round, seed
        return LocalResult(self._update, samples=1, loss=0.0)

    def evaluate(self, model: Vector) -> dict[str, float]:
        """Measure nothing."""
        del model
        return {}


def names(case: Case) -> list[str]:
    return [f"peer-{number}" for number in range(case.peers)]


def federation(case: Case, address: tuple[str, int]) -> FederationFile:
    document = {
        "method": "eris+dsc" if case.dsc else "eris",
        "members": case.peers,
        "aggregators": case.aggregators,
        "rounds": WARM_UP + case.rounds,
        "shards": {"block": case.block},
        "compression": {"keep": KEEP},
        "server": {"encoding": "float" if case.encoding == "float" else "fixed"},
        "privacy": {"masking": "pairs" if case.encoding == "masked" else "none"},
    }
    where = {"name": "bench", "coordinator": f"{address[0]}:{address[1]}", "peers": names(case)}
    return FederationFile(where, load_config(document))


def federation_round(case: Case, folder: Path, seconds: float) -> dict[str, Any]:
    """Run a federation and return what its rounds cost."""
    deadline = time.monotonic() + seconds
    with process(run_coordinator, case, folder) as control, contextlib.ExitStack() as stack:
        address = control.recv()
        relay = stack.enter_context(process(run_relay, case, folder)) if case.relayed else None
        relays = [relay.recv()] if relay is not None else []
        peers = [
            stack.enter_context(process(run_peer, case, folder, number, address, relays))
            for number in range(case.peers)
        ]
        idle = [hear(pipe, deadline, "peers did not start") for pipe in peers]
        for pipe in peers:
            pipe.send("go")
        rounds = [hear_round(peers, deadline, number) for number in range(WARM_UP)]
        control.send("processor")
        before = control.recv()
        rounds += [hear_round(peers, deadline, WARM_UP + number) for number in range(case.rounds)]
        control.send("processor")
        spent = control.recv() - before
        ends = [hear(pipe, deadline, "peers did not leave") for pipe in peers]
        control.send("end")
        if relay is not None:
            relay.send("end")
    return summary(case, idle, rounds, ends, spent)


def summary(
    case: Case, idle: list[int], rounds: list[list[dict[str, Any]]], ends: list[dict[str, Any]], coordinator: float
) -> dict[str, Any]:
    through = [max(report["time"] for report in reports) for reports in rounds]
    seconds = np.diff(through[WARM_UP - 1 :])
    first, last = rounds[WARM_UP - 1], rounds[-1]
    processor = sum(b["processor"] - a["processor"] for a, b in zip(first, last, strict=True)) + coordinator
    sent = sum(b["sent"] - a["sent"] for a, b in zip(first, rounds[-2], strict=True)) / (case.rounds - 1)
    peak = max(end["peak"] - rest for end, rest in zip(ends, idle, strict=True))
    bound = (case.must_hold + 2) * 4 * case.n + 2 * MIB * case.links
    median = float(statistics.median(seconds))
    return {
        "K": case.peers, "A": case.aggregators, "n": case.n, "block": case.block, "dsc": case.dsc,
        "encoding": case.encoding,
        "seconds": round(median, 4), "fastest": round(float(min(seconds)), 4), "slowest": round(float(max(seconds)), 4),
        "processor seconds": round(processor / case.rounds, 3),
        "of them coordinator": round(coordinator / case.rounds, 4),
        "MB a peer": round(sent / case.peers / 1e6, 3),
        "bytes / ideal": round(sent / case.round_bytes, 4),
        "peak MB over idle": round(peak / 1e6, 1), "bound MB": round(bound / 1e6, 1), "idle MB": round(max(idle) / 1e6),
        "vectors": round(peak / 4 / case.n, 2),
        "one digest": len({end["digest"] for end in ends}) == 1,
        "contributions missing": sum(reports[0]["missing"] for reports in rounds),
        "authors' plain text": case.authors,
        "load": round(os.getloadavg()[0], 1),
    }  # fmt: skip


def run_coordinator(pipe: Connection, case: Case, folder: Path) -> None:
    shared = federation(case, ("127.0.0.1", 1))
    credentials = Credentials(folder / "ca" / "peers" / "coordinator")
    node = CoordinatorService(shared, credentials, folder / "coordinator", listen=("127.0.0.1", 0))
    pipe.send(node.address)
    while pipe.recv() != "end":
        pipe.send(time.process_time())
    node.close()


def run_relay(pipe: Connection, case: Case, folder: Path) -> None:
    credentials = Credentials(folder / "ca" / "peers" / "relay")
    with RelayServer(credentials, ("127.0.0.1", 0), listed=[*names(case), "coordinator"]) as relay:
        pipe.send(relay.address)
        pipe.recv()


def run_peer(
    pipe: Connection, case: Case, folder: Path, number: int, address: tuple[str, int], relays: list[tuple[str, int]]
) -> None:
    load_grpc()
    shared, name = federation(case, address), names(case)[number]
    credentials = Credentials(folder / "ca" / "peers" / name)
    pipe.send(resident("VmRSS"))
    pipe.recv()
    marks = (WARM_UP - 1, WARM_UP + case.rounds - 2)  # after the last round others may have left

    @hears(VerdictWritten)
    def report(event: Event) -> None:
        assert isinstance(event, VerdictWritten)
        sent = bytes_sent() if event.round in marks else 0
        missing = sum(case.peers - len(shard.contributors) for shard in event.verdict.shards)
        pipe.send({"time": time.monotonic(), "processor": time.process_time(), "sent": sent, "missing": missing})

    task = FixedTask(case.peers, number, case.n)
    listen = None if relays else ("127.0.0.1", 0)
    settings = NodeSettings(name, listen=listen, relays=tuple(relays), advertise="127.0.0.1")
    node = Node(shared, credentials, task, private_root(0, number), settings, listeners=[report])
    node.run()
    pipe.send({"peak": resident("VmHWM"), "digest": node.model_digest()})


def hear_round(pipes: list[Connection], deadline: float, number: int) -> list[dict[str, Any]]:
    return [hear(pipe, deadline, f"round {number} did not end") for pipe in pipes]


def hear(pipe: Connection, deadline: float, what: str) -> Any:
    if not wait([pipe], deadline - time.monotonic()):
        raise TimeoutError(f"given up: {what} in time")
    try:
        return pipe.recv()
    except EOFError:
        raise TimeoutError(f"given up: {what}, a process has ended") from None


@contextlib.contextmanager
def process(work: Callable[..., None], *arguments: Any, context: Any = PROCESSES) -> Iterator[Connection]:
    """Run work in a process of its own; ended with the block, politely first."""
    ours, theirs = context.Pipe()
    child = context.Process(target=work, args=(theirs, *arguments), daemon=True)
    child.start()
    theirs.close()
    try:
        yield ours
        child.join(20)
    finally:
        child.kill()
        child.join()


def resident(field: str) -> int:
    """Return a line of /proc/self/status in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def bytes_sent() -> int:
    """Return how much of what this process sent over TCP has arrived, says the kernel (headers, repeats left out)."""
    return sum(acknowledged(int(entry.name)) for entry in Path("/proc/self/fd").iterdir())


def acknowledged(descriptor: int) -> int:
    try:
        with socket.socket(fileno=os.dup(descriptor)) as copy:
            return int(struct.unpack_from("<Q", copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256), 120)[0])
    except (OSError, struct.error):  # no TCP socket
        return 0


# The others -----------------------------------------------------------------------------------------------------------


def bare_links(case: Case, folder: Path) -> dict[str, Any]:
    """Send the messages of a round over links, and nothing else; handshakes are spread over the rounds' bytes."""
    took = links.a_round(folder / "ca", links.Bare(case.peers, case.aggregators, case.n), min(case.rounds, 10))
    sent = round(took["bytes / ideal"] * case.round_bytes)
    return {"seconds": took["seconds"], "processor seconds": took["processor seconds"], "bytes": sent}


def grpc_stream(case: Case, folder: Path, seconds: float) -> dict[str, Any]:
    """Stream the bytes of a round from one process to another."""
    deadline = time.monotonic() + seconds
    with process(receive_stream, folder) as receiver:
        port = hear(receiver, deadline, "gRPC's server did not start")
        with process(send_stream, folder, port, case.round_bytes) as sender:
            spent = [hear(sender, deadline, "gRPC's stream did not end") for _ in range(6)][1:]
        receiver.send("end")
    median = statistics.median(spent)
    speed = case.round_bytes / median / 1e9
    void = {} if speed >= 0.6 or case.round_bytes < 100 * MIB else {"notice": "below 0.6 GB/s: the machine is busy"}
    return {"seconds": round(median, 4), "GB/s": round(speed, 2), **void}


def receive_stream(pipe: Connection, folder: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    grpc = load_grpc()

    class Route:
        def service(self, details: Any) -> Any:
            if details.method == "/bench/Call":
                return grpc.unary_unary_rpc_method_handler(lambda message, _: message)
            return grpc.stream_unary_rpc_method_handler(lambda parts, _: str(sum(map(len, parts))).encode())

    key, certificate, root = pem(folder, "coordinator")
    secure = grpc.ssl_server_credentials([(key, certificate)], root, require_client_auth=True)
    server = grpc.server(ThreadPoolExecutor(2), options=[("grpc.max_receive_message_length", 2 * MESSAGE)])
    server.add_generic_rpc_handlers((Route(),))
    pipe.send(server.add_secure_port("127.0.0.1:0", secure))
    server.start()
    pipe.recv()
    server.stop(0).wait()


def send_stream(pipe: Connection, folder: Path, port: int, size: int) -> None:
    message = os.urandom(MESSAGE)
    with channel_to(folder, "peer-0", port) as channel:
        call = channel.stream_unary("/bench/Stream")
        for _ in range(6):
            started = time.monotonic()
            parts = (message[: min(MESSAGE, size - start)] for start in range(0, size, MESSAGE))
            assert int(call(parts)) == size
            pipe.send(time.monotonic() - started)


def channel_to(folder: Path, name: str, port: int) -> Any:
    grpc = load_grpc()
    key, certificate, root = pem(folder, name)
    options = [("grpc.ssl_target_name_override", "coordinator.bench"), ("grpc.max_send_message_length", 2 * MESSAGE)]
    return grpc.secure_channel(f"127.0.0.1:{port}", grpc.ssl_channel_credentials(root, key, certificate), options)


def empty_calls(case: Case, folder: Path, seconds: float) -> dict[str, Any]:
    """Let all peers say three empty things to one server."""
    deadline = time.monotonic() + seconds
    with process(receive_stream, folder) as receiver, contextlib.ExitStack() as stack:
        port = hear(receiver, deadline, "gRPC's server did not start")
        callers = [stack.enter_context(process(say_nothing, folder, name, port)) for name in names(case)]
        for pipe in callers:
            hear(pipe, deadline, "a caller did not connect")
        spent = []
        for _ in range(22):
            started = time.monotonic()
            for pipe in callers:
                pipe.send("go")
            spent.append(max(hear(pipe, deadline, "a call did not end") for pipe in callers) - started)
        for pipe in callers:
            pipe.send("end")
        receiver.send("end")
    return {"seconds": round(statistics.median(spent[2:]), 4)}


def say_nothing(pipe: Connection, folder: Path, name: str, port: int) -> None:
    with channel_to(folder, name, port) as channel:
        call = channel.unary_unary("/bench/Call")
        call(b"")
        pipe.send("ready")
        while pipe.recv() != "end":
            for _ in range(3):
                call(b"")
            pipe.send(time.monotonic())


def flower_server(case: Case, authority: Authority, seconds: float) -> dict[str, Any]:
    """Let Flower's server do the same rounds; bytes are those of its sockets, both ways."""
    certificates = authority.issue("flower", hosts=["localhost"])
    return flower("flower_server.py", case, min(case.rounds, 6), seconds, str(certificates))


def flower_secagg(case: Case, seconds: float) -> dict[str, Any]:
    """Let Flower's SecAgg+ sum as many vectors; without a network, so it takes less than it would in a deployment."""
    return flower("flower_secagg.py", case, min(case.rounds, 3), seconds)


def flower(program: str, case: Case, rounds: int, seconds: float, *arguments: str) -> dict[str, Any]:
    """Run one of Flower's programs in its own environment and return what its rounds cost."""
    numbers = [str(number) for number in (case.peers, case.n, rounds)]
    command = [flower_python(), str(Path(__file__).with_name(program)), *arguments, *numbers]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=True)
    seconds_of, processor_of, bytes_of = (
        statistics.median(float(number) for number in done.stdout.rpartition(f"{what}:")[2].splitlines()[0].split())
        for what in ("seconds", "processor", "bytes")
    )
    over_sockets = {"bytes": round(bytes_of)} if bytes_of else {}
    return {
        "seconds": round(seconds_of, 4),
        "processor seconds": round(processor_of, 3),
        **over_sockets,
        "version": FLOWER,
    }


@cache
def flower_python() -> str:
    """Install Flower once for all cases."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    return flower_environment(Path(folder.name))


def pem(folder: Path, name: str) -> list[bytes]:
    return [(folder / "ca" / "peers" / name / file).read_bytes() for file in (KEY, CERTIFICATE, ROOT)]


def gloo_all_reduce(case: Case, seconds: float) -> dict[str, Any]:
    """All-reduce n values among K processes."""
    deadline = time.monotonic() + seconds
    context = multiprocessing.get_context("forkserver")  # torch is imported once
    context.set_forkserver_preload(["torch.distributed"])
    with tempfile.TemporaryDirectory() as meeting, contextlib.ExitStack() as stack:
        workers = [
            stack.enter_context(process(reduce_all, rank, case.peers, case.n, meeting, context=context))
            for rank in range(case.peers)
        ]
        times = [[hear(pipe, deadline, "gloo did not end") for pipe in workers] for _ in range(WARM_UP + 6)]
    spent = np.diff([max(moment) for moment in times])[WARM_UP - 1 :]
    return {"seconds": round(float(statistics.median(spent)), 4)}


def reduce_all(pipe: Connection, rank: int, peers: int, n: int, meeting: str) -> None:
    import torch
    import torch.distributed as distributed

    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{meeting}/store", rank=rank, world_size=peers)
    values = torch.ones(n)
    for _ in range(WARM_UP + 6):
        distributed.all_reduce(values)
        values.mul_(1 / peers)
        pipe.send(time.monotonic())
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
