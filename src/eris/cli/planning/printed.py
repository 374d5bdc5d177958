"""`eris plan --as-printed`: the paper's tables, computed by the rules their cells follow."""

from __future__ import annotations

import json

import typer
from rich.console import Console

from eris.cli.planning.notes import make_table
from eris.cli.planning.request import Asked, printed_settings, scenario_of
from eris.planner import PRINTED, table_row
from eris.planner.panels import PrintedLine, main_text, panel, rows
from eris.planner.quantity import parse_rate
from eris.report.figures import label_of

__all__ = ["show_printed"]


def show_printed(asked: Asked) -> None:
    """Print a panel of the paper, or the same rows for another model and fleet."""
    rate = parse_rate(asked.rate)
    if asked.panel == "main-text":
        found = main_text(rate=rate)
    elif asked.panel:
        found = {asked.panel: rows(panel(asked.panel), rate=rate)}
    else:
        found = {asked.model: _own_panel(asked, rate)}
    if asked.as_json:
        data = {
            name: [{"method": line.label, **dict(zip(_CELLS, line.cells, strict=True))} for line in lines]
            for name, lines in found.items()
        }
        typer.echo(json.dumps(data, indent=2, ensure_ascii=False))
        return
    console = Console(highlight=False)
    for name, lines in found.items():
        table = make_table(f"{name}, as the paper's tables count", "method", *_CELLS)
        for line in lines:
            table.add_row(line.label, *line.cells)
        console.print(table)
    for text in _PRINTED_NOTES:
        console.print(f"[dim]–[/] {text}", soft_wrap=True)


_CELLS = ("compression", "upload", "download", "total", "time")
_PRINTED_NOTES = (
    "ERIS counts a client's role alone; a peer that also aggregates moves about twice as much (A = K). Its time leaves "
    "out members that do not aggregate.",
    "Shatter's total is not its upload + download, and r = 3 for CNN/DailyMail where the paper's text says 4.",
    "Ako and Q-DPSGD-1 send and receive in turn, all others at once; Q-DPSGD-1's total is not quantised.",
    "PriPrune is labelled with the rate its cells follow (the paper writes 0.01, 0.05, 0.1 for large models too).",
    "Downloads of DSC are counted whole. Without --as-printed and --panel come the honest forms.",
)  # fmt: skip


def _own_panel(asked: Asked, rate: float) -> list[PrintedLine]:
    round, settings = scenario_of(asked), printed_settings(asked)
    return [
        PrintedLine(
            label_of(method),
            table_row(
                method,
                n=round.model.values,
                members=round.members,
                aggregators=len(round.aggregators),
                rate=rate,
                keep=round.keep,
                baselines=settings,
            ),
        )
        for method in asked.methods or PRINTED
    ]
