"""How much of a picture does an update give away? Recoveries of 50 real pictures from whole and partial updates.

Each picture is a batch of its own (the worst case), the network has its first weights, labels are found by the attack:

    idlg     a small sigmoid network on MNIST, picture by L-BFGS
    rog      two convolutions and two linear layers on CIFAR-10, coarse picture by Adam, then a trained enhancer
    ggl      LeNet-5 on MNIST, latents of a trained generator by CMA-ES
    faces    LeNet-5 on faces of 30 people (64 × 64), latents of the published DCGAN-64 by CMA-ES
    progan   the same with the published ProGAN-128, 20 generations: three minutes of processor for a picture
    lfw      LeNet-5 on the 25 × 25 crops of LFW, DCGAN-64
    newton   the small sigmoid network on the sample of MNIST in the package, picture by Levenberg–Marquardt

From what one aggregator of A sees (mask-aware, and with zeros for what it does not see), from everything (A = 1), and
from random values of the same length, which is the attack's chance level; for generators also from random latents.
Pictures are of the training split, enhancer and digit generator were trained on the test split, the generators of faces
by others on other faces. Prints one JSON object: scores of every case, and the paired difference of each to the chance
level with its 95 % interval (bootstrap over pictures; over people, where there are several pictures of one).

    eris data get cifar10 mnist lpips rog-cifar10 ggl-mnist scrapshots dcgan-64   (one by one; nothing is fetched here)
    python benchmarks/reconstruction.py [--attacks rog ggl] [--pictures 50] [--keep FOLDER] [--table]

    python benchmarks/reconstruction.py --batches [--pictures 56]

measures whole batches of 1, 2, 4 and 8 pictures instead: digits of 8 × 8 pixels, a sigmoid network of 2,410 weights,
Levenberg–Marquardt, labels found by the attack, from one round and from three together (batches of one member that
trains on all its pictures in every round), from three rounds of a simulated federation whose members keep their
momentum, and from random values.

    python benchmarks/reconstruction.py --defences [--pictures 50]

attacks every defence of `eris audit sweep defences` with the same digits, network and attack, mask-aware and
zero-filled;

    python benchmarks/reconstruction.py --shares [--pictures 50] [--plot FILE]

is `eris audit sweep reconstruction` with so many pictures, each attack against the share that it sees; and

    python benchmarks/reconstruction.py --masked [--seeds 10]

every observer of masked shards: six pictures of each of so many federations of eight, intervals over federations.

With --keep, recovered pictures are kept and an interrupted measurement goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from eris.audit.intervals import mean_over_seeds, rate_interval
from eris.audit.observer import Observer, Vantage, parse_observer, partners_of
from eris.audit.reconstruction import LocalSteps, UpdateObservation, reconstruction_attack
from eris.audit.reconstruction.attack_setup import AttackSetup, attack_setup
from eris.audit.reconstruction.ggl import GGL
from eris.audit.reconstruction.plots import plot_shares
from eris.audit.reconstruction.public_model import PublicModel
from eris.audit.reconstruction.small_networks import SigmoidLeNet, TwoConvolutions
from eris.audit.reconstruction.sweep import RECONSTRUCTION_SIZES, ReconstructionSize, run_defences, run_shares
from eris.audit.side_by_side import in_processes
from eris.audit.similarity import Perceptual, identification, mse, pattern_distance, psnr, ssim
from eris.config import load_config
from eris.data import Images, load
from eris.models.lenet import LeNet5
from eris.seeds import Seed, public_root
from eris.shards.plan import scattered

Pictures = NDArray[np.float32]
ENDS = math.inf  # when --minutes are over
TIME_IS_UP = 75


def still_time() -> None:
    """Leave what is kept for the next call when time is up."""
    if time.monotonic() > ENDS:
        sys.exit(TIME_IS_UP)


@dataclass(frozen=True)
class Setting:
    """What is attacked, and by what."""

    data: str
    network: Any
    inversion: str
    options: dict[str, Any] = field(default_factory=dict)
    dtype: torch.dtype = torch.float32
    classes: int = 10
    label: int | None = None  # pictures of this class only
    people: bool = False  # whether a class is a person: first one picture of each, then their second ones


_FACES = partial(LeNet5, classes=30, size=64)

SETTINGS = {
    "idlg": Setting("mnist", SigmoidLeNet, "idlg", dtype=torch.float64),
    "rog": Setting("cifar10", TwoConvolutions, "rog"),
    "ggl": Setting("mnist", LeNet5, "ggl"),
    "faces": Setting("scrapshots", _FACES, "ggl", {"generator": "dcgan-64"}, classes=30, people=True),
    "progan": Setting(
        "scrapshots", _FACES, "ggl", {"generator": "progan-128", "generations": 20}, classes=30, people=True
    ),
    "newton": Setting(
        "mnist-sample", SigmoidLeNet, "gauss-newton", {"restarts": 2, "before": (200, 600)}, dtype=torch.float64
    ),
    "lfw": Setting("lfw", partial(LeNet5, classes=2, size=25), "ggl", {"generator": "dcgan-64"}, classes=2, label=1),
}
USUAL = ["idlg", "rog", "ggl", "faces"]
KINDS = ["random values", "random latents", "mask-aware", "zero-filled"]
CANDIDATES = 100


@dataclass(frozen=True)
class Case:
    """One row of the result."""

    kind: str  # one of KINDS
    aggregators: int = 1

    def __str__(self) -> str:
        return f"{self.kind}, A = {self.aggregators}" if "random" not in self.kind else self.kind


CASES = [
    Case("random values"),  # chance first: the others are compared with it
    Case("random latents"),
    *(Case("mask-aware", parts) for parts in (1, 2, 4, 8, 16, 20)),
    *(Case("zero-filled", parts) for parts in (2, 4, 8)),
]


def public_model(setting: Setting, images: Images) -> tuple[PublicModel, NDArray[np.float32]]:
    """Return the attacked network at its first weights, and these as one vector."""
    torch.manual_seed(public_root(0).child("network", setting.data).torch_seed())
    module = setting.network()
    vector = np.concatenate([weight.detach().numpy().ravel() for weight in module.parameters()])
    shape = (images.channels, *images.pixels.shape[1:3])
    facts: dict[str, Any] = {"shape": shape, "classes": setting.classes, "mean": images.mean, "std": images.std}
    return PublicModel(module, vector, dtype=setting.dtype, **facts), vector


def places_of(setting: Setting, labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return which pictures are attacked, in that order; those behind them are candidates only."""
    places = np.arange(len(labels)) if setting.label is None else np.flatnonzero(labels == setting.label)
    if not setting.people:
        return places
    turn = np.array([np.sum(labels[:place] == labels[place]) for place in places])
    return places[np.argsort(turn, kind="stable")]


def pictures_of(images: Images, places: NDArray[np.int64]) -> Pictures:
    """Return pictures in [0, 1]."""
    pixels = np.asarray(images.pixels[places], np.float32) / np.float32(255)
    return np.ascontiguousarray(pixels[:, None] if pixels.ndim == 3 else pixels.transpose(0, 3, 1, 2))


class Measurement:
    """All cases of one attack."""

    def __init__(self, attack: str, count: int, folder: Path) -> None:
        setting = SETTINGS[attack]
        images = load(setting.data).train
        assert isinstance(images, Images)
        places = places_of(setting, images.labels)
        self.attack, self.count, self._folder = attack, count, folder / attack
        self.public, self.vector = public_model(setting, images)
        self.originals = pictures_of(images, places[: max(count, CANDIDATES)])
        self.labels = images.labels[places[:count]].copy()
        self.groups = self.labels if setting.people else np.arange(count)
        self.generates = setting.inversion == "ggl"
        self._reconstruction = reconstruction_attack(setting.inversion, **setting.options)
        self._seed = public_root(0).child("reconstruction", attack)
        self._perceptual = {f"lpips_{name}": Perceptual(name) for name in ("alexnet", "vgg16")}

    def recovered(self, case: Case) -> tuple[Pictures, int, float]:
        """Return the recovered pictures of a case, how many labels were right, and the seconds of processor for one."""
        found = [self.one(case, number) for number in range(self.count)]
        right = sum(int(label == truth) for (_, label, _), truth in zip(found, self.labels, strict=True))
        return np.stack([image for image, _, _ in found]), right, sum(seconds for *_, seconds in found) / self.count

    def one(self, case: Case, number: int) -> tuple[Pictures, int, float]:
        """Recover one picture, unless it has been before."""
        path = self._folder / str(case) / f"{number}.npz"
        if not path.exists():
            still_time()
            start = time.process_time()
            image, label = self._recover(case, number)
            path.parent.mkdir(parents=True, exist_ok=True)
            np.savez(path, image=image, label=label, seconds=time.process_time() - start)
        with np.load(path) as kept:
            return kept["image"], int(kept["label"]), float(kept["seconds"])

    def _recover(self, case: Case, number: int) -> tuple[Pictures, int]:
        seed = self._seed.child(str(case), number)
        label = self.labels[number : number + 1]
        if case.kind == "random latents":
            assert isinstance(self._reconstruction, GGL)
            return self._reconstruction.blind(self.public, label, seed).images[0], int(label[0])
        observation = self._observation(case, number, seed)
        mode = "zero-filled" if case.kind == "zero-filled" else "mask-aware"
        known = label if case.kind == "random values" else None  # chance must not suffer from a wrong label
        result = self._reconstruction.recover(
            observation, self.public, mode=mode, seed=seed.child("attack"), labels=known
        )
        return result.images[0], int(result.labels[0])

    def _observation(self, case: Case, number: int, seed: Seed) -> UpdateObservation:
        picture = torch.from_numpy(self.originals[number : number + 1]).to(self.public.dtype)
        label = torch.from_numpy(self.labels[number : number + 1])
        update = self.public.update(picture, label).detach().numpy().astype(np.float32)
        plan = scattered(self.public.n, case.aggregators, seed=public_root(0).child("plan"))
        seen = plan.coordinates(number % case.aggregators)
        observation = UpdateObservation(self.vector, seen, update[seen])
        return observation.randomised(seed.child("values")) if case.kind == "random values" else observation

    def scores(self, recovered: Pictures) -> dict[str, NDArray[np.float64]]:
        """Return every score of every picture."""
        originals = self.originals[: self.count]
        values = {"mse": mse(originals, recovered), "psnr": psnr(originals, recovered)}
        values["ssim"] = ssim(originals, recovered)
        return values | {name: score(originals, recovered) for name, score in self._perceptual.items()}

    def another_picture(self) -> dict[str, float]:
        """Return what a sharp picture scores that has nothing to do with the original."""
        return {name: float(value.mean()) for name, value in self.scores(self.originals[-self.count :]).items()}


def interval(differences: NDArray[np.float64], groups: NDArray[np.int64]) -> dict[str, float]:
    """Return the mean and its 95 % interval, by drawing groups again (for all but people, a picture is its own)."""
    names, group = np.unique(groups, return_inverse=True)
    draws = public_root(0).child("bootstrap").generator().integers(0, len(names), (10_000, len(names)))
    sums, counts = np.bincount(group, differences), np.bincount(group)
    low, high = np.quantile(sums[draws].sum(axis=1) / counts[draws].sum(axis=1), [0.025, 0.975])
    return {"mean": float(differences.mean()), "low": float(low), "high": float(high)}


def measured(attack: str, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run all cases of one attack."""
    count: int = options.pictures
    measurement, rows = Measurement(attack, count, folder), {}
    cases = [case for case in CASES if case.kind in options.kinds and case.aggregators in options.aggregators]
    cases = [case for case in cases if measurement.generates or case.kind != "random latents"]
    for number in range(count):  # picture by picture: what is there when time is up, is there for every case
        for case in cases:
            measurement.one(case, number)
    null: dict[str, dict[str, NDArray[np.float64]]] = {}
    for case in cases:
        recovered, right, seconds = measurement.recovered(case)
        scores = measurement.scores(recovered)
        candidates = measurement.originals[: max(count, CANDIDATES)]
        found = identification(recovered, candidates, np.arange(count))
        pattern = identification(recovered, candidates, np.arange(count), pattern_distance)
        row: dict[str, Any] = {
            "scores": {name: {"mean": float(v.mean()), "std": float(v.std())} for name, v in scores.items()},
            "mse_below_0.001": float((scores["mse"] < 1e-3).mean()),
            "identified": {"rate": found.rate, "low": found.low, "high": found.high, "chance": found.chance},
            "identified_by_pattern": {"rate": pattern.rate, "low": pattern.low, "high": pattern.high},
            "labels_right": right / count,
            "cpu_seconds": seconds,
        }
        row["difference"] = {
            chance: {name: interval(scores[name] - values[name], measurement.groups) for name in scores}
            for chance, values in null.items()
        }
        if "random" in case.kind:
            null[case.kind] = scores
        rows[str(case)] = row
        brief = {name: round(float(v.mean()), 4) for name, v in scores.items()}
        print(
            f"{attack:6} {case!s:20} {brief} identified {found.rate:.2f}, by pattern {pattern.rate:.2f}",
            file=sys.stderr,
            flush=True,
        )
    parameters = measurement.public.n
    return {
        "pictures": count,
        "parameters": parameters,
        "another_picture": measurement.another_picture(),
        "cases": rows,
    }


def table(result: dict[str, Any]) -> str:
    """Return the cases of one attack as a Markdown table: those with something to see first, chance last."""
    lines = [
        "| what was seen | MSE | below 0.001 | SSIM | PSNR | LPIPS VGG16 | AlexNet | identified (95 %) | by pattern |"
    ]
    lines.append("|---" * 9 + "|")
    for name, row in sorted(result["cases"].items(), key=lambda item: "random" in item[0]):
        means = {score: value["mean"] for score, value in row["scores"].items()}
        rates = [f"{of['rate']:.0%} ({of['low']:.0%}–{of['high']:.0%})" for of in _identifications(row)]
        figures = [
            f"{means['mse']:.2g}",
            f"{row['mse_below_0.001']:.0%}",
            f"{means['ssim']:.2f}",
            f"{means['psnr']:.1f}",
        ]
        figures += [f"{means['lpips_vgg16']:.3f}", f"{means['lpips_alexnet']:.3f}", *rates]
        lines.append(f"| {name} | {' | '.join(figures)} |")
    other = result["another_picture"]
    figures = [f"{other['mse']:.2g}", "–", f"{other['ssim']:.2f}", f"{other['psnr']:.1f}"]
    figures += [f"{other['lpips_vgg16']:.3f}", f"{other['lpips_alexnet']:.3f}", "–", "–"]
    return "\n".join([*lines, f"| another picture, no attack | {' | '.join(figures)} |"])


def _identifications(row: dict[str, Any]) -> list[dict[str, float]]:
    return [row["identified"], row["identified_by_pattern"]]


@dataclass(frozen=True)
class BatchCase:
    """So many pictures in one step, one aggregator of so many, so many rounds."""

    batch: int
    aggregators: int
    rounds: int = 1
    chance: bool = False  # random values instead of an update, labels told
    momentum: float = 0.0  # kept over the rounds of a simulated federation

    def __str__(self) -> str:
        kind = "-chance" if self.chance else "-momentum" if self.momentum else ""
        return f"batches-{self.batch}-{self.aggregators}-{self.rounds}{kind}"


BATCHES = [
    *(BatchCase(batch, aggregators) for batch in (1, 2, 4, 8) for aggregators in (1, 2, 4, 8)),
    *(BatchCase(batch, 8, rounds=3) for batch in (1, 2, 4, 8)),
    *(BatchCase(batch, 8, rounds=3, momentum=0.9) for batch in (1, 2, 4, 8)),
    BatchCase(4, 1, chance=True),
]


def batches(count: int, folder: Path) -> list[dict[str, Any]]:
    """Recover whole batches of small digits."""
    from tests.audit.reconstruction.small_world import digits, world

    pictures, labels = digits(count)
    starts = {case: range(0, count - case.batch + 1, case.batch) for case in BATCHES}

    trained = {case: federation_of(case, count) for case in BATCHES if case.momentum}

    def one(case: BatchCase, start: int) -> tuple[NDArray[np.float64], bool, float]:
        path = folder / str(case) / f"{start}.npz"
        if not path.exists():
            still_time()
            part = slice(start, start + case.batch)
            if case.momentum:
                errors, right, seconds = member_of(trained[case], start // case.batch)
            else:
                errors, right, seconds = batch_of(case, world(), pictures[part], labels[part], start)
            path.parent.mkdir(parents=True, exist_ok=True)
            np.savez(path, errors=errors, right=right, seconds=seconds)
        with np.load(path) as kept:
            return kept["errors"], bool(kept["right"]), float(kept["seconds"])

    for start in range(count):  # all cases of a picture first: what is there when time is up, is there for every case
        for case in (case for case in BATCHES if start in starts[case]):
            one(case, start)
    rows = []
    for case in BATCHES:
        found = [one(case, start) for start in starts[case]]
        errors = [errors for errors, *_ in found]
        row: dict[str, Any] = {"batch": case.batch, "aggregators": case.aggregators, "rounds": case.rounds}
        row |= {"chance": case.chance, "momentum": case.momentum, **over_groups(errors)}
        row |= {"labels_right": float(np.mean([right for _, right, _ in found]))}
        row |= {"cpu_seconds_a_picture": sum(seconds for *_, seconds in found) / row["pictures"]}
        print(json.dumps(row), file=sys.stderr, flush=True)
        rows.append(row)
    return rows


def batch_of(
    case: BatchCase, public: PublicModel, pictures: NDArray[Any], labels: NDArray[np.int64], number: int
) -> tuple[NDArray[np.float64], bool, float]:
    """Recover one batch; return the error of each picture, whether all labels were right, and the seconds."""
    seen = scattered(public.n, case.aggregators, seed=public_root(0).child("plan")).coordinates(0)
    local = LocalSteps(lr=0.5, samples=case.batch, batch=case.batch)
    images, targets = torch.from_numpy(pictures), torch.from_numpy(labels)
    observations: list[UpdateObservation] = []
    vector = np.concatenate([weight.numpy().ravel() for weight in public.weights.values()]).astype(np.float32)
    for place in range(case.rounds):
        update = public.at(vector).update(images, targets, local).detach().numpy().astype(np.float32)
        observations.append(UpdateObservation(vector.copy(), seen, update[seen], local))
        others = public_root(0).child("others", number, place).generator().standard_normal(vector.size)
        vector = (vector - update - 0.05 * others).astype(np.float32)  # other members' updates move the model, too
    observation = replace(observations[-1], earlier=tuple(observations[:-1]))
    seed = public_root(0).child("batch", number)
    if case.chance:
        observation = observation.randomised(seed.child("values"))
    told = np.sort(labels) if case.chance else None  # chance must not suffer from a wrong label
    return inverted(observation, public.at(observation.model), pictures, labels, seed, told)


def inverted(
    observation: UpdateObservation,
    public: PublicModel,
    pictures: NDArray[Any],
    labels: NDArray[np.int64],
    seed: Seed,
    told: NDArray[np.int64] | None = None,
) -> tuple[NDArray[np.float64], bool, float]:
    """Attack one observation; return the error of each picture, whether all labels were right, and the seconds."""
    began = time.process_time()
    found = reconstruction_attack("gauss-newton").recover(observation, public, seed=seed, labels=told)
    spent = time.process_time() - began
    return errors_of(found.images, pictures), sorted(found.labels.tolist()) == sorted(labels.tolist()), spent


def errors_of(images: NDArray[Any], pictures: NDArray[Any]) -> NDArray[np.float64]:
    """Return how far the nearest recovered picture is from each original: they come back in no order."""
    errors: NDArray[np.float64] = ((images[None] - pictures[:, None]) ** 2).mean(axis=(2, 3, 4)).min(axis=1)
    return errors


TINY = RECONSTRUCTION_SIZES["small"]


def federation_of(case: BatchCase, count: int) -> AttackSetup:
    """Train a federation of small digits for the rounds of a case, and return what one aggregator saw of them all."""
    changes = [f"members={max(8, -(-count // case.batch))}", f"data.samples={case.batch}", f"rounds={case.rounds}"]
    changes += ["method=eris", f"aggregators={case.aggregators}", "local.lr=0.5", "seed=21", "data.fold=21"]
    changes += [f"local.momentum={case.momentum}", "local.keep_state=true"]
    config = load_config(changes=TINY.settings("gauss-newton", changes))
    observers = [parse_observer("aggregator")]
    return attack_setup(config, observers, pictures=count, rounds=case.rounds, together=True)


def member_of(setup: AttackSetup, victim: int) -> tuple[NDArray[np.float64], bool, float]:
    """Recover the pictures of one member from all rounds of a federation."""
    seen = next(each.observation for each in setup.observations if each.victim == victim)
    public, seed = setup.public.at(seen.model), public_root(0).child("momentum", victim)
    return inverted(seen, public, setup.originals[victim], setup.labels[victim], seed)


def defences(count: int, folder: Path) -> list[dict[str, Any]]:
    """Attack every defence in both modes, as many random values too, and return the rows."""
    with in_processes(os.cpu_count() or 1) as each:
        return run_defences(_many(count), _members(count), folder, notice=_notice, each=each)


def shares(count: int, folder: Path, picture: Path | None) -> list[dict[str, Any]]:
    """Make every attack on what one of 1, 2, 4 and 8 aggregators sees, and return the rows."""
    with in_processes(os.cpu_count() or 1) as each:
        points = run_shares(_many(count), _members(count), folder, notice=_notice, each=each)
    if picture is not None:
        plot_shares(points, picture)
    return points


def _many(count: int) -> ReconstructionSize:
    return replace(TINY, pictures=count, controls=count)


def _members(count: int) -> list[str]:
    return [f"members={max(count, 8)}", "seed=21", "data.fold=21"]


def _notice(done: int, total: int, what: str) -> None:
    still_time()
    print(f"{done} of {total}: {what}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Place(Observer):
    """An observer that looks at all victims from one place."""

    where: Vantage = field(default_factory=lambda: Vantage((), "none"))
    called: str = ""

    def __str__(self) -> str:
        return self.called

    def vantages(self, *_: Any, **__: Any) -> list[Vantage]:
        """Return the one place."""
        return [self.where]


PLAIN = (Place("aggregator", where=Vantage((0,), "own"), called="aggregator"),)
WATCHERS = (  # peer 1 is the unmasker of peer 0; what is broadcast is judged by what each of the two hears
    *PLAIN,
    Place("unmasker", where=Vantage((1,), "own"), called="unmasker"),
    Place("pair", where=Vantage((0, 1), "own"), called="pair"),
    Place("broadcast", where=Vantage((0,), "none"), called="broadcast to the aggregator"),
    Place("broadcast", where=Vantage((1,), "none"), called="broadcast to the unmasker"),
)
VICTIMS = range(2, 8)  # all others in a federation of eight


def masked(seeds: int, folder: Path) -> list[dict[str, Any]]:
    """Attack what every observer of plain and masked shards has; return a row for each, with intervals over seeds."""
    rows: dict[str, list[NDArray[np.float64]]] = {}
    for seed in range(31, 31 + seeds):
        for told in (False, True):
            path = folder / "masked" / f"{seed}{'-told' * told}.npz"
            if not path.exists():
                still_time()
                path.parent.mkdir(parents=True, exist_ok=True)
                np.savez(path, **(masked_told(seed) if told else masked_once(seed)))
            with np.load(path) as kept:
                for name in kept.files:
                    rows.setdefault(name, []).append(kept[name])
        print(f"seed {seed}", file=sys.stderr, flush=True)
    return [{"observer": name, **over_groups(errors)} for name, errors in rows.items()]


def masked_once(seed: int) -> dict[str, NDArray[np.float64]]:
    """Return the errors of one federation's pictures, by observer. What two observers both have is attacked once."""
    errors: dict[str, list[float]] = {}
    once: dict[bytes, NDArray[Any]] = {}
    for method, watchers in (("eris", PLAIN), ("eris+masked", WATCHERS)):
        changes = [f"method={method}", "aggregators=8", f"seed={seed}", f"data.fold={seed}"]
        config = load_config(changes=TINY.settings("gauss-newton", changes))
        assert partners_of(config, method).get(0, (1,)) == (1,)
        setup = attack_setup(config, watchers, pictures=8)
        for seen in (each for each in setup.observations if each.victim in VICTIMS):
            cases = [(f"{method}, {seen.observer}", seen.observation)]
            if (method, seen.observer) in (("eris", "aggregator"), ("eris+masked", "unmasker")):
                chance = seen.observation.randomised(public_root(seed).child("random"))
                cases.append((f"random values for {method}, {seen.observer}", chance))
            for name, observation in cases:
                images = found_once(once, observation, setup.public, seed)
                errors.setdefault(name, []).append(float(errors_of(images, setup.originals[seen.victim])[0]))
    return {name: np.array(values) for name, values in errors.items()}


def masked_told(seed: int) -> dict[str, NDArray[np.float64]]:
    """Return the errors where an attacker of the broadcast is told which labels there are.

    Labels are what a search for a batch fails by: this is what it would get if it tried further ones.
    """
    changes = ["method=eris+masked", "aggregators=8", f"seed={seed}", f"data.fold={seed}"]
    config = load_config(changes=TINY.settings("gauss-newton", changes))
    found = {}
    for watcher in WATCHERS[-2:]:
        setup = attack_setup(config, [watcher], pictures=8)
        seen = next(each.observation for each in setup.observations if each.victim in VICTIMS)
        own = watcher.where.peers
        labels = np.sort(np.concatenate([setup.labels[member] for member in range(8) if member not in own]))
        attack, chosen = reconstruction_attack("gauss-newton"), public_root(seed).child("attack")
        images = attack.recover(seen, setup.public, seed=chosen, labels=labels).images
        errors = [errors_of(images, setup.originals[victim])[0] for victim in VICTIMS]
        found[f"eris+masked, {watcher}, labels told"] = np.array(errors)
    return found


def found_once(
    once: dict[bytes, NDArray[Any]], observation: UpdateObservation, public: PublicModel, seed: int
) -> NDArray[Any]:
    """Return the pictures found in an observation, from memory if the same arrays have been attacked."""
    key = observation.seen.tobytes() + observation.values.tobytes()
    if key not in once:
        attack = reconstruction_attack("gauss-newton")
        once[key] = attack.recover(observation, public, seed=public_root(seed).child("attack")).images
    return once[key]


def over_groups(errors: list[NDArray[np.float64]]) -> dict[str, Any]:
    """Return how many pictures were recovered, with a 95 % interval over groups that stand or fall together.

    It is Student's t over the groups' rates, or the exact one over pictures: where each is a group, or all agree.
    """
    rates = [float((each < 1e-3).mean()) for each in errors]
    everything = np.concatenate(errors)
    hits = int((everything < 1e-3).sum())
    row: dict[str, Any] = {"pictures": everything.size, "groups": len(rates), "recovered": hits}
    if len(set(rates)) > 1 and len(errors) < everything.size:
        over = mean_over_seeds(rates)
        low, high = over["low"], over["high"]
    else:
        low, high = rate_interval(hits, everything.size)
    return row | {"low": low, "high": high, "median_mse": float(np.median(everything))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attacks", nargs="+", choices=list(SETTINGS), default=USUAL)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--aggregators", nargs="+", type=int, default=[1, 2, 4, 8])
    parser.add_argument("--pictures", type=int, default=50)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--table", action="store_true", help="Markdown tables instead of JSON")
    parser.add_argument("--batches", action="store_true", help="whole batches of small digits instead")
    parser.add_argument("--defences", action="store_true", help="small digits under every defence instead")
    parser.add_argument("--shares", action="store_true", help="small digits by every attack on every share instead")
    parser.add_argument("--plot", type=Path, help="a picture of --shares")
    parser.add_argument("--masked", action="store_true", help="small digits by every observer of masked shards instead")
    parser.add_argument("--seeds", type=int, default=10, help="federations of --masked")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin nothing after so many (exit 75)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    global ENDS
    ENDS = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        if options.batches:
            sys.path.insert(0, str(Path(__file__).parents[1]))
            print(json.dumps(batches(options.pictures, folder), indent=1))
            return
        if options.shares:
            print(json.dumps(shares(options.pictures, folder, options.plot), indent=1))
            return
        if options.defences or options.masked:
            rows = defences(options.pictures, folder) if options.defences else masked(options.seeds, folder)
            print(json.dumps(rows, indent=1))
            return
        results = {attack: measured(attack, options, folder) for attack in options.attacks}
    if options.table:
        for attack, result in results.items():
            print(f"{attack}, {result['pictures']} pictures, {result['parameters']} weights\n\n{table(result)}\n")
    else:
        print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
