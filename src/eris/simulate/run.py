"""Run a configuration: one method, or several side by side with the same task.

The engine (worker processes, data, networks) is built once and used for all methods.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from eris.atomic_file import write_atomically
from eris.compose import Composition, check_settings
from eris.config import Config, dump_config, load_config
from eris.errors import CheckpointError, ConfigError, DiskError, ErisError
from eris.events import Listener
from eris.local.task import Task
from eris.methods import with_defaults
from eris.methods.noise_budget import on_steps
from eris.simulate.engine import Engine
from eris.simulate.inline_engine import InlineEngine
from eris.simulate.method_run import CHECKPOINT_SECONDS, MethodRun
from eris.simulate.process_engine import ProcessEngine
from eris.simulate.run_folder import RunFolder
from eris.simulate.script import Replay, Rounds, read_verdicts
from eris.simulate.stamped_folder import stamped_folder
from eris.simulate.summary import failed_summary
from eris.simulate.worker_process import TaskSource

__all__ = ["Engines", "RunResult", "check", "config_of", "open_engine", "resume", "run"]

_REPLAYED = "replayed.jsonl"  # the verdicts of the replayed run, so that the replay can be resumed


@dataclass(frozen=True)
class RunResult:
    """A run's folder, and each method's results."""

    path: Path
    summaries: list[dict[str, Any]] = field(repr=False)
    failures: tuple[ErisError | MemoryError, ...] = ()  # of methods that failed; `failed` in their summaries

    def __getitem__(self, method: str) -> dict[str, Any]:
        """Return the summary of a method."""
        for summary in self.summaries:
            if summary["method"] == method:
                return summary
        raise KeyError(f"{method} was not run, only {', '.join(summary['method'] for summary in self.summaries)}")

    @property
    def finished(self) -> bool:
        """Whether every method completed all its rounds."""
        return all(summary["finished"] for summary in self.summaries)


def run(
    config: Config,
    out: Path | None = None,
    *,
    task: Task | TaskSource | None = None,
    listeners: Sequence[Listener] = (),
    stopped: Callable[[], bool] = lambda: False,
    replay: Path | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> RunResult:
    """Run every method of a configuration and return their summaries.

    Args:
        config: the configuration.
        out: the run's folder; by default runs/<time>-<method>.
        task: replaces `[data]` and `[model]`; an object runs in this process, a source in workers.
        listeners: called with every event.
        stopped: asked between jobs whether to stop.
        replay: a verdicts.jsonl to repeat, with its rounds whatever the configuration says.
        checkpoint_seconds: how much work a killed run may lose.
    """
    if replay is not None and len(config.methods) != 1:
        raise ConfigError("only one method can be replayed", fix=f"use --set method={config.methods[0]}", key="method")
    if replay is not None and config.local.cohort > 1:
        raise ConfigError(
            "a replay promises the bits of the run it repeats, but cohorts give different bits",
            fix="use local.cohort = 1",
            key="local.cohort",
        )
    rounds = read_verdicts(replay) if replay is not None else None
    if rounds is not None:
        config = config.model_copy(update={"rounds": rounds[-1][0].round + 1})
    if out is not None:
        _require_no_run(out)
    options = {"listeners": listeners, "stopped": stopped, "replay": rounds, "checkpoint_seconds": checkpoint_seconds}
    with _composed(config, task, rounds) as (compositions, engines):
        out = _begun_folder(out, config, replay)
        return _run_all(compositions, out, engines, options, resuming=False)


def resume(
    out: Path,
    *,
    task: Task | TaskSource | None = None,
    listeners: Sequence[Listener] = (),
    stopped: Callable[[], bool] = lambda: False,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    workers: int | None = None,
) -> RunResult:
    """Resume a run that was stopped or killed; it ends as if nothing had happened.

    Arguments that are not named here are as for `run`.

    Args:
        out: the run's folder.
        workers: replaces the number in the run's configuration.
    """
    config = config_of(out)
    if workers is not None:
        config = config.model_copy(update={"workers": workers})
    rounds = read_verdicts(replayed) if (replayed := out / _REPLAYED).exists() else None
    options = {"listeners": listeners, "stopped": stopped, "replay": rounds, "checkpoint_seconds": checkpoint_seconds}
    with _composed(config, task, rounds) as (compositions, engines):
        return _run_all(compositions, out, engines, options, resuming=True)


def check(config: Config, *, task: Task | TaskSource | None = None) -> None:
    """Refuse settings that cannot work for one of the methods, before data is read or a process is started."""
    from eris.tasks import check_task

    check_settings(config)
    for name in config.methods if task is None else ():
        check_task(with_defaults(config, name))


def config_of(out: Path) -> Config:
    """Return the configuration of the run in a folder."""
    path = out / "config.toml"
    if not path.exists():
        raise CheckpointError("there is no run in this folder", fix="give the folder that --out named", path=out)
    return load_config(path)


@contextmanager
def _composed(
    config: Config, task: Task | TaskSource | None, rounds: Rounds | None
) -> Iterator[tuple[list[Composition], Engines]]:
    """Start an engine and compose every method before the first one runs: the last may start hours later.

    `rounds`, if any, are to be replayed: they must fit every method.
    """
    check(config, task=task)
    with Engines(task) as engines:
        facts = engines.for_config(with_defaults(config, config.methods[0])).facts  # the same for all methods
        compositions = [facts.compose(with_defaults(config, name)) for name in config.methods]
        for composition in compositions:
            if rounds is not None and composition.method.exchange is None:
                Replay(rounds, composition)
        yield compositions, engines


def _run_all(
    compositions: list[Composition], out: Path, engines: Engines, options: dict[str, Any], *, resuming: bool
) -> RunResult:
    """Run one method after another; one that fails is a row among the others, and raises only if all fail.

    `options` are passed on to `MethodRun`; with `resuming`, each continues from its last checkpoint.
    """
    summaries: list[dict[str, Any]] = []
    failures: list[ErisError | MemoryError] = []
    for composition in compositions:
        folder = out if len(compositions) == 1 else out / composition.method.name
        try:
            method_run = MethodRun(composition, folder, engines.for_config(composition.config), **options)
            summaries.append(method_run.run(resume=resuming))
        except DiskError:  # the others would have no room either
            raise
        except (ErisError, MemoryError) as error:
            engines.close()  # nobody needs its workers' outstanding answers
            failures.append(error)
            summaries.append(failed_summary(composition, RunFolder(folder), error))
            continue
        if not summaries[-1]["finished"]:
            break
    if len(failures) == len(compositions):
        if not resuming and not any(summary["rounds"] for summary in summaries):
            _take_back(out, compositions)
        raise failures[0]
    for summary in summaries:
        if "failed" in summary:
            RunFolder(out / summary["method"]).write("summary.json", summary)
    return RunResult(out, summaries, tuple(failures))


def _take_back(out: Path, compositions: Sequence[Composition]) -> None:
    """Remove what a run wrote if it concluded no round, so that the next attempt finds a clean folder."""
    places = [out] if len(compositions) == 1 else [*(out / each.method.name for each in compositions), out]
    for place in places:
        RunFolder(place).take_back()
        (place / _REPLAYED).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # somebody else's files are here, or it never was
            place.rmdir()


class Engines:
    """Opens engines one after another, and keeps one as long as the task stays the same."""

    def __init__(self, task: Task | TaskSource | None = None) -> None:
        self._task, self._key = task, ""
        self._engine: Engine | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def for_config(self, config: Config) -> Engine:
        """Return an engine for the task of this configuration."""
        key = _task_key(config)
        if self._engine is None or key != self._key:
            self.close()
            self._engine, self._key = open_engine(config, self._task), key
        return self._engine

    def close(self) -> None:
        """Close the engine."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None


def _task_key(config: Config) -> str:
    """Return all settings on which the task, or the way it is worked on, depends."""
    private = config.privacy.unit == "sample"
    keep = {"seed", "members", "data", "model", "local", "workers", "engine", "network"}
    keep |= {"privacy", "rounds"} if private else set()
    return config.model_dump_json(include=keep)


def open_engine(config: Config, task: Task | TaskSource | None = None) -> Engine:
    """Start an engine: in this process for one worker or a task of your own, otherwise worker processes or Ray."""
    from eris.tasks import as_asked

    if task is not None:
        _require_noise(config, task)
    if task is not None and not isinstance(task, TaskSource):
        return InlineEngine(as_asked(config, task))
    plain = config.model_dump(mode="json", exclude_none=True)
    source = task or TaskSource("eris.tasks:build_task")
    source = TaskSource(source.factory, {**source.arguments, "config": plain})
    if config.engine == "ray":
        from eris.simulate.ray_engine import RayEngine

        network = config.network
        return RayEngine(source, config.workers, network.ray, gpus=network.ray_gpus, folder=network.ray_folder)
    workers = min(config.workers or _cores(), config.members)
    if workers == 1 or os.name != "posix":
        return InlineEngine(source.task())
    return ProcessEngine(source, workers)


def _require_noise(config: Config, task: Task | TaskSource) -> None:
    """Refuse to account for noise in local steps that a ready-made task does not add."""
    samples = [1]  # of a source nobody knows yet
    if not isinstance(task, TaskSource):
        samples = [task.samples(member) for member in range(task.members)]
    noise = on_steps(config, samples)
    if noise is not None and getattr(task, "sample_noise", 0.0) < noise.multiplier * (1 - 1e-9):
        raise ConfigError(
            "your own task takes its local steps itself: DP-SGD cannot be added to it",
            fix="use privacy.unit = 'member', or name model and data",
            key="privacy.unit",
        )


def _require_no_run(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise ConfigError("this is a file, but a run needs a folder", fix="give another name", path=out)
    if (out / "config.toml").exists():
        raise ConfigError(
            "there is already a run in this folder",
            fix="give another folder, or resume this run (--resume, in Python `Federation.resume`)",
            path=out,
        )


def _begun_folder(out: Path | None, config: Config, replay: Path | None) -> Path:
    if out is None:
        out = stamped_folder(config.methods[0] if len(config.methods) == 1 else "compare")
    out.mkdir(parents=True, exist_ok=True)
    if replay is not None:
        write_atomically(out / _REPLAYED, replay.read_bytes())
    write_atomically(out / "config.toml", dump_config(config).encode())
    return out


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
