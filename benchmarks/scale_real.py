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

from network import Case, FixedTask, bare_links, beside, flower_server, process

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
LEAST_ROUNDS = 4
AIMS = {"start_seconds": 300.0, "round_seconds": 30.0, "memory_bytes": 12e9}


def main(options: argparse.Namespace) -> None:
    """Measure the points that are asked for, and keep them."""
    if options.rounds < LEAST_ROUNDS:
        sys.exit(f"--rounds: at least {LEAST_ROUNDS}, since two to warm up and the last one are not counted")
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


SERIES_A = 10  # aggregators of the series against peers
SERIES_K = 50  # peers of the series against aggregators
IDEAL, FLOWER, BARE = "lower bound: 8 n (K − 1)", "Flower's server", "bare messages"


def plot(points: list[dict[str, Any]], path: Path) -> None:
    """Draw what grows with the peers, the aggregators and the model.

    The series against K has A = 10 throughout; a point with other aggregators stands beside it, with its A. Grey dashes
    grow in proportion from the first point of a series. Of a point that was measured twice the later one is drawn.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    plain = [point for point in points if "notice" not in point and not point["masked"]]
    measured = list({(point["peers"], point["aggregators"], point["n"]): point for point in plain}.values())
    smallest = min(point["n"] for point in measured)
    crowds = [point for point in measured if point["n"] == smallest]
    by_peers = _sorted(crowds, "peers", aggregators=SERIES_A)
    loose = [point for point in crowds if point["aggregators"] != SERIES_A and point["peers"] != SERIES_K]
    by_aggregators = _sorted(crowds, "aggregators", peers=SERIES_K)
    by_length = _sorted(measured, "n", peers=10, aggregators=10)
    figure, axes = pyplot.subplots(3, 3, figsize=(14, 12))
    for row, (what, unit, value) in enumerate((("time", "s", _seconds), ("all bytes", "MB", _megabytes))):
        against_k, against_a, against_n = (Panel(place, value, f"{what} of a round ({unit})") for place in axes[row])
        furthest = max(point["peers"] for point in crowds) if value is _seconds else 0
        against_k.series(by_peers, "peers", "eris, A = 10", furthest)
        against_k.loose(loose)
        against_a.series(by_aggregators, "aggregators", f"eris, K = {SERIES_K}")
        against_n.series(by_length, "n", "eris, K = A = 10", by_length[-1]["n"] if value is _seconds else 0)
        for panel, series, across in ((against_k, by_peers, "peers"), (against_n, by_length, "n")):
            panel.others(series, across)
        against_a.level(by_aggregators)
        if row:
            against_k.formula([*by_peers, *loose], "peers")
            against_a.formula(by_aggregators, "aggregators")
            against_n.formula(by_length, "n")
        against_a.from_zero()
        for panel, title in ((against_k, "peers K"), (against_a, "aggregators A"), (against_n, "values n")):
            panel.finish(title)
    quantities = (
        ("the coordinator sends in a round (kB)", lambda point: point["coordinator_sent"] / 1e3),
        ("processor of the coordinator in a round (s)", lambda point: point["coordinator_processor_seconds"]),
        ("memory of all processes (GB)", lambda point: point["memory_bytes"] / 1e9),
    )
    for place, (what, value) in zip(axes[2], quantities, strict=True):
        panel = Panel(place, value, what)
        panel.series(by_peers, "peers", "eris, A = 10", max(point["peers"] for point in crowds))
        panel.loose(loose)
        panel.finish("peers K")
    figure.suptitle(f"n = {smallest:,} unless n is the axis; {SERIES_A} aggregators unless marked; two cores", y=0.995)
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Software": ""})


class Panel:
    """One quantity over one column of the points, both in logarithms."""

    def __init__(self, place: Any, value: Callable[[dict[str, Any]], float | None], name: str) -> None:
        self._place, self._value, self._name = place, value, name
        self._ticks: set[int] = set()

    def series(self, points: list[dict[str, Any]], across: str, label: str, furthest: int = 0) -> None:
        """Draw a line through points and, up to a column, one that grows in proportion from the first of them."""
        there = [(point[across], value) for point in points if (value := self._value(point)) is not None]
        self._place.loglog(*zip(*there, strict=True), marker="o", color="C0", label=label, zorder=3)
        self._ticks |= {column for column, _ in there}
        if furthest:
            left, low = there[0]
            self._place.loglog(
                [left, furthest], [low, low * furthest / left], "--", color="grey", label="in proportion"
            )

    def loose(self, points: list[dict[str, Any]]) -> None:
        """Draw points with other aggregators, each with its A, against peers."""
        for point in points:
            if (value := self._value(point)) is not None:
                self._place.loglog(point["peers"], value, marker="D", color="C0", markerfacecolor="white", zorder=4)
                text = f"A = {point['aggregators']}"
                self._place.annotate(
                    text, (point["peers"], value), xytext=(-8, 4), ha="right", textcoords="offset points"
                )
                self._ticks.add(point["peers"])

    def others(self, points: list[dict[str, Any]], across: str) -> None:
        """Draw Flower and the bare messages where they were measured beside a point."""
        for name, label, color in (("flower", FLOWER, "C1"), ("links", BARE, "C2")):
            there = [(point[across], value) for point in points if (value := self._of(point, name)) is not None]
            if there:
                self._place.loglog(*zip(*there, strict=True), marker="s", color=color, label=label)

    def level(self, points: list[dict[str, Any]]) -> None:
        """Draw Flower, which has no aggregators, and the bare messages as they were with some, from side to side."""
        for name, label, color in (("flower", FLOWER, "C1"), ("links", BARE, "C2")):
            for point in points:
                if (value := self._of(point, name)) is not None:
                    of = f" (A = {point['aggregators']})" if name == "links" else ""
                    self._place.axhline(value, linestyle="-.", color=color, label=f"{label}{of}")
                    break

    def formula(self, points: list[dict[str, Any]], across: str) -> None:
        """Draw the least that any exchange of shards sends, and what a server sends and receives on paper."""
        columns = sorted({point[across] for point in points})
        of = {point[across]: point for point in points}
        least = [8e-6 * of[column]["n"] * (of[column]["peers"] - 1) for column in columns]
        server = [8e-6 * of[column]["n"] * of[column]["peers"] for column in columns]
        self._place.loglog(columns, least, ":", color="black", label=IDEAL)
        self._place.loglog(columns, server, ":", color="C1", label="Flower on paper: 8 n K")

    def from_zero(self) -> None:
        """Show the heights as they are: this quantity grows little."""
        self._place.set_yscale("linear")
        self._place.set_ylim(0, 1.5 * self._place.get_ylim()[1])

    def finish(self, title: str) -> None:
        """Write names and numbers."""
        place, columns = self._place, sorted(self._ticks)
        place.set(title=self._name, xlabel=title)
        place.set_xticks(columns, [_short(column) for column in columns])
        place.xaxis.minorticks_off()
        place.margins(x=0.12, y=0.12)
        place.grid(alpha=0.3)
        place.legend(fontsize=8, loc="upper left")

    def _of(self, point: dict[str, Any], name: str) -> float | None:
        other = point.get(name, {})
        if self._value is _seconds:
            return other.get("seconds")
        return other["bytes"] / 1e6 if "bytes" in other else None


def _sorted(points: list[dict[str, Any]], across: str, **fixed: int) -> list[dict[str, Any]]:
    """Return the points in which everything else is as given, in order."""
    chosen = [point for point in points if all(point[name] == value for name, value in fixed.items())]
    return sorted(chosen, key=lambda point: int(point[across]))


def _short(number: int) -> str:
    return f"{number / 1e6:g} M" if number >= 1e6 else f"{number / 1e3:g} k" if number >= 1e4 else f"{number:,}"


def _seconds(point: dict[str, Any]) -> float:
    return float(point["round_seconds"])


def _megabytes(point: dict[str, Any]) -> float | None:
    """Return all bytes of a round: what peers send each other, what they tell the coordinator, and what it sends."""
    if "bytes" not in point:
        return None
    return float(point["bytes"] + point["coordinator_sent"] + point["coordinator_received"]) / 1e6


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
    """Return the point: the median round, and what a round adds to everything that is counted.

    Left out are the first two rounds and the last: whoever is through a round begins the next at once, so what is read
    at the end of a round has some of the next in it, except in the last. Bytes between peers are therefore those of the
    whole run, handshakes and all, divided by its rounds.
    """
    times = [each["time"] for each in told]
    rounds = [after - before for before, after in pairwise(times[1:-1])]
    first, last, count = told[1], told[-2], len(told) - 3

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
        "bytes": round(sum(end["bytes"] for end in ends) / len(told)),
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
        pipe.send(told)
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
    pipe.send({"digests": [node.model_digest() for node in nodes], "endings": endings, "bytes": sent_by(nodes)})


def sent_by(nodes: list[Node]) -> int:
    """Return what these peers have sent to others over links by the kernel's count, over closed ones too."""
    accounts = (
        account
        for node in nodes
        for account in (*node.links.clients.accounts(node.federation.peers), *node.links.server.accounts())
    )
    return sum(account.kernel_sent for account in accounts)


def hear(pipe: Connection, deadline: float) -> Any:
    if not wait([pipe], deadline - time.monotonic()):
        raise TimeoutError("a process did not answer in time")
    return pipe.recv()


def pss(pid: int) -> int:
    """Return the memory of a process, with its share of what others use as well."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
