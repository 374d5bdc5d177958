"""Compare several methods on the same data, from the same seeds, for the same number of rounds, over several folds.

An **arm** is a method, perhaps with settings of its own: ``eris``, ``eris:server.optimizer=fedadam``. A fold is another
partition of the same data among the members, with another seed and hence another initial model (unless all are to start
from the same); each fold may be repeated with further seeds. The figure reported is the test accuracy in the round with
the lowest validation loss.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from eris.atomic_file import write_atomically
from eris.config import Config, load_config
from eris.errors import ConfigError, DiskError, ErisError
from eris.events import Listener
from eris.local.task import Task
from eris.methods import METHODS, method_by_name, with_defaults
from eris.simulate.method_run import MethodRun
from eris.simulate.run import Engines, check
from eris.simulate.spread import spread

__all__ = ["Arm", "Budget", "Comparison", "TrainingAudit", "Watch", "arm", "named_arm", "nobody"]

Watch = Callable[[str, int], Sequence[Listener]]  # label and trial → who listens; a trial is a fold with a seed

_TABLE = {
    "accuracy": "best_accuracy",
    "best_round": "best_round",
    "final_accuracy": "final_accuracy",
    "loss": "final_loss",
    "upload": "bytes.up_per_member_round",
    "download": "bytes.down_per_member_round",
    "distribution_seconds": "distribution_seconds",
    "exposure": "exposure.largest_share_per_round",
    "exposure_over_rounds": "exposure.union_over_rounds",
}
_ARM = re.compile(r"([^=]*?)(?::([\w.+-]+=.*))?", re.DOTALL)  # METHOD or module:NAME, then :key=value,…
_SHARED = ("method", "rounds", "stop", "seed", "members", "data.fold")
_CURVES = ("accuracy", "validation_loss", "loss", "worst_accuracy", "consensus_distance")


def nobody(label: str, fold: int) -> Sequence[Listener]:
    """Return no listeners."""
    del label, fold
    return ()


@dataclass(frozen=True, slots=True)
class Arm:
    """One line of the comparison."""

    label: str
    method: str
    changes: tuple[str, ...] = ()  # its own settings, key=value

    @property
    def folder(self) -> str:
        """A name for its results."""
        return re.sub(r"[^a-zA-Z0-9.+_=-]+", "-", self.label)


class TrainingAudit(Protocol):
    """Observes every training of a comparison, for instance an audit.

    It may change the task, so its trainings have a folder of their own.
    """

    @property
    def place(self) -> str:
        """The folder of the trainings, below that of the comparison."""
        ...

    def attend(self, config: Config, folder: Path) -> tuple[Task, Listener]:
        """Return the task to train and a listener; called before every training, finished or not."""
        ...

    def found(self, config: Config, folder: Path, rounds: int) -> dict[str, Any]:
        """Return the results of a finished training up to so many rounds, as plain data."""
        ...

    def gathered(self, lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return what follows from all trainings: each line has `label`, `table` and, in `witnessed`, its folds."""
        ...


@dataclass(frozen=True, slots=True)
class Budget:
    """How many rounds to train: those of the configuration, or up to where FedAvg's validation loss is lowest.

    If none is given, the configuration's `stop` decides.
    """

    fedavg_best: bool = False


def arm(text: str) -> Arm:
    """Read an arm, METHOD or METHOD:key=value,key=value.

    >>> arm("eris:server.optimizer=fedadam,server.optimizer_options={lr=0.1}").changes
    ('server.optimizer=fedadam', 'server.optimizer_options={lr=0.1}')
    >>> given = arm("eris.methods.eris:ERIS:server.rule=median")
    >>> given.method, given.changes
    ('eris.methods.eris:ERIS', ('server.rule=median',))
    """
    return _arm(text, text)


def named_arm(text: str) -> Arm:
    """Read an arm with a name of its own: NAME: METHOD, key=value, key=value.

    >>> named_arm("LDP, ε = 1: fedavg-dpsgd, privacy.epsilon=1, privacy.clip=1.0")
    Arm(label='LDP, ε = 1', method='fedavg-dpsgd', changes=('privacy.epsilon=1', 'privacy.clip=1.0'))
    """
    label, colon, rest = text.partition(": ")
    method, _, changes = rest.strip().partition(",")
    if not (colon and label.strip() and method.strip()):
        raise ConfigError(f"--arm is {text!r}", fix='write --arm "NAME: METHOD, key=value, key=value"')
    own = re.sub(r",\s+(?=[\w.+-]+=)", ",", changes.strip())
    return _arm(f"{method.strip()}:{own}" if own else method.strip(), label.strip())


def _arm(text: str, label: str) -> Arm:
    found = _ARM.fullmatch(text)
    name, rest = found.groups() if found else (text, "")
    if name.partition(":")[0] in METHODS and ":" in name:
        raise ConfigError(f"{text!r} has no setting after the colon", fix="write METHOD:key=value,key=value")
    method_by_name(name)
    changes = tuple(re.split(r",(?=[\w.+-]+=)", rest)) if rest else ()
    for key in (change.partition("=")[0].strip() for change in changes):
        if key in _SHARED:
            raise ConfigError(f"{text!r} sets {key}, which all methods share", fix=f"use --set {key}=…", key=key)
    return Arm(label, name, changes)


class Comparison:
    """Runs the arms in every fold and gathers the results; what an earlier call finished is not repeated.

    Args:
        config: what all arms share.
        out: the comparison's folder, with one for each training.
        folds: partitions of the data.
        seeds: how often each fold is repeated, with another seed.
        same_start: whether all folds of a repetition have the same seed, hence the same initial model.
        budget: how many rounds to train; None: as `config.stop` says.
        task: replaces `[data]` and `[model]`.
        audit: observes every training.
    """

    def __init__(
        self,
        config: Config,
        arms: Sequence[Arm],
        out: Path,
        *,
        folds: int = 1,
        seeds: int = 1,
        same_start: bool = False,
        budget: Budget | None = None,
        task: Task | None = None,
        audit: TrainingAudit | None = None,
    ) -> None:
        if len({each.folder for each in arms}) < len(arms):
            raise ConfigError("a method is named twice", fix="name each once, or with different settings", key="method")
        if min(folds, seeds) < 1:
            raise ConfigError(f"there are {folds} folds and {seeds} seeds", fix="use 1 or more")
        self._arms, self._out, self._folds, self._seeds = tuple(arms), out, folds, seeds
        self._same_start = same_start
        self._budget = budget or Budget(fedavg_best=config.stop == "fedavg-best")
        alone = {"stop": "rounds"} if config.stop == "fedavg-best" else {}  # a single training does not see the others
        self._config = config.model_copy(update=alone)
        self._task, self._audit = task, audit
        self.failures: dict[str, ErisError | MemoryError] = {}  # of the last call, by label
        for each in arms:
            self._settings(each, 0, config.rounds)  # refuses unknown settings

    def run(self, watch: Watch = nobody) -> dict[str, Any]:
        """Run everything, write compare.json and return it."""
        rounds: list[int] = []
        found: dict[str, list[_Fold]] = {each.label: [] for each in self._arms}
        self.failures = {}
        with Engines(self._task) as engines:
            self._check(engines)
            for trial in range(self._folds * self._seeds):
                rounds.append(self._rounds(trial, engines, watch))
                for each in self._arms:
                    if each.label not in self.failures:
                        self._try(each, found[each.label], trial, rounds[-1], engines, watch)
        if len(self.failures) == len(self._arms):
            raise next(iter(self.failures.values()))
        result = self._gathered(found, rounds)
        text = json.dumps(result, indent=1, allow_nan=False) + "\n"
        write_atomically(self._out / "compare.json", text.encode())
        return result

    def _try(self, each: Arm, found: list[_Fold], trial: int, rounds: int, engines: Engines, watch: Watch) -> None:
        """Train an arm and append the result to `found`; one that fails is a row with the reason, and stops there."""
        try:
            found.append(self._play(each, trial, rounds, engines, watch))
        except DiskError:  # the others would have no room either
            raise
        except (ErisError, MemoryError) as error:
            engines.close()
            self.failures[each.label] = error

    def _check(self, engines: Engines) -> None:
        """Refuse impossible settings before anything runs: the last method may start hours after the first."""
        arms = [self._settings(each, 0, self._config.rounds) for each in self._arms]
        for config in arms:
            check(config, task=self._task)
        facts = engines.for_config(with_defaults(self._config, "fedavg")).facts
        for config in arms:
            facts.compose(config)

    def _rounds(self, trial: int, engines: Engines, watch: Watch) -> int:
        if not self._budget.fedavg_best:
            return self._config.rounds
        best = self._play(Arm("fedavg", "fedavg"), trial, self._config.rounds, engines, watch).summary["best_round"]
        if best is None:
            raise ConfigError(
                "FedAvg has no validation loss to stop at", fix="set data.validation, or give rounds as a number"
            )
        return int(best) + 1

    def _play(self, each: Arm, trial: int, rounds: int, engines: Engines, watch: Watch) -> _Fold:
        """Train one arm, of which `rounds` rounds count.

        Trials go through all folds with one seed, then with the next.
        """
        place = self._out / self._audit.place if self._audit else self._out
        seed, fold = divmod(trial, self._folds)
        folder = place / (f"fold-{fold}-seed-{seed}" if seed else f"fold-{fold}") / each.folder
        whole = self._budget.fedavg_best and each == Arm("fedavg", "fedavg")
        config = self._settings(each, trial, self._config.rounds if whole else rounds)
        listeners = [*watch(each.label, trial)]
        if self._audit is not None:
            task, listener = self._audit.attend(config, folder)
            engines, listeners = Engines(task), [listener, *listeners]
        engine = engines.for_config(config)
        run = MethodRun(engine.facts.compose(config), folder, engine, listeners=listeners)
        summary = run.run(resume=True)
        witnessed = self._audit.found(config, folder, rounds) if self._audit else None
        return _Fold(fold, str(folder.relative_to(self._out)), summary, run.folder.rounds()[:rounds], witnessed)

    def _settings(self, each: Arm, trial: int, rounds: int) -> Config:
        plain = self._config.model_dump(mode="json", exclude_none=True)
        changed = load_config({**plain, "method": each.method}, changes=each.changes)
        seed, fold = divmod(trial, self._folds)
        data = changed.data.model_copy(update={"fold": changed.data.fold + fold})
        own = {"data": data, "rounds": rounds, "seed": changed.seed + (seed if self._same_start else trial)}
        return with_defaults(changed.model_copy(update=own), each.method)

    def _gathered(self, found: Mapping[str, list[_Fold]], rounds: list[int]) -> dict[str, Any]:
        lines = [_line(each, found[each.label], self.failures.get(each.label)) for each in self._arms]
        extra = self._audit.gathered([line for line in lines if "failed" not in line]) if self._audit else {}
        return {
            "config": self._config.model_dump(mode="json", exclude_none=True),
            "folds": self._folds,
            "seeds": self._seeds,
            "same_start": self._same_start,
            "stop": "fedavg-best" if self._budget.fedavg_best else self._config.stop,
            "rounds": rounds,
            "deviation": "std: sample standard deviation; reach: half of the 95 % t-interval of the mean",
            "methods": lines,
            **extra,
        }


@dataclass(frozen=True, slots=True)
class _Fold:
    """One method's result in one fold."""

    fold: int
    path: str  # of its folder, below that of the comparison
    summary: Mapping[str, Any]
    rounds: Sequence[Mapping[str, Any]]  # lines of metrics.jsonl
    witnessed: Mapping[str, Any] | None = None  # what the audit found


def _line(each: Arm, folds: Sequence[_Fold], failure: BaseException | None = None) -> dict[str, Any]:
    if failure is not None:
        return _failed(each, folds, str(failure) or type(failure).__name__)
    first = folds[0].summary
    witnessed = [fold.witnessed for fold in folds if fold.witnessed is not None]
    return {
        "label": each.label,
        "method": each.method,
        "changes": list(each.changes),
        "transforms": first["transforms"],
        "table": {key: spread([_at(fold.summary, path) for fold in folds]) for key, path in _TABLE.items()},
        "curve": _curve(folds),
        "privacy": first["privacy"],
        "notes": first["notes"],
        **({"witnessed": witnessed} if witnessed else {}),
        "folds": [
            {"fold": fold.fold, "path": fold.path, "rounds": len(fold.rounds), "digest": fold.summary["model_digest"]}
            for fold in folds
        ],
    }


def _failed(each: Arm, folds: Sequence[_Fold], why: str) -> dict[str, Any]:
    """Return the line of a method that failed, without means: the folds it finished are not comparable."""
    return {
        "label": each.label,
        "method": each.method,
        "changes": list(each.changes),
        "transforms": "",
        "table": {key: spread([None]) for key in _TABLE},
        "curve": {"round": [], "uploaded": []},
        "privacy": None,
        "notes": [f"{each.label} failed after {len(folds)} folds: {why}"],
        "failed": why,
        "folds": [],
    }


def _curve(folds: Sequence[_Fold]) -> dict[str, Any]:
    """Return what was measured round by round, over the rounds that every fold has."""
    count = min(len(fold.rounds) for fold in folds)
    spent = [_running([line["bytes_up"]["member"] for line in fold.rounds]) for fold in folds]
    curve: dict[str, Any] = {
        "round": list(range(count)),
        "uploaded": [spread([values[round] for values in spent])["mean"] for round in range(count)],
    }
    for key in _CURVES:
        points = [spread([fold.rounds[round].get(key) for fold in folds]) for round in range(count)]
        if any(point["mean"] is not None for point in points):
            curve[key] = {part: [point[part] for point in points] for part in ("mean", "std")}
    return curve


def _running(values: Sequence[float]) -> list[float]:
    return [math.fsum(values[: place + 1]) for place in range(len(values))]


def _at(data: Any, path: str) -> float | None:
    for key in path.split("."):
        data = data.get(key) if isinstance(data, Mapping) else None
    return None if data is None else float(data)
