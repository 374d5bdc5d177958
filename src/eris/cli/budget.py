"""`eris budget`: what members have spent over all the runs they took part in."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from eris.peer.budget import MemberBudget

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def budget(
        member: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One member (default: all).")] = None,
        folder: Annotated[
            Path | None,
            typer.Option("--budget", metavar="DIR", help="Where `eris join` keeps them.", envvar="ERIS_BUDGET"),
        ] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")] = False,
    ) -> None:
        """Show what each member has spent over all its runs: rounds, ε, exposure."""
        from eris.peer.budget import MemberBudget, budget_folder

        place = folder or budget_folder()
        names = [member] if member else sorted(path.name for path in place.glob("*/") if path.is_dir())
        budgets = [MemberBudget(place, name) for name in names]
        if as_json:
            typer.echo(json.dumps({each.member: each.total().to_dict() for each in budgets}, indent=2))
            return
        console = Console()
        for each in budgets:
            _show(each, console)
        if not budgets:
            console.print(
                f"no member has taken part in a run yet (looked in {place})",
                highlight=False,
                soft_wrap=True,
                markup=False,
            )


def _show(budget: MemberBudget, console: Console) -> None:
    from eris.report.units import format_percent

    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("federation", "began", "rounds", "noise σ", "one peer saw"):
        table.add_column(title, justify="left" if title in ("federation", "began") else "right")
    for run in budget.runs().values():
        rounds = str(run.sent) if run.closed else f"up to {run.counts}"
        noise = f"{run.multiplier:.3g}" if run.multiplier else "none"
        noise += f" (alone {run.alone:.3g})" if run.alone and run.alone < run.multiplier else ""
        when = time.strftime("%Y-%m-%d", time.gmtime(run.began))
        table.add_row(Text(run.federation), when, rounds, noise, format_percent(run.largest_share))
    total = budget.total()
    console.print(Text(budget.member, style="bold"))
    console.print(table)
    worth = f"what one peer saw adds up to {total.updates_shown:.3g} whole updates at most"
    console.print(f"{total}; {worth}", highlight=False, markup=False)
