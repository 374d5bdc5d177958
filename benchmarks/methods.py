"""What every method reaches on real digits at the paper's settings, and whether the paper's order holds.

    python benchmarks/methods.py [--seeds 1 2 3] [--rounds 140] [--minutes 28] [--out FOLDER] [--methods …]

LeNet-5, 50 members with 16 samples each, one full-batch step a round (learning rate 0.01, momentum 0.9 kept over the
rounds), all 50 members aggregate. Noise as the paper has it: σ = 0.53, C = 1 on the gradients of single samples (ε = 10
*a round*; the JSON says what all rounds come to). PriPrune withholds 1 %, Shatter has l = 2, r = 4 (its members begin
with the same model, as in all other methods, or each with its own), ω ≈ 30 for DSC. Members with models of their own
are evaluated every 20 rounds, all others every round.

Prints one JSON object; the figures of a method are accuracies on test data in the round with the least validation loss,
seed by seed. What the paper makes a claim about runs first, with all seeds; the rest runs as long as there is time, and
what was left out is named. If you stop it, it prints the JSON of what was done; with the same `--out` it continues. The
JSON is also in FOLDER/methods.json, up to date after every run.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from eris.config import Config, load_config
from eris.methods import with_defaults
from eris.simulate.comparison import arm
from eris.simulate.method_run import MethodRun
from eris.simulate.run import Engines

SETTINGS = [
    "data.name=mnist-sample", "data.samples=16", "data.validation=0.3", "members=50",
    "local.batch=full", "local.epochs=1", "local.lr=0.01", "local.momentum=0.9", "local.keep_state=true",
]  # fmt: skip
NOISE = "privacy.noise_multiplier=0.53,privacy.clip=1.0"
SELDOM = "evaluate_every=20"
CLAIMED = {  # what the paper makes a claim about
    "fedavg": "fedavg",
    "eris": "eris",
    "eris+dsc": "eris+dsc:compression.keep=0.0323",
    "eris+dsc independent": "eris+dsc:compression.keep=0.0323,compression.masks=independent",
    "priprune": "priprune:options.priprune.prune=0.01",
    "shatter": f"shatter:{SELDOM}",
    "shatter, own starts": f"shatter:options.shatter.start=own,{SELDOM}",
    "fedavg-dpsgd": f"fedavg-dpsgd:{NOISE}",
}
BESIDE = {  # as long as there is time
    "soteriafl": f"soteriafl:{NOISE},privacy.unit=sample",
    "priprune 10 %": "priprune:options.priprune.prune=0.1",
    "qdpsgd": f"qdpsgd:{NOISE},privacy.unit=sample,{SELDOM}",
    "ako": f"ako:{SELDOM}",
    "fedavg-ldp": f"fedavg-ldp:{NOISE}",
    "gossip": f"gossip:options.gossip.degree=4,{SELDOM}",
    "cdp-sgd": f"cdp-sgd:{NOISE},privacy.unit=sample",
    "priprune pseudo": "priprune-pseudo:options.priprune-pseudo.prune=0.01",
}
ARMS = CLAIMED | BESIDE


def main() -> None:
    options = _options()
    signal.signal(signal.SIGTERM, _interrupt)
    with tempfile.TemporaryDirectory() as scratch:
        out = options.out or Path(scratch)
        out.mkdir(parents=True, exist_ok=True)
        results = Results(options.seeds, options.rounds)
        try:
            for name, seed, found in runs(options, out):
                results.add(name, seed, found)
                (out / "methods.json").write_text(results.text())
        except KeyboardInterrupt:
            print("stopped: this is what was done", file=sys.stderr)
        results.left_out = [name for name in options.methods if name not in results.found]
        print(results.text())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--rounds", type=int, default=140)
    parser.add_argument("--minutes", type=float, default=28, help="after these nothing is begun that has no claim")
    parser.add_argument("--out", type=Path, help="where the runs are kept; the same again goes on there")
    parser.add_argument("--methods", nargs="+", choices=ARMS, default=list(ARMS), metavar="METHOD")
    return parser.parse_args()


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def runs(options: argparse.Namespace, out: Path) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Run seed after seed what has a claim, then method after method what has none, while there is time."""
    began, longest = time.perf_counter(), 0.0
    claimed = [(name, seed) for seed in options.seeds for name in CLAIMED if name in options.methods]
    beside = [(name, seed) for name in BESIDE if name in options.methods for seed in options.seeds]
    with Engines() as engines:
        for name, seed in claimed + beside:
            spent = time.perf_counter() - began
            if name in BESIDE and spent + longest > 60 * options.minutes:
                return
            found = measure(name, seed, options.rounds, out / f"seed-{seed}" / name.replace(" ", "-"), engines)
            longest = max(longest, time.perf_counter() - began - spent)
            seconds = found["summary"]["seconds"]
            print(f"seed {seed} {name}: {options.rounds} rounds in {seconds:.0f} s", file=sys.stderr, flush=True)
            yield name, seed, found


def measure(name: str, seed: int, rounds: int, folder: Path, engines: Engines) -> dict[str, Any]:
    """Run one method from one seed, or go on with it, and return its summary and its last round."""
    config = settings(name, seed, rounds)
    engine = engines.for_config(config)
    run = MethodRun(engine.facts.compose(config), folder, engine)
    return {"summary": run.run(resume=True), "last": run.folder.rounds()[-1]}


def settings(name: str, seed: int, rounds: int) -> Config:
    chosen = arm(ARMS[name])
    changes = [*SETTINGS, f"seed={seed}", f"rounds={rounds}", f"method={chosen.method}", *chosen.changes]
    return with_defaults(load_config(changes=changes), chosen.method)


@dataclass
class Results:
    """What was found so far: method → seed → summary and last round."""

    seeds: Sequence[int]
    rounds: int
    found: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def add(self, name: str, seed: int, found: dict[str, Any]) -> None:
        """Take down one run."""
        self.found.setdefault(name, {})[seed] = found

    def text(self) -> str:
        """Return everything as JSON."""
        methods = {name: gathered(name, by_seed) for name, by_seed in self.found.items()}
        seconds = [run["summary"]["seconds"] for by_seed in self.found.values() for run in by_seed.values()]
        result = {
            "settings": SETTINGS,
            "rounds": self.rounds,
            "seeds": list(self.seeds),
            "claims": claims(methods),
            "methods": methods,
            "left_out": self.left_out,
            "seconds": round(sum(seconds), 1),
        }
        return json.dumps(result, indent=1)


def gathered(name: str, by_seed: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """Return a method's figures, seed by seed where they differ."""
    summaries = [run["summary"] for run in by_seed.values()]
    first, accuracies = summaries[0], [summary["best_accuracy"] for summary in summaries]
    privacy = first["privacy"]
    return {
        "arm": ARMS[name],
        "seeds": list(by_seed),
        "transforms": first["transforms"],
        "accuracy": accuracies,
        "mean": statistics.fmean(accuracies),
        "std": statistics.stdev(accuracies) if len(accuracies) > 1 else None,
        "final_accuracy": [summary["final_accuracy"] for summary in summaries],
        "worst_member": [run["last"].get("worst_accuracy") for run in by_seed.values()],
        "consensus_distance": [run["last"].get("consensus_distance") for run in by_seed.values()],
        "best_round": [summary["best_round"] for summary in summaries],
        "upload": first["bytes"]["up_per_member_round"],
        "download": first["bytes"]["down_per_member_round"],
        "distribution_seconds": first["distribution_seconds"],
        "exposure": first["exposure"].get("largest_share_per_round"),
        "privacy": privacy["text"] if privacy else None,
        "privacy_of_one_round": privacy["per_round"]["text"] if privacy else None,
        "digests": [summary["model_digest"] for summary in summaries],
        "seconds": [round(summary["seconds"], 1) for summary in summaries],
    }


def claims(methods: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Say of each method how many points it lies below FedAvg, and of each claim whether it holds."""
    if "fedavg" not in methods:
        return {}
    said = {
        "eris": ("the digest of FedAvg", lambda same, _: same),
        "eris+dsc": ("within 3 points", lambda _, gap: abs(gap) <= 3),
        "eris+dsc independent": ("within 3 points", lambda _, gap: abs(gap) <= 3),
        "priprune": ("at least 3 points below", lambda _, gap: gap >= 3),
        "fedavg-dpsgd": ("at least 15 points below", lambda _, gap: gap >= 15),
        "shatter": ("at least 20 points below at the same rounds", lambda _, gap: gap >= 20),
        "shatter, own starts": ("at least 20 points below at the same rounds", lambda _, gap: gap >= 20),
    }
    found = {}
    for name in (name for name in methods if name != "fedavg"):
        gaps, same = against(methods["fedavg"], methods[name])
        mean = statistics.fmean(gaps)
        text, holds = said.get(name, (None, None))
        found[name] = {
            "below_fedavg_by_points": [round(gap, 2) for gap in gaps],
            "mean": round(mean, 2),
            "standard_error": round(statistics.stdev(gaps) / len(gaps) ** 0.5, 2) if len(gaps) > 1 else None,
            "claim": text,
            "holds": None if holds is None else bool(holds(same, mean)),
        }
    return found


def against(server: Mapping[str, Any], method: Mapping[str, Any]) -> tuple[list[float], bool]:
    """Return by how many points a method is worse, seed by seed, and whether all digests are the same."""
    theirs = dict(zip(server["seeds"], zip(server["accuracy"], server["digests"], strict=True), strict=True))
    gaps, same = [], True
    for seed, accuracy, digest in zip(method["seeds"], method["accuracy"], method["digests"], strict=True):
        gaps.append(100 * (theirs[seed][0] - accuracy))
        same = same and digest == theirs[seed][1]
    return gaps, same


if __name__ == "__main__":
    main()
