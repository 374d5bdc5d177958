"""What every method reaches on real digits at the paper's settings, and whether the paper's order holds.

    python benchmarks/methods.py [--seeds 1 2 3] [--rounds 140] [--out FOLDER] [--methods …]

LeNet-5, 50 members with 16 samples each, one full-batch step a round (learning rate 0.01, momentum 0.9 kept over the
rounds), all 50 members aggregate. Noise as the paper has it: σ = 0.53, C = 1 on the gradients of single samples (ε = 10
*a round*; the JSON says what all rounds come to). PriPrune withholds 1 %, Shatter has l = 2 and r = 4, ω ≈ 30 for DSC.
Members with models of their own are evaluated every 20 rounds, all others every round. Prints one JSON object; the
figures of a method are accuracies on test data in the round with the least validation loss, seed by seed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eris.config import Config, load_config
from eris.events import Event, Listener, RunEnded
from eris.simulate.comparison import Comparison, arm

SETTINGS = [
    "data.name=mnist-sample", "data.samples=16", "data.validation=0.3", "members=50",
    "local.batch=full", "local.epochs=1", "local.lr=0.01", "local.momentum=0.9", "local.keep_state=true",
]  # fmt: skip
NOISE = "privacy.noise_multiplier=0.53,privacy.clip=1.0"
SELDOM = "evaluate_every=20"
ARMS = {
    "fedavg": "fedavg",
    "eris": "eris",
    "eris+dsc": "eris+dsc:compression.keep=0.0323",
    "eris+dsc independent": "eris+dsc:compression.keep=0.0323,compression.masks=independent",
    "fedavg-dpsgd": f"fedavg-dpsgd:{NOISE}",
    "soteriafl": f"soteriafl:{NOISE},privacy.unit=sample",
    "priprune": "priprune:baselines.prune=0.01",
    "priprune 10 %": "priprune:baselines.prune=0.1",
    "priprune pseudo": "priprune-pseudo:baselines.prune=0.01",
    "gossip": f"gossip:baselines.degree=4,{SELDOM}",
    "shatter": f"shatter:{SELDOM}",
    "ako": f"ako:{SELDOM}",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--rounds", type=int, default=140)
    parser.add_argument("--out", type=Path, help="where the runs are kept; the same again goes on there")
    parser.add_argument("--methods", nargs="+", choices=ARMS, default=list(ARMS), metavar="METHOD")
    options = parser.parse_args()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        out = options.out or Path(scratch)
        by_seed = [measure(seed, options.rounds, options.methods, out / f"seed-{seed}") for seed in options.seeds]
    methods = {name: gathered(name, by_seed) for name in options.methods}
    result = {
        "settings": SETTINGS,
        "rounds": options.rounds,
        "seeds": options.seeds,
        "methods": methods,
        "claims": claims(methods),
        "seconds": round(time.perf_counter() - began, 1),
    }
    print(json.dumps(result, indent=1))


def measure(seed: int, rounds: int, names: Sequence[str], out: Path) -> dict[str, Any]:
    """Run all methods from one seed and return what compare.json says of each."""
    arms = [arm(ARMS[name]) for name in names]
    result = Comparison(settings(seed, rounds), arms, out).run(lambda label, _: [progress(seed, label)])
    return dict(zip(names, result["methods"], strict=True))


def settings(seed: int, rounds: int) -> Config:
    return load_config(changes=[*SETTINGS, f"seed={seed}", f"rounds={rounds}"])


def progress(seed: int, label: str) -> Listener:
    def listen(event: Event) -> None:
        if isinstance(event, RunEnded):
            print(f"seed {seed} {label}: {event.rounds} rounds in {event.seconds:.0f} s", file=sys.stderr, flush=True)

    return listen


def gathered(name: str, by_seed: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    lines = [found[name] for found in by_seed]
    accuracies = [line["table"]["accuracy"]["mean"] for line in lines]
    first = lines[0]
    return {
        "arm": first["label"],
        "transforms": first["transforms"],
        "accuracy": accuracies,
        "mean": statistics.fmean(accuracies),
        "std": statistics.stdev(accuracies) if len(accuracies) > 1 else None,
        "final_accuracy": [line["table"]["final_accuracy"]["mean"] for line in lines],
        "worst_member": [last(line, "worst_accuracy") for line in lines],
        "consensus_distance": [last(line, "consensus_distance") for line in lines],
        "best_round": [line["table"]["best_round"]["mean"] for line in lines],
        "upload": first["table"]["upload"]["mean"],
        "download": first["table"]["download"]["mean"],
        "distribution_seconds": first["table"]["distribution_seconds"]["mean"],
        "exposure": first["table"]["exposure"]["mean"],
        "privacy": first["privacy"]["text"] if first["privacy"] else None,
        "privacy_of_one_round": first["privacy"]["per_round"]["text"] if first["privacy"] else None,
        "digests": [line["folds"][0]["digest"] for line in lines],
    }


def last(line: Mapping[str, Any], key: str) -> float | None:
    values = line["curve"].get(key, {"mean": [None]})["mean"]
    return values[-1]


def claims(methods: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Say of each claim whether it holds, and by how many points a method lies below FedAvg."""
    if "fedavg" not in methods:
        return {}
    server = methods["fedavg"]
    below = {name: round(100 * (server["mean"] - found["mean"]), 2) for name, found in methods.items()}
    said = {
        "eris": ("the digest of FedAvg", lambda found, _: found["digests"] == server["digests"]),
        "eris+dsc": ("within 3 points", lambda _, gap: gap <= 3),
        "eris+dsc independent": ("within 3 points", lambda _, gap: gap <= 3),
        "priprune": ("at least 3 points below", lambda _, gap: gap >= 3),
        "fedavg-dpsgd": ("at least 15 points below", lambda _, gap: gap >= 15),
        "shatter": ("at least 20 points below at the same rounds", lambda _, gap: gap >= 20),
    }
    return {
        name: {"claim": text, "below_fedavg_by_points": below[name], "holds": bool(holds(methods[name], below[name]))}
        for name, (text, holds) in said.items()
        if name in methods
    }


if __name__ == "__main__":
    main()
