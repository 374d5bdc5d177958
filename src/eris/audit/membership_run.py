"""Audit a training for membership: plant canaries, train as configured, attack from every observer.

When a training finishes, the scores are written to `scores.npz` in its folder, so that an interrupted sweep or another
report can reuse them. Until then the observers' state is in the run's checkpoints: an interrupted training resumes from
the last one, and no observer misses a round.
"""

from __future__ import annotations

import io
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from eris.atomic_file import write_atomically
from eris.audit.attacks.by_name import BEST, attack_by_name, best_attack, choice_of, offered, require
from eris.audit.canaries import AuditableTask, PlantedTask, plant_crafted, plant_in, public_samples
from eris.audit.intervals import mean_over_seeds
from eris.audit.json_file import write_json
from eris.audit.membership import MembershipAudit, MembershipResult
from eris.audit.memory_need import AuditMemory, affordable, memory_need, require_memory
from eris.audit.observer import Observer, parse_observer, partners_of
from eris.audit.scoring import area, detection, interval_of_area, pooled
from eris.audit.side_by_side import side_by_side
from eris.compose import compose
from eris.config import Config, load_config
from eris.errors import ConfigError, InputError, RunStopped
from eris.events import Event, Listener, RunEnded
from eris.methods import method_by_name, with_defaults
from eris.seeds import public_root
from eris.simulate.run import resume, run
from eris.tasks import build_task

__all__ = [
    "NOTES",
    "SMALL",
    "AuditPlan",
    "AuditedRun",
    "MethodAudit",
    "attack_again",
    "audit_membership",
    "audit_method",
    "finished_audit",
    "over_seeds",
]

_MARK, _SCORES, _SUMMARY = "canaries.json", "scores.npz", "summary.json"

SMALL = (
    "members=8", "rounds=10", "evaluate_every=10", "data.samples=32", "data.validation=0.0", "data.test_samples=500",
    "local.batch=full", "local.epochs=5", "local.lr=0.1", "local.momentum=0.0", "workers=1",
)  # fmt: skip

NOTES = (
    "chance is what the same attack, with the same selection, scores when the coins are tossed again",
    "the 95 % intervals of a run cover variation within that run, over its members and canaries. Seeds vary more: "
    "intervals over seeds are Student's t. A selected figure (best round, best view) has no interval",
    "true positives at a false-positive rate are reported only if that rate amounts to at least ten non-members "
    "(over seeds: in all runs together); otherwise they cannot be measured and are null",
    "ε is a lower bound for adding or removing one sample, from one view and one round fixed in advance; it is not a "
    "guarantee",
    "coins and noise are derived from the run's seed, so that the audit can be repeated",
)


@dataclass(frozen=True)
class AuditPlan:
    """What to measure in a training: who observes, with which attacks and which canaries."""

    observers: tuple[Observer, ...]
    attacks: tuple[str, ...]  # the reported ones; `best`: the strongest that the task allows
    heard: tuple[str, ...] = ()  # the ones that run and can be reported later; empty: all that the task allows
    canaries: int = 64  # at most, for each member
    views: int = 8  # at most, places from which an observer looks at a member
    masks_known: bool = False  # whether the attacker knows what each member kept under independent masks
    tosses: int = 1000  # of the coins, for the chance level
    filler: str = ""  # a local model that perturbs texts; with it, no gradients are built either
    copies: int = 10  # perturbed copies of each text
    crafted: bool = False  # canaries with gradients unlike any sample's, instead of samples
    losses_only: bool = False  # never build a gradient
    coins: Literal["fair", "equal"] = "fair"  # of canaries: tossed one by one, or half of them in (the paper's text)

    def __post_init__(self) -> None:
        if self.crafted and self.losses_only:
            raise ConfigError(
                "--crafted plants canaries that are gradients, and --losses-only builds none",
                fix="leave out --losses-only, or audit natural samples without --crafted",
            )
        if self.crafted and self.filler:
            raise ConfigError(
                "--filler changes words, but the canaries that --crafted plants are no texts",
                fix="leave out --filler, or audit the texts themselves without --crafted",
            )

    @property
    def listening(self) -> dict[str, Any]:
        """The settings that the scores depend on; statistics are computed from the scores afterwards."""
        observers = [str(observer) for observer in self.observers]
        texts = {"filler": self.filler, "copies": self.copies} if self.filler else {}
        flags: dict[str, Any] = {name: True for name in ("crafted", "losses_only") if getattr(self, name)}
        flags |= {"heard": list(self.heard)} if self.heard else {}
        return {
            "observers": observers,
            "canaries": self.canaries,
            "views": self.views,
            "masks_known": self.masks_known,
            **texts,
            **flags,
            **({"coins": self.coins} if self.coins != "fair" else {}),
        }


def finished_audit(folder: Path, attacks: tuple[str, ...]) -> AuditPlan | None:
    """Return the plan of a finished audit, to report these attacks from it; None if the folder holds no such audit."""
    if not all((folder / name).exists() for name in (_MARK, _SCORES, _SUMMARY)):
        return None
    facts = json.loads((folder / _MARK).read_text(encoding="utf-8"))
    observers = tuple(parse_observer(text) for text in facts.pop("observers"))
    heard = facts["attacks"]
    if deaf := [name for name in attacks if name not in (*heard, BEST)]:
        raise ConfigError(
            f"attack {deaf[0]} did not observe this training, only {', '.join(heard)} did",
            fix=f"audit again with --attack {deaf[0]}, or with --all-attacks",
            path=folder,
        )
    del facts["key"], facts["attacks"]
    return AuditPlan(observers, attacks, **facts | {"heard": tuple(facts.get("heard", ()))})


class AuditedRun:
    """One audited training: plants canaries in a configuration's task, listens, and returns each attack's result.

    A folder that already holds the same audit is resumed; one that holds anything else is refused.
    """

    def __init__(self, config: Config, folder: Path, plan: AuditPlan) -> None:
        self.config, self.folder = config, folder
        self._planted: PlantedTask = _planted(config, plan)
        best = best_attack(self._planted)
        self.choice = choice_of(best, self._planted) if BEST in plan.attacks else ""
        self._plan = plan = _named(plan, best)
        for name in plan.attacks:
            require(attack_by_name(name), offered(self._planted))
        samples = [self._planted.task.samples(member) for member in range(config.members)]
        composition = compose(config, self._planted.task.spec, samples)
        heard = [attack_by_name(name) for name in plan.heard] or None
        self._audit = MembershipAudit(
            composition, self._planted, plan.observers, views=plan.views, masks_known=plan.masks_known, attacks=heard
        )
        places = sum(len(found) for members in self._audit.places.values() for found in members)
        gradients = any("gradients" in attack.needs for attack in self._audit.attacks)
        self.memory_need = memory_need(self._planted, composition, places, gradients=gradients)
        attacks = sorted(attack.name for attack in self._audit.attacks)
        self._key = sha256(json.dumps([config.digest, plan.listening, attacks]).encode()).hexdigest()
        self.finished = False
        if folder.exists() and any(not path.name.startswith(".") for path in folder.iterdir()):
            self._take_up()
            return
        require_memory(self.memory_need)
        folder.mkdir(parents=True, exist_ok=True)
        facts = {"key": self._key, "attacks": attacks, **plan.listening}
        write_atomically(folder / _MARK, (json.dumps(facts, indent=1) + "\n").encode())

    @property
    def task(self) -> AuditableTask:
        """The task to train, with the canaries planted."""
        return self._planted.task

    @property
    def begun(self) -> bool:
        """Whether the folder holds a training to resume."""
        return (self.folder / "config.toml").exists()

    @property
    def summary(self) -> dict[str, Any]:
        """The summary of the finished run."""
        summary: dict[str, Any] = json.loads((self.folder / _SUMMARY).read_text(encoding="utf-8"))
        return summary

    def __call__(self, event: Event) -> None:
        """Pass an event on to the audit; write the scores when the run has finished."""
        if self.finished:
            return
        self._audit(event)
        if isinstance(event, RunEnded) and event.finished:
            content = io.BytesIO()
            np.savez_compressed(content, **cast(Any, self._audit.arrays()))
            write_atomically(self.folder / _SCORES, content.getvalue())
            self.finished = True

    def memory(self) -> dict[str, NDArray[Any]]:
        """Return the observers' state so far, for a checkpoint."""
        return self._audit.memory()

    def remember(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore the observers' state from a checkpoint."""
        if not self.finished:
            self._audit.remember(arrays)

    def results(self, rounds: int | None = None) -> list[MembershipResult]:
        """Return the result of each observer and attack after `rounds` rounds (all of them without)."""
        plan = self._plan
        options: dict[str, Any] = {"rounds": rounds, "delta": self.config.privacy.delta, "tosses": plan.tosses}
        return [
            self._audit.result(observer, attack, **options) for observer in plan.observers for attack in plan.attacks
        ]

    def _take_up(self) -> None:
        """Load the scores if the folder's audit is finished; refuse a folder with anything but the same audit."""
        mark = self.folder / _MARK
        if not mark.exists():
            raise ConfigError(
                "this folder holds something other than an audit", fix="choose another --out", path=self.folder
            )
        if json.loads(mark.read_text(encoding="utf-8"))["key"] != self._key:
            raise ConfigError(
                "there is already an audit with other settings in this folder", fix="choose another --out", path=mark
            )
        if not (self.folder / _SCORES).exists() or not (self.folder / _SUMMARY).exists():
            return
        with np.load(self.folder / _SCORES, allow_pickle=False) as arrays:
            self._audit.load(dict(arrays))
        self.finished = True


def _named(plan: AuditPlan, best: str) -> AuditPlan:
    """Return the plan with the name of the attack that `best` stands for."""

    def named(attacks: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(best if name == BEST else name for name in attacks))

    return replace(plan, attacks=named(plan.attacks), heard=named(plan.heard))


def _planted(config: Config, plan: AuditPlan) -> PlantedTask:
    task = build_task(config.model_dump(mode="json", exclude_none=True))
    if not hasattr(task, "sample_gradients"):
        raise InputError(f"{config.data.name} has no samples to ask about", fix="audit a data set with samples")
    if plan.crafted:
        return plant_crafted(cast(AuditableTask, task), config, most=plan.canaries)
    equally = {"equally": plan.coins == "equal"}
    planted = plant_in(cast(AuditableTask, task), config.seed, fold=config.data.fold, most=plan.canaries, **equally)
    if plan.losses_only or plan.filler:
        planted = replace(planted, gradients=False, public=public_samples(cast(AuditableTask, task), gradients=False))
    if not plan.filler:
        return planted
    from eris.audit.text_copies import filler_of, perturbed_copies

    seed = public_root(config.seed).child("audit", "variations", config.data.fold)
    copies = perturbed_copies(planted.probe, filler_of(plan.filler), seed, copies=plan.copies)
    return replace(planted, copies=copies)


@dataclass(frozen=True)
class MethodAudit:
    """The outcome of one audited training: the model's accuracy, and the result of each attack."""

    method: str
    seed: int
    accuracy: float | None
    results: list[MembershipResult] = field(repr=False)  # one for each observer and attack
    choice: str = ""  # which attack `best` stood for, and how it was chosen

    def plain(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "method": self.method,
            "seed": self.seed,
            "accuracy": self.accuracy,
            **({"choice": self.choice} if self.choice else {}),
            "results": [result.plain() for result in self.results],
        }


def audit_membership(
    config: Config,
    out: Path,
    plan: AuditPlan,
    *,
    seeds: Sequence[int] = (),
    listeners: Sequence[Listener] = (),
    stopped: Callable[[], bool] = lambda: False,
    notice: Callable[[AuditMemory], None] = lambda _: None,
    processes: int = 1,
) -> list[MethodAudit]:
    """Audit every method of a configuration; write membership.json, and each training's folder, below `out`.

    Calling it again with the same arguments resumes where it stopped.

    Args:
        config: what to train; every one of its methods is audited.
        out: the folder for the results.
        plan: what to measure.
        seeds: train each method with each of these instead of the configuration's own seed.
        listeners: hear the events of the trainings; with several processes, only the end of each.
        stopped: asked whether to stop; with several processes, never.
        notice: told how much memory the audit needs, before it takes it.
        processes: how many trainings may run at once.
    """
    for method in config.methods:
        _check(with_defaults(config, method), method, plan)
    jobs = [
        (each.for_method(method), folder / method, plan)
        for each, folder in _runs(config, out / "runs", seeds)
        for method in config.methods
    ]
    if min(processes, len(jobs)) > 1:
        trials = _apart(jobs, processes, listeners, notice)
    else:
        trials = [audit_method(*job, listeners=listeners, stopped=stopped, notice=notice) for job in jobs]
    _write(config, out, trials)
    return trials


_Job = tuple[Config, Path, AuditPlan]


def _apart(
    jobs: Sequence[_Job], processes: int, listeners: Sequence[Listener], notice: Callable[[AuditMemory], None]
) -> list[MethodAudit]:
    """Audit trainings in processes of their own: up to `processes` at once, and no more than memory allows.

    `listeners` hear only the end of each training; `notice` is told how much memory one audit needs.
    """
    first = _opened(jobs[0])
    notice(first.memory_need)
    processes = min(processes, len(jobs), affordable(first.memory_need))
    return side_by_side(_audited, jobs, processes, listeners)


def _audited(job: _Job) -> MethodAudit:
    return audit_method(*job)


def _runs(config: Config, folder: Path, seeds: Sequence[int]) -> list[tuple[Config, Path]]:
    """Return the settings and the folder for each seed; without seeds, the settings unchanged."""
    if not seeds:
        return [(config, folder)]
    return [(config.model_copy(update={"seed": seed}), folder / f"seed-{seed}") for seed in seeds]


def over_seeds(trials: Sequence[MethodAudit]) -> list[dict[str, Any]]:
    """Return a summary over seeds for each method that was trained with more than one."""
    methods = dict.fromkeys(trial.method for trial in trials)
    runs = {method: {trial.seed: trial.results for trial in trials if trial.method == method} for method in methods}
    return [_summary_over_seeds(method, found) for method, found in runs.items() if len(found) > 1]


def _summary_over_seeds(method: str, runs: Mapping[int, Sequence[MembershipResult]]) -> dict[str, Any]:
    """Return one method's results over at least two seeds, for each observer and attack, as plain data.

    Each figure is the mean over the runs. True positive rates at low false positive rates are computed over the
    canaries of all runs together, as one run has too few.
    """
    return {
        "method": method,
        "seeds": list(runs),
        "results": [_summary(found) for found in zip(*runs.values(), strict=True)],
    }


def _summary(found: Sequence[MembershipResult]) -> dict[str, Any]:
    first = found[0]
    epsilons = [result.epsilon["lower_bound"] for result in found]
    return {
        **{name: getattr(first, name) for name in ("observer", "attack", "rounds", "members", "views")},
        "canaries": sum(result.canaries for result in found),
        "visible_share": statistics.fmean(result.visible_share for result in found),
        "figures": {name: _figure(name, found) for name in ("auc", "accuracy")},
        "pooled_auc": _pooled(found),
        "epsilon": {
            "values": epsilons,
            "lower_bound": statistics.fmean(epsilons),
            "delta": first.epsilon["delta"],
            "confidence": first.epsilon["confidence"],
        },
        "true_positives": detection([result.sheet for result in found], [result.coins for result in found]),
    }


def _pooled(found: Sequence[MembershipResult]) -> dict[str, float]:
    """Return the AUC over the canaries of all runs together, with its interval over the members of these runs."""
    last = [scores for result in found for scores in result.sheet.last]
    coins = [toss for result in found for toss in result.coins]
    heads = np.concatenate(coins)[None]
    low, high = interval_of_area(last, coins)
    return {"value": statistics.fmean(float(area(view, heads)[0]) for view in pooled(last)), "low": low, "high": high}


def _figure(name: str, found: Sequence[MembershipResult]) -> dict[str, Any]:
    figures = [result.figures[name] for result in found]
    chance = {part: statistics.fmean(getattr(figure, part) for figure in figures) for part in ("chance", "chance_95")}
    values = [figure.value for figure in figures]
    return {**mean_over_seeds(values), **chance, "values": values}


def _check(config: Config, name: str, plan: AuditPlan) -> None:
    """Refuse the plan's observers that the method `name` does not have, before anything is trained."""
    method, seed = method_by_name(name), public_root(config.seed)
    aggregators = range(method.aggregators(config))
    for observer in plan.observers:
        if method.trusted:
            continue
        if method.exchange is not None:
            observer.places_among(0, config.members, seed, limit=1)
        else:
            partners = partners_of(config, name)
            observer.vantages(0, aggregators, config.members, seed, limit=1, server=method.server, partners=partners)


def attack_again(folder: Path, out: Path, plan: AuditPlan) -> list[MethodAudit]:
    """Report on a finished run that was trained with canaries (see `finished_audit`), without training again.

    Args:
        folder: the run's.
        out: the folder for the results.
        plan: of that audit, with the attacks to report.
    """
    config = load_config(folder / "config.toml")
    trials = [audit_method(config, folder, plan)]
    _write(config, out, trials)
    return trials


def _write(config: Config, out: Path, trials: Sequence[MethodAudit]) -> None:
    facts = {"settings": config.model_dump(mode="json"), "notes": NOTES, "over_seeds": over_seeds(trials)}
    write_json(out / "membership.json", {**facts, "trials": [trial.plain() for trial in trials]})


def audit_method(
    config: Config,
    folder: Path,
    plan: AuditPlan,
    *,
    listeners: Sequence[Listener] = (),
    stopped: Callable[[], bool] = lambda: False,
    notice: Callable[[AuditMemory], None] = lambda _: None,
) -> MethodAudit:
    """Train one method with canaries and attack it; if that was done before, only recompute the results.

    Args:
        config: what to train.
        folder: for the training and its scores.
        plan: what to measure.
        listeners: hear the events of the training.
        stopped: asked whether to stop.
        notice: told how much memory the audit needs besides the training, before it takes it.
    """
    audited = _opened((config, folder, plan))
    notice(audited.memory_need)
    if audited.finished:
        _pass_over(audited, listeners)
    else:
        _train(audited, config, listeners, stopped)
    accuracy = audited.summary.get("final_accuracy")
    return MethodAudit(config.methods[0], config.seed, accuracy, audited.results(), audited.choice)


def _opened(job: _Job) -> AuditedRun:
    config, folder, plan = job
    return AuditedRun(with_defaults(config, config.methods[0]), folder, plan)


def _train(audited: AuditedRun, config: Config, listeners: Sequence[Listener], stopped: Callable[[], bool]) -> None:
    """Train from the beginning, or from the last checkpoint of the same audit; `stopped` is asked whether to stop."""
    options: dict[str, Any] = {"task": audited.task, "listeners": [audited, *listeners], "stopped": stopped}
    result = resume(audited.folder, **options) if audited.begun else run(config, audited.folder, **options)
    if not result.finished:
        raise RunStopped("the training was stopped: nothing is reported yet", fix="run the audit again: it continues")


def _pass_over(audited: AuditedRun, listeners: Sequence[Listener]) -> None:
    """Tell listeners, such as progress bars, that all rounds are done."""
    summary = audited.summary
    for listener in listeners:
        listener(RunEnded(audited.config.rounds, True, str(summary.get("model_digest", "")), 0.0))
