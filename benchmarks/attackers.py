"""Is the default membership attack at least as strong as the reference in the tests? And which attack is the default?

    python benchmarks/attackers.py gate HASH [--out FOLDER] [--seeds 10]
    python benchmarks/attackers.py tune [--out FOLDER] [--attacks NAME …] [--keep]
    python benchmarks/attackers.py texts [--out FOLDER] [--keep]
    python benchmarks/attackers.py observers HASH [--out FOLDER] [--seeds 5]
    python benchmarks/attackers.py isolation HASH [--out FOLDER] [--seeds 10]
    python benchmarks/attackers.py differencing HASH [--out FOLDER] [--seeds 10]
    python benchmarks/attackers.py pads HASH [--out FOLDER] [--seeds 12]
    python benchmarks/attackers.py sweeps HASH [--out FOLDER] [--seeds 3]

`gate` derives its seeds from the hash of a commit of this history, the one that froze what is measured, so that nobody
has chosen anything on them: seed i is 10,000 + the first six bytes of SHA-256("HASH i"), i = 0 … 9. Both attacks listen
to the same trainings, from one place for each member that is chosen beforehand. What is seen there is

    server          the whole update; ERIS sends what FedAvg would, to the bit, so it is taken of the same training as
    1 of 8          one shard of eight
    dsc             one shard of eight under shifted compression that keeps a fifth: 2.5 %
    1/50, 1/200     so many of the server's coordinates, drawn once
    one step        one shard of twenty; twenty members, rounds of one full-batch step, momentum kept

all on the small preset of `eris audit membership` (one step: with those changes). The digest of all settings is frozen
below: with others the figures would be about something else. Prints one JSON object with the paired mean difference of
the AUC and its 95 % t-interval over seeds; the gate is passed if on every view the mean is ≥ 0 and the lower limit
≥ −0.02. What it printed is kept in benchmarks/gate.json, which tests/audit/attacks/test_gate.py checks.

`tune` is where choices are made: every registered attack, and the reference, on seeds 2 to 8 of the first two
federations, broadcasts included. `texts` does so on texts: every attack that is possible there, on seeds 2 to 6 of
small language models on synthetic texts (benchmarks/small_texts.py). With --keep, what they print, the mean AUC of each
attack, goes into the package (src/eris/audit/attacks/tuning.json), where it says which attack is the audit's default;
with --attacks, only these are measured and the others stay as they are. Where the default is not the strongest, on few
coordinates in rounds of one step, is asked by

    python benchmarks/attackers.py tune --trainings "one step" --attacks whitened stacked --seeds 3

`observers` asks what each observer learns under each defence with the default attack alone, on seeds from a hash:
membership AUC, one-run ε and the model's accuracy, for the tables of docs/audit.md.

`isolation` asks what a coordinator gains by rounds with few contributors: what the published mean alone tells about a
member among so many whose parts nobody subtracts.

`differencing` asks what two committed sums tell that differ by one member: in round t it took part, in round t + 1 it
sat out, and the others' updates have changed a little. Taken from one training, since an absence changes nothing before
the round is over: the sum without a member is the sum less its part.

`pads` asks what an aggregator of masked shards makes of the very bytes that it receives, beside the broadcasts; what it
would make of them without their pads; and what it has of plain shards. All four look at the same trainings.

`sweeps` asks the points of `eris audit sweep` (aggregators, collusion, compression, blocks, rotation) in the same way.

Each seed leaves a file in FOLDER for each training; whoever stops it goes on there. Set OMP_NUM_THREADS=1: on a busy
machine several threads of the linear algebra wait for each other, and take twenty times the processor time.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from eris.audit.attack import CanaryProbe, MembershipAttack, Observation, PublicProbe
from eris.audit.attacks.by_name import ATTACKS, STRONGEST
from eris.audit.canaries import AuditableTask, PlantedTask, plant_in
from eris.audit.estimate import UpdateEstimate
from eris.audit.intervals import t_quantile
from eris.audit.membership import MembershipAudit
from eris.audit.membership_run import SMALL
from eris.audit.membership_sweep import SWEEPS
from eris.audit.observer import Observer, RoundTranscript, TranscriptRecorder, Vantage, parse_observer
from eris.audit.scoring import ScoreSheet, area, epsilon, pooled
from eris.compose import Composition, compose
from eris.config import Config, load_config
from eris.methods import with_defaults
from eris.methods.noise_budget import local_steps
from eris.seeds import public_root
from eris.simulate.run import run
from eris.tasks import build_task
from eris.view import View

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
sys.path.append(str(ROOT / "benchmarks"))
from small_texts import SMALL_TEXTS, planted_texts  # noqa: E402

from tests.audit.attacks.reference import StackedRegression  # noqa: E402

TUNING_FILE = ROOT / "src" / "eris" / "audit" / "attacks" / "tuning.json"
FROZEN = "ff26c31ed1d79095"  # digest of all settings below
LEAST = -0.02  # that the lower limit may be
TUNING_SEEDS = range(2, 9)
TUNING_SEEDS_OF_TEXTS = range(2, 7)
CHOSEN_ON = range(1, 9)  # the weights of `adaptive` on 1, all else on the tuning seeds
RANDOM = {"1/50": 50, "1/200": 200}
FEW = {"1/200": 200, "1/600": 600, "1/1000": 1000, "1/2000": 2000}  # 308 to 30 coordinates
ENDS = math.inf  # when --minutes are over
TIME_IS_UP = 75


@dataclass(frozen=True)
class Training:
    """One federation, and who looks at it; `parts` are views of some coordinates of what a server would see."""

    changes: tuple[str, ...]
    observers: dict[str, str]  # view → observer
    parts: dict[str, int] = field(default_factory=dict)  # view → one of how many


TRAININGS = {
    "shards": Training(("method=eris", "aggregators=8"), {"server": "everything", "1 of 8": "aggregator"}, RANDOM),
    "dsc": Training(("method=eris+dsc", "aggregators=8", "compression.keep=0.2"), {"dsc": "aggregator"}),
    "one step": Training(
        (
            "method=eris", "members=20", "aggregators=20", "rounds=20", "evaluate_every=20", "local.epochs=1",
            "local.momentum=0.9", "local.keep_state=true",
        ),
        {"one step": "aggregator"},
    ),
}  # fmt: skip


_FROM = {"server": "everything", "1 of 8": "aggregator", "broadcast": "broadcast"}
TEXTS = {"texts": Training(SMALL_TEXTS, _FROM)}
DEFENCES = {
    "plain shards": ("method=eris",),
    "DSC, p = 0.2": ("method=eris+dsc", "compression.keep=0.2"),
    "two aggregators a shard": ("method=eris", "shards.replicas=2"),
    "masked shards": ("method=eris+masked",),
    "masked DSC, p = 0.2": ("method=eris+dsc+masked", "compression.keep=0.2"),
    "noise, ε = 100 a sample": ("method=eris+ldp", "privacy.unit=sample", "privacy.clip=1.0", "privacy.epsilon=100"),
    "noise, ε = 10 a sample": ("method=eris+ldp", "privacy.unit=sample", "privacy.clip=1.0", "privacy.epsilon=10"),
}
# Where noise leaves a model that is of use: more samples a member, one linear layer, larger steps. Chosen on seed 2.
_LARGER = ("data.samples=100", "model.name=logistic", "local.lr=0.5")
_OF_A_SAMPLE = ("method=eris+ldp", "privacy.unit=sample", "privacy.clip=1.0", *_LARGER)
_SHARES = ("method=eris+masked", "privacy.noise=shares", "privacy.clip=1.0", *_LARGER)
_FORTY = ("members=40", "aggregators=8")
DEFENCES |= {
    "larger, plain shards": ("method=eris", *_LARGER),
    "larger, noise, ε = 100 a sample": (*_OF_A_SAMPLE, "privacy.epsilon=100"),
    "larger, noise, ε = 10 a sample": (*_OF_A_SAMPLE, "privacy.epsilon=10"),
    "larger, noise, ε = 3 a sample": (*_OF_A_SAMPLE, "privacy.epsilon=3"),
    "larger, masked shards": ("method=eris+masked", *_LARGER),
    "larger, masked, shares of noise, ε = 100 a member": (*_SHARES, "privacy.epsilon=100"),
    "larger, 40 members, masked shards": ("method=eris+masked", *_LARGER, *_FORTY),
    "larger, 40 members, masked, shares of noise, ε = 10 a member": (*_SHARES, *_FORTY, "privacy.epsilon=10"),
}
DEFENCES |= {  # of other people, behind a server
    "FedAvg, PriPrune, p = 0.1": ("method=priprune", "options.priprune.prune=0.1"),
    "FedAvg, top-k, 10 %": ("method=fedavg+compression", "compression.compressor=top_k", "compression.keep=0.1"),
    "FedAvg, QSGD, 16 levels": (
        "method=fedavg+compression", "compression.compressor=qsgd_max", "compression.options={levels=16}",
    ),
}  # fmt: skip
MASKED = {
    "masked shards": ("method=eris+masked",), "masked DSC": ("method=eris+dsc+masked", "compression.keep=0.2"),
}  # fmt: skip
LOOKING = {
    "server": "everything", "wire": "wire", "coalition of 4": "coalition:4", "aggregator": "aggregator",
    "broadcast": "broadcast",
}  # fmt: skip
UNDER_MASKS = {
    "wire": "wire", "pair": "pair", "coalition of 4": "coalition:4", "aggregator": "aggregator",
    "unmasker": "unmasker", "broadcast": "broadcast",
}  # fmt: skip
# So many members in the mean besides the one that looks, which takes its own part off.
ISOLATED = {
    f"{left} left": ("method=eris", f"members={left + 1}", "server.min_contributors=1") for left in (1, 2, 3, 7)
}

# A member sits a round out; how much the others' updates change from round to round is what hides it.
DIFFERENCED = {
    "one small step a round": ("method=eris+masked", "local.epochs=1", "local.lr=0.01"),
    "five steps a round": ("method=eris+masked",),
}
SITS_OUT = {"early": 2, "late": 9}  # the round in which it is not there


class Everything(Observer):
    """Whoever sees every shard, as a server does."""

    def vantages(self, *arguments: Any, **options: Any) -> list[Vantage]:
        """Return the one place."""
        del arguments, options
        return [Vantage((), "all")]


class OnPart:
    """An attack that is shown every n-th coordinate, drawn at random once, of what its observer sees."""

    def __init__(self, attack: MembershipAttack, view: str, one_of: int, seed: int) -> None:
        self._attack, self._one_of, self._seed = attack, one_of, public_root(seed).child("part", one_of)
        self.name, self.needs, self.cumulative = f"{attack.name} {view}", attack.needs, attack.cumulative

    def score(self, seen: Observation, memory: dict[str, Any]) -> Any:
        """Score what is left of an observation."""
        estimate, n = seen.estimate, seen.probe.n
        chosen = np.zeros(n, bool)
        chosen[self._seed.subset(n, n // self._one_of)] = True
        kept = chosen[estimate.seen]
        return self._attack.score(replace(seen, estimate=_part(estimate, kept)), memory)


def _part(estimate: UpdateEstimate, kept: Any) -> UpdateEstimate:
    values = {name: getattr(estimate, name)[kept] for name in ("seen", "update", "fresh_update")}
    return replace(estimate, rest=estimate.rest[:0], means=estimate.means[:0], fresh_means=estimate.means[:0], **values)


COALITIONS = (1, 2, 4, 8)
SHARES = {"1/50": 50, "1/200": 200, "1/1000": 1000}  # of the coordinates, at random


def settings(name: str, seed: int) -> Config:
    """Return what is trained."""
    known = {
        **DEFENCES,
        **ISOLATED,
        **DIFFERENCED,
        **MASKED,
        **{training: part.changes for training, part in {**TRAININGS, **SWEPT}.items()},
    }
    return trained(known[name], seed)


def of_texts(seed: int) -> Config:
    """Return the settings of the training on texts."""
    config = load_config(changes=[*SMALL_TEXTS, f"seed={seed}"])
    return with_defaults(config, config.methods[0])


def trained(changes: Sequence[str], seed: int) -> Config:
    """Return the small preset with changes."""
    config = load_config(changes=[*SMALL, *changes, f"seed={seed}"])
    return with_defaults(config, config.methods[0])


def swept_trainings() -> dict[str, Training]:
    """Return the trainings behind all sweeps; points of several sweeps that come to the same settings are one.

    A server is taken of the training with eight aggregators, in which everybody sends what FedAvg would, to the bit.
    """
    found: dict[str, Training] = {}
    for sweep in SWEEPS:
        for number, point in enumerate(SWEEPS[sweep].points(8)):
            name = f"{sweep} {number}"
            if point.label == "server":
                continue
            plan = trained(point.changes, 0)
            same = next((other for other, part in found.items() if trained(part.changes, 0) == plan), name)
            several = len(point.observers) > 1
            looking = {
                f"{sweep}: {observer.size if several else point.label}": str(observer)
                for observer in point.observers
                if not several or observer.size in COALITIONS
            }
            before = found[same].observers if same in found else {}
            found[same] = Training(found[same].changes if same in found else point.changes, {**before, **looking})
    whole = next(part for part in found.values() if "aggregators: 8" in part.observers)
    whole.observers["aggregators: server"] = "everything"
    return found


def digest() -> str:
    """Return a digest of all settings as they are written: settings that are added later do not change it."""
    trainings = [[name, part.changes, part.observers, part.parts] for name, part in TRAININGS.items()]
    return sha256(json.dumps([SMALL, trainings]).encode()).hexdigest()[:16]


def require_commit(text: str) -> None:
    """Refuse a hash that is not the full one of a commit of this history: who may choose it chooses seeds."""
    asked = ["git", "-C", str(ROOT), "merge-base", "--is-ancestor", text, "HEAD"]
    if len(text) != 40 or subprocess.run(asked, capture_output=True, check=False).returncode:
        sys.exit(f"{text} is not the full hash of a commit of this history")


def seeds_from(text: str, count: int) -> list[int]:
    """Return seeds that follow from a hash; all are far above those that anybody tuned on."""
    digests = (sha256(f"{text} {number}".encode()).digest() for number in range(count))
    return [10_000 + int.from_bytes(digest[:6], "big") for digest in digests]


Figures = dict[str, dict[str, dict[str, float]]]  # view → attack → figure


class Looker:
    """One observer of a training, with its attacks on all that it sees and on parts of it."""

    def __init__(self, view: str, observer: str, attacks: Sequence[Any], parts: Mapping[str, int], seed: int) -> None:
        self.observer = Everything("server") if observer == "everything" else parse_observer(observer)
        self._names = {view: {attack.name: attack.name for attack in attacks}}
        self.attacks, self.padded = list(attacks), True
        self.copies = any("copies" in attack.needs for attack in attacks)
        for part, one_of in parts.items():
            lesser = [OnPart(attack, part, one_of, seed) for attack in attacks]
            self._names[part] = {whole.name: attack.name for whole, attack in zip(attacks, lesser, strict=True)}
            self.attacks += lesser

    def figures(self, audit: MembershipAudit) -> Figures:
        """Return what came of it."""
        results = {attack.name: audit.result(self.observer, attack.name, tosses=1) for attack in self.attacks}
        plain = {
            name: {"auc": result.figures["auc"].value, "epsilon": result.epsilon["lower_bound"]}
            for name, result in results.items()
        }
        return {view: {short: plain[long] for short, long in names.items()} for view, names in self._names.items()}


def gated(name: str, seed: int) -> dict[str, Any]:
    """Train once for the gate."""
    both, training = (ATTACKS[STRONGEST], StackedRegression()), TRAININGS[name]
    parts = {view: training.parts if view == "server" else {} for view in training.observers}
    lookers = [Looker(view, who, both, parts[view], seed) for view, who in training.observers.items()]
    return measured(name, seed, lookers)


def tuned(name: str, seed: int, attacks: Sequence[str] = ()) -> dict[str, Any]:
    """Train once for tuning. Where no own value is seen the reference says nothing."""
    known = [ATTACKS[name] for name in attacks or ATTACKS if ATTACKS[name].needs <= {"gradients", "public"}]
    observers = TRAININGS[name].observers
    lookers = [Looker(view, who, [*known, StackedRegression()], {}, seed) for view, who in observers.items()]
    if name == "one step":  # where attacks change places
        lookers.append(Looker("server", "everything", known, FEW, seed))
    if name == "shards":
        lookers.append(Looker("broadcast", "broadcast", known, {}, seed))
    return measured(name, seed, lookers)


def tuned_on_texts(name: str, seed: int) -> dict[str, Any]:
    """Train once for tuning on texts; attacks on changed copies look apart, for with copies no gradient is built."""
    known = list(ATTACKS.values())
    lookers = [
        Looker(view, who, [attack for attack in known if ("copies" in attack.needs) == copies], {}, seed)
        for view, who in TEXTS[name].observers.items()
        for copies in (False, True)
    ]
    return measured(name, seed, lookers)


def observed(name: str, seed: int) -> dict[str, Any]:
    """Train once under a defence, and look from everywhere."""
    looking = UNDER_MASKS if "masked" in name else LOOKING
    lookers = [Looker(view, who, (ATTACKS[STRONGEST],), {}, seed) for view, who in looking.items()]
    return measured(name, seed, lookers)


def alone(name: str, seed: int) -> dict[str, Any]:
    """Train once with few members, and look at nothing but the means."""
    return measured(name, seed, [Looker("broadcast", "broadcast", (ATTACKS[STRONGEST],), {}, seed)])


def uncovered(name: str, seed: int) -> dict[str, Any]:
    """Train once with masked shards; look with the bytes that an aggregator captures, and with its pads left out."""
    looking = {"captured": "aggregator", "without pads": "aggregator", "plain": "pair", "broadcast": "broadcast"}
    lookers = [Looker(view, who, (ATTACKS[STRONGEST],), {}, seed) for view, who in looking.items()]
    lookers[1].padded = False
    return measured(name, seed, lookers)


def swept(name: str, seed: int) -> dict[str, Any]:
    """Train points of sweeps, and look as they say; points that look alike are one look."""
    looking = {view: "aggregator" if who == "coalition:1" else who for view, who in SWEPT[name].observers.items()}
    first = {who: view for view, who in reversed(looking.items())}
    parts = {who: SHARES if who == "everything" else {} for who in first}
    lookers = [Looker(view, who, (ATTACKS[STRONGEST],), parts[who], seed) for who, view in first.items()]
    found = measured(name, seed, lookers)
    shares = {f"share: {part}": found["views"][part] for part in SHARES if part in found["views"]}
    found["views"] = {view: found["views"][first[who]] for view, who in looking.items()} | shares
    return found


SWEPT = swept_trainings()


class Remembering:
    """A task that works out its samples' gradients once a round, whoever asks.

    However an update is cut, ERIS makes the same models, bit for bit: where `kept` names the federation, what was
    worked out in one training serves the next one. It takes a gigabyte for the small preset, the last one alone.
    """

    latest = ""
    everything: dict[tuple[bytes, int, str], Any] = {}  # noqa: RUF012 - shared on purpose

    def __init__(self, task: AuditableTask, name: str, kept: str = "") -> None:
        self._task, self._name, self._kept, self._model = task, name, kept, b""
        self._found: dict[tuple[bytes, int, str], Any] = {}
        if kept and kept != Remembering.latest:
            Remembering.latest, Remembering.everything = kept, {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    def sample_gradients(self, member: int, model: Any) -> Any:
        """Return what the task does."""
        now = sha256(model.tobytes()).digest()
        if not self._kept and now != self._model:
            self._model, self._found = now, {}
        found = Remembering.everything if self._kept else self._found
        if (key := (now, member, self._name)) not in found:
            found[key] = self._task.sample_gradients(member, model)
        return found[key]


def prepared(name: str, seed: int) -> tuple[Config, PlantedTask, Composition]:
    """Return a training with its canaries, ready to run."""
    if name in TEXTS:
        config = of_texts(seed)
        planted = planted_texts(config)
    else:
        config = settings(name, seed)
        task: AuditableTask = build_task(config.model_dump(mode="json", exclude_none=True))
        planted = plant_in(task, config.seed, most=64)
    composition = compose(config, planted.task.spec, [planted.task.samples(m) for m in range(config.members)])
    return config, planted, composition


def measured(name: str, seed: int, lookers: Sequence[Looker]) -> dict[str, Any]:
    """Train once and return the AUC and the one-run ε of each attack on each view."""
    began = time.process_time()
    config, planted, composition = prepared(name, seed)
    kept = f"{seed} {config.members} {config.data}" if config.methods == ("eris",) and name in SWEPT else ""
    public = Remembering(planted.public, "public", kept)
    planted = replace(planted, probe=Remembering(planted.probe, "canaries", kept), public=public)
    shown = [planted if looker.copies else replace(planted, copies=None) for looker in lookers]
    audits = [
        MembershipAudit(composition, each, [looker.observer], views=1, attacks=looker.attacks)
        for looker, each in zip(lookers, shown, strict=True)
    ]
    for looker, audit in zip(lookers, audits, strict=True):
        for place in (place for places in audit.places[looker.observer] for place in places):
            place.estimator.padded = looker.padded
    with tempfile.TemporaryDirectory() as folder:
        run(config, Path(folder) / "run", task=planted.task, listeners=audits)
        accuracy = json.loads((Path(folder) / "run" / "summary.json").read_text())["final_accuracy"]
    found: Figures = {}
    for looker, audit in zip(lookers, audits, strict=True):
        for view, figures in looker.figures(audit).items():
            found[view] = found.get(view, {}) | figures
    seconds = round(time.process_time() - began, 1)  # of the processor
    return {"seed": seed, "training": name, "accuracy": accuracy, "views": found, "seconds": seconds}


def differenced(name: str, seed: int) -> dict[str, Any]:
    """Train once with masked shards; attack differences of sums with and without a member, and the broadcasts."""
    began = time.process_time()
    config, planted, composition = prepared(name, seed)
    assert planted.public is not None
    probe, public = Remembering(planted.probe, "canaries"), Remembering(planted.public, "public")
    planted = replace(planted, probe=probe, public=public)
    records: list[RoundTranscript] = []
    looker = Looker("broadcast", "broadcast", (ATTACKS[STRONGEST],), {}, seed)
    audit = MembershipAudit(composition, planted, [looker.observer], views=1, attacks=looker.attacks)
    with tempfile.TemporaryDirectory() as folder:
        listeners = [TranscriptRecorder(composition.recipe, records.append), audit]
        run(config, Path(folder) / "run", task=planted.task, listeners=listeners)
        accuracy = json.loads((Path(folder) / "run" / "summary.json").read_text())["final_accuracy"]
    found = looker.figures(audit)
    for when, absent in SITS_OUT.items():
        for way in ("difference", "extrapolated"):
            scores = [_score_of_difference(config, planted, records, k, absent, way) for k in range(config.members)]
            sheet = ScoreSheet.of([part[None, None] for part in scores], public_root(seed).child("differencing"))
            auc = area(pooled(sheet.last)[0], np.concatenate(planted.canaries.coins)[None])[0]
            bound = epsilon(sheet, planted.canaries.coins, delta=1e-5)["lower_bound"]
            found[f"{way}, {when}"] = {STRONGEST: {"auc": float(auc), "epsilon": bound}}
    seconds = round(time.process_time() - began, 1)
    return {"seed": seed, "training": name, "accuracy": accuracy, "views": found, "seconds": seconds}


def _score_of_difference(
    config: Config, planted: PlantedTask, records: Sequence[RoundTranscript], victim: int, absent: int, way: str
) -> Any:
    """Score a member's canaries by the sums around the round in which it sits out."""
    before, last, now = (_sum(records[absent - back]) for back in (2, 1, 0))
    weight, n = np.float32(records[absent].weights[victim]), now.size
    without = now - weight * records[absent].sent[victim].values
    # With everybody there, the sum would have been about the last one, or have gone on as it did before.
    there, at = (last, absent - 1) if way == "difference" else (2 * last - before, absent)
    values, none, nowhere = (there - without) / weight, np.empty(0, np.float32), np.empty(0, np.int64)
    view = View(at, victim, nowhere, none, nowhere, none, {})
    estimate = UpdateEstimate(view, np.arange(n), values, nowhere, none, 0.0, values, none)
    model, samples = records[at].model, planted.task.samples(victim)
    assert planted.public is not None
    public, rate = PublicProbe(planted.public, model), config.local.lr * local_steps(config, samples)
    return ATTACKS[STRONGEST].score(
        Observation(at, estimate, CanaryProbe(planted, victim, model), samples, rate, public), {}
    )


def _sum(record: RoundTranscript) -> Any:
    """Return what was published in a round, on all coordinates."""
    whole = np.zeros(record.layout.trainable.n, np.float32)
    for mean in record.means.values():
        whole[mean.coordinates] = mean.values
    return whole


def kept(out: Path, what: Callable[[str, int], dict[str, Any]], name: str, seed: int) -> dict[str, Any]:
    """Return what a file says, or measure and write it."""
    path = out / f"{name.replace(' ', '-').replace('=', '')}-{seed}.json"
    if not path.exists():
        if time.monotonic() > ENDS:
            sys.exit(TIME_IS_UP)
        found = what(name, seed) | {"digest": digest()}
        path.with_suffix(".part").write_text(json.dumps(found, indent=1))
        path.with_suffix(".part").rename(path)
        print(f"{path.name}: {found['seconds']} s", file=sys.stderr, flush=True)
    found = json.loads(path.read_text())
    if found["digest"] != digest():
        sys.exit(f"{path} was measured with other settings: choose another --out")
    return found


def everywhere(
    out: Path, what: Callable[[str, int], dict[str, Any]], names: Sequence[str], seeds: Sequence[int], workers: int
) -> list[dict[str, Any]]:
    """Return what came of every training with every seed."""
    pairs = [(out, what, name, seed) for seed in seeds for name in names]
    if workers == 1:
        return [kept(*pair) for pair in pairs]
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(kept, *zip(*pairs, strict=True)))


def over_seeds(values: Sequence[float], level: float = 0.95) -> dict[str, float]:
    """Return a mean with its t-interval."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return {"mean": mean}
    reach = t_quantile((1 + level) / 2, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return {"mean": mean, "low": mean - reach, "high": mean + reach}


def gate(out: Path, text: str, count: int, names: Sequence[str], workers: int) -> dict[str, Any]:
    """Compare the default attack with the reference on seeds that follow from a hash."""
    if digest() != FROZEN:
        sys.exit(f"the settings are not the frozen ones: their digest is {digest()}, not {FROZEN}")
    print(f"settings {digest()}, seeds from {text}", file=sys.stderr, flush=True)
    seeds = seeds_from(text, count)
    found = everywhere(out, gated, names, seeds, workers)
    views: dict[str, Any] = {}
    for view in dict.fromkeys(view for one in found for view in one["views"]):
        pairs = [one["views"][view] for one in found if view in one["views"]]
        ours, reference = ([pair[attack]["auc"] for pair in pairs] for attack in (STRONGEST, "reference"))
        difference = over_seeds([a - b for a, b in zip(ours, reference, strict=True)])
        views[view] = {
            "default": over_seeds(ours),
            "reference": over_seeds(reference),
            "difference": difference,
            "epsilon": over_seeds([pair[STRONGEST]["epsilon"] for pair in pairs]),
            "passed": difference["mean"] >= 0 and difference.get("low", -1) >= LEAST,
            "auc": {"default": ours, "reference": reference},
        }
    passed = all(view["passed"] for view in views.values())
    return {"settings": digest(), "hash": text, "attack": STRONGEST, "seeds": seeds, "passed": passed, "views": views}


def tune(
    out: Path, seeds: Sequence[int], names: Sequence[str], workers: int, attacks: Sequence[str] = ()
) -> dict[str, Any]:
    """Compare all registered attacks, or some, where choices may be made."""
    out = out / "-".join(attacks)
    out.mkdir(parents=True, exist_ok=True)
    return {
        "command": "python benchmarks/attackers.py tune --keep",
        "settings": digest(),
        "seeds": list(seeds),
        "chosen_on": list(CHOSEN_ON),
        "auc": means(everywhere(out, partial(tuned, attacks=attacks), names, seeds, workers)),
    }


def texts(out: Path, seeds: Sequence[int], names: Sequence[str], workers: int) -> dict[str, Any]:
    """Compare all attacks that are possible on texts where choices may be made."""
    return {
        "command": "python benchmarks/attackers.py texts --keep",
        "setting": "small language models on synthetic texts",
        "seeds": list(seeds),
        "auc": means(everywhere(out, tuned_on_texts, names, seeds, workers)),
    }


def means(found: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the mean AUC of every attack on every view, the strongest first."""
    views: dict[str, dict[str, float]] = {}
    for view in dict.fromkeys(view for one in found for view in one["views"]):
        pairs = [one["views"][view] for one in found if view in one["views"]]
        mean = {attack: statistics.fmean(pair[attack]["auc"] for pair in pairs) for attack in pairs[0]}
        views[view] = {attack: round(mean[attack], 4) for attack in sorted(mean, key=lambda a: -mean[a])}
    return views


def keep(found: dict[str, Any], what: str, attacks: Sequence[str]) -> None:
    """Put what `tune` or `texts` found into the package, and leave what the other one found.

    If only some `attacks` were measured, those of the others stay.
    """
    before = json.loads(TUNING_FILE.read_text(encoding="utf-8"))
    if attacks:
        rows = {view: before["auc"][view] | measured for view, measured in found["auc"].items()}
        ordered = {view: dict(sorted(row.items(), key=lambda pair: -pair[1])) for view, row in rows.items()}
        found = before | {"auc": before["auc"] | ordered}
    after = found | {"texts": before["texts"]} if what == "tune" else before | {"texts": found}
    TUNING_FILE.write_text(json.dumps(after, indent=1) + "\n", encoding="utf-8")


def observers(out: Path, text: str, count: int, names: Sequence[str], workers: int) -> dict[str, Any]:
    """Return what each observer learns under each defence."""
    return looked(out, observed, text, count, names, workers)


def isolation(out: Path, text: str, count: int, names: Sequence[str], workers: int) -> dict[str, Any]:
    """Return what a mean tells about a member among few."""
    return looked(out, alone, text, count, names, workers)


def differencing(out: Path, text: str, count: int, names: Sequence[str], workers: int) -> dict[str, Any]:
    """Return what two sums tell about the member by which they differ."""
    return looked(out, differenced, text, count, names, workers)


def looked(
    out: Path,
    what: Callable[[str, int], dict[str, Any]],
    text: str,
    count: int,
    names: Sequence[str],
    workers: int,
) -> dict[str, Any]:
    """Return what each observer learns in each training, over seeds."""
    found = everywhere(out, what, names, seeds_from(text, count), workers)
    table: dict[str, Any] = {}
    for name in names:
        runs = [one for one in found if one["training"] == name]
        table[name] = {"accuracy": over_seeds([run["accuracy"] for run in runs])}
        for view in runs[0]["views"]:
            figures = [run["views"][view][STRONGEST] for run in runs]
            table[name][view] = {part: over_seeds([one[part] for one in figures]) for part in ("auc", "epsilon")}
    return {"hash": text, "attack": STRONGEST, "seeds": seeds_from(text, count), "defences": table}


def pads(out: Path, text: str, count: int, names: Sequence[str], workers: int) -> dict[str, Any]:
    """Return what pads are worth: what is captured under them tells what a broadcast does, without them what p had."""
    found = everywhere(out, uncovered, names, seeds_from(text, count), workers)
    table: dict[str, Any] = {}
    for name in names:
        views = [one["views"] for one in found if one["training"] == name]
        auc = {view: [each[view][STRONGEST]["auc"] for each in views] for view in views[0]}
        table[name] = {view: over_seeds(values) for view, values in auc.items()}
        for one, other in (("captured", "broadcast"), ("without pads", "plain"), ("without pads", "captured")):
            differences = [a - b for a, b in zip(auc[one], auc[other], strict=True)]
            table[name][f"{one} - {other}, 90 %"] = over_seeds(differences, 0.90)
    return {"hash": text, "attack": STRONGEST, "seeds": seeds_from(text, count), "trainings": table}


def sweeps(out: Path, text: str, count: int, names: Sequence[str], workers: int) -> dict[str, Any]:
    """Return the AUC along every axis."""
    trainings = [name for name, part in SWEPT.items() if any(view.split(":")[0] in names for view in part.observers)]
    found = everywhere(out, swept, trainings, seeds_from(text, count), workers)
    table: dict[str, Any] = {name: {} for name in (*names, "share")}
    for one in found:
        for view in one["views"]:
            sweep, label = view.split(": ")
            if sweep in table:
                table[sweep].setdefault(label, []).append(
                    {**one["views"][view][STRONGEST], "accuracy": one["accuracy"]}
                )
    points = {
        sweep: {
            label: {part: over_seeds([run[part] for run in runs]) for part in ("auc", "epsilon", "accuracy")}
            for label, runs in labels.items()
        }
        for sweep, labels in table.items()
    }
    return {"hash": text, "attack": STRONGEST, "seeds": seeds_from(text, count), "sweeps": points}


AXES = {
    "aggregators": "aggregators", "collusion": "colluders of 8", "compression": "compression ω (share kept: 1/(1+ω))",
    "blocks": "coordinates in a block", "rotation": "shard plan", "share": "of all coordinates, at random",
}  # fmt: skip


def draw(points: Mapping[str, Any], path: Path) -> None:
    """Draw every sweep beside the others, means with intervals over seeds, over the line of chance."""
    from eris.audit.plots import COLOURS, MUTED, blank_figure, plain_axes

    figure = blank_figure(9.0, 5.2)
    for axes, (name, label) in zip(figure.subplots(2, 3, sharey=True).flat, AXES.items(), strict=True):
        found = {key: part["auc"] for key, part in points[name].items()}
        order = sorted(found, key=lambda key: (key != "server", found_number(key)))
        means = [found[key]["mean"] for key in order]
        lows = [max(0.0, mean - found[key].get("low", mean)) for key, mean in zip(order, means, strict=True)]
        highs = [
            max(0.0, min(1.0, found[key].get("high", mean)) - mean) for key, mean in zip(order, means, strict=True)
        ]
        style: dict[str, Any] = {"fmt": "o-", "color": COLOURS[0], "capsize": 3, "markersize": 5, "linewidth": 1.0}
        axes.errorbar(range(len(order)), means, yerr=[lows, highs], **style)
        axes.axhline(0.5, color=MUTED, linewidth=1.2, linestyle=(0, (4, 3)))
        axes.set_xticks(range(len(order)), order, fontsize=8)
        axes.set_xlabel(label, fontsize=9)
        axes.set_ylim(0.45, 1.03)
        axes.set_xlim(-0.4, len(order) - 0.6)
        plain_axes(axes)
    figure.supylabel("membership AUC (0.5: chance)", fontsize=9)
    figure.savefig(path, dpi=150)


def found_number(label: str) -> float:
    """Return what orders a label along its axis; words stay behind numbers, in their order."""
    numerator, _, denominator = label.partition("/")
    try:
        return -float(numerator) / float(denominator) if denominator else float(label)
    except ValueError:
        return math.inf


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_subparsers(dest="what", required=True)
    gating, tuning, reading, looking, isolating, parting, padding, sweeping, _ = (
        what.add_parser(name)
        for name in ("gate", "tune", "texts", "observers", "isolation", "differencing", "pads", "sweeps", "digest")
    )
    usually = {gating: 10, looking: 5, isolating: 10, parting: 10, padding: 12, sweeping: 3}
    usually |= {tuning: len(TUNING_SEEDS), reading: len(TUNING_SEEDS_OF_TEXTS)}
    for command, count in usually.items():
        command.add_argument("--seeds", type=int, default=count)
    for command in (gating, looking, isolating, parting, padding, sweeping):
        command.add_argument("hash", help="what the seeds follow from, such as that of the commit that is measured")
    tuning.add_argument("--attacks", nargs="+", choices=list(ATTACKS), default=[], help="only these")
    for command in (tuning, reading):
        command.add_argument("--keep", action="store_true", help="put it into the package's tuning.json")
    sweeping.add_argument("--plot", type=Path, help="a picture of it")
    small = list(TRAININGS)[:2]
    choices: dict[Any, Any] = {gating: TRAININGS, tuning: TRAININGS, looking: DEFENCES, sweeping: SWEEPS}
    choices |= {padding: MASKED, isolating: ISOLATED, parting: DIFFERENCED, reading: TEXTS}
    for command, known in choices.items():
        command.add_argument("--out", type=Path, default=Path("attackers") / command.prog.split()[-1])
        usual = small if command is tuning else list(known)
        command.add_argument("--trainings", nargs="+", choices=known, default=usual)
        command.add_argument("--workers", type=int, default=1, help="processes")
        command.add_argument("--minutes", type=float, default=math.inf, help="begin nothing after so many (exit 75)")
    chosen = parser.parse_args()
    if chosen.what == "digest":
        print(digest())
        return
    if chosen.what == "gate":
        require_commit(chosen.hash)
    chosen.out.mkdir(parents=True, exist_ok=True)
    global ENDS
    ENDS = time.monotonic() + 60 * chosen.minutes
    if chosen.what == "tune":
        seeds = TUNING_SEEDS[: chosen.seeds]
        found = tune(chosen.out, seeds, chosen.trainings, chosen.workers, chosen.attacks)
    elif chosen.what == "texts":
        found = texts(chosen.out, TUNING_SEEDS_OF_TEXTS[: chosen.seeds], chosen.trainings, chosen.workers)
    else:
        known = {"gate": gate, "observers": observers, "isolation": isolation, "pads": pads, "sweeps": sweeps}
        known["differencing"] = differencing
        measure = known[chosen.what]
        found = measure(chosen.out, chosen.hash, chosen.seeds, chosen.trainings, chosen.workers)
    if getattr(chosen, "keep", False):
        keep(found, chosen.what, getattr(chosen, "attacks", ()))
    if getattr(chosen, "plot", None) is not None:
        draw(found["sweeps"], chosen.plot)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
