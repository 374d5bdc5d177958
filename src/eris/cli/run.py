"""`eris run`: train a federation and show the result."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from eris.cli.networking.interruption import stoppable
from eris.cli.own_task import FlowerOption, TaskOption, again
from eris.cli.report import report_or_reason
from eris.errors import ConfigError, ErisError, InputError, TaskError

if TYPE_CHECKING:
    from eris.config import Config
    from eris.events import Listener
    from eris.interop.trackers import Tracking
    from eris.simulate.run import RunResult
    from eris.simulate.worker_process import TaskSource

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def run(
        config: Annotated[Path | None, typer.Argument(help="A TOML file (default: every setting's default).")] = None,
        changes: Annotated[
            list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, e.g. data.alpha=0.2.")
        ] = None,
        out: Annotated[Path | None, typer.Option(help="The run's folder (default: runs/TIME-METHOD).")] = None,
        show_config: Annotated[
            bool, typer.Option("--show-config", help="Print the resolved settings and exit.")
        ] = False,
        resume: Annotated[Path | None, typer.Option(metavar="DIR", help="Continue a run that was stopped.")] = None,
        replay: Annotated[
            Path | None, typer.Option(metavar="VERDICTS", help="Run again, losing what this verdicts.jsonl lost.")
        ] = None,
        checkpoint_seconds: Annotated[
            float, typer.Option(min=0.0, help="How many seconds of work a killed run may lose.")
        ] = 5.0,
        task: TaskOption = None,
        flower: FlowerOption = None,
        track: Annotated[
            list[str] | None,
            typer.Option(help="Send the figures elsewhere too: tensorboard, mlflow, wandb, or module:name."),
        ] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print the summaries as JSON, nothing else.")] = False,
        quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
    ) -> None:
        """Simulate a federation's training: by default on real digits, with FedAvg and three variants of ERIS."""
        from eris.config import dump_config
        from eris.simulate.run import check

        sys.path.insert(0, str(Path.cwd()))  # so that the user's own modules can be imported
        if resume is not None and (config or changes or out or replay):
            raise ConfigError("--resume continues with the folder's own settings", fix="give --resume DIR alone")
        resolved, source = _problem(config, changes or [], resume, replay, task, flower)
        check(resolved, task=source)  # before a progress bar appears for a run that is refused
        if show_config:
            typer.echo(dump_config(resolved), nl=False)
            return
        options: dict[str, Any] = {"checkpoint_seconds": checkpoint_seconds, "task": source}
        if track and resume is None and out is None:
            out = _folder_of(resolved)  # before the run: trackers write there too
        options |= {"resume": resume} if resume else {"out": out, "replay": replay}
        with _tracking(track or [], resume or out, resolved) as tracking:
            result = _run(resolved, options, visible=not (as_json or quiet), tracking=tracking)
            report = report_or_reason(result.path)
            if isinstance(report, Path) and tracking is not None:
                tracking.artefact(report)
        if as_json:
            typer.echo(json.dumps({"path": str(result.path), "summaries": result.summaries}))
        elif not quiet:
            _show(result, resolved, report, again(task, flower))
        if (as_json or quiet) and isinstance(report, str):
            typer.echo(f"report: {report}", err=True)
        if result.failures:
            raise typer.Exit(_told(result, quiet=as_json or quiet))
        if not result.finished:
            raise typer.Exit(130)


def _told(result: RunResult, *, quiet: bool) -> int:
    """Show why methods failed, with the traceback of the user's own code; return the exit code of the first."""
    from eris.cli.exit_code import ExitCode, code_of

    errors, first = Console(stderr=True), result.failures[0]
    for error in result.failures:
        if isinstance(error, TaskError):
            for note in getattr(error, "__notes__", ["".join(traceback.format_exception(error))]):
                errors.print(note, highlight=False, markup=False)
    for summary in result.summaries if quiet else ():
        if "failed" in summary:
            errors.print(f"{summary['method']} failed: {summary['failed']}", highlight=False, markup=False)
    return code_of(first) if isinstance(first, ErisError) else ExitCode.OUT_OF_MEMORY


def _problem(
    config: Path | None,
    changes: list[str],
    resume: Path | None,
    replay: Path | None,
    task: str | None,
    flower: Path | None,
) -> tuple[Config, TaskSource | None]:
    """Return the settings, and where the learning problem comes from if they do not describe it."""
    from eris.cli.own_task import for_all, said, with_flower

    def settings(given: list[str]) -> Config:
        return _settings(config, given, resume, replay)

    if flower is None:
        return for_all(settings(changes), task, None)
    resolved, app = with_flower(flower, settings, changes, defaults=config is None and not (resume or replay))
    said(app, resolved)
    return for_all(resolved, task, app)


def _settings(config: Path | None, changes: list[str], resume: Path | None, replay: Path | None) -> Config:
    from eris.config import load_config
    from eris.simulate.run import config_of

    if resume is not None:
        return config_of(resume)
    if replay is not None and not replay.is_file():
        raise InputError("there are no verdicts here", fix="give the verdicts.jsonl of a run", path=replay)
    if replay is not None and config is None and (beside := replay.parent / "config.toml").exists():
        config = beside
    return load_config(config, changes=changes)


def _folder_of(config: Config) -> Path:
    from eris.simulate.stamped_folder import stamped_folder

    return stamped_folder(config.methods[0] if len(config.methods) == 1 else "compare")


@contextmanager
def _tracking(names: list[str], folder: Path | None, config: Config) -> Iterator[Tracking | None]:
    if not names or folder is None:
        yield None
        return
    from eris.interop.trackers import Tracking

    with Tracking(names, folder, config) as tracking:
        yield tracking


def _run(config: Config, options: dict[str, Any], *, visible: bool, tracking: Tracking | None) -> RunResult:
    from eris.simulate.run import resume as resume_run
    from eris.simulate.run import run as start_run

    with stoppable() as stopped, _progress(config, visible) as listeners:
        options |= {"listeners": [*listeners, *([tracking] if tracking else [])], "stopped": stopped}
        try:
            if "resume" in options:
                return resume_run(options.pop("resume"), **options)
            return start_run(config, **options)
        except TaskError as error:  # the user's own code: its traceback is what helps
            for note in getattr(error, "__notes__", [traceback.format_exc()]):
                Console(stderr=True).print(note, highlight=False, markup=False)
            raise


@contextmanager
def _progress(config: Config, visible: bool) -> Iterator[list[Listener]]:
    if not visible:
        yield []
        return
    from eris.cli.progress import RunProgress

    with RunProgress(config, Console()) as progress:
        yield [progress]


def _show(result: RunResult, config: Config, report: Path | str, own: str) -> None:
    from eris.report import summary_table

    console = Console()
    rate = None if config.faults.slow_members else config.network.equal_rate
    console.print(summary_table(result.summaries, rate=rate))
    for summary in (summary for summary in result.summaries if summary["privacy"]):
        console.print(
            f"{summary['method']}: {summary['privacy']['text']}", soft_wrap=True, highlight=False, markup=False
        )
    for note in sorted({note for summary in result.summaries for note in summary["notes"]}):
        console.print(note, style="yellow", soft_wrap=True, highlight=False, markup=False)
    console.print(f"report: {report}", soft_wrap=True, highlight=False, markup=False)
    if not result.finished:
        how = "failed; try it again" if result.failures else "stopped; continue"
        console.print(
            f"{how} with: eris run --resume {result.path}{own}", soft_wrap=True, highlight=False, markup=False
        )
