"""`eris audit reconstruction`: recover members' pictures from what an observer saw of their updates."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eris.cli.auditing.answer import ResultsTable, drawn, show
from eris.cli.auditing.interruption import resumable
from eris.cli.auditing.options import Changes, Json, Out, stamped_folder
from eris.cli.auditing.progress import Attacks
from eris.errors import ConfigError

if TYPE_CHECKING:
    from eris.audit.reconstruction.defence import Defence
    from eris.local.spec import Vector

__all__ = ["reconstruction"]


def reconstruction(
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="[CONFIG or RUN DIR]",
            help="Settings to train with, or a finished run to continue from (default: a small preset).",
        ),
    ] = None,
    changes: Changes = None,
    observer: Annotated[
        list[str] | None,
        typer.Option(
            help="aggregator (default), unmasker or pair (masked), coalition:C, server, broadcast or wire; repeatable."
        ),
    ] = None,
    attack: Annotated[
        list[str] | None,
        typer.Option(help="boxed (default), gauss-newton, idlg, dlg, inverting-gradients, rank-one, …; repeatable."),
    ] = None,
    mode: Annotated[str, typer.Option(help="mask-aware, zero-filled (the published attacks), or both.")] = "both",
    images: Annotated[int, typer.Option(min=1, help="Pictures to recover for each defence.")] = 3,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Give every member this many pictures and one step on all of them.")
    ] = None,
    round: Annotated[int, typer.Option(min=1, help="Attack this round, counted from where the training begins.")] = 1,
    together: Annotated[
        bool, typer.Option("--together", help="Match all rounds up to that one together (full batches).")
    ] = False,
    candidates: Annotated[
        int, typer.Option(min=2, help="Number of pictures among which to look for a recovered one.")
    ] = 100,
    option: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="An option of the attacks, e.g. steps=2000.")
    ] = None,
    told: Annotated[bool, typer.Option("--labels-told", help="Tell the attacks the labels.")] = False,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Recover members' pictures from what an observer saw of their updates, and show them beside the originals.

    Results are written picture by picture: the same command with the same --out continues where it was interrupted.

    **Examples**

    `eris audit reconstruction`

    `eris audit reconstruction runs/digits --batch 1 --observer coalition:3`

    `eris audit reconstruction --attack idlg --attack boxed --images 8 --out audits/attacks --json`
    """
    from eris.audit.observer import parse_observer
    from eris.audit.reconstruction.plots import draw_grid
    from eris.audit.reconstruction.run import ReconstructionPlan, audit_reconstruction
    from eris.audit.side_by_side import in_processes

    folder = out or stamped_folder()
    defences, model = _defences(source, [*_single_step(batch), *(changes or [])])
    plan = ReconstructionPlan(
        defences=defences,
        observers=tuple(parse_observer(text) for text in observer or ["aggregator"]),
        attacks=tuple(dict.fromkeys(attack or ["boxed"])),
        modes=_modes(mode),
        pictures=images,
        rounds=round,
        together=together,
        candidates=candidates,
        options=_options(option or []),
        model=model,
        told=told,
    )
    with resumable(folder), Attacks(visible=not as_json) as progress, in_processes(os.cpu_count() or 1) as each:
        report = audit_reconstruction(plan, folder, notice=progress, each=each)
    path = folder / "reconstruction.png"
    picture = drawn(lambda: draw_grid(report.entries, path), path)
    if as_json:
        typer.echo(json.dumps({"path": str(folder), "results": report.results}))
        return
    show(_table(report.results), _footnotes(folder / "reconstruction.json", picture))


def _single_step(batch: int | None) -> list[str]:
    if batch is None:
        return []
    return [f"data.samples={batch}", "data.validation=0.0", "local.batch=full", "local.epochs=1", "local.steps=0"]


def _defences(source: Path | None, changes: list[str]) -> tuple[tuple[Defence, ...], Vector | None]:
    """Return the trainings to attack and the model they begin with: a finished run continues where it ended."""
    from eris.audit.reconstruction.attack_setup import finished_model
    from eris.audit.reconstruction.defence import methods_of, small_preset
    from eris.config import load_config

    sys.path.insert(0, str(Path.cwd()))  # so that the user's own modules can be imported
    if source is None:
        return small_preset(changes), None
    if not source.is_dir():
        return methods_of(load_config(source, changes=changes)), None
    config = load_config(source / "config.toml", changes=changes)
    return methods_of(config), finished_model(source, config)


def _modes(text: str) -> Any:
    if text == "both":
        return ("mask-aware", "zero-filled")
    if text not in ("mask-aware", "zero-filled"):
        raise ConfigError(f"there is no mode {text!r}", fix="use mask-aware, zero-filled or both")
    return (text,)


def _options(texts: Sequence[str]) -> dict[str, Any]:
    options = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"{text!r} is not an option", fix="write --option steps=2000")
        try:
            options[key] = json.loads(value)
        except ValueError:
            raise ConfigError(
                f"option {key} is {value!r}", fix="write a number, or a list such as [0.1, 0.01]"
            ) from None
    return options


def _table(results: Sequence[dict[str, Any]]) -> ResultsTable:
    """Return a row for each result; observer and attack are columns only where there are several."""
    several = [key for key in ("observer", "attack") if len({result[key] for result in results}) > 1]
    names = ("defence", *several, "mode")
    table = ResultsTable((*names, "sees", "MSE", "recovered", "identified", "s each"), names=names)
    for result in results:
        table.add(*(str(result[key]) for key in names), *_figures(result))
    return table


def _figures(result: dict[str, Any]) -> list[str]:
    return [
        f"{result['share']:.1%}",
        f"{result['mse']['median']:.1e}",
        f"{result['recovered']['rate']:.0%}",
        f"{result['identified']['rate']:.0%}",
        f"{result['seconds'] / max(1, result['pictures']):.1f}",
    ]


def _footnotes(path: Path, picture: str) -> str:
    return (
        "MSE: median, pixels from 0 to 1. Recovered: below 0.001. Identified: nearest to its original among all\n"
        f"candidates. Intervals, chance levels and every picture's scores are in the file.\n"
        f"results: {path}\npicture: {picture}"
    )
