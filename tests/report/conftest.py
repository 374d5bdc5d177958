"""
Run folders MADE FOR THE TESTS: the numbers follow formulas and no model was trained.

They have the shape of what `eris run` writes, so that the report can be tested in a second.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

BYTES = 246_824  # a model of 61,706 float32

WriteMethod = Callable[..., dict[str, Any]]


def _round(number: int, top: float, up: float, down: float, aggregates: bool) -> dict[str, Any]:
    accuracy = top - 0.85 * math.exp(-number / 4)
    hub, load = ("aggregator", 1) if aggregates else ("server", 10)
    return {
        "round": number,
        "loss": 2.3 * math.exp(-number / 5) + 1 - top,
        "accuracy": accuracy,
        "per_class": [max(0.0, accuracy - 0.01 * ((7 * digit) % 10) / 2) for digit in range(10)],
        "validation_loss": 2.35 * math.exp(-number / 5) + 1 - top,
        "bytes_up": {"member": up, hub: load * down},
        "bytes_down": {"member": down, hub: load * up},
        "seconds": {"train": 0.31, "transform": 0.008, "aggregate": 0.021 + up / 1e8, "step": 0.0006, "evaluate": 0.11},
    }


def write_method(
    folder: Path, method: str, *, rounds: int = 30, done: int | None = None, **changes: Any
) -> dict[str, Any]:
    """Write one method's folder and return its summary (which is not written if the run is unfinished)."""
    folder.mkdir(parents=True, exist_ok=True)
    sharded, compressed = method.startswith("eris"), method.endswith("dsc")
    up = BYTES * (0.9 if sharded else 1) / (31 if compressed else 1) + 48
    down = BYTES * (0.9 if sharded else 1) / (31 if compressed else 1) + 48
    top = 0.958 if compressed else 0.964
    finished = done is None
    lines = [_round(number, top, up, down, sharded) for number in range(1, (rounds if finished else done or 0) + 1)]
    (folder / "config.toml").write_text(
        f'method = "{method}"\nseed = 0\nrounds = {rounds}\nmembers = 10\naggregators = {10 if sharded else 1}\n\n'
        '[data]\nname = "mnist-sample"\npartition = "dirichlet"\n\n[model]\nname = "lenet5"\n\n[local]\nepochs = 1\n\n'
        "[network]\nup = 2e7\ndown = 2e7\n"
    )
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    summary = {
        "method": method,
        "rounds": rounds,
        "finished": finished,
        "parameters": 61_706,
        "transforms": "shift(rand_k(0.03))" if compressed else "identity()",
        "seed": 0,
        "members": 10,
        "aggregators": 10 if sharded else 1,
        "final_accuracy": lines[-1]["accuracy"] if lines else None,
        "best_accuracy": max((line["accuracy"] for line in lines), default=None),
        "best_round": rounds,
        "bytes": {"up_per_member_round": up, "down_per_member_round": down},
        "exposure": {
            "largest_share_per_round": (0.1 if sharded else 1.0) / (31 if compressed else 1),
            "union_over_rounds": 0.1 if sharded else 1.0,
        },
        "distribution_seconds": (up + down) / 20e6 * (1 if sharded else 10),
        "seconds": 14.2 + up / 1e5,
        "peak_memory_bytes": 512_000_000,
        "versions": {"eris-fl": "0.1.0", "numpy": "2.3.1", "torch": "2.13.0"},
        "notes": ["noise reproducible: no privacy claim"],
        "model_digest": ("c0ffee" if compressed else "ab12cd") + "0" * 58,
        **changes,
    }
    if finished:
        (folder / "summary.json").write_text(json.dumps(summary, indent=1))
    return summary


def verdict(
    round: int, shards: int = 10, members: int = 10, lost: tuple[int, ...] = (), absent: int | None = None
) -> str:
    """Return one line of verdicts.jsonl."""
    present = list(range(members))
    entries = [
        {
            "shard": shard,
            "aggregator": shard,
            "hash": "" if shard in lost else "ab" * 32,
            "contributors": [] if shard in lost else [m for m in present if not (shard == 0 and m == absent)],
            "lost": "the aggregator left" if shard in lost else "",
        }
        for shard in range(shards)
    ]
    return json.dumps({"run": "test", "epoch": 0, "round": round, "plan": "", "previous": "", "shards": entries,
                       "late": [3] if lost else [], "new_reference_epoch": False}) + "\n"  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a finished run of three methods, FedAvg and ERIS with the same digest."""
    directory = tmp_path / "run"
    for method in ("fedavg", "eris", "eris+dsc"):
        write_method(directory / method, method)
    return directory
