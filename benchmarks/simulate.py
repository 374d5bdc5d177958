"""How fast the simulator is, against hand-written loops, Flower and pfl-research, in one run on one machine.

    python benchmarks/simulate.py [--rounds 30] [--repeats 9] [--without flower pfl]
    python benchmarks/simulate.py --lora      # SmolLM2-135M with LoRA, K = 4, against transformers by hand

50 members × LeNet-5 × 16 samples × one full-batch step; all loops train the same network on the same samples. Prints
one JSON object: rounds a second of every loop (median of the repeats, which take turns so that a noisy machine treats
all alike) and the ratios that matter. A ratio is the median of the ratios of all turns: a shared machine is a third
slower from one minute to the next, for both sides of a turn. Every turn of a loop is a new process, as its user would
start it: what one leaves behind in the allocator would help the next. Beside it 100 participants a round out of 100 and
out of 1,000 members: time and memory should not differ much.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from environments import flower_environment, pfl_environment, why_not

from eris.simulate.worker_process import worker_environment

MEMBERS, SAMPLES, LEARNING_RATE = 50, 16, 0.01
WORKERS = 2
COHORT = 13  # four of them, two for each of two workers
RAY = "simulation"  # Flower's extra for it
OTHERS = ("flower", "pfl")
OTHERS_TURNS = 3  # each beside one of ours; half a minute for Flower
KEEPING = "_keeping_memory"  # with the allocator's settings that our workers have, which one would not write by hand

SETTINGS = [
    f"members={MEMBERS}", f"data.samples={SAMPLES}", "data.validation=0.0", "evaluate_every=10",
    "compression.keep=0.033", "local.batch=full", f"local.lr={LEARNING_RATE}", "local.momentum=0.0",
]  # fmt: skip


def main() -> None:
    options = _options()
    if options.loop:
        print(LOOPS[options.loop](options.rounds))
        return
    if options.lora:
        print(json.dumps(lora(options.repeats), indent=2))
        return
    measured: dict[str, list[float]] = {name: [] for name in LOOPS}
    for _ in range(options.repeats):
        for name in LOOPS:
            measured[name].append(in_a_process(name, options.rounds))
    others = {name: [] if name in options.without else turns_of(name, options.rounds) for name in OTHERS}
    crowd = {str(members): many(members) for members in (100, 1000)}
    print(json.dumps({**_report(measured, others, options), "hundred_of": crowd}, indent=2))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--without", nargs="+", choices=OTHERS, default=[], help="frameworks to leave out")
    parser.add_argument("--lora", action="store_true", help="the language model with an adapter, and nothing else")
    parser.add_argument("--loop", choices=list(LOOPS), help="time this one here and now, and print its rounds a second")
    return parser.parse_args()


def in_a_process(name: str, rounds: int) -> float:
    """Return the rounds a second of a loop in a process of its own."""
    program = [sys.executable, __file__, "--loop", name, "--rounds", str(rounds)]
    environment = worker_environment() if name.endswith(KEEPING) else None
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=True, timeout=900)
    return float(done.stdout.split()[-1])


def _report(
    measured: dict[str, list[float]], others: dict[str, list[tuple[float, float]]], options: argparse.Namespace
) -> dict[str, object]:
    speed: dict[str, float | None] = {name: statistics.median(values) for name, values in measured.items()}
    pairs = [
        *(("eris", "sequential"), ("eris", "sequential_keeping_memory"), ("eris", "vmap")),
        *(("eris_cohorts", "eris"), ("eris_1_worker", "sequential"), ("eris_dsc", "eris")),
    ]
    turns = {
        f"{one}_to_{other}": [a / b for a, b in zip(measured[one], measured[other], strict=True)]
        for one, other in pairs
    }
    for name, pairs_of_speeds in others.items():
        speed[name] = statistics.median(theirs for _, theirs in pairs_of_speeds) if pairs_of_speeds else None
        turns[f"eris_to_{name}"] = [ours / theirs for ours, theirs in pairs_of_speeds]
    ratios = {name: statistics.median(values) if values else None for name, values in turns.items()}
    aims = {"eris_to_sequential": 1.2, "eris_to_flower": 8.0, "eris_dsc_to_eris": 0.8}
    met = {name: None if (ratio := ratios[name]) is None else ratio >= aim for name, aim in aims.items()}
    return {
        "case": {"members": MEMBERS, "samples": SAMPLES, "model": "lenet5", "local_steps": 1, "workers": WORKERS},
        "rounds": options.rounds,
        "repeats": options.repeats,
        "rounds_per_second": speed,
        "ratios": ratios,
        "turns": {name: [round(value, 2) for value in values] for name, values in turns.items()},
        "aims": aims,
        "met": met,
    }


def ours(method: str, workers: int, rounds: int, *changes: str) -> float:
    """Time the rounds of a run, its folder, metrics, byte counts and ledger with it, but neither start nor summary."""
    from eris.config import load_config
    from eris.events import Event, RoundEnded, RoundStarted
    from eris.simulate.run import run

    begun: list[float] = []
    ended: list[float] = []

    def listen(event: Event) -> None:
        if isinstance(event, RoundStarted):
            begun.append(time.perf_counter())
        elif isinstance(event, RoundEnded):
            ended.append(time.perf_counter())

    run_of = [f"method={method}", f"rounds={rounds + 2}", f"workers={workers}"]
    config = load_config(changes=[*SETTINGS, *run_of, *changes])
    with tempfile.TemporaryDirectory() as folder:
        run(config, Path(folder) / "run", listeners=[listen])
    return rounds / (ended[-1] - begun[2])  # the first two rounds warm up


def lora(repeats: int) -> dict[str, object]:
    """Let eris and the loop by hand take turns with a language model and its adapter (`lora_loop.py`)."""
    loops = ("hand", "eris")
    turns = [[speed_of([sys.executable, _beside("lora_loop.py"), name]) for name in loops] for _ in range(repeats)]
    ratio = statistics.median(ours / hand for hand, ours in turns)
    speeds = {name: statistics.median(turn[place] for turn in turns) for place, name in enumerate(loops)}
    return {"rounds_per_second": speeds, "eris_to_hand": ratio, "turns": turns, "aim": 0.9, "met": ratio >= 0.9}


def many(members: int) -> dict[str, float]:
    """Run ERIS+DSC with 100 participants a round out of so many members, in a process of its own."""
    changes = [
        "method=eris+dsc", f"members={members}", "aggregators=10", f"participation={100 / members}", "rounds=10",
        "data.samples=5", "data.validation=0.0", "local.batch=full", "evaluate_every=10", "workers=2",
    ]  # fmt: skip
    program = [sys.executable, "-c", "from eris.cli import main; main()", "run", "--json"]
    with tempfile.TemporaryDirectory() as folder:
        arguments = [part for change in changes for part in ("--set", change)] + ["--out", f"{folder}/run"]
        done = subprocess.run([*program, *arguments], capture_output=True, text=True, check=True, timeout=900)
    summary = json.loads(done.stdout)["summaries"][0]
    return {"seconds_per_round": summary["seconds"] / 10, "peak_memory_bytes": summary["peak_memory_bytes"]}


def _digits() -> tuple[object, object]:
    """Return images and labels, 16 for each member."""
    import torch

    from eris.data import mnist_sample
    from eris.data.partition import partition
    from eris.seeds import public_root

    digits = mnist_sample()
    shares = partition(digits.train.labels, MEMBERS, public_root(1), samples=SAMPLES)
    pairs = [digits.train.take(part) for part in shares.train]
    return torch.stack([torch.from_numpy(x) for x, _ in pairs]), torch.stack([torch.from_numpy(y) for _, y in pairs])


def sequential_loop() -> Callable[[int], float]:
    """Write the leanest loop there is: one network, one gradient a member, one running mean, one thread."""
    import torch
    from torch.nn import functional

    from eris.models.registry import model_by_name

    images, labels = _digits()
    model = model_by_name("lenet5")
    parameters = list(model.parameters())

    def one_round() -> None:
        total = [torch.zeros_like(parameter) for parameter in parameters]
        for member in range(MEMBERS):
            loss = functional.cross_entropy(model(images[member]), labels[member])
            for accumulated, gradient in zip(total, torch.autograd.grad(loss, parameters), strict=True):
                accumulated.add_(gradient)
        with torch.no_grad():
            for parameter, accumulated in zip(parameters, total, strict=True):
                parameter.sub_(accumulated, alpha=LEARNING_RATE / MEMBERS)

    return _timed(one_round)


def vmap_loop() -> Callable[[int], float]:
    """Do the same with all members' gradients in one vectorised call."""
    import torch
    from torch.func import functional_call, grad, vmap
    from torch.nn import functional

    from eris.models.registry import model_by_name

    images, labels = _digits()
    model = model_by_name("lenet5")
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}

    def loss(weights: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(functional_call(model, weights, (x,)), y)

    gradients = vmap(grad(loss), in_dims=(None, 0, 0))

    def one_round() -> None:
        for name, gradient in gradients(parameters, images, labels).items():
            parameters[name] = parameters[name] - LEARNING_RATE * gradient.mean(0)

    return _timed(one_round)


def _timed(one_round: Callable[[], None]) -> Callable[[int], float]:
    def loop(rounds: int) -> float:
        import torch

        torch.set_num_threads(1)
        one_round()
        began = time.perf_counter()
        for _ in range(rounds):
            one_round()
        return rounds / (time.perf_counter() - began)

    return loop


def turns_of(name: str, rounds: int) -> list[tuple[float, float]]:
    """Return rounds a second of ERIS and of another framework, turn by turn; none if it cannot be installed or run."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            python = pfl_environment(Path(folder)) if name == "pfl" else flower_environment(Path(folder), extra=RAY)
            program = pfl_program(python, rounds) if name == "pfl" else [python, _beside("flower_loop.py")]
            return [(in_a_process("eris", rounds), speed_of(program)) for _ in range(OTHERS_TURNS)]
        except (subprocess.SubprocessError, OSError, ValueError, IndexError) as error:
            print(why_not(error, name), file=sys.stderr)
            return []


def pfl_program(python: str, rounds: int) -> list[str]:
    """Return how pfl-research is started: as many processes as we have workers, which share the members."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(WORKERS)]
    return [python, *launcher, _beside("pfl_loop.py"), str(rounds)]


def speed_of(program: list[str]) -> float:
    """Return the rounds a second that a program prints."""
    done = subprocess.run(program, capture_output=True, text=True, timeout=900, check=True)
    return float(done.stdout.split("rounds per second: ")[1].split()[0])


def _beside(name: str) -> str:
    return str(Path(__file__).with_name(name))


LOOPS: dict[str, Callable[[int], float]] = {
    "sequential": lambda rounds: sequential_loop()(rounds),
    "eris": lambda rounds: ours("eris", WORKERS, rounds),
    "eris_dsc": lambda rounds: ours("eris+dsc", WORKERS, rounds),
    f"sequential{KEEPING}": lambda rounds: sequential_loop()(rounds),
    "vmap": lambda rounds: vmap_loop()(rounds),
    "eris_1_worker": lambda rounds: ours("eris", 1, rounds),
    "eris_cohorts": lambda rounds: ours("eris", WORKERS, rounds, f"local.cohort={COHORT}"),
    "fedavg": lambda rounds: ours("fedavg", WORKERS, rounds),
}

if __name__ == "__main__":
    main()
