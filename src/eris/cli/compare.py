"""`eris compare`: several methods side by side, over folds, as a table, a picture and numbers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from eris.cli.auditing.interruption import resumable
from eris.cli.exit_code import ExitCode, code_of
from eris.errors import ConfigError, ErisError, MissingExtra
from eris.simulate.stamped_folder import stamped_folder

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from eris.config import Config
    from eris.events import Event, Listener
    from eris.simulate.comparison import Arm, TrainingAudit, Watch

__all__ = ["register"]

_DEFAULT = ("fedavg", "eris", "eris+dsc")
_ABOUT_THE_AUDIT = (
    "Trained with canaries; AUC: how well one aggregator, server or neighbour tells which of\n"
    "them were trained on; chance: the same on coins tossed again; ★: no other method is\n"
    "better in both accuracy and 1 − AUC."
)


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def compare(
        methods: Annotated[
            list[str] | None,
            typer.Argument(
                metavar="METHOD... [CONFIG]",
                help="Methods by name, each perhaps with settings: eris:server.optimizer=fedadam. A TOML file last.",
            ),
        ] = None,
        folds: Annotated[int, typer.Option(min=1, help="Partitions of the data to repeat everything on.")] = 1,
        out: Annotated[Path | None, typer.Option(help="The folder of results; the same again goes on there.")] = None,
        rounds: Annotated[
            str, typer.Option(help="A number; or fedavg-best: stop all where FedAvg's validation loss is lowest.")
        ] = "",
        changes: Annotated[
            list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting for all methods.")
        ] = None,
        audit: Annotated[
            str, typer.Option(help="membership: train with canaries, attack every method, and mark the Pareto front.")
        ] = "",
        names_only: Annotated[bool, typer.Option("--list", help="Print all methods, run nothing.")] = False,
        as_json: Annotated[bool, typer.Option("--json", help="Print compare.json, nothing else.")] = False,
        quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
    ) -> None:
        """Run several methods on the same data, seeds and rounds, and set what they reach beside what they cost."""
        if names_only:
            _list(as_json=as_json)
            return
        from eris.simulate.comparison import Budget, Comparison, arm

        sys.path.insert(0, str(Path.cwd()))  # a model of the user's own, by import path
        names, config = _settings(methods or [], changes or [], rounds)
        arms = [arm(name) for name in names]
        config = config.model_copy(update={"method": tuple(dict.fromkeys(each.method for each in arms))})
        budget = Budget(fedavg_best=rounds == "fedavg-best") if rounds else None  # else the configuration says
        attending = _attending(audit)
        folder = out or stamped_folder("compare")
        comparison = Comparison(config, arms, folder, folds=folds, budget=budget, audit=attending)
        with resumable(folder), _progress(arms, folds, config.rounds, visible=not (as_json or quiet)) as watch:
            result = comparison.run(watch)
        if as_json:
            typer.echo(json.dumps(result))
        pictures = _pictures(result, folder)
        if not (as_json or quiet):
            _show(result, folder, pictures)
        if comparison.failures:
            first = next(iter(comparison.failures.values()))
            raise typer.Exit(code_of(first) if isinstance(first, ErisError) else ExitCode.OUT_OF_MEMORY)


def _list(*, as_json: bool) -> None:
    from eris.methods import METHODS

    if as_json:
        typer.echo(json.dumps([{"name": name, "summary": method.summary} for name, method in METHODS.usable().items()]))
        return
    width, room = max(len(name) for name in METHODS), Console().width
    for name, method in METHODS.usable().items():
        first, others = f"{name:<{width}}  ", " " * (width + 2)
        typer.echo(fill(method.summary, room, initial_indent=first, subsequent_indent=others, break_on_hyphens=False))


def _settings(arguments: Sequence[str], changes: list[str], rounds: str) -> tuple[list[str], Config]:
    from eris.config import load_config

    names, files = [a for a in arguments if not a.endswith(".toml")], [a for a in arguments if a.endswith(".toml")]
    if len(files) > 1:
        raise ConfigError(f"{len(files)} configuration files", fix="give one")
    if rounds and rounds != "fedavg-best":
        if not rounds.isdigit():
            raise ConfigError(f"--rounds is {rounds!r}", fix="use a number, or fedavg-best")
        changes = [*changes, f"rounds={rounds}"]
    config = load_config(files[0] if files else None, changes=changes)
    return names or list(config.methods if files else _DEFAULT), config


def _attending(audit: str) -> TrainingAudit | None:
    if not audit:
        return None
    if audit != "membership":
        raise ConfigError(f"--audit is {audit!r}", fix="use membership")
    from eris.audit.attack import STRONGEST
    from eris.audit.comparison import MembershipComparison
    from eris.audit.membership_run import AuditPlan
    from eris.audit.observer import Observer

    return MembershipComparison(AuditPlan((Observer("aggregator"),), (STRONGEST, "paper")))


@contextmanager
def _progress(arms: Sequence[Arm], folds: int, rounds: int, *, visible: bool) -> Iterator[Watch]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from eris.simulate.comparison import nobody

    if not visible:
        yield nobody
        return
    columns = (
        TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(),
        TextColumn("{task.fields[facts]}"), TimeRemainingColumn(compact=True, elapsed_when_finished=True),
    )  # fmt: skip
    width = max(len(each.label) for each in arms)
    with Progress(*columns, console=Console()) as progress:
        rows = {
            each.label: progress.add_task(f"{each.label:<{width}}", total=folds * rounds, start=False, facts="")
            for each in arms
        }

        def watch(label: str, fold: int) -> list[Listener]:
            if label not in rows:  # FedAvg runs for its best round alone
                rows[label] = progress.add_task(f"{label:<{width}}", total=folds * rounds, start=False, facts="")
            return [_Row(progress, rows[label], fold, rounds)]

        yield watch


class _Row:
    """One method's line while it runs."""

    def __init__(self, progress: Progress, task: TaskID, fold: int, rounds: int) -> None:
        self._progress, self._task, self._fold, self._rounds = progress, task, fold, rounds

    def __call__(self, event: Event) -> None:
        """Move on."""
        from eris.events import RoundEnded, RunEnded, RunStarted
        from eris.report.units import format_percent

        before = self._fold * self._rounds
        if isinstance(event, RunStarted):
            self._progress.start_task(self._task)
        elif isinstance(event, RoundEnded):
            accuracy = event.metrics.get("accuracy")
            shown = f"  accuracy {format_percent(accuracy)}" if accuracy is not None else ""
            facts = f"fold {self._fold}{shown}"
            self._progress.update(self._task, completed=before + event.round + 1, facts=facts)
        elif isinstance(event, RunEnded):  # perhaps after fewer rounds than the budget
            self._progress.update(self._task, completed=before + self._rounds)


def _pictures(result: dict[str, Any], folder: Path) -> list[Path] | str:
    from eris.report.compare_plots import write_compare_plots

    try:
        return write_compare_plots(result, folder)
    except (ImportError, MissingExtra) as error:
        return f"not drawn ({error})"


def _show(result: dict[str, Any], folder: Path, pictures: list[Path] | str) -> None:
    from eris.report.compare_table import audit_table, compare_table

    console = Console()
    console.print(compare_table(result))
    for line in result["methods"]:
        if line["privacy"]:
            console.print(f"{line['label']}: {line['privacy']['text']}", soft_wrap=True, highlight=False, markup=False)
    if "audit" in result:
        console.print(audit_table(result))
        console.print(_ABOUT_THE_AUDIT, soft_wrap=True, highlight=False, markup=False)
    for note in sorted({note for line in result["methods"] for note in line["notes"]}):
        console.print(note, style="yellow", markup=False)
    shown = (
        pictures if isinstance(pictures, str) else ", ".join(str(path) for path in pictures) or "no accuracy to draw"
    )
    console.print(
        f"numbers: {folder / 'compare.json'}\npicture: {shown}", soft_wrap=True, highlight=False, markup=False
    )
