"""Does compression cost accuracy? ERIS+DSC at ω ≈ 30 against FedAvg on real digits, over seeds, paired.

The paper's setting: LeNet-5, 50 members with 16 samples each, one full-batch step a round (lr 0.01, momentum 0.9 kept
over rounds), 140 rounds. Prints one JSON object: accuracy of every run, and for shared and for independent masks the
mean difference to FedAvg with its paired 95 % interval.

    python benchmarks/accuracy.py [--seeds 5] [--rounds 140] [--members 50]
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
from typing import Any

from eris import Federation

# Two-sided 95 % quantiles of Student's t for 1 … 9 degrees of freedom.
_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "fedavg": ("fedavg", {}),
    "shared masks": ("eris+dsc", {"keep": 1 / 31, "masks": "shared"}),
    "independent masks": ("eris+dsc", {"keep": 1 / 31, "masks": "independent"}),
}


def accuracy(variant: str, seed: int, members: int, rounds: int) -> float:
    """Return the final test accuracy of one run, in percent."""
    method, compression = VARIANTS[variant]
    federation = Federation(
        "lenet5",
        {"name": "mnist-sample", "samples": 16, "fold": seed},
        method,
        seed=seed,
        members=members,
        aggregators=members,
        rounds=rounds,
        evaluate_every=rounds,
        local={"steps": 1, "batch": "full", "lr": 0.01, "momentum": 0.9, "keep_state": True},
        compression=compression,
    )
    with tempfile.TemporaryDirectory() as folder:
        summary = federation.run(f"{folder}/run")[method]
    return 100 * float(summary["final_accuracy"])


def interval(differences: list[float]) -> dict[str, float]:
    """Return the mean of paired differences and its 95 % interval."""
    mean, count = statistics.fmean(differences), len(differences)
    half = _T95[count - 2] * statistics.stdev(differences) / math.sqrt(count) if count > 1 else math.inf
    return {"mean": mean, "low": mean - half, "high": mean + half}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, choices=range(2, 11))
    parser.add_argument("--rounds", type=int, default=140)
    parser.add_argument("--members", type=int, default=50)
    chosen = parser.parse_args()
    runs: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    for seed in range(1, chosen.seeds + 1):
        for variant, found in runs.items():
            found.append(accuracy(variant, seed, chosen.members, chosen.rounds))
            print(f"seed {seed}: {variant} {found[-1]:.1f} %", file=sys.stderr)
    differences = {
        variant: interval([mine - base for mine, base in zip(found, runs["fedavg"], strict=True)])
        for variant, found in runs.items()
        if variant != "fedavg"
    }
    within = {variant: found["low"] >= -3 and found["high"] <= 3 for variant, found in differences.items()}
    print(
        json.dumps({"accuracy": runs, "difference_to_fedavg_points": differences, "within_3_points": within}, indent=2)
    )


if __name__ == "__main__":
    main()
