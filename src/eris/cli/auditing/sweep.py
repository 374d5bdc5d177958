"""`eris audit sweep`: the same question along one axis."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from eris.cli.auditing.answer import ResultsTable, drawn, show
from eris.cli.auditing.interruption import resumable
from eris.cli.auditing.options import Canaries, Changes, Json, Out, Views, attacks, stamped_folder
from eris.cli.auditing.progress import Attacks, Rounds
from eris.cli.auditing.tables import gaussianity_table, membership_footnotes, membership_table, reconstruction_table
from eris.errors import ConfigError

__all__ = ["sweep"]

_MEMBERSHIP = ("aggregators", "collusion", "compression", "blocks", "rotation")
_RECONSTRUCTION = ("reconstruction", "defences")
_OTHERS = ("gaussianity", *_RECONSTRUCTION)


def sweep(
    name: Annotated[str, typer.Argument(help=f"{', '.join(_MEMBERSHIP)}, {', '.join(_OTHERS)}.")],
    changes: Changes = None,
    size: Annotated[str, typer.Option(help="small (minutes), or paper (50 members on the whole of MNIST).")] = "small",
    attack: Annotated[
        str,
        typer.Option(
            help="Of membership: best, whitened, adaptive, paper, …; of reconstruction: idlg, boxed, rank-one, …"
        ),
    ] = "best",
    canaries: Canaries = 64,
    views: Views = 1,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Repeat an attack along one axis and plot it; the same command with the same --out continues where it stopped.

    **Examples**

    `eris audit sweep aggregators`

    `eris audit sweep collusion --set members=10 --out audits/collusion`

    `eris audit sweep gaussianity --out audits/gaussianity`

    `eris audit sweep reconstruction --attack idlg`
    """
    from eris.audit.membership_sweep import SIZES
    from eris.plain_json import sayable

    if name not in (*_MEMBERSHIP, *_OTHERS):
        raise ConfigError(f"there is no sweep {name!r}", fix=f"use one of {', '.join((*_MEMBERSHIP, *_OTHERS))}")
    if size not in SIZES:
        raise ConfigError(f"there is no size {size!r}", fix=f"use one of {', '.join(SIZES)}")
    folder = out or stamped_folder()
    if name in _RECONSTRUCTION:
        points, table, picture = _reconstruction(name, size, changes or [], attack, folder, visible=not as_json)
    elif name == "gaussianity":
        points, table, picture = _gaussianity(size, changes or [], folder, visible=not as_json)
    else:
        options = {"canaries": canaries, "views": views}
        points, table, picture = _membership(name, size, changes or [], attack, folder, options, visible=not as_json)
    if as_json:
        typer.echo(json.dumps(sayable({"path": str(folder), "points": points}), allow_nan=False))
        return
    path = folder / f"sweep-{name}.json"
    notes = membership_footnotes(points, path, picture) if name in _MEMBERSHIP else _where(path, picture)
    show(table, notes)


Found = tuple[list[dict[str, Any]], ResultsTable, str]


def _membership(
    name: str, size: str, changes: list[str], attack: str, folder: Path, options: dict[str, Any], *, visible: bool
) -> Found:
    from eris.audit.membership_sweep import SIZES, configurations, run_sweep, sweep_by_name
    from eris.audit.plots import plot_sweep

    chosen, base = sweep_by_name(name), [*SIZES[size], *changes]
    total = sum(config.rounds for _, config in configurations(chosen, base))
    with resumable(folder), Rounds(total, visible=visible) as progress:
        asked = attacks(attack)
        points = run_sweep(chosen, base, folder, asked, listeners=[progress], heard=asked, **options)
    path = folder / f"sweep-{name}.png"
    picture = drawn(lambda: plot_sweep(points, chosen.axis, path), path)
    return points, membership_table(points, "label", chosen.axis), picture


def _gaussianity(size: str, changes: list[str], folder: Path, *, visible: bool) -> Found:
    from eris.audit.gaussianity import CHANGES, run_gaussianity
    from eris.audit.gaussianity_plot import plot_gaussianity
    from eris.audit.membership_sweep import SIZES
    from eris.config import load_config

    base = [*SIZES[size], *CHANGES, *changes]
    with resumable(folder), Rounds(load_config(changes=base).rounds, visible=visible) as progress:
        points = run_gaussianity(base, folder, draws=64 if size == "paper" else 32, listeners=[progress])
    path = folder / "sweep-gaussianity.png"
    return points, gaussianity_table(points), drawn(lambda: plot_gaussianity(points, path), path)


def _reconstruction(name: str, size: str, changes: list[str], attack: str, folder: Path, *, visible: bool) -> Found:
    from eris.audit.reconstruction.plots import plot_defences, plot_shares
    from eris.audit.reconstruction.sweep import RECONSTRUCTION_SIZES, left_out, run_defences, run_shares
    from eris.audit.side_by_side import in_processes

    sweep, plot = (run_shares, plot_shares) if name == "reconstruction" else (run_defences, plot_defences)
    chosen = () if attack == "best" else (attack,)
    missing = left_out(RECONSTRUCTION_SIZES[size], changes) if sweep is run_shares and not chosen else {}
    for other, lack in missing.items():
        Console(stderr=True).print(f"without {other}: {lack}", soft_wrap=True, highlight=False, markup=False)
    with resumable(folder), Attacks(visible=visible) as progress, in_processes(os.cpu_count() or 1) as each:
        points = sweep(RECONSTRUCTION_SIZES[size], changes, folder, attacks=chosen, notice=progress, each=each)
    path = folder / f"sweep-{name}.png"
    return points, reconstruction_table(points), drawn(lambda: plot(points, path), path)


def _where(path: Path, picture: str) -> str:
    return f"results: {path}\npicture: {picture}"
