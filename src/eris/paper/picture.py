"""Draw an experiment's figure in the shape of the paper's: our values filled, printed ones hollow, chance dotted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eris.paper.experiment import Metric
from eris.paper.result import ExperimentResult, Measured, ResultRow
from eris.paper.table import shown_metrics
from eris.report.canvas import drawing, plain_axes
from eris.report.theme import LIGHT, MARKERS, series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_result"]


def draw_result(result: ExperimentResult, path: Path) -> bool:
    """Draw a result into an SVG file; return False, and draw nothing, if there is nothing to draw."""
    if result.experiment.shape == "planned" or not any(
        figure.value is not None for row in result.rows for figure in row.figures.values()
    ):
        return False
    with drawing(result.experiment.name):
        _in_colour()
        figure = _SHAPES[result.experiment.shape](result)
        figure.savefig(path, facecolor=LIGHT["surface"], metadata={"Date": None}, bbox_inches="tight")
    return True


def _in_colour() -> None:
    """Use the theme's light colours, as this figure is a file of its own and not part of a page."""
    import matplotlib as mpl

    inked: tuple[Any, ...] = ("text.color", "axes.labelcolor", "axes.titlecolor", "legend.labelcolor")
    mpl.rcParams.update({**dict.fromkeys(inked, LIGHT["ink"]), "grid.color": LIGHT["grid"]})


def _panels(result: ExperimentResult) -> list[str]:
    """Return the panels that have any measured value."""
    return list(dict.fromkeys(row.panel for row in result.rows if _measured(row)))


def _measured(row: ResultRow) -> list[str]:
    return [key for key, figure in row.figures.items() if figure.value is not None]


def _metrics(result: ExperimentResult) -> list[Metric]:
    return [metric for metric in shown_metrics(result) if any(metric.key in _measured(row) for row in result.rows)]


def _grid(rows: int, columns: int, width: float, height: float) -> tuple[Figure, list[list[Axes]]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for line in axes:
        for each in line:
            plain_axes(each)
            each.tick_params(labelcolor=LIGHT["muted"])
    return figure, [list(line) for line in axes]


def _bars(result: ExperimentResult) -> Figure:
    """Draw a dot with its interval for each row, with a column for each metric and a line for each panel."""
    panels, metrics = _panels(result), _metrics(result)
    most = max(sum(row.panel == panel for row in result.rows) for panel in panels)
    figure, grid = _grid(len(panels), len(metrics), 4.4, 0.7 + 0.21 * most)
    several = any(row.point != "" for row in result.rows)
    for line, panel in zip(grid, panels, strict=True):
        rows = [row for row in result.rows if row.panel == panel][::-1]
        names = [f"{row.arm}, {row.point}" if several and row.point != "" else row.arm for row in rows]
        for place, (axes, metric) in enumerate(zip(line, metrics, strict=True)):
            if not any(metric.key in _measured(row) for row in rows):
                axes.set_visible(False)
                continue
            _dots(axes, rows, metric)
            axes.set_yticks(range(len(rows)), names if place == 0 else [""] * len(rows))
            axes.set_title(f"{panel}: {_named(metric)}", loc="left", fontsize=9)
    return figure


def _dots(axes: Axes, rows: Sequence[ResultRow], metric: Metric) -> None:
    for place, row in enumerate(rows):
        figure = row.figures.get(metric.key, Measured(None))
        ours = LIGHT["series-1"] if "ERIS" in row.arm else LIGHT["series-0"]
        if figure.value is not None:
            axes.errorbar(figure.value, place, xerr=_reach(figure), fmt="o", color=ours, markersize=5, elinewidth=1.4)
        if figure.printed is not None:
            axes.plot(figure.printed, place, "D", color=LIGHT["series-2"], markerfacecolor="none", markersize=5)
        if figure.chance is not None:
            axes.plot([figure.chance] * 2, [place - 0.35, place + 0.35], ":", color=LIGHT["muted"], linewidth=1.2)
    axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.grid(visible=True, axis="x")


def _reach(figure: Measured) -> Any:
    if figure.value is None or figure.low is None or figure.high is None:
        return None
    return [[max(0.0, figure.value - figure.low)], [max(0.0, figure.high - figure.value)]]


_FEW = 4  # with more curves than this their intervals cannot be told apart


def _lines(result: ExperimentResult) -> Figure:
    """Draw a curve for each arm; where a panel was run at one point only, dots as in a table."""
    panels, metrics = _panels(result), _metrics(result)
    figure, grid = _grid(len(metrics), len(panels), 4.6, 2.9)
    for line, metric in zip(grid, metrics, strict=True):
        for axes, panel in zip(line, panels, strict=True):
            rows = [row for row in result.rows if row.panel == panel]
            _panel_of_lines(axes, result, rows, metric)
            axes.set_title(f"{panel}: {_named(metric)}", loc="left", fontsize=9)
    curves = [axes.get_legend_handles_labels() for line in grid for axes in line]
    handles, names = max(curves, key=lambda found: len(found[0]))
    if handles:
        figure.legend(handles, names, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return figure


def _panel_of_lines(axes: Axes, result: ExperimentResult, rows: Sequence[ResultRow], metric: Metric) -> None:
    measured = [row for row in rows if metric.key in _measured(row)]
    points = sorted({float(row.point) for row in measured if not isinstance(row.point, str)})
    if not measured:
        axes.set_visible(False)
        return
    if len(points) < 2:
        upwards = measured[::-1]
        _dots(axes, upwards, metric)
        axes.set_yticks(range(len(upwards)), [row.arm for row in upwards], fontsize=7)
        axes.set_xlabel(f"{result.experiment.axis} = {points[0]:g}" if points else "")
        return
    arms = list(dict.fromkeys(row.arm for row in rows))
    for slot, arm in enumerate(arms):
        _curve(axes, [row for row in rows if row.arm == arm], metric, slot, intervals=len(arms) <= _FEW)
    axes.set_xlabel(result.experiment.axis)
    if result.experiment.logarithmic:
        axes.set_xscale("log")
    elif len(points) <= 6:
        axes.set_xticks(points)


def _curve(axes: Axes, rows: Sequence[ResultRow], metric: Metric, slot: int, *, intervals: bool) -> None:
    colour, marker = LIGHT[series(slot)], MARKERS[slot % len(MARKERS)]
    found = [(row.point, row.figures[metric.key]) for row in rows if metric.key in row.figures]
    ours = [(x, each) for x, each in found if each.value is not None and isinstance(x, float | int)]
    if ours:
        x = [float(place) for place, _ in ours]
        y = [float(each.value or 0.0) for _, each in ours]
        axes.plot(x, y, color=colour, marker=marker, markersize=4.5, linewidth=1.7, label=rows[0].arm)
        known = [(float(p), each.low, each.high) for p, each in ours if each.low is not None and each.high is not None]
        if intervals and known and not math.isnan(float(known[0][1] or 0.0)):
            lows, highs = [each[1] or 0.0 for each in known], [each[2] or 0.0 for each in known]
            axes.fill_between([each[0] for each in known], lows, highs, color=colour, alpha=0.12, linewidth=0)
    printed = [(float(x), each.printed) for x, each in found if each.printed is not None and not isinstance(x, str)]
    if printed:
        axes.plot(*zip(*printed, strict=True), color=colour, marker=marker, markersize=5, linewidth=0.8,
                  linestyle=(0, (3, 2)), markerfacecolor="none", alpha=0.7)  # fmt: skip
    chance = [(float(x), each.chance) for x, each in ours if each.chance is not None]
    if chance and slot == 0:
        axes.plot(*zip(*chance, strict=True), ":", color=LIGHT["muted"], linewidth=1.2)


def _front(result: ExperimentResult) -> Figure:
    """Draw accuracy against what the attack does not find, a colour for each family of rows."""
    places = list(dict.fromkeys((row.panel, row.point) for row in result.rows if _measured(row)))
    figure, grid = _grid(1, len(places), 4.6, 3.6)
    for axes, (panel, point) in zip(grid[0], places, strict=True):
        rows = [row for row in result.rows if (row.panel, row.point) == (panel, point)]
        families = list(dict.fromkeys(row.arm.split(":")[0] for row in rows))
        for slot, family in enumerate(families):
            _family(axes, [row for row in rows if row.arm.split(":")[0] == family], family, slot)
        axes.set_title(f"{panel}{f', n = {point}' if point != '' else ''}", loc="left", fontsize=9)
        axes.set_xlabel("100 − membership accuracy of the paper's attack, %")
        axes.set_ylabel("accuracy, %")
    grid[0][0].legend(frameon=False, fontsize=8)
    return figure


def _family(axes: Axes, rows: Sequence[ResultRow], family: str, slot: int) -> None:
    look: dict[str, Any] = {"color": LIGHT[series(slot)], "marker": MARKERS[slot % len(MARKERS)], "linestyle": "none"}
    both = [(row.figures.get("mia", Measured(None)), row.figures.get("accuracy", Measured(None))) for row in rows]
    ours = [(100 - leak.value, good.value) for leak, good in both if leak.value is not None and good.value is not None]
    said = [(100 - a.printed, b.printed) for a, b in both if a.printed is not None and b.printed is not None]
    if ours:
        axes.plot(*zip(*ours, strict=True), label=family, markersize=6, **look)
    if said:
        axes.plot(*zip(*said, strict=True), markersize=6, markerfacecolor="none", alpha=0.5, **look)


def _histograms(result: ExperimentResult) -> Figure:
    """Draw the distribution of the weights, round by round, with a Gaussian behind it."""
    cells = [cell for cell in result.extras if "rounds" in cell["figures"]]
    most = max(len(cell["figures"]["rounds"]) for cell in cells)
    figure, grid = _grid(len(cells), most, 2.5, 1.9)
    edges = [-5 + 10 * step / 61 for step in range(62)]
    for line, cell in zip(grid, cells, strict=True):
        for axes, point in zip(line, cell["figures"]["rounds"], strict=False):
            axes.stairs(point["density"], edges, color=LIGHT["series-1"])
            bell = [math.exp(-((edge + 5 / 61) ** 2) / 2) / math.sqrt(2 * math.pi) for edge in edges[:-1]]
            axes.plot([edge + 5 / 61 for edge in edges[:-1]], bell, color=LIGHT["series-2"], linewidth=1)
            axes.set_title(f"{cell['cell']['label'].split(' · ')[0]}, round {point['round'] + 1}", fontsize=8)
            axes.set_yticks([])
    return figure


def _named(metric: Metric) -> str:
    return f"{metric.label}{f', {metric.unit}' if metric.unit else ''}"


_SHAPES = {"bars": _bars, "lines": _lines, "front": _front, "histograms": _histograms}
