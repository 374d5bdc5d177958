"""`eris plan --as-printed`: the paper's tables, computed by the rules their cells follow."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import typer
from rich.console import Console

from eris.cli.planning.notes import make_table
from eris.cli.planning.request import Asked, printed_settings, scenario_of
from eris.paper.difference import Difference, differences
from eris.paper.panels import PrintedLine, main_text, panel, rows
from eris.paper.table_rules import PRINTED, row_of
from eris.planner.quantity import parse_rate
from eris.report.figures import label_of
from eris.report.units import format_bytes, format_seconds

__all__ = ["show_printed"]


def show_printed(asked: Asked) -> None:
    """Print a panel of the paper, or the same rows for another model and fleet."""
    rate, apart = parse_rate(asked.rate), dict[str, list[Difference]]()
    if asked.panel == "main-text":
        found = main_text(rate=rate)
    elif asked.panel:
        found = {asked.panel: rows(panel(asked.panel), rate=rate)}
    else:
        found, apart = {asked.model: _own_panel(asked, rate)}, _differences(asked)
    if asked.as_json:
        data = {name: [_plain(line, apart) for line in lines] for name, lines in found.items()}
        typer.echo(json.dumps(data, indent=2, ensure_ascii=False))
        return
    console = Console(highlight=False)
    for name, lines in found.items():
        table = make_table(f"{name}, as the paper's tables count", "method", *_CELLS)
        for line in lines:
            table.add_row(line.label, *line.cells)
        console.print(table)
    for text in (*_PRINTED_NOTES, *_difference_notes(apart)):
        console.print(f"[dim]–[/] {text}", soft_wrap=True)


def _plain(line: PrintedLine, apart: dict[str, list[Difference]]) -> dict[str, Any]:
    cells = {"method": line.label, **dict(zip(_CELLS, line.cells, strict=True))}
    return cells | {"differences": [asdict(entry) for entry in apart[line.label]]} if line.label in apart else cells


_CELLS = ("compression", "upload", "download", "total", "time")
_PRINTED_NOTES = (
    "ERIS counts a client's role alone; a peer that also aggregates moves about twice as much (A = K). Its time leaves "
    "out members that do not aggregate.",
    "Shatter's total is not its upload + download, and r = 3 for CNN/DailyMail where the paper's text says 4.",
    "Ako and Q-DPSGD-1 send and receive in turn, all others at once; Q-DPSGD-1's total is not quantised.",
    "PriPrune is labelled with the rate its cells follow (the paper writes 0.01, 0.05, 0.1 for large models too).",
    "Downloads of DSC are counted whole. Leave out --as-printed and --panel for the honest forms.",
)  # fmt: skip


def _own_panel(asked: Asked, rate: float) -> list[PrintedLine]:
    round, settings = scenario_of(asked), printed_settings(asked)
    return [
        PrintedLine(label_of(method), row_of(method, round, rate=rate, baselines=settings))
        for method in asked.methods or PRINTED
    ]


def _differences(asked: Asked) -> dict[str, list[Difference]]:
    """Return, by a method's label, where the honest forms say otherwise than the table."""
    round = scenario_of(asked)
    return {label_of(method): differences(method, round) for method in asked.methods or PRINTED}


def _difference_notes(apart: dict[str, list[Difference]]) -> list[str]:
    notes = []
    for label, entries in apart.items():
        parts = []
        for why in dict.fromkeys(entry.why for entry in entries):
            values = "; ".join(_both(entry) for entry in entries if entry.why == why)
            parts.append(f"{values[:1].upper()}{values[1:]}: {why}.")
        if parts:
            notes.append(f"[bold]{label}[/] – {' '.join(parts)}")
    return [_HONEST, *notes] if notes else []


_HONEST = "The same round by the honest forms, each method with the options that a run would have:"
_QUANTITIES = {"node": "upload of a node", "formula": "time (by the formula in the text)"}


def _both(difference: Difference) -> str:
    write = format_seconds if difference.quantity in ("time", "formula") else format_bytes
    name = _QUANTITIES.get(difference.quantity, difference.quantity)
    return f"{name} {write(difference.honest)}, in the paper {write(difference.printed)}"
