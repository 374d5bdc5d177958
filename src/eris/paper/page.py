"""Write an experiment's result to files (JSON, CSV, a figure, an HTML page), and one Markdown page for all of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from eris.atomic_file import write_atomically
from eris.errors import MissingExtra
from eris.paper.result import ExperimentResult, table_csv
from eris.paper.table import heading, row_cells
from eris.report.markup import Markup, element
from eris.report.theme import STYLE
from eris.report.units import format_seconds

__all__ = ["command_of", "facts_of", "write_overview", "write_result"]

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data: 'self' file:"


def command_of(result: ExperimentResult) -> str:
    """Return the command that reproduces a result."""
    reading = "" if result.reading.name == "paper" else f" --reading {result.reading.name}"
    return f"eris reproduce {result.experiment.name} --size {result.size}{reading}"


def facts_of(result: ExperimentResult) -> list[str]:
    """Return the notes that go with a table: what was done, how much of it, and what was substituted."""
    panels = result.experiment.sizes[result.size]
    unfinished = sum(bool(row.missing) for row in result.rows)
    failed = sum(bool(row.failed) for row in result.rows)
    lines = [
        f"`{command_of(result)}`; reading: {result.reading.name} ({result.reading.about}).",
        f"{format_seconds(result.seconds)} of processor time" + (f", last on {result.when}." if result.when else ".")
        if result.seconds else "Not run yet at this size.",
    ]  # fmt: skip
    if unfinished or failed:
        lines.append(f"Unfinished: {unfinished} of {len(result.rows)} rows lack folds, {failed} failed.")
    lines += [f"{panel.label}: stand-in, {panel.stand_in}." for panel in panels if panel.stand_in]
    return [*lines, *result.experiment.notes]


def write_result(result: ExperimentResult, folder: Path) -> list[Path]:
    """Write a result's files and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    name = result.experiment.name
    data, table, page = (folder / f"{name}.{ending}" for ending in ("json", "csv", "html"))
    write_atomically(data, (json.dumps(result.plain(), indent=1, ensure_ascii=False) + "\n").encode())
    write_atomically(table, table_csv(result).encode())
    drawn = _drawn(result, folder)
    write_atomically(page, _html(result, drawn).encode())
    return [data, table, page, *([drawn] if drawn else [])]


def _drawn(result: ExperimentResult, folder: Path) -> Path | None:
    from eris.paper.picture import draw_result
    from eris.paper.planned import draw_planned

    path = folder / f"{result.experiment.name}.svg"
    try:
        if result.experiment.shape == "planned":
            return path if draw_planned(result.experiment.name, path) else None
        return path if draw_result(result, path) else None
    except MissingExtra:
        return None  # the table says everything


def _html(result: ExperimentResult, picture: Path | None) -> str:
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("title", f"eris: {result.experiment.title}"),
        Markup(f"<style>{STYLE}</style>"),
    )
    tables = [_table(result, panel) for panel in dict.fromkeys(row.panel for row in result.rows)]
    shown = [element("figure", element("img", src=picture.name, alt=result.experiment.title))] if picture else []
    main = element(
        "main",
        element("header", element("p", f"eris · the paper, {result.size}", class_="eyebrow"),
                element("h1", result.experiment.title), element("p", result.experiment.shows, class_="lead")),
        *tables,
        *shown,
        element("ul", *(element("li", fact.replace("`", "")) for fact in facts_of(result)), class_="plain"),
    )  # fmt: skip
    return "<!doctype html>\n" + element("html", head, element("body", main), lang="en") + "\n"


def _table(result: ExperimentResult, panel: str) -> Markup:
    names = element("tr", *(element("th", name) for name in heading(result, panel)))
    lines = [row_cells(result, row) for row in result.rows if row.panel == panel]
    rows = [element("tr", *(element("td", text) for text in line)) for line in lines]
    table = element("table", element("caption", panel), element("thead", names), element("tbody", *rows), class_="many")
    return element("div", table, class_="card")


def write_overview(results: Sequence[ExperimentResult], folder: Path) -> Path:
    """Write one Markdown page with every table and figure, and return its path."""
    size = results[0].size
    parts = [_ABOUT.format(size=size)]
    parts += [_section(result, folder) for result in results]
    path = folder / "tables.md"
    write_atomically(path, "\n".join(parts).encode())
    return path


_ABOUT = """# The paper's tables and figures, size {size}

Written by `eris reproduce all --size {size}` from the cells in `cells/`, a small file each. A value stands with its
95 % interval over folds (Student's t; with one fold, the attack's own where it has one); *printed* is the paper's, with
what stands behind its ±; *chance* is what the same attack makes of coins tossed again. "Small" runs have fewer members,
rounds and folds than the paper: directions can be compared with it, levels only with care. In the figures ours is
filled, the paper's hollow, chance dotted. Which claims stand: [claims](../claims.md).
"""


def _section(result: ExperimentResult, folder: Path) -> str:
    experiment = result.experiment
    lines = [f"## {experiment.name}", "", f"{experiment.title}: {experiment.shows}.", ""]
    for panel in dict.fromkeys(row.panel for row in result.rows):
        rows = [row for row in result.rows if row.panel == panel]
        values = [figure.value for row in rows for figure in row.figures.values() if figure.value is not None]
        if not values and not any(row.failed for row in rows):
            lines += [f"**{panel}**: not run yet at this size.", ""]
            continue
        names = heading(result, panel)
        lines += [f"**{panel}**", "", f"| {' | '.join(names)} |", "|" + "---|" * len(names)]
        done = [row for row in rows if row.failed or any(figure.value is not None for figure in row.figures.values())]
        lines += [f"| {' | '.join(text.replace('|', '∣') for text in row_cells(result, row))} |" for row in done]
        if left := [f"{row.arm}{f' at {row.point}' if row.point != '' else ''}" for row in rows if row not in done]:
            lines += ["", f"Not run yet: {'; '.join(left)}."]
        lines.append("")
    if (folder / f"{experiment.name}.svg").exists():
        lines += [f"![{experiment.title}]({experiment.name}.svg)", ""]
    return "\n".join([*lines, *(f"- {fact}" for fact in facts_of(result)), ""])
