"""One audited training: plant canaries, train as the configuration says, attack from every observer asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eris.audit.attempt import Attempt, Plan
from eris.audit.membership import Membership
from eris.audit.plain import write_json
from eris.config import Config, load_config
from eris.errors import RunStopped
from eris.events import Listener, RunEnded
from eris.methods import method_by_name, settled
from eris.seeds import public_root
from eris.simulate.run import resume, run

__all__ = ["NOTES", "SMALL", "Plan", "Trial", "ask_again", "audit_membership", "try_config"]

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
    """Audit every method of a configuration; write membership.json, and each training's folder, below `out`.

    The same again goes on where it was.
    """
    for method in config.methods:
        _check(settled(config, method), method, plan)
    trials = [
        try_config(config.for_method(method), out / "runs" / method, plan, listeners=listeners, stopped=stopped)
        for method in config.methods
    ]
    _write(config, out, trials)
    return trials


def _check(config: Config, name: str, plan: Plan) -> None:
    """Refuse observers that a method does not have before the first method is trained."""
    method, seed = method_by_name(name), public_root(config.seed)
    aggregators = range(method.aggregators(config))
    for observer in plan.observers:
        if method.trusted:
            continue
        if method.exchange is not None:
            observer.places_among(0, config.members, seed, limit=1)
        else:
            observer.vantages(0, aggregators, config.members, seed, limit=1, server=method.server)


def ask_again(folder: Path, out: Path, plan: Plan) -> list[Trial]:
    """Attack a finished run that was trained with canaries (see `planted`): nothing is trained again."""
    config = load_config(folder / "config.toml")
    trials = [try_config(config, folder, plan)]
    _write(config, out, trials)
    return trials


def _write(config: Config, out: Path, trials: Sequence[Trial]) -> None:
    facts = {"settings": config.model_dump(mode="json"), "notes": NOTES}
    write_json(out / "membership.json", {**facts, "trials": [trial.plain() for trial in trials]})


def try_config(
    config: Config,
    folder: Path,
    plan: Plan,
    *,
    listeners: Sequence[Listener] = (),
    stopped: Callable[[], bool] = lambda: False,
) -> Trial:
    """Train one method with canaries and attack it; where that was done before, only the attack is asked again."""
    attempt = Attempt(settled(config, config.methods[0]), folder, plan)
    if attempt.finished:
        _pass_over(attempt, listeners)
    else:
        _train(attempt, config, listeners, stopped)
    return Trial(config.methods[0], attempt.summary.get("final_accuracy"), attempt.results())


def _train(attempt: Attempt, config: Config, listeners: Sequence[Listener], stopped: Callable[[], bool]) -> None:
    """Train from the beginning, or from the last checkpoint of the same audit."""
    options: dict[str, Any] = {"task": attempt.task, "listeners": [attempt, *listeners], "stopped": stopped}
    result = resume(attempt.folder, **options) if attempt.begun else run(config, attempt.folder, **options)
    if not result.finished:
        raise RunStopped("the training was stopped: nothing is reported yet", fix="run the audit again: it goes on")


def _pass_over(attempt: Attempt, listeners: Sequence[Listener]) -> None:
    """Tell those who show progress that all rounds are done."""
    summary = attempt.summary
    for listener in listeners:
        listener(RunEnded(attempt.config.rounds, True, str(summary.get("model_digest", "")), 0.0))
