"""How far it goes: seconds and memory of a round against members and participants, simulated or over real links.

    python benchmarks/scale.py --simulated [--members 1000,100000] [--plot docs/images/scaling-simulated.png]
    python benchmarks/scale.py --real [--points 10x10,50x10,200x20,1000x50] [--n 62000] [--rounds 10] [--masked]
                               [--beside 100] [--out FILE] [--plot docs/images/scaling-real.png]

**Real**: every peer is a TLS endpoint of its own, with its own certificate, links, threads and connection to the
coordinator; several of them share a process (at least eight processes), and the coordinator has one to itself. A point
KxA plays rounds of a task that returns a fixed vector, so that a round is nothing but the protocol. The start lasts
from the first peer's join to the end of the first round, in which everybody dials every aggregator. Figures of a round
leave out the first two and the last. Bytes between peers are the kernel's (TCP_INFO) over all links, closed ones and
handshakes included, of the whole run divided by its rounds; what the coordinator sends and receives is its own count of
documents; memory is the proportional share of all processes. Threads switch after 0.2 s instead of Python's 5 ms
(`sys.setswitchinterval`), since 125 peers share an interpreter here, which no real peer does. `--out` adds each point
to a file as it is measured; with `--points ""` the points in it are only drawn (docs/images/scaling-real.json has those
of the documentation; of a point that is there twice the later one counts). `--beside K` measures, beside each point of
up to K peers, the bare messages of its round (links.py) and Flower's server with as many clients, where every peer or
client is a process.

**Simulated**: every point is a whole `eris run` in a process of its own, with one worker: softmax regression on made-
up rows that are drawn when a member trains (27 values: what is measured is the machinery), one local step, A = 50;
metrics, byte counts, verdicts and the exposure ledger are on. One more point has 62,010 values (6,200 features, ten
classes). Told are the seconds until the first round begins, the median seconds of a round, what of these is not spent
in the members' training (by the clock, as members time themselves by it), the seconds from the last round to the end,
and the largest resident size. The other seconds are told by the clock and by the processor: on a machine that does
other work too, the latter are what an idle one would take. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

MEMBERS = (1_000, 10_000, 100_000, 1_000_000)
PARTICIPANTS = (10, 30, 100, 300, 1_000)
OF, TAKING_PART, AGGREGATORS, ROUNDS = 100_000, 100, 50, 12
LONG = 62_010  # values of the longer model
CLASSES = 10  # of the longer model
AIMS = {
    "start_processor_seconds_100k": 5.0,
    "round_processor_seconds_100k": 0.1,  # gradients included
    "round_processor_seconds_1m": 0.3,
    "memory_bytes_1m": 1e9,
}


def main() -> None:
    """Measure what is asked for and print it."""
    options = _options()
    if options.real:
        import scale_real

        scale_real.main(options)
        return
    if options.one:
        print(json.dumps(one(*map(int, options.one), fixed=options.fixed, values=options.values)))
        return
    members = [int(each) for each in options.members.split(",")] if options.members else MEMBERS
    against_members = [in_a_process(count, min(TAKING_PART, count)) for count in members]
    against_participants = [in_a_process(OF, count) for count in PARTICIPANTS] if not options.members else []
    report: dict[str, Any] = {"aggregators": AGGREGATORS, "rounds": ROUNDS}
    report |= {"against_members": against_members, "against_participants": against_participants}
    report |= {"longer": [] if options.members else [in_a_process(OF, TAKING_PART, LONG)]}
    report |= {"aims": AIMS, "reached": reached(against_members)}
    if options.plot:
        plot(report, options.plot)
    print(json.dumps(report, indent=2))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--simulated", action="store_true", help="crowds on this machine")
    kind.add_argument("--real", action="store_true", help="peers with certificates and links")
    parser.add_argument("--points", default="10x10,50x10,200x20,1000x50", help="real peers x aggregators")
    parser.add_argument("--n", type=int, default=62_000, help="values of the real model")
    parser.add_argument("--rounds", type=int, default=10, help="of a real federation")
    parser.add_argument("--processes", type=int, default=8, help="that real peers share, at least")
    parser.add_argument("--masked", action="store_true", help="real peers mask their shards")
    parser.add_argument("--seconds", type=float, default=1800.0, help="a real federation that takes longer is given up")
    parser.add_argument("--beside", type=int, default=0, help="compare points of up to that many peers with others")
    parser.add_argument("--out", type=Path, help="where real points are kept")
    parser.add_argument("--members", default="", help="only these numbers of members, e.g. 1000,100000")
    parser.add_argument("--plot", type=Path, help="where to draw it")
    parser.add_argument("--fixed", action="store_true", help="whole numbers, which workers add up")
    parser.add_argument("--values", type=int, default=0, help="length of the model of --one, instead of 27 values")
    parser.add_argument("--one", nargs=2, metavar=("MEMBERS", "PARTICIPANTS"), help="one point, here and now")
    return parser.parse_args()


def in_a_process(members: int, participants: int, values: int = 0) -> dict[str, float]:
    """Return one point, from a process of its own: memory is then that run's."""
    program = [sys.executable, __file__, "--simulated", "--one", str(members), str(participants)]
    program += [*(["--fixed"] if "--fixed" in sys.argv else []), "--values", str(values)]
    done = subprocess.run(program, capture_output=True, text=True, check=True, timeout=900)
    point: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    print(point, file=sys.stderr)
    return point


def one(members: int, participants: int, *, fixed: bool, values: int) -> dict[str, float]:
    """Run a federation and return what it took; `values` is the length of its model, 0 for the usual one."""
    from eris.config import load_config
    from eris.events import Event, MemberTrained, RoundEnded, RoundStarted, RunEnded
    from eris.simulate.run import run

    times: dict[str, list[float]] = {"begun": [], "ended": [], "over": []}
    training, processor = list[float](), list[float]()

    def listen(event: Event) -> None:
        if isinstance(event, RoundStarted):
            times["begun"].append(time.perf_counter())
            processor.append(time.process_time())
            training.append(0.0)
        elif isinstance(event, MemberTrained):
            training[-1] += event.seconds
        elif isinstance(event, RoundEnded):
            times["ended"].append(time.perf_counter())
        elif isinstance(event, RunEnded):
            times["over"].append(time.perf_counter())

    listen.hears = (RoundStarted, MemberTrained, RoundEnded, RunEnded)  # type: ignore[attr-defined]
    changes = [
        "method=eris", f"members={members}", f"participation={participants / members!r}", f"rounds={ROUNDS}",
        f"aggregators={AGGREGATORS}", "data.name=synthetic-clouds", "data.samples=5", "local.batch=full",
        "workers=1", f"evaluate_every={ROUNDS}", *(["server.encoding=fixed"] if fixed else []),
    ]  # fmt: skip
    began, worked = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        task = longer_task(members, values) if values else None
        result = run(load_config(changes=changes), Path(folder) / "run", task=task, listeners=[listen])
    rounds = [after - before for before, after in pairwise(times["begun"])][1:]
    of_processor = [after - before for before, after in pairwise(processor)][1:]
    beyond = [seconds - trained for seconds, trained in zip(rounds, training[1:], strict=False)]
    return {
        "members": members,
        "participants": participants,
        "values": result.summaries[0]["parameters"],
        "start_seconds": times["begun"][0] - began,
        "start_processor_seconds": processor[0] - worked,
        "round_seconds": statistics.median(rounds),
        "round_processor_seconds": statistics.median(of_processor),
        "round_seconds_beyond_training": statistics.median(beyond),
        "summary_seconds": times["over"][0] - times["ended"][-1],
        "memory_bytes": result.summaries[0]["peak_memory_bytes"],
    }


def longer_task(members: int, values: int) -> Any:
    """Return the same task with more features and ten classes."""
    from eris.local.numpy_task import LogisticTask
    from eris.seeds import public_root

    features = values // CLASSES - 1
    return LogisticTask.synthetic(members, public_root(0), samples=5, features=features, classes=CLASSES)


def reached(points: list[dict[str, float]]) -> dict[str, bool]:
    """Return which aims were met, of those that were measured."""
    by_members = {point["members"]: point for point in points}
    found: dict[str, float] = {}
    if (hundred := by_members.get(100_000)) is not None:
        found["start_processor_seconds_100k"] = hundred["start_processor_seconds"]
        found["round_processor_seconds_100k"] = hundred["round_processor_seconds"]
    if (million := by_members.get(1_000_000)) is not None:
        found["round_processor_seconds_1m"] = million["round_processor_seconds"]
        found["memory_bytes_1m"] = million["memory_bytes"]
    return {name: value <= AIMS[name] for name, value in found.items()}


def plot(report: dict[str, Any], path: Path) -> None:
    """Draw seconds of a round against members and against participants, and memory against members."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, middle, right) = pyplot.subplots(1, 3, figsize=(13, 3.8))
    for axes, points, key, title in (
        (left, report["against_members"], "members", f"{TAKING_PART} participants of K members"),
        (middle, report["against_participants"], "participants", f"participants of {OF:,} members"),
    ):
        axes.loglog([p[key] for p in points], [p["round_processor_seconds"] for p in points], marker="o")
        axes.set(xlabel=title, ylabel="processor seconds of a round")
        axes.set_ylim(bottom=0.003, top=3)
        axes.grid(alpha=0.3)
    for point in report["longer"]:
        middle.loglog(point["participants"], point["round_processor_seconds"], marker="D", color="C0", mfc="white")
        where = point["participants"], point["round_processor_seconds"]
        middle.annotate(f"n = {point['values']:,}", where, xytext=(-8, 4), ha="right", textcoords="offset points")
    points = report["against_members"]
    right.loglog([p["members"] for p in points], [p["memory_bytes"] / 1e6 for p in points], marker="o", label="MB")
    right.loglog(
        [p["members"] for p in points], [p["start_processor_seconds"] for p in points], marker="o", label="s to start"
    )
    right.set(xlabel="members K", ylabel="memory (MB), start (s)")
    right.legend()
    right.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Software": ""})


if __name__ == "__main__":
    main()
