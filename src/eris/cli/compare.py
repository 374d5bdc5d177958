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

    from eris.audit.membership_run import AuditPlan
    from eris.config import Config
    from eris.events import Event, Listener
    from eris.simulate.compare_axes import AxisPoint
    from eris.simulate.comparison import Arm, TrainingAudit, Watch

__all__ = ["register"]

_DEFAULT = ("fedavg", "eris", "eris+dsc")
_ABOUT_THE_AUDIT = (
    "Trained with canaries; AUC, guesses: how well one aggregator, server or neighbour tells\n"
    "which of them were trained on; chance: the same on coins tossed again; ★: no other is\n"
    "better in both {axes}."
)


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def compare(
        methods: Annotated[
            list[str] | None,
            typer.Argument(
                metavar="METHOD... [CONFIG]",
                help="Methods by name, optionally with settings: eris:server.optimizer=fedadam. A TOML file last.",
            ),
        ] = None,
        named: Annotated[
            list[str] | None,
            typer.Option("--arm", metavar='"NAME: METHOD, KEY=VALUE"', help="A method with settings and a short name."),
        ] = None,
        over: Annotated[
            list[str] | None,
            typer.Option(
                metavar="KEY=A,B,C", help="Repeat everything for each value: data.samples=8,16,32; repeatable."
            ),
        ] = None,
        folds: Annotated[int, typer.Option(min=1, help="Partitions of the data to repeat everything on.")] = 1,
        seeds: Annotated[int, typer.Option(min=1, help="Seeds to repeat each fold with.")] = 1,
        reading: Annotated[
            str,
            typer.Option(help="paper: ε of each round, folds keep the initial model, canaries split equally; or eris."),
        ] = "eris",
        out: Annotated[
            Path | None, typer.Option(help="Folder of the results; the same command again continues there.")
        ] = None,
        rounds: Annotated[
            str, typer.Option(help="A number; or fedavg-best: stop all where FedAvg's validation loss is lowest.")
        ] = "",
        changes: Annotated[
            list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting for all methods.")
        ] = None,
        audit: Annotated[
            str, typer.Option(help="membership: train with canaries, attack every method, and mark the Pareto front.")
        ] = "",
        attack: Annotated[
            str, typer.Option(help="For --audit: best, paper, adaptive, …; the paper's always runs too.")
        ] = "best",
        views: Annotated[int, typer.Option(min=1, help="For --audit: most viewpoints on each member.")] = 8,
        canaries: Annotated[
            int, typer.Option(min=4, help="For --audit: most canaries per member (at most half of its samples).")
        ] = 64,
        losses_only: Annotated[
            bool,
            typer.Option("--losses-only", help="For --audit: build no gradients of single samples (large models)."),
        ] = False,
        figure: Annotated[
            str, typer.Option(help="For --audit: auc, accuracy (guesses) or paper_mean; the front uses it.")
        ] = "auc",
        front: Annotated[
            str,
            typer.Option(metavar="AXIS,AXIS", help="Mark the front by two of accuracy, leak, upload, exposure, time."),
        ] = "",
        names_only: Annotated[bool, typer.Option("--list", help="List all methods and exit.")] = False,
        as_json: Annotated[bool, typer.Option("--json", help="Print compare.json, nothing else.")] = False,
        quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
    ) -> None:
        """Run several methods on the same data, seeds and rounds, and compare what they achieve with what they cost."""
        if names_only:
            _list(as_json=as_json)
            return
        from eris.paper.reading import reading_by_name
        from eris.simulate.compare_axes import axes_of, fronted, gathered_over
        from eris.simulate.comparison import Budget, Comparison, arm, named_arm

        sys.path.insert(0, str(Path.cwd()))  # so that the user's own modules can be imported
        read, points = reading_by_name(reading), axes_of(over or [])
        own = [named_arm(text) for text in named or []]
        names, config = _settings(methods or [], [*read.settings, *(changes or [])], rounds, instead=bool(own))
        arms = [*(arm(name) for name in names), *own]
        folder = out or stamped_folder("compare")
        budget = Budget(fedavg_best=rounds == "fedavg-best") if rounds else None  # else the configuration says
        plan = _plan(audit, attack, views, canaries, read.canaries, losses_only=losses_only)
        folders = [folder / point.folder for point in points] or [folder]
        comparisons = [
            Comparison(
                each.model_copy(update={"method": tuple(dict.fromkeys(one.method for one in arms))}),
                arms, place, folds=folds, seeds=seeds, same_start=not read.new_seed, budget=budget,
                audit=_attending(plan, figure),
            )
            for each, place in zip(_at(config, points), folders, strict=True)
        ]  # fmt: skip
        results, visible = [], not (as_json or quiet)
        titles = [point.label for point in points] or [""]
        for comparison, place, title in zip(comparisons, folders, titles, strict=True):
            if title and visible:
                Console(stderr=True).print(title, highlight=False, markup=False)
            with resumable(folder), _progress(arms, folds * seeds, config.rounds, visible=visible) as watch:
                results.append(fronted(comparison.run(watch), front, place))
        result = gathered_over(points, results, folder) if points else results[0]
        if as_json:
            typer.echo(json.dumps(result))
        for found, place, title in zip(results, folders, titles, strict=True):
            pictures = _pictures(found, place)
            if visible:
                _show(found, place, pictures, title=title)
        if failures := [error for comparison in comparisons for error in comparison.failures.values()]:
            first = failures[0]
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


def _at(config: Config, points: Sequence[AxisPoint]) -> list[Config]:
    """Return the settings at every point of the axes; without any, those given."""
    from eris.config import load_config

    plain = config.model_dump(mode="json", exclude_none=True)
    return [load_config(plain, changes=point.changes) for point in points] or [config]


def _settings(
    arguments: Sequence[str], changes: list[str], rounds: str, *, instead: bool = False
) -> tuple[list[str], Config]:
    from eris.config import load_config

    names, files = [a for a in arguments if not a.endswith(".toml")], [a for a in arguments if a.endswith(".toml")]
    if len(files) > 1:
        raise ConfigError(f"{len(files)} configuration files", fix="give one")
    if rounds and rounds != "fedavg-best":
        if not rounds.isdigit():
            raise ConfigError(f"--rounds is {rounds!r}", fix="use a number, or fedavg-best")
        changes = [*changes, f"rounds={rounds}"]
    config = load_config(files[0] if files else None, changes=changes)
    return names or ([] if instead else list(config.methods if files else _DEFAULT)), config


def _plan(audit: str, attack: str, views: int, canaries: int, coins: str, *, losses_only: bool) -> AuditPlan | None:
    """Return how every training is attacked: by the attack asked for and the paper's, from one aggregator."""
    if not audit:
        return None
    if audit != "membership":
        raise ConfigError(f"--audit is {audit!r}", fix="use membership")
    from eris.audit.attacks.by_name import attack_by_name
    from eris.audit.membership_run import AuditPlan
    from eris.audit.observer import Observer

    chosen = tuple(dict.fromkeys(attack_by_name(name, losses_only=losses_only).name for name in (attack, "paper")))
    light = losses_only or not any("gradients" in attack_by_name(name).needs for name in chosen)
    return AuditPlan(
        (Observer("aggregator"),), chosen, heard=chosen, canaries=canaries, views=views, losses_only=light,
        coins="equal" if coins == "equal" else "fair",
    )  # fmt: skip


def _attending(plan: AuditPlan | None, figure: str) -> TrainingAudit | None:
    if plan is None:
        return None
    from eris.audit.comparison import MembershipComparison

    return MembershipComparison(plan, figure=figure)


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
            if label not in rows:  # FedAvg runs only to find its best round
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


def _show(result: dict[str, Any], folder: Path, pictures: list[Path] | str, *, title: str = "") -> None:
    from eris.report.compare_table import audit_table, compare_table

    console = Console()
    if title:
        console.print(title, style="bold", highlight=False, markup=False)
    console.print(compare_table(result))
    for line in result["methods"]:
        if line["privacy"]:
            console.print(f"{line['label']}: {line['privacy']['text']}", soft_wrap=True, highlight=False, markup=False)
    if "audit" in result:
        console.print(audit_table(result))
        about = _ABOUT_THE_AUDIT.format(axes=" and ".join(result["audit"]["front_axes"]))
        console.print(about, soft_wrap=True, highlight=False, markup=False)
    for note in sorted({note for line in result["methods"] for note in line["notes"]}):
        console.print(note, style="yellow", markup=False)
    shown = (
        pictures if isinstance(pictures, str) else ", ".join(str(path) for path in pictures) or "no accuracy to draw"
    )
    console.print(
        f"numbers: {folder / 'compare.json'}\npicture: {shown}", soft_wrap=True, highlight=False, markup=False
    )
