"""One audited training: plant canaries, train as the configuration says, attack from every observer asked for."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from eris.audit.attack import Attack
from eris.audit.canaries import AuditableTask, plant_in
from eris.audit.membership import Membership, MembershipAudit
from eris.audit.observer import Observer
from eris.checkpoint import write_atomically
from eris.compose import compose
from eris.config import Config
from eris.errors import ConfigError, InputError, RunStopped
from eris.events import Listener
from eris.methods import method_by_name
from eris.simulate.run import run
from eris.tasks import build_task

__all__ = ["NOTES", "SMALL", "Plan", "Trial", "audit_membership", "try_config", "write_json"]

SMALL = (
    "members=8", "rounds=10", "evaluate_every=10", "data.samples=32", "data.validation=0.0", "data.test_samples=500",
    "local.batch=full", "local.epochs=5", "local.lr=0.1", "local.momentum=0.0", "workers=1",
)  # fmt: skip

NOTES = (
    "chance is what the same attack, with the same selection, makes of coins that were tossed again",
    "intervals draw members with replacement; with few members they are rough, and a best round stays too good in them",
    "ε is a lower bound for one sample more or less, from one view and round chosen beforehand; it is no guarantee",
    "coins and noise come from the run's seed here, so that the audit can be repeated",
)


@dataclass(frozen=True)
class Plan:
    """What is measured, whatever is trained."""

    observers: tuple[Observer, ...]
    attacks: tuple[Attack, ...]
    canaries: int = 64  # at most so many a member
    views: int = 8  # at most so many places to look at a member from
    masks_known: bool = False  # let the attacker know what each member kept under independent masks
    tosses: int = 1000
    resamples: int = 200


@dataclass(frozen=True)
class Trial:
    """What came of one training: how good the model was, and what each attack found."""

    method: str
    accuracy: float | None
    results: list[Membership] = field(repr=False)

    def plain(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "method": self.method,
            "accuracy": self.accuracy,
            "results": [result.plain() for result in self.results],
        }


def audit_membership(
    config: Config,
    out: Path,
    plan: Plan,
    *,
    listeners: Sequence[Listener] = (),
    stopped: Callable[[], bool] = lambda: False,
) -> list[Trial]:
    """Audit every method of a configuration; write membership.json, and each training's folder, below `out`."""
    if (out / "membership.json").exists():
        raise ConfigError("there is an audit in this folder already", fix="choose another --out", path=out)
    trials = [
        try_config(config.for_method(method), out / "runs" / method, plan, listeners=listeners, stopped=stopped)
        for method in config.methods
    ]
    facts = {"settings": config.model_dump(mode="json"), "notes": NOTES}
    write_json(out / "membership.json", {**facts, "trials": [trial.plain() for trial in trials]})
    return trials


def try_config(
    config: Config,
    folder: Path,
    plan: Plan,
    *,
    listeners: Sequence[Listener] = (),
    stopped: Callable[[], bool] = lambda: False,
) -> Trial:
    """Train one method with canaries and attack it."""
    if method_by_name(config.methods[0]).exchange is not None:
        raise ConfigError(
            f"members of {config.methods[0]} have models of their own: nobody aggregates, so there is nobody to audit",
            fix="audit a method with a server or aggregators",
            key="method",
        )
    task = build_task(config.model_dump(mode="json", exclude_none=True))
    if not hasattr(task, "sample_gradients"):
        raise InputError(f"{config.data.name} has no samples to ask about", fix="audit a data set with samples")
    problem = plant_in(cast(AuditableTask, task), config.seed, most=plan.canaries)
    samples = [problem.task.samples(member) for member in range(config.members)]
    composition = compose(config, problem.task.spec, samples)
    audit = MembershipAudit(composition, problem, plan.observers, views=plan.views, masks_known=plan.masks_known)
    result = run(config, folder, task=problem.task, listeners=[audit, *listeners], stopped=stopped)
    if not result.finished:
        raise RunStopped("the training was stopped, so there is nothing to report", fix="run the audit again")
    found = [
        audit.result(observer, attack, delta=config.privacy.delta, tosses=plan.tosses, resamples=plan.resamples)
        for observer in plan.observers
        for attack in plan.attacks
    ]
    return Trial(config.methods[0], result.summaries[0].get("final_accuracy"), found)


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write plain data for people and programs; what JSON has no word for becomes null."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (json.dumps(_sayable(data), indent=2, allow_nan=False) + "\n").encode())


def _sayable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _sayable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_sayable(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
