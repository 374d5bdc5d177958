"""A federation in a few lines: a model, data and a method.

>>> import tempfile
>>> federation = Federation(data="synthetic-clouds", method=["fedavg", "eris"], members=5, rounds=3, workers=1)
>>> result = federation.run(tempfile.mkdtemp() + "/run")
>>> result["eris"]["model_digest"] == result["fedavg"]["model_digest"]
True
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eris.config import Config
    from eris.events import Listener
    from eris.local.task import Task
    from eris.simulate.run import RunResult

__all__ = ["Federation"]

Arrays = tuple[Any, ...]


class Federation:
    """Members that train one model together.

    `model` is a name (``"lenet5"``), an import path (``"package.module:Class"``) or anything that returns a
    `torch.nn.Module` when called; `data` a name, or two pairs of arrays ``((inputs, labels), (inputs, labels))`` to
    train and to test on. A third array beside the first pair says whom each sample comes from, by number or by name;
    with ``changes=["data.partition=natural"]`` these stay whole. Both may be tables of settings too. Instead of both,
    `task` may be a learning problem of one's own (`eris.Task`). All other settings are those of a configuration file,
    tables as dictionaries (``local={"lr": 0.1}``) or as `changes` in the words of ``eris run --set``
    (``["data.alpha=0.2"]``).

    Names are trained in worker processes; objects of one's own in this process.
    """

    def __init__(
        self,
        model: str | dict[str, Any] | Callable[[], Any] | None = None,
        data: str | dict[str, Any] | tuple[Arrays, Arrays] | None = None,
        method: str | Sequence[str] = "eris",
        *,
        task: Task | None = None,
        changes: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        from eris.config import load_config

        plain: dict[str, Any] = {"method": method if isinstance(method, str) else list(method), **settings}
        _require_maker(model)
        for table, given in (("model", model), ("data", data)):
            if isinstance(given, dict):
                plain[table] = given
            elif given is not None:
                plain[table] = {"name": given if isinstance(given, str) else "own"}
        self.config: Config = load_config(plain, changes=changes)
        if task is not None:
            _require_nothing_else(self.config)
            self.config = _with_names_of_its_own(self.config)
        self.task = task or self._own_task(model, data)

    def __repr__(self) -> str:
        config = self.config
        methods = ", ".join(config.methods)
        return f"Federation({config.members} members, {methods}, {config.model.name} on {config.data.name})"

    def run(
        self, out: str | Path | None = None, *, listeners: Sequence[Listener] = (), report: bool = True
    ) -> RunResult:
        """Train, write the run's folder (default: runs/<time>-<method>) and return what came of it.

        Whoever runs many and reads only figures saves a second each with ``report=False``.
        """
        from eris.simulate.run import run

        result = run(self.config, None if out is None else Path(out), task=self.task, listeners=listeners)
        return _reported(result) if report else result

    def resume(self, out: str | Path, *, listeners: Sequence[Listener] = (), report: bool = True) -> RunResult:
        """Go on with a run that was stopped or killed."""
        from eris.simulate.run import resume

        result = resume(Path(out), task=self.task, listeners=listeners)
        return _reported(result) if report else result

    def _own_task(self, model: Any, data: Any) -> Task | None:
        own_data = data is not None and not isinstance(data, str | dict)
        if not callable(model) and not own_data:
            return None
        from eris.tasks import own_task

        return own_task(self.config, model if callable(model) else None, data if own_data else None)


def _require_maker(model: Any) -> None:
    """Refuse a network itself: every process and every run makes its own, from the run's seed."""
    torch = sys.modules.get("torch")  # whoever has a network has imported it
    if torch is not None and isinstance(model, torch.nn.Module):
        from eris.errors import InputError

        raise InputError(
            f"the model is a {type(model).__name__} that is made already",
            fix=f"give what makes it: lambda: {type(model).__name__}(…)",
        )


def _with_names_of_its_own(config: Config) -> Config:
    """Let a run with a task of one's own not claim the data and the model that are defaults."""
    from eris.tasks import OWN

    tables = {table: getattr(config, table).model_copy(update={"name": OWN}) for table in ("data", "model")}
    return config.model_copy(update=tables)


def _reported(result: RunResult) -> RunResult:
    """Write report.html into the run's folder; warn where the packages that draw it are not installed."""
    from eris.errors import MissingExtra
    from eris.report import write_report

    try:
        write_report(result.path)
    except (ImportError, MissingExtra) as error:
        warnings.warn(f"report.html was not written: {error}", stacklevel=3)
    return result


def _require_nothing_else(config: Config) -> None:
    """Refuse settings that a task of one's own never hears of."""
    from eris.config import Config
    from eris.errors import ConfigError

    default = Config()
    for table, heard in (("data", set()), ("model", set()), ("local", {"cohort"})):
        given, plain = (getattr(each, table).model_dump(exclude=heard) for each in (config, default))
        for name in (name for name, value in given.items() if value != plain[name]):
            raise ConfigError(
                f"{table}.{name} is {given[name]!r}, but the task is given ready-made",
                fix="leave it out: the task knows its own data, model and local work",
                key=f"{table}.{name}",
            )
