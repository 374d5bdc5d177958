"""Does compression cost accuracy, does fixed point? ERIS+DSC and whole numbers against FedAvg on real digits, paired.

    python benchmarks/accuracy.py [--seeds 5] [--rounds 140] [--members 50] [--omegas 30 10 3]
    python benchmarks/accuracy.py --only fixed-point
    python benchmarks/accuracy.py --only masked [--seeds 5] [--on digits cifar10] [--methods eris eris+dsc]

The paper's setting: LeNet-5, 50 members that train on 16 samples each, one full-batch step a round (lr 0.01, momentum
0.9 kept over rounds), 140 rounds, ω ≈ 30; beside it ω = 10 and 3, which shows whether a difference is that of the
compression. Prints one JSON object. For each ω, with shared and with independent masks: the mean difference to FedAvg
with its paired 95 % interval, in the round with the least validation loss (as the paper chooses it; further samples of
each member, beside its 16, are held out for that) and in the last round. `swing` is the mean change of the accuracy
between two evaluations, five rounds apart, in the second half of a run, in points: how much one such figure says.

`fixed_point` is the error of one mean of K updates of standard deviation 10⁻³ against the exact one, ‖error‖/‖mean‖, as
floats and as whole numbers, with R = 1 and with the R that follows such means (`server.limit = "auto"`).

`--only masked` trains ERIS and ERIS+DSC in floats and with masked shards, paired by seed: the digits as `make run` has
them, and ResNet-9 on CIFAR-10 (`eris data get cifar10`), five members of 500 samples, 40 rounds of 5 batches of 16 (two
minutes of a core a run), on 1,000 test pictures. Accuracies are those of the last round. The rounds and the learning
rate were chosen with another seed, in floats: 0.05 came to 37 %, 0.02 to 32 %.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eris import Federation
from eris.aggregate import Contribution, WeightedMean
from eris.aggregate.fixed_point import RingScale, add, next_limit
from eris.protocol.roster import roster_weights

# Two-sided 95 % quantiles of Student's t for 1 … 9 degrees of freedom.
_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)

Variant = tuple[str, dict[str, Any]]  # a method and its tables of settings


def variants(omegas: list[float]) -> dict[str, Variant]:
    """Return FedAvg, the same in whole numbers, and both kinds of masks for every ω = 1/keep − 1."""
    found: dict[str, Variant] = {"fedavg": ("fedavg", {}), "fixed point": ("eris", {"server": {"encoding": "fixed"}})}
    for omega in omegas:
        for masks in ("shared", "independent"):
            settings = {"compression": {"keep": 1 / (1 + omega), "masks": masks}}
            found[f"{masks} masks, ω = {omega:g}"] = ("eris+dsc", settings)
            if masks == "shared":
                fixed = ("eris+dsc", {**settings, "server": {"encoding": "fixed"}})
                found[f"{masks} masks, ω = {omega:g}, fixed point"] = fixed
    return found


def errors_of_the_mean(members: int, n: int = 100_000) -> dict[str, float]:
    """Return ‖error‖/‖mean‖ of one round's mean: folded in floats, and in whole numbers under two limits."""
    random = np.random.default_rng(members)
    weights = roster_weights(random.integers(50, 150, members).tolist())
    updates = [random.normal(0, 1e-3, n).astype(np.float32) for _ in range(members)]
    exact = sum(np.float64(w) * update for w, update in zip(weights, updates, strict=True))
    folded = np.empty(n, np.float32)
    given = [Contribution(k, w, update) for k, (w, update) in enumerate(zip(weights, updates, strict=True))]
    WeightedMean().fold(given, folded)
    found, largest = {"floats": folded}, float(np.abs(folded).max())
    for name, limit in (("R = 1", 1.0), ("R follows", next_limit(largest, first=1.0, members=members))):
        scale, total = RingScale(limit), np.zeros(n, np.uint32)
        for w, update in zip(weights, updates, strict=True):
            add(total, scale.encode(update, w).values)
        found[name] = scale.decode_sum(total)
    return {name: float(np.linalg.norm(mean - exact) / np.linalg.norm(exact)) for name, mean in found.items()}


# What `--only masked` trains: `make run` as it is, and CIFAR-10 at a size for an hour, not days.
_MASKED: dict[str, dict[str, Any]] = {
    "digits": {"model": "lenet5", "data": "mnist-sample", "members": 10, "evaluate_every": 80},
    "cifar10": {
        "model": "resnet9",
        "data": {"name": "cifar10", "samples": 500, "test_samples": 1000, "validation": 0.0},
        "members": 5,
        "rounds": 40,
        "evaluate_every": 40,
        "local": {"steps": 5, "batch": 16, "lr": 0.05},
    },
}


def masked_and_float(seeds: Sequence[int], on: list[str], methods: list[str]) -> dict[str, Any]:
    """Return the last accuracies in floats and with masked shards, and their paired differences in points."""
    found: dict[str, Any] = {}
    for name in on:
        settings = dict(_MASKED[name])
        model, data = settings.pop("model"), settings.pop("data")
        for method in methods:
            last: dict[str, list[float]] = {method: [], f"{method}+masked": []}
            for seed, each in itertools.product(seeds, last):
                with tempfile.TemporaryDirectory() as folder:
                    federation = Federation(model, data, each, seed=seed, **settings)
                    last[each].append(100 * float(federation.run(f"{folder}/run")[each]["final_accuracy"]))
                print(f"{name}, seed {seed}: {each} {last[each][-1]:.2f} %", file=sys.stderr, flush=True)
            plain, masked = last.values()
            differences = [a - b for a, b in zip(masked, plain, strict=True)]
            found[f"{name}, {method}"] = {"accuracies": last, "masked_less_float": interval(differences)}
    return found


@dataclass(frozen=True)
class Figures:
    """Test accuracies of one run, in percent."""

    best: float  # where the validation loss is least
    last: float
    swing: float  # mean change between two evaluations in the second half


def measure(variant: Variant, seed: int, members: int, rounds: int) -> Figures:
    """Run once."""
    method, settings = variant
    federation = Federation(
        "lenet5",
        {"name": "mnist-sample", "samples": 16, "validation": 0.2, "fold": seed},
        method,
        seed=seed,
        members=members,
        aggregators=members,
        rounds=rounds,
        evaluate_every=5,
        local={"steps": 1, "batch": "full", "lr": 0.01, "momentum": 0.9, "keep_state": True},
        **settings,
    )
    with tempfile.TemporaryDirectory() as folder:
        summary = federation.run(f"{folder}/run")[method]
        lines = map(json.loads, (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines())
        curve = [100 * line["accuracy"] for line in lines if line.get("accuracy") is not None]
    half = curve[len(curve) // 2 :]
    swing = statistics.fmean(abs(after - before) for before, after in itertools.pairwise(half))
    return Figures(100 * float(summary["best_accuracy"]), 100 * float(summary["final_accuracy"]), swing)


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
    parser.add_argument("--omegas", type=float, nargs="+", default=[30.0, 10.0, 3.0])
    parser.add_argument("--only", choices=["fixed-point", "masked"], help="the errors of means; floats against masks")
    parser.add_argument("--on", choices=list(_MASKED), nargs="+", default=list(_MASKED), help="for --only masked")
    parser.add_argument("--methods", nargs="+", default=["eris", "eris+dsc"], help="for --only masked")
    parser.add_argument("--first-seed", type=int, default=1, help="for --only masked: to add seeds to earlier ones")
    chosen = parser.parse_args()
    if chosen.only == "masked":
        seeds = range(chosen.first_seed, chosen.first_seed + chosen.seeds)
        print(json.dumps(masked_and_float(seeds, chosen.on, chosen.methods), indent=2))
        return
    errors = {f"K = {members}": errors_of_the_mean(members) for members in (10, 100, 1000)}
    if chosen.only:
        print(json.dumps({"fixed_point": errors}, indent=2))
        return
    all_variants = variants(chosen.omegas)
    runs: dict[str, list[Figures]] = {name: [] for name in all_variants}
    for seed in range(1, chosen.seeds + 1):
        for name, found in runs.items():
            found.append(measure(all_variants[name], seed, chosen.members, chosen.rounds))
            print(f"seed {seed}: {name} {found[-1]}", file=sys.stderr)
    figures = {v: list(map(asdict, found)) for v, found in runs.items()}
    print(json.dumps({"runs": figures, **judged(runs), "fixed_point": errors}, indent=2))


def judged(runs: dict[str, list[Figures]]) -> dict[str, Any]:
    """Return the differences to FedAvg and whether those of the chosen rounds are small."""
    differences = {
        variant: {
            figure: interval(
                [getattr(a, figure) - getattr(b, figure) for a, b in zip(found, runs["fedavg"], strict=True)]
            )
            for figure in ("best", "last")
        }
        for variant, found in runs.items()
        if variant != "fedavg"
    }
    within = {v: found["best"]["low"] >= -3 and found["best"]["high"] <= 3 for v, found in differences.items()}
    return {"difference_to_fedavg_points": differences, "within_3_points": within}


if __name__ == "__main__":
    main()
