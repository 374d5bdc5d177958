"""Run a federation from Python in a few lines: a model, data and a method.

>>> import tempfile
>>> federation = Federation(data="synthetic-clouds", method=["fedavg", "eris"], members=5, rounds=3, workers=1)
>>> result = federation.run(tempfile.mkdtemp() + "/run")
>>> result["eris"]["model_digest"] == result["fedavg"]["model_digest"]
True
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence, Set
from inspect import isfunction
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from eris.config import Config
    from eris.events import Listener
    from eris.interop.trackers import MakeTracker
    from eris.local.task import Task
    from eris.methods import Method
    from eris.peer.own_task import MakeTask
    from eris.simulate.run import RunResult

__all__ = ["Federation", "require_nothing_else", "with_names_of_its_own"]

Metrics = Mapping[str, Callable[[Any, Any], Any]] | Sequence[str | Callable[[Any, Any], Any]]


class Federation:
    """Members that train one model together.

    Args:
        model: a name (``"lenet5"``), an import path (``"package.module:Class"``) or anything that returns a
            `torch.nn.Module` when called.
        data: a name; or what to train on and what to test on, as two pairs of arrays ``((inputs, labels), (inputs,
            labels))``. A third array in the first pair says who each sample belongs to, by number or name; with
            ``changes=["data.partition=natural"]`` these samples stay together. A pair may also be a dictionary of
            columns, a torch or Hugging Face `Dataset`, or a list of samples. Or give a function of the member's number
            that returns that member's own data.
        method: a name, an `eris.Method`, or several to compare.
        loss: a name (``"mse"``) or a function of the model's outputs and the targets.
        metrics: further figures to report: ``{"recall": function}``, or just the functions.
        collate: puts single samples together into a batch.
        task: an `eris.Task` of your own in place of all of the above except the method, or a function of the
            configuration and a member's number that returns one, as for ``eris join --task``.
        changes: settings as ``eris run --set`` takes them (``["data.alpha=0.2"]``).
        **settings: any other settings of a configuration file, with tables as dictionaries (``local={"lr": 0.1}``).

    In the tables, a compressor, rule, optimizer, schedule, partition or correction may be an object instead of a name
    (``server={"rule": MyRule()}``). `model` and `data` may be tables of settings too.

    If everything is given by name, members train in worker processes; with objects of your own, in this process.
    """

    def __init__(
        self,
        model: str | dict[str, Any] | Callable[[], Any] | None = None,
        data: str | dict[str, Any] | tuple[Any, Any] | Callable[..., Any] | None = None,
        method: str | Method | Sequence[str | Method] = "eris",
        *,
        loss: str | Callable[[Any, Any], Any] | None = None,
        metrics: Metrics | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
        task: Task | MakeTask | None = None,
        changes: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        from eris.config import load_config

        plain, lent = _with_names(method, settings)
        _require_maker(model)
        for table, given in (("model", model), ("data", data)):
            if isinstance(given, dict):
                plain[table] = given
            elif given is not None:
                plain[table] = {"name": given if isinstance(given, str) else "own"}
        if loss is not None:
            plain["local"] = {**plain.get("local", {}), "loss": loss if isinstance(loss, str) else "own"}
        if metrics is not None and all(isinstance(each, str) for each in metrics) and not isinstance(metrics, Mapping):
            plain["local"] = {**plain.get("local", {}), "metrics": list(metrics)}
            metrics = None
        self.config: Config = load_config(plain, changes=changes)
        if lent:
            self.config = self.config.model_copy(update={"workers": 1})  # a worker process would not have these objects
        own = {"loss": loss if callable(loss) else None, "metrics": metrics, "collate": collate}
        self.task = self._own_task(model, data, own) if task is None else self._ready_made(task)

    def __repr__(self) -> str:
        config = self.config
        methods = ", ".join(config.methods)
        return f"Federation({config.members} members, {methods}, {config.model.name} on {config.data.name})"

    def run(
        self,
        out: str | Path | None = None,
        *,
        listeners: Sequence[Listener] = (),
        report: bool = True,
        track: str | MakeTracker | Sequence[str | MakeTracker] = (),
    ) -> RunResult:
        """Train, write the run's folder (default: runs/<time>-<method>) and return the results.

        `listeners` are functions that are called with every event of the run (`eris.events`). ``report=False`` saves
        about a second if you only need the figures. `track` names trackers (``"tensorboard"``), or is a function that
        makes one.
        """
        from eris.interop.trackers import Tracking
        from eris.simulate.run import run
        from eris.simulate.stamped_folder import stamped_folder

        trackers = [track] if isinstance(track, str) or callable(track) else list(track)
        if out is None and trackers:
            out = stamped_folder(self.config.methods[0])
        with Tracking(trackers, Path(out or ""), self.config) as tracking:
            listening: list[Listener] = [*listeners, *([tracking] if trackers else [])]
            result = run(self.config, None if out is None else Path(out), task=self.task, listeners=listening)
            result = _reported(result) if report else result
            if (page := result.path / "report.html").exists():
                tracking.artefact(page)
        return result

    def resume(self, out: str | Path, *, listeners: Sequence[Listener] = (), report: bool = True) -> RunResult:
        """Resume a run that was stopped or killed.

        `out` is its folder; `listeners` and `report` are those of `run`.
        """
        from eris.simulate.run import resume

        result = resume(Path(out), task=self.task, listeners=listeners)
        return _reported(result) if report else result

    def _ready_made(self, task: Task | MakeTask) -> Task:
        from eris.local.task import rehearse
        from eris.peer.own_task import TaskOfAll

        if isfunction(task) or not hasattr(task, "spec"):
            self.config = with_names_of_its_own(self.config)
            return TaskOfAll(cast("MakeTask", task), self.config)
        require_nothing_else(self.config)
        self.config = with_names_of_its_own(self.config)
        rehearse(task)
        return cast("Task", task)

    def _own_task(self, model: Any, data: Any, own: dict[str, Any]) -> Task | None:
        own_data = data is not None and not isinstance(data, str | dict)
        if not callable(model) and not own_data and all(value is None for value in own.values()):
            return None
        from eris.tasks import own_task

        return own_task(self.config, model if callable(model) else None, data if own_data else None, **own)


def _with_names(method: Any, settings: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return the settings with objects replaced by names, and whether there were any objects."""
    from eris.aggregate.choose import RULES
    from eris.data.partition import PARTITIONS
    from eris.local.correction import CORRECTIONS
    from eris.methods import METHODS, Method
    from eris.registry import Ready, Registry
    from eris.step.choose import OPTIMIZERS
    from eris.step.schedule import SCHEDULES
    from eris.transforms.named import COMPRESSORS

    doors: dict[tuple[str, str], Registry[Any]] = {
        ("compression", "compressor"): COMPRESSORS,
        ("compression", "gamma_schedule"): SCHEDULES,
        ("server", "rule"): RULES,
        ("server", "optimizer"): OPTIMIZERS,
        ("server", "schedule"): SCHEDULES,
        ("data", "partition"): PARTITIONS,
        ("local", "correction"): CORRECTIONS,
    }
    several = [method] if isinstance(method, str | Method) or not isinstance(method, Sequence) else list(method)
    names = [each if isinstance(each, str) else METHODS.lend(each) for each in several]
    plain: dict[str, Any] = {"method": names[0] if several == [method] else names, **settings}
    lent = any(not isinstance(each, str) for each in several)
    for (table, key), registry in doors.items():
        given = plain[table].get(key) if isinstance(plain.get(table), dict) else None
        if given is None or isinstance(given, str):
            continue
        made = not isinstance(given, type) and not (isfunction(given) and registry not in (SCHEDULES, CORRECTIONS))
        name = registry.lend(
            Ready(given) if made else given
        )  # most registries hold makers; that of schedules holds functions
        plain[table], lent = {**plain[table], key: name}, True
    return plain, lent


def _require_maker(model: Any) -> None:
    """Refuse a network that is already built: every process and every run builds its own from the run's seed."""
    torch = sys.modules.get("torch")  # anybody who has a network has imported it
    if torch is not None and isinstance(model, torch.nn.Module):
        from eris.errors import InputError

        raise InputError(
            f"the model is a {type(model).__name__} that is already built",
            fix=f"give a function that makes it: lambda: {type(model).__name__}(…)",
        )


def with_names_of_its_own(config: Config) -> Config:
    """Name data and model "own" for a run whose task was given, instead of naming the unused defaults."""
    from eris.config import Config
    from eris.tasks import OWN

    default = Config()
    tables = {
        table: getattr(config, table).model_copy(update={"name": OWN})
        for table in ("data", "model")
        if getattr(config, table).name == getattr(default, table).name
    }
    return config.model_copy(update=tables)


def _reported(result: RunResult) -> RunResult:
    """Write report.html into the run's folder; warn if the packages that draw it are missing."""
    from eris.errors import MissingExtra
    from eris.report import write_report

    try:
        write_report(result.path)
    except (ImportError, MissingExtra) as error:
        warnings.warn(f"report.html was not written: {error}", stacklevel=3)
    return result


def require_nothing_else(config: Config, *, heard: Set[str] = frozenset()) -> None:
    """Refuse settings that a ready-made task would never see; it does see `model.options` and those in `heard`."""
    from eris.config import Config
    from eris.errors import ConfigError

    default = Config()
    for table in ("data", "model", "local"):
        given, plain = (getattr(each, table).model_dump() for each in (config, default))
        for name in (name for name, value in given.items() if value != plain[name]):
            if f"{table}.{name}" in {"local.cohort", *heard}:
                continue
            raise ConfigError(
                f"{table}.{name} is {given[name]!r}, but the task is given ready-made",
                fix="leave it out: the task knows its own data, model and local work",
                key=f"{table}.{name}",
            )
