"""`eris audit`: attack a training as a good attacker would, and say what that came to."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from eris.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    from eris.audit.attack import Attack
    from eris.config import Config
    from eris.events import Event

__all__ = ["register"]

_Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, e.g. data.samples=64.")
]
_AttackName = Annotated[
    str,
    typer.Option("--attack", help="adaptive, or one score alone: loss, calibrated, dot, cosine, regression, paper."),
]
_Json = Annotated[bool, typer.Option("--json", help="Print the results as JSON, nothing else.")]
_Canaries = Annotated[int, typer.Option(min=4, help="Most canaries a member (half of its samples at most).")]
_Views = Annotated[int, typer.Option(min=1, help="Most places to look at a member from.")]
_MasksKnown = Annotated[
    bool, typer.Option("--masks-known", help="Tell the attacker what each member kept under independent masks.")
]
_Out = Annotated[Path | None, typer.Option(help="Folder of the results (default: audits/<time>).")]


def register(app: typer.Typer) -> None:
    """Add the verb."""
    audit = typer.Typer(help="Attack a training as a good attacker would, and say what that came to.")
    audit.callback(no_args_is_help=True)(_audit)
    audit.command()(membership)
    audit.command()(sweep)
    app.add_typer(audit, name="audit")


def _audit() -> None:
    """Attack a training as a good attacker would, and say what that came to."""


def membership(
    source: Annotated[
        Path | None,
        typer.Argument(metavar="[CONFIG or RUN DIR]", help="Settings to train with; without: a small preset."),
    ] = None,
    changes: _Set = None,
    observer: Annotated[
        list[str] | None,
        typer.Option(help="aggregator (default), coalition:C, server, broadcast or wire; may be given several times."),
    ] = None,
    attack: _AttackName = "adaptive",
    canaries: _Canaries = 64,
    views: _Views = 8,
    masks_known: _MasksKnown = False,
    out: _Out = None,
    as_json: _Json = False,
) -> None:
    """Plant canaries, train, and tell from what an observer saw which of them were trained on.

    Canaries must be planted before the training, so a finished run's folder gives its settings and is trained again.

    **Examples**

    `eris audit membership`

    `eris audit membership runs/digits --observer aggregator --observer coalition:5`

    `eris audit membership --set method=eris --set aggregators=4 --attack paper --json`
    """
    from eris.audit.observer import parse_observer
    from eris.audit.trial import Plan, audit_membership

    config, folder = _settings(source, changes or []), out or _stamped()
    observers = tuple(parse_observer(text) for text in observer or ["aggregator"])
    plan = Plan(observers, _attacks(attack), canaries=canaries, views=views, masks_known=masks_known)
    with _Rounds(len(config.methods) * config.rounds, visible=not as_json) as progress:
        trials = audit_membership(config, folder, plan, listeners=[progress])
    plain = [trial.plain() for trial in trials]
    picture = _draw_membership(plain, folder / "membership.png")
    if as_json:
        typer.echo(json.dumps({"path": str(folder), "trials": plain}))
        return
    console = Console()
    console.print(_table(plain, "method", "method"))
    console.print(_footnotes(folder / "membership.json", picture), soft_wrap=True, highlight=False)


def sweep(
    name: Annotated[str, typer.Argument(help="aggregators, collusion, compression, blocks or rotation.")],
    changes: _Set = None,
    size: Annotated[str, typer.Option(help="small (minutes), or paper (50 members on the whole of MNIST).")] = "small",
    attack: _AttackName = "adaptive",
    canaries: _Canaries = 64,
    views: _Views = 4,
    out: _Out = None,
    as_json: _Json = False,
) -> None:
    """Repeat the membership attack along one axis, and draw it.

    **Examples**

    `eris audit sweep aggregators`

    `eris audit sweep collusion --set members=10 --out audits/collusion`
    """
    from eris.audit.sweep import SIZES, configurations, run_sweep, sweep_by_name

    if size not in SIZES:
        raise ConfigError(f"there is no size {size!r}", fix=f"use one of {', '.join(SIZES)}")
    chosen, base, folder = sweep_by_name(name), [*SIZES[size], *(changes or [])], out or _stamped()
    total = sum(config.rounds for _, config in configurations(chosen, base))
    with _Rounds(total, visible=not as_json) as progress:
        points = run_sweep(chosen, base, folder, _attacks(attack), listeners=[progress], canaries=canaries, views=views)
    picture = _draw_sweep(points, chosen.axis, folder / f"sweep-{name}.png")
    if as_json:
        typer.echo(json.dumps({"path": str(folder), "points": points}))
        return
    console = Console()
    console.print(_table(points, "label", chosen.axis))
    console.print(_footnotes(folder / f"sweep-{name}.json", picture), soft_wrap=True, highlight=False)


def _settings(source: Path | None, changes: list[str]) -> Config:
    from eris.audit.trial import SMALL
    from eris.config import load_config

    sys.path.insert(0, str(Path.cwd()))  # a model of the user's own, by import path
    if source is None:
        return load_config(changes=[*SMALL, *changes])
    return load_config(source / "config.toml" if source.is_dir() else source, changes=changes)


def _attacks(name: str) -> tuple[Attack, ...]:
    """Return the attack asked for, and the paper's for comparison."""
    from eris.audit.attack import attack_by_name

    return tuple(attack_by_name(each) for each in dict.fromkeys((name, "paper")))


def _stamped() -> Path:
    return Path("audits") / time.strftime("%Y%m%d-%H%M%S")


class _Rounds:
    """Shows how many rounds of all trainings are done."""

    def __init__(self, total: int, *, visible: bool) -> None:
        from rich.progress import Progress

        self._progress = Progress(console=Console(stderr=True), disable=not visible)
        self._row = self._progress.add_task("rounds, attacked", total=total)

    def __enter__(self) -> _Rounds:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def __call__(self, event: Event) -> None:
        from eris.events import RoundEnded, RunStarted

        if isinstance(event, RunStarted):
            self._progress.update(self._row, description=f"{event.method:<9} rounds, attacked")
        elif isinstance(event, RoundEnded):
            self._progress.advance(self._row)


def _table(entries: Sequence[dict[str, Any]], key: str, title: str) -> Any:
    """Return what fits into eighty columns; the file has the rest."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for column in (title, "observer"):
        table.add_column(column)
    table.add_column("sees", justify="right")
    table.add_column("attack")
    for column in ("AUC", "95 %", "chance", "p", "ε ≥"):
        table.add_column(column, justify="right", no_wrap=True)
    for entry in entries:
        for result in entry["results"]:
            table.add_row(str(entry[key]), *_cells(result))
    return table


def _cells(result: dict[str, Any]) -> list[str]:
    auc = result["figures"]["auc"]
    return [
        result["observer"],
        f"{result['visible_share']:.1%}",
        result["attack"],
        f"{auc['value']:.2f}",
        f"{auc['low']:.2f}–{auc['high']:.2f}",
        f"{auc['chance']:.2f}",
        f"{auc['p_value']:.3f}",
        f"{result['epsilon']['lower_bound']:.2f}",
    ]


def _footnotes(path: Path, picture: str) -> str:
    return (
        "AUC: area under the ROC curve. Chance: the same on coins tossed again. ε: what the guesses at the\n"
        "last round from one view refute at 95 %, for one sample more or less (δ in the file); no guarantee.\n"
        f"results: {path}\npicture: {picture}"
    )


def _draw_membership(trials: list[dict[str, Any]], path: Path) -> str:
    from eris.audit.plot import plot_membership

    try:
        plot_membership(trials, path)
    except MissingExtra as error:
        return f"not drawn ({error})"
    return str(path)


def _draw_sweep(points: list[dict[str, Any]], axis: str, path: Path) -> str:
    from eris.audit.plot import plot_sweep

    try:
        plot_sweep(points, axis, path)
    except MissingExtra as error:
        return f"not drawn ({error})"
    return str(path)
