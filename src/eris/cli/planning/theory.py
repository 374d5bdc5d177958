"""What `eris bounds` prints: sections of numbers, each with the flaws that touch it."""

from __future__ import annotations

import json
import math
from typing import Any

import typer
from rich.console import Console

from eris.cli.planning.leakage import leakage_section, rates_section
from eris.cli.planning.notes import Notes, make_table
from eris.cli.planning.question import BoundsQuestion, Section, evidence_of, with_evidence
from eris.cli.planning.utility import utility_section
from eris.paper.flaws import flaws_of
from eris.planner.costs import finite
from eris.planner.evidence import Evidence

__all__ = ["show_bounds"]


def show_bounds(question: BoundsQuestion) -> None:
    """Print all sections, or all numbers as JSON."""
    sections, question = [], question.resolved()
    if question.run is not None:
        found = evidence_of(question.run)
        question = with_evidence(question, found)
        sections.append(_evidence_section(found))
    utility = utility_section(question)
    if question.run is not None:
        _compare(utility, found)
    sections += [utility, leakage_section(question), rates_section(question)]
    if question.as_json:
        data = {section.key: _plain(section) for section in sections}
        typer.echo(json.dumps(finite(data), indent=2, ensure_ascii=False))
        return
    console = Console(highlight=False)
    for section in sections:
        _print_section(console, section)


def _evidence_section(found: Evidence) -> Section:
    section = Section("evidence", "From the run (seen on its path only: lower estimates, not bounds)")
    for name, estimate in found.estimates.items():
        section.add(name, name, estimate.value, remark=f"{estimate.kind}: {estimate.how}")
    for number, text in enumerate(found.broken, start=1):
        section.add(f"broken_{number}", "outside the theorem", None, remark=text)
    return section


def _compare(utility: Section, found: Evidence) -> None:
    """Put the measured mean squared gradient norm under the bound on it."""
    how = f"over {found.recorded} rounds" if found.recorded else "not recorded: run with gradient_norm = true"
    utility.add("measured", "mean ‖∇f‖² measured", found.measured, remark=how)
    lines = {line.key: line for line in utility.lines}
    bound = lines["utility"].value
    if bound is None or not found.measured:
        return
    outside = found.broken or lines["step"].remark or lines["smoothness"].remark
    remark = "not a test of the bound: assumptions are broken or constants assumed" if outside else ""
    utility.add("ratio", "bound / measured", bound / found.measured, remark=remark)


def _plain(section: Section) -> dict[str, Any]:
    return {
        line.key: {
            "name": line.name,
            "value": line.value,
            "infinite": line.value is not None and math.isinf(line.value),
            "remark": line.remark,
            "flaws": flaws_of(*line.flaws),
        }
        for line in section.lines
    }


def _print_section(console: Console, section: Section) -> None:
    table, notes = make_table(section.title, "", "value", "flaws", ""), Notes()
    table.columns[3].justify, table.columns[3].no_wrap = "left", False
    for line in section.lines:
        marks = " ".join(notes.mark(text) for text in flaws_of(*line.flaws))
        table.add_row(line.name, _number(line.value), marks, line.remark)
    console.print(table)
    notes.print(console)
    console.print()


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return "∞" if math.isinf(value) else f"{value:.6g}"
