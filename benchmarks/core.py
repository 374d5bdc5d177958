"""How long the core takes, against a plain numpy copy of the same vector.

    python benchmarks/core.py [--sizes 1650000 11700000 67000000] [--repeats 9]

Prints one JSON object: for every size and both kinds of plan (coordinate by coordinate, in blocks of 1,024) the seconds
of each stage of one peer in a round with K = A = 10 (median), each also in copies. A copy is `numpy.copyto` of n
float32 into memory that is already there, taken in turn with the stage; split and reassemble write into such memory,
too. The ratio is one of processor time, so that a busy machine does not distort it. Memory is what a stage allocates at
its peak, its result included, in vectors of n float32: as numpy counts it, and as the kernel saw it (Linux only).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from eris.aggregate import Contribution, WeightedMean
from eris.local.spec import Vector
from eris.seeds import private_root, public_root
from eris.shards.plan import ShardPlan, scattered
from eris.step import optimizer_by_name
from eris.transforms import SendContext, chain, rand_k, shift
from eris.wire import encode_part, payload_length

SIZES = (1_650_000, 11_700_000, 67_000_000)
MEMBERS = AGGREGATORS = 10
LAYOUTS = {"coordinates": 1, "blocks": 1024}
AIMS = {"coordinates": 25.0, "blocks": 6.0}
MOST_VECTORS = 3.0

Stage = Callable[[], object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=lambda text: int(float(text)), nargs="+", default=SIZES, help="values of n")
    parser.add_argument("--repeats", type=int, default=9, help="timed runs of each stage, after one to warm up")
    options = parser.parse_args()
    results = [measure(n, kind, options.repeats) for n in options.sizes for kind in LAYOUTS]
    print(json.dumps({"machine": machine(), "K": MEMBERS, "A": AGGREGATORS, "results": results}, indent=1))


def machine() -> dict[str, object]:
    return {"cpus": os.cpu_count(), "platform": platform.platform(), "numpy": np.__version__}


def measure(n: int, kind: str, repeats: int) -> dict[str, object]:
    vector = np.random.default_rng(n).standard_normal(n, dtype=np.float32)
    clock = Clock(vector, repeats)
    for name, stage in stages(vector, LAYOUTS[kind]):
        print(f"n = {n:,} {kind}: {name}", file=sys.stderr, flush=True)
        clock.run(name, stage)
    return {"n": n, "plan": kind, "copy_seconds": clock.copy_seconds, "stages": clock.stages, **aims(clock, kind)}


def aims(clock: Clock, kind: str) -> dict[str, object]:
    share = sum(clock.stages[name]["copies"] for name in ("split", "aggregate", "reassemble"))
    largest = max(stage["allocated_vectors"] for stage in clock.stages.values())
    return {
        "split_aggregate_reassemble_copies": round(share, 2),
        "aim_copies": AIMS[kind],
        "largest_allocation_vectors": largest,
        "aims_met": share < AIMS[kind] and largest <= MOST_VECTORS,
    }


def stages(vector: Vector, block: int) -> list[tuple[str, Stage]]:
    """Return every stage with what it needs already made."""
    n = vector.size
    plan = scattered(n, AGGREGATORS, public_root(1), block=block)
    parts, out, buffer = plan.split(vector), np.ones(n, np.float32), np.ones(n, np.float32)
    share = parts[0].size
    given = [Contribution(k, np.float32(1 / MEMBERS), vector[k : k + share].copy()) for k in range(MEMBERS)]
    mean = np.ones(share, np.float32)
    return [
        ("plan", lambda: planned(n, block)),
        ("split", lambda: plan.split(vector, out=buffer)),
        ("encode_dense", encoding(vector, plan, chain())),
        ("encode_dsc_1_percent", encoding(vector, plan, chain(shift(rand_k(0.01))))),
        ("aggregate", lambda: WeightedMean().fold(given, mean)),
        ("reassemble", lambda: plan.reassemble(parts, out=out)),
        ("step_fedavg", stepping("fedavg", vector)),
        ("step_fedadam", stepping("fedadam", vector)),
    ]


def planned(n: int, block: int) -> ShardPlan:
    plan = scattered(n, AGGREGATORS, public_root(1), block=block)
    for shard in range(AGGREGATORS):
        plan.segments[0].blocks_of(shard)  # tables are made at first use: count them here
    return plan


def encoding(vector: Vector, plan: ShardPlan, transforms: Any) -> Stage:
    """Transform, compress, cut into shards and write: all a member does between training and sending."""
    private, public = transforms.private_state(vector.size), transforms.public_state(vector.size)
    context = SendContext(0, 0, plan, public_root(1), private_root(1, 0), tensor_sizes=(vector.size,))

    def encode() -> int:
        packed = transforms.outgoing(vector, private, public, context).packed
        return sum(payload_length(encode_part(part, plan)) for part in packed.parts(plan))

    return encode


def stepping(name: str, direction: Vector) -> Stage:
    optimizer, model = optimizer_by_name(name), np.ones_like(direction)
    state = optimizer.init(direction.size)
    return lambda: optimizer.apply(model, direction, state)


class Clock:
    """Times stages in turn with a copy of the vector, and looks at their memory in a run of its own."""

    def __init__(self, vector: Vector, repeats: int) -> None:
        self.vector, self.target, self.repeats = vector, np.ones_like(vector), repeats
        self.stages: dict[str, dict[str, Any]] = {}
        self.copies: list[float] = []

    @property
    def copy_seconds(self) -> float:
        """Median time of a copy over the whole run."""
        return statistics.median(self.copies)

    def run(self, name: str, stage: Stage) -> None:
        """Measure a stage."""
        allocated, resident = self.memory(stage)  # warms up, too
        jobs = (stage, lambda: np.copyto(self.target, self.vector))
        turns = np.array([[seconds(job) for job in jobs] for _ in range(self.repeats)])
        wall, processor = np.median(turns, axis=0).T.tolist()
        self.copies += turns[:, 1, 0].tolist()
        self.stages[name] = {
            "seconds": wall[0],
            "copies": round(processor[0] / processor[1], 2),
            "allocated_vectors": allocated,
            "resident_vectors": resident,
        }

    def memory(self, stage: Stage) -> tuple[float, float | None]:
        """Return the stage's peak in vectors of n: as numpy counts it, as the kernel saw it."""
        vector_bytes, before = 4 * self.vector.size, reset_peak_resident()
        stage()
        grown = None if before is None else round((peak_resident() - before) / vector_bytes, 2)
        tracemalloc.start()
        stage()
        allocated = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return round(allocated / vector_bytes, 2), grown


def seconds(stage: Stage) -> tuple[float, float]:
    """Return how long a stage takes: by the clock, and of the processor."""
    wall, processor = time.perf_counter(), time.thread_time()
    stage()
    return time.perf_counter() - wall, time.thread_time() - processor


def reset_peak_resident() -> int | None:
    """Let the kernel forget the peak so far and return what is resident now; None where it cannot."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return None
    return peak_resident()


def peak_resident() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    main()
