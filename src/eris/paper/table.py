"""Format a result as a table, with the same cells for the terminal, an HTML page and Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from eris.paper.experiment import Metric
from eris.paper.result import ExperimentResult, Measured, ResultRow

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["cell_text", "heading", "natural_width", "printed_text", "result_tables", "row_cells", "shown_metrics"]

_NOTHING = "–"


def shown_metrics(result: ExperimentResult, panel: str = "") -> list[Metric]:
    """Return the metrics that any row (of a panel, if given) has."""
    rows = [row for row in result.rows if panel in ("", row.panel)]
    found = [metric for metric in result.experiment.metrics if any(metric.key in row.figures for row in rows)]
    return found or list(result.experiment.metrics[:1])


def heading(result: ExperimentResult, panel: str, metrics: Sequence[Metric] | None = None) -> list[str]:
    """Return the names of a panel's columns, for these metrics or for all that it shows."""
    names = ["", *([result.experiment.axis or "at"] if _has_points(result) else [])]
    for metric in metrics or shown_metrics(result, panel):
        unit = f", {metric.unit}" if metric.unit else ""
        names += [f"{metric.label}{unit}"]
        if metric.chance:
            names.append("chance")
        if _is_printed(result, metric, panel):
            names += ["printed", "ours − printed"]
    return names


def row_cells(result: ExperimentResult, row: ResultRow, metrics: Sequence[Metric] | None = None) -> list[str]:
    """Return a row's texts, one for each column that `heading` names."""
    cells = [row.arm, *([_point(row.point)] if _has_points(result) else [])]
    for metric in metrics or shown_metrics(result, row.panel):
        figure = row.figures.get(metric.key, Measured(None))
        cells.append(cell_text(figure, metric))
        if metric.chance:
            cells.append(_NOTHING if figure.chance is None else f"{figure.chance:.{metric.digits}f}")
        if _is_printed(result, metric, row.panel):
            away = figure.deviation
            cells += [printed_text(figure, metric), _NOTHING if away is None else f"{away:+.{metric.digits}f}"]
    if row.failed:
        cells[-1] = f"failed: {row.failed}"
    elif row.missing:
        cells[-1] += f" ({row.missing} fold{'s' if row.missing > 1 else ''} not run)"
    return cells


def cell_text(figure: Measured, metric: Metric) -> str:
    """Write a value with its interval.

    >>> cell_text(Measured(81.25, 80.0, 82.5, 3), Metric("a", "a"))
    '81.2 [80.0, 82.5]'
    """
    if figure.value is None:
        return _NOTHING
    text = f"{figure.value:.{metric.digits}f}"
    if figure.low is None or figure.high is None:
        return text
    return f"{text} [{figure.low:.{metric.digits}f}, {figure.high:.{metric.digits}f}]"


def printed_text(figure: Measured, metric: Metric) -> str:
    """Write a printed value with its ±, if it has one."""
    if figure.printed is None:
        return _NOTHING
    text = f"{figure.printed:.{metric.digits}f}"
    return text if figure.printed_deviation is None else f"{text} ± {figure.printed_deviation:.{metric.digits}f}"


def result_tables(result: ExperimentResult, width: int) -> list[Table]:
    """Return the tables for a terminal of this width: one for each panel, or for each metric if that is too wide.

    A single metric may still be wider: print it at its own width (`natural_width`), so that nothing is cut or wrapped.
    """
    tables: list[Table] = []
    for panel in dict.fromkeys(row.panel for row in result.rows):
        metrics = shown_metrics(result, panel)
        whole = _panel_table(result, panel, metrics)
        fits = natural_width(whole) <= width
        tables += [whole] if fits else [_panel_table(result, panel, [metric]) for metric in metrics]
    return tables


def _panel_table(result: ExperimentResult, panel: str, metrics: Sequence[Metric]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    title = f"{result.experiment.title}: {panel}"
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), title=title, title_justify="left")
    for place, name in enumerate(heading(result, panel, metrics)):
        broken = name.replace(" (", "\n(").replace(", ", ",\n").replace("ours − printed", "ours −\nprinted")
        table.add_column(broken, justify="left" if place == 0 else "right", no_wrap=True)
    rows = [row for row in result.rows if row.panel == panel]
    for row in rows:
        brief = replace(row, failed="see below") if row.failed else row
        table.add_row(*(Text(text) for text in row_cells(result, brief, metrics)))
    reasons = [f"{row.arm} {_point(row.point)}".strip() + f" failed: {row.failed}" for row in rows if row.failed]
    if reasons:
        table.caption, table.caption_justify = Text("\n".join(reasons)), "left"
    return table


def natural_width(table: Table) -> int:
    """Return the width of a table when it is not limited."""
    from rich.console import Console

    return Console(width=10_000).measure(table).maximum


def _has_points(result: ExperimentResult) -> bool:
    return any(row.point != "" for row in result.rows)


def _point(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _is_printed(result: ExperimentResult, metric: Metric, panel: str) -> bool:
    rows = [row for row in result.rows if row.panel == panel and metric.key in row.figures]
    return any(row.figures[metric.key].printed is not None for row in rows)
