"""The real half of scale.py: hundreds of peers on one machine, each a TLS endpoint of its own."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from network import Case, FixedTask, bare_links, beside, bytes_sent, flower_server, process

from eris.cli.networking.allocator import keep_few_arenas
from eris.config import load_config
from eris.coordinate.service import CoordinatorService
from eris.events import Event, VerdictWritten, hears
from eris.peer.federation_file import FederationFile
from eris.peer.node import Node
from eris.peer.node_settings import NodeSettings
from eris.seeds import private_root
from eris.transport.authority import Authority
from eris.transport.control import load_grpc
from eris.transport.credentials import Credentials

PEERS_IN_A_PROCESS = 125
ROUND_SECONDS = 900.0  # the longest a round may last: the first one dials everybody
SWITCH = 0.2  # seconds; hundreds of threads wait for an interpreter here, and each wakes up that often to ask for it
AIMS = {"start_seconds": 300.0, "round_seconds": 30.0, "memory_bytes": 12e9}


def main(options: argparse.Namespace) -> None:
    """Measure the points that are asked for, and keep them."""
    points = json.loads(options.out.read_text()) if options.out and options.out.exists() else []
    for text in filter(None, options.points.split(",")):
        peers, aggregators = map(int, text.split("x"))
        point = measure(peers, aggregators, options)
        print(json.dumps(point), file=sys.stderr, flush=True)
        points.append(point)
        if options.out:
            options.out.write_text(json.dumps(points, indent=1) + "\n")
    if options.plot:
        plot(points, options.plot)
    print(json.dumps({"aims": AIMS, "points": points}, indent=1))


def measure(peers: int, aggregators: int, options: argparse.Namespace) -> dict[str, Any]:
    """Run one federation and return what it took."""
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority.create(Path(folder) / "ca", "bench")
        for name in ("coordinator", *names(peers)):
            authority.issue(name)
        federation = {"peers": peers, "aggregators": aggregators, "n": options.n, "rounds": options.rounds}
        federation |= {"masked": options.masked}
        shares = shared_out(peers, max(options.processes, -(-peers // PEERS_IN_A_PROCESS)))
        try:
            point = play(Path(folder), federation, shares, options.seconds)
        except (TimeoutError, EOFError) as error:
            return {**federation, "notice": f"given up: {error}"}
        if peers <= options.beside:
            case, ours = Case(peers, aggregators, options.n, min(options.rounds, 6)), point["round_seconds"]
            point["links"] = beside(ours, lambda: bare_links(case, Path(folder)))
            point["flower"] = beside(ours, lambda: flower_server(case, authority, options.seconds))
        return point


def plot(points: list[dict[str, Any]], path: Path) -> None:
    """Draw what grows with the peers, the aggregators and the model; grey dashes grow in proportion."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    measured = [point for point in points if "notice" not in point and not point["masked"]]
    smallest = min(point["n"] for point in measured)
    crowds = sorted((point for point in measured if point["n"] == smallest), key=_size)
    one_each = {point["peers"]: point for point in crowds if point["aggregators"] in (10, point["peers"] // 10)}
    one_each |= {point["peers"]: point for point in crowds if point["peers"] == max(map(_peers, crowds))}
    by_peers = [one_each[peers] for peers in sorted(one_each)]
    by_aggregators = [point for point in crowds if point["peers"] == 50]
    by_length = sorted((p for p in measured if (p["peers"], p["aggregators"]) == (10, 10)), key=lambda p: int(p["n"]))
    figure, axes = pyplot.subplots(2, 3, figsize=(14, 7.5))
    _draw(axes[0, 0], by_peers, "peers", _seconds, "seconds of a round against peers K", others=True)
    _draw(axes[0, 1], by_aggregators, "aggregators", _seconds, "seconds of a round against aggregators A, K = 50")
    _draw(axes[0, 2], by_length, "n", _seconds, "seconds of a round against values n, K = A = 10", others=True)
    _draw(
        axes[1, 0], by_peers, "peers", lambda p: p["coordinator_sent"] / 1e3, "kB that the coordinator sends in a round"
    )
    _draw(
        axes[1, 1], by_peers, "peers", lambda p: p["coordinator_processor_seconds"],
        "processor seconds of the coordinator in a round",
    )  # fmt: skip
    _draw(axes[1, 2], by_peers, "peers", lambda p: p["memory_bytes"] / 1e9, "GB in all")
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Software": ""})


def _draw(
    place: Any,
    points: list[dict[str, Any]],
    across: str,
    value: Callable[[dict[str, Any]], float],
    title: str,
    *,
    others: bool = False,
) -> None:
    """Draw one quantity over a column of the points, with Flower's and the bare messages' beside it on request."""
    columns, values = [point[across] for point in points], [value(point) for point in points]
    place.loglog(columns, values, marker="o", label="eris")
    place.loglog(columns, [values[0] * one / columns[0] for one in columns], linestyle="--", color="grey")
    for name, label in (("flower", "Flower's server"), ("links", "bare messages")) if others else ():
        there = [(point[across], point[name]["seconds"]) for point in points if "seconds" in point.get(name, {})]
        if there:
            place.loglog(*zip(*there, strict=True), marker="s", label=label)
    for column, height, point in zip(columns, values, points, strict=True):
        if across == "peers":
            place.annotate(f"A = {point['aggregators']}", (column, height), textcoords="offset points", xytext=(6, -11))
    place.set(title=title)
    place.set_xticks(columns, [f"{one:,}" for one in columns])
    place.xaxis.minorticks_off()
    place.margins(x=0.15)
    place.grid(alpha=0.3)
    if others:
        place.legend()


def _peers(point: dict[str, Any]) -> int:
    return int(point["peers"])


def _size(point: dict[str, Any]) -> int:
    return int(point["peers"] * point["aggregators"])


def _seconds(point: dict[str, Any]) -> float:
    return float(point["round_seconds"])


def shared_out(peers: int, processes: int) -> list[list[int]]:
    """Deal peers out to processes, so that each has its share of the aggregators, which come first."""
    return [share for first in range(processes) if (share := list(range(first, peers, processes)))]


def names(peers: int) -> list[str]:
    return [f"peer-{number}" for number in range(peers)]


def federation_file(federation: dict[str, Any], address: tuple[str, int]) -> FederationFile:
    where = {
        "name": "bench", "coordinator": f"{address[0]}:{address[1]}", "peers": names(federation["peers"]),
        "round": ROUND_SECONDS, "connect": 300.0,
    }  # fmt: skip
    config = {
        "method": "eris", "members": federation["peers"], "aggregators": federation["aggregators"],
        "rounds": federation["rounds"],
        "server": {"encoding": "fixed" if federation["masked"] else "float"},
        "privacy": {"masking": "pairs" if federation["masked"] else "none"},
    }  # fmt: skip
    return FederationFile(where, load_config(config))


def play(folder: Path, federation: dict[str, Any], shares: list[list[int]], seconds: float) -> dict[str, Any]:
    """Run coordinator and peers to the end."""
    deadline, rounds = time.monotonic() + seconds, federation["rounds"]
    with process(run_coordinator, federation, folder) as control, contextlib.ExitStack() as stack:
        address = control.recv()
        workers = [stack.enter_context(process(run_peers, federation, folder, share, address)) for share in shares]
        for pipe in workers:
            hear(pipe, deadline)
        began = time.monotonic()
        for pipe in workers:
            pipe.send("go")
        told = []
        for number in range(rounds):
            said = [hear(pipe, deadline) for pipe in workers]
            control.send("now")
            told.append({"peers": said, "coordinator": control.recv(), "time": max(each["time"] for each in said)})
            print(f"round {number}: {told[-1]['time'] - began:.1f} s", file=sys.stderr, flush=True)
        memory = sum(pss(pid) for pid in [each["pid"] for each in (*told[-1]["peers"], told[-1]["coordinator"])])
        for pipe in workers:
            pipe.send("leave")
        ends = [hear(pipe, deadline) for pipe in workers]
        control.send("end")
    return summary(federation, shares, began, told, ends, memory)


def summary(
    federation: dict[str, Any],
    shares: list[list[int]],
    began: float,
    told: list[dict[str, Any]],
    ends: Any,
    memory: int,
) -> dict[str, Any]:
    """Return the point: the median round after the first two, and what a round adds to everything that is counted."""
    times = [each["time"] for each in told]
    rounds = [after - before for before, after in pairwise(times[1:])]
    first, last, count = told[1], told[-1], len(told) - 2

    def grown(key: str) -> float:
        pairs = zip(first["peers"], last["peers"], strict=True)
        return sum(after[key] - before[key] for before, after in pairs) / count

    control = {key: (last["coordinator"][key] - first["coordinator"][key]) / count for key in CONTROL}
    return {
        **federation,
        "processes": len(shares),
        "start_seconds": round(times[0] - began, 2),
        "round_seconds": round(statistics.median(rounds), 3),
        "fastest": round(min(rounds), 3), "slowest": round(max(rounds), 3),
        "round_processor_seconds": round(grown("processor") + control["processor"], 3),
        "coordinator_processor_seconds": round(control["processor"], 4),
        "coordinator_sent": round(control["sent"]), "coordinator_received": round(control["received"]),
        "coordinator_calls": round(control["calls"], 1),
        "bytes": round(grown("bytes")),
        "memory_bytes": memory,
        "one_digest": len({digest for end in ends for digest in end["digests"]}) == 1,
        "endings": sorted({ending for end in ends for ending in end["endings"]}),
        "missing": sum(each["missing"] for one in told for each in one["peers"]),
        "threads": max(each["threads"] for each in last["peers"]),
        "load": round(os.getloadavg()[0], 1),
    }  # fmt: skip


CONTROL = ("processor", "sent", "received", "calls")


def run_coordinator(pipe: Connection, federation: dict[str, Any], folder: Path) -> None:
    shared, credentials = federation_file(federation, ("127.0.0.1", 1)), Credentials(folder / "ca/peers/coordinator")
    node = CoordinatorService(shared, credentials, folder / "coordinator", listen=("127.0.0.1", 0))
    pipe.send(node.address)
    while pipe.recv() != "end":
        traffic = node._server.traffic
        counts = {"sent": traffic.sent, "received": traffic.received, "calls": traffic.calls}
        pipe.send({**counts, "processor": time.process_time(), "pid": os.getpid()})
    node.close()


def run_peers(
    pipe: Connection, federation: dict[str, Any], folder: Path, share: list[int], address: tuple[str, int]
) -> None:
    """Be several peers."""
    keep_few_arenas()  # as `eris join` does
    load_grpc()
    sys.setswitchinterval(SWITCH)
    shared = federation_file(federation, address)
    through, lock, missing = defaultdict[int, int](int), threading.Lock(), defaultdict[int, int](int)
    rounds, last = federation["rounds"], threading.Event()

    @hears(VerdictWritten)
    def report(event: Event) -> None:
        assert isinstance(event, VerdictWritten)
        lacking = sum(federation["peers"] - len(shard.contributors) for shard in event.verdict.shards)
        with lock:
            through[event.round] += 1
            missing[event.round] = max(missing[event.round], lacking)
            if through[event.round] < len(share):
                return
        told = {"time": time.monotonic(), "processor": time.process_time(), "pid": os.getpid()}
        told |= {"missing": lacking, "threads": threading.active_count()}
        pipe.send({**told, "bytes": bytes_sent() if event.round in (1, rounds - 1) else 0})
        if event.round == rounds - 1:
            last.set()

    def node_of(number: int) -> Node:
        name = names(federation["peers"])[number]
        credentials = Credentials(folder / "ca" / "peers" / name)
        task = FixedTask(federation["peers"], number, federation["n"])
        settings = NodeSettings(name, listen=("127.0.0.1", 0), advertise="127.0.0.1", patience=1800.0, wait=600.0)
        return Node(shared, credentials, task, private_root(0, number), settings, listeners=[report])

    nodes, endings = [node_of(number) for number in share], list[str]()
    pipe.send("here")
    pipe.recv()
    threads = [threading.Thread(target=lambda node=node: endings.append(node.run()), daemon=True) for node in nodes]
    for thread in threads:
        thread.start()
    last.wait()
    pipe.recv()
    for thread in threads:
        thread.join()
    pipe.send({"digests": [node.model_digest() for node in nodes], "endings": endings})


def hear(pipe: Connection, deadline: float) -> Any:
    if not wait([pipe], deadline - time.monotonic()):
        raise TimeoutError("a process did not answer in time")
    return pipe.recv()


def pss(pid: int) -> int:
    """Return the memory of a process, with its share of what others use as well."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
