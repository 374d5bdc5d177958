"""`eris audit sweep`: the same attack along one axis."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from eris.cli.auditing.membership_table import membership_footnotes, membership_table
from eris.cli.auditing.options import AttackName, Canaries, Changes, Json, Out, Views, attacks, stamped_folder
from eris.cli.auditing.rounds import Rounds
from eris.errors import ConfigError, MissingExtra

__all__ = ["sweep"]


def sweep(
    name: Annotated[str, typer.Argument(help="aggregators, collusion, compression, blocks or rotation.")],
    changes: Changes = None,
    size: Annotated[str, typer.Option(help="small (minutes), or paper (50 members on the whole of MNIST).")] = "small",
    attack: AttackName = "adaptive",
    canaries: Canaries = 64,
    views: Views = 4,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Repeat the membership attack along one axis, and draw it.

    **Examples**

    `eris audit sweep aggregators`

    `eris audit sweep collusion --set members=10 --out audits/collusion`
    """
    from eris.audit.sweep import SIZES, configurations, run_sweep, sweep_by_name

    if size not in SIZES:
        raise ConfigError(f"there is no size {size!r}", fix=f"use one of {', '.join(SIZES)}")
    chosen, base, folder = sweep_by_name(name), [*SIZES[size], *(changes or [])], out or stamped_folder()
    total = sum(config.rounds for _, config in configurations(chosen, base))
    with Rounds(total, visible=not as_json) as progress:
        points = run_sweep(chosen, base, folder, attacks(attack), listeners=[progress], canaries=canaries, views=views)
    picture = _draw(points, chosen.axis, folder / f"sweep-{name}.png")
    if as_json:
        typer.echo(json.dumps({"path": str(folder), "points": points}))
        return
    console = Console()
    console.print(membership_table(points, "label", chosen.axis))
    console.print(membership_footnotes(folder / f"sweep-{name}.json", picture), soft_wrap=True, highlight=False)


def _draw(points: list[dict[str, Any]], axis: str, path: Path) -> str:
    from eris.audit.plot import plot_sweep

    try:
        plot_sweep(points, axis, path)
    except MissingExtra as error:
        return f"not drawn ({error})"
    return str(path)
