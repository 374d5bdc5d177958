"""Measure how much a few malicious members damage the model, for every attack against every aggregation rule.

Each pair is trained with each seed; the mean with Student's interval over the seeds is reported. A finished training
leaves `poisoning.json` in its folder and is not repeated.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from eris.audit.intervals import mean_over_seeds
from eris.audit.json_file import write_json
from eris.audit.poisoned_task import PoisonedTask, poisoning_attack
from eris.audit.side_by_side import side_by_side
from eris.config import Config, load_config
from eris.errors import ConfigError, RunStopped
from eris.events import Listener, RunEnded
from eris.methods import with_defaults
from eris.plain_json import sayable
from eris.seeds import public_root
from eris.simulate.run import resume, run
from eris.tasks import build_task

__all__ = ["NOTES", "RULES", "SMALL_POISONING", "PoisoningPlan", "audit_poisoning"]

SMALL_POISONING = (
    "method=eris", "members=10", "rounds=8", "evaluate_every=8", "data.samples=100", "data.validation=0.0",
    "data.test_samples=500", "local.batch=20", "local.epochs=2", "local.lr=0.05", "local.momentum=0.9", "workers=1",
)  # fmt: skip

NOTES = (
    "backdoor rate: the share of test samples from other classes that are classified as the target once they carry the "
    "trigger; chance is the rate without an attack (first rows)",
    "fixed point stands for masked sums too (rule masked): they give the same bits. Attackers here stay within the "
    "range of fixed point; one that does not harms the model as it would under a mean, and under masks nobody can "
    "tell who it was",
    "attackers are drawn anew for every seed; they know only their own data and do not adapt to the rule",
    "intervals are Student's t over the seeds",
)


def _rules(attackers: int, members: int) -> dict[str, tuple[str, ...]]:
    beta = min((attackers + 0.5) / members, 0.499)
    return {
        "mean": (),
        "median": ("server.rule=median",),
        "trimmed mean": ("server.rule=trimmed_mean", f"server.rule_options.beta={beta:.4f}"),
        "fixed point": ("server.encoding=fixed",),
        "masked": ("privacy.masking=pairs",),
    }


RULES = tuple(_rules(1, 4))
USUAL_RULES = tuple(rule for rule in RULES if rule != "masked")  # its bits are those of fixed point

_Job = tuple[Config, Path, "PoisoningPlan", str, str, int]  # with rule, attack and seed
_Found = dict[str, float | None]


@dataclass(frozen=True)
class PoisoningPlan:
    """Which attacks to try against which rules, and with how many attackers."""

    attacks: tuple[str, ...] = ("none", "sign-flip", "label-flip", "scaled", "backdoor")
    rules: tuple[str, ...] = USUAL_RULES
    attackers: int = 2
    target: int = 0  # the class that a backdoor opens to

    def check(self, config: Config) -> None:
        """Refuse a plan that this configuration cannot carry out, before anything is trained."""
        for name in self.attacks:
            poisoning_attack(name)
        if unknown := sorted(set(self.rules) - set(RULES)):
            raise ConfigError(f"there is no rule {unknown[0]!r} here", fix=f"use one of {', '.join(RULES)}")
        if not 0 < self.attackers < config.members / 2:
            raise ConfigError(
                f"there are {self.attackers} attackers among {config.members} members",
                fix="use at least one and fewer than half: no rule holds against more",
                key="members",
            )
        if len(config.methods) != 1:
            raise ConfigError("poisoning is audited for one method", fix="use --set method=eris", key="method")
        if with_defaults(config, config.methods[0]).privacy.clip:
            raise ConfigError(
                "privacy.clip is set: members clip their own updates, but an attacker would not",
                fix="leave privacy.clip out",
                key="privacy.clip",
            )


def audit_poisoning(
    config: Config,
    out: Path,
    plan: PoisoningPlan,
    *,
    seeds: Sequence[int],
    listeners: Sequence[Listener] = (),
    stopped: Callable[[], bool] = lambda: False,
    processes: int = 1,
) -> list[dict[str, Any]]:
    """Train every pair of rule and attack with every seed; write poisoning.json and return its results.

    Calling it again with the same arguments resumes where it stopped.

    Args:
        config: what to train.
        out: the folder for the results.
        plan: the attacks and rules.
        seeds: to train each pair with.
        listeners: hear the events of the trainings; with several processes, only the end of each.
        stopped: asked whether to stop; with several processes, never.
        processes: how many trainings may run at once.
    """
    plan.check(config)
    rules = _rules(plan.attackers, config.members)
    changed = {
        rule: load_config(config.model_dump(mode="json", exclude_none=True), changes=rules[rule]) for rule in plan.rules
    }
    pairs = [(attack, rule) for attack in plan.attacks for rule in plan.rules]
    jobs = [(changed[rule], out / "runs", plan, rule, attack, seed) for attack, rule in pairs for seed in seeds]
    found = iter(_all_trained(jobs, listeners, stopped, processes))
    results = [_over_seeds({"rule": rule, "attack": attack}, [next(found) for _ in seeds]) for attack, rule in pairs]
    facts = {"settings": config.model_dump(mode="json"), "attackers": plan.attackers, "seeds": list(seeds)}
    write_json(out / "poisoning.json", {**facts, "notes": NOTES, "results": results})
    return results


def _all_trained(
    jobs: Sequence[_Job], listeners: Sequence[Listener], stopped: Callable[[], bool], processes: int
) -> list[_Found]:
    """Return the result of every training, several at once if there are `processes` for that.

    `listeners` and `stopped` are those of `audit_poisoning`.
    """
    if min(processes, len(jobs)) < 2:
        return [_trained(*job, listeners=listeners, stopped=stopped) for job in jobs]
    return side_by_side(_trained_apart, jobs, min(processes, len(jobs)), listeners)


def _trained_apart(job: _Job) -> _Found:
    return _trained(*job)


def _over_seeds(names: dict[str, str], found: Sequence[Mapping[str, float | None]]) -> dict[str, Any]:
    figures = {}
    for figure in ("accuracy", "backdoor_rate"):
        values = [one[figure] for one in found]
        figures[figure] = None if None in values else _figure([value for value in values if value is not None])
    return {**names, **figures}


def _figure(values: Sequence[float]) -> dict[str, Any]:
    if len(values) < 2:
        return {"value": values[0], "low": None, "high": None, "values": list(values)}
    return {**mean_over_seeds(values), "values": list(values)}


def _trained(
    config: Config,
    runs: Path,
    plan: PoisoningPlan,
    rule: str,
    attack: str,
    seed: int,
    *,
    listeners: Sequence[Listener] = (),
    stopped: Callable[[], bool] = lambda: False,
) -> _Found:
    """Train with one rule, attack and seed, or read the result if that was done before.

    Args:
        config: what to train, with the rule already set.
        runs: where all trainings have their folders.
        plan: how many attack, and the class that a backdoor opens to.
        rule: its name, for the folder.
        attack: its name.
        seed: to train with.
        listeners: hear the events of the training.
        stopped: asked whether to stop.
    """
    config = with_defaults(config.model_copy(update={"seed": seed}), config.methods[0])
    folder = runs / rule.replace(" ", "-") / attack / f"seed-{seed}"
    key = sha256(json.dumps([config.digest, attack, plan.attackers, plan.target]).encode()).hexdigest()
    mark = folder / "poisoning.json"
    if mark.exists():
        return _known(mark, key, config, listeners)
    task = build_task(config.model_dump(mode="json", exclude_none=True))
    poisoned = PoisonedTask(task, poisoning_attack(attack), _attackers(config, plan, attack), target=plan.target)
    options: dict[str, Any] = {"task": poisoned, "listeners": listeners, "stopped": stopped}
    result = resume(folder, **options) if (folder / "config.toml").exists() else run(config, folder, **options)
    if not result.finished:
        raise RunStopped("a training was stopped: nothing is reported yet", fix="run the audit again: it continues")
    found = _figures(poisoned, folder)
    write_json(mark, {"key": key, **found})
    return found


def _known(mark: Path, key: str, config: Config, listeners: Sequence[Listener]) -> dict[str, float | None]:
    """Return the result of a finished training, and tell listeners, such as progress bars, that it is done.

    `mark` is its result file, which is refused if it has another `key`: it was made with other settings.
    """
    found: dict[str, Any] = json.loads(mark.read_text(encoding="utf-8"))
    if found.pop("key") != key:
        raise ConfigError(
            "there is already a training with other settings in this folder", fix="choose another --out", path=mark
        )
    for listener in listeners:
        listener(RunEnded(config.rounds, True, "", 0.0))
    return found


def _attackers(config: Config, plan: PoisoningPlan, attack: str) -> list[int]:
    """Draw the attackers at random: the same ones for every rule and attack of a seed."""
    if attack == "none":
        return []
    return [
        int(member) for member in public_root(config.seed).child("attackers").subset(config.members, plan.attackers)
    ]


def _figures(task: PoisonedTask, folder: Path) -> dict[str, float | None]:
    """Return the accuracy and backdoor rate of the model that the training ended with."""
    from safetensors.numpy import load_file

    metrics = task.evaluate(task.spec.flatten(load_file(folder / "model.safetensors")))
    return {name: sayable(metrics.get(name)) for name in ("accuracy", "backdoor_rate")}
