"""The four kinds of plot a report has: curves, bars in panels, dots for each class, and a timeline of lost shards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eris.report.canvas import colour, drawing, plain_axes, to_svg
from eris.report.faults import FaultRecord
from eris.report.markup import Markup
from eris.report.theme import DASHES, MARKERS, series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["PlotLine", "PlotPanel", "Row", "bars", "curves", "dots", "timeline"]

Format = Callable[[float], str]

_HALF = (5.0, 3.0)  # inches; the page shows them at 1.4 times that, so that the letters come out at about 12 pixels
_FULL = 10.2
_LABEL_LETTERS = 22


@dataclass(frozen=True)
class Row:
    """One method as the plots know it."""

    label: str
    slot: int

    @property
    def short(self) -> str:
        """The label, cut to what a plot has room for."""
        clean = "".join(letter if letter.isprintable() else " " for letter in self.label)
        return clean if len(clean) <= _LABEL_LETTERS else clean[: _LABEL_LETTERS - 1] + "…"

    @property
    def colour(self) -> str:
        """The method's colour."""
        return colour(series(self.slot))


@dataclass(frozen=True)
class PlotLine:
    """One method's curve; points without a value are left out."""

    row: Row
    x: Sequence[float | None]
    y: Sequence[float | None]

    @property
    def points(self) -> list[tuple[float, float]]:
        """The points that can be drawn."""
        return [(x, y) for x, y in zip(self.x, self.y, strict=True) if x is not None and y is not None]


@dataclass(frozen=True)
class PlotPanel:
    """One quantity, with a value (or None) for each row."""

    title: str
    values: Sequence[float | None]


def curves(
    lines: Sequence[PlotLine], *, x_label: str, alternative: str, y_format: Format, x_format: Format | None = None,
    x_logarithmic: bool = False, y_logarithmic: bool = False,
) -> Markup:  # fmt: skip
    """Draw one line for each method, labelled at its end; where lines coincide the later one is dashed on top.

    Args:
        lines: the curves.
        x_label: name of the horizontal axis.
        alternative: text that says what is shown.
        y_format: writes values of the vertical axis.
        x_format: writes values of the horizontal axis; by default whole numbers.
        x_logarithmic: whether the horizontal axis is.
        y_logarithmic: whether the vertical axis is.
    """
    with drawing(alternative):
        from matplotlib.figure import Figure

        figure = Figure(figsize=_HALF, dpi=72)
        names = (16 + 5.6 * max(len(line.row.short) for line in lines)) / (72 * _HALF[0])
        axes = figure.add_axes((0.095, 0.15, 0.9 - names, 0.82))
        plain_axes(axes)
        for line in lines:
            _draw_line(axes, line, alone=len(lines) == 1)
        axes.set_xlabel(x_label)
        axes.set_xscale("log" if x_logarithmic else "linear")
        axes.set_yscale("log" if y_logarithmic else "linear")
        _format_axis(axes.xaxis, x_format, logarithmic=x_logarithmic, whole=x_format is None)
        _format_axis(axes.yaxis, y_format, logarithmic=y_logarithmic)
        axes.margins(x=0.02, y=0.06)
        rounds = {x for line in lines for x, _ in line.points}
        if len(rounds) == 1 and x_format is None:  # else the axis would end before the next whole number
            axes.set_xlim(min(rounds) - 1, max(rounds) + 1)
        _label_ends(axes, lines)
        return to_svg(figure, alternative)


def _draw_line(axes: Axes, line: PlotLine, *, alone: bool) -> None:
    x, y = zip(*line.points, strict=True)
    slot = line.row.slot % len(DASHES)
    dashes = (0, DASHES[slot]) if DASHES[slot] and not alone else "solid"
    width = 3.2 if slot == 0 else 1.9  # the baseline shows on both sides of a line that runs on top of it
    axes.plot(x, y, color=line.row.colour, linestyle=dashes, linewidth=width, zorder=2 + 0.01 * line.row.slot)
    axes.plot(x[-1], y[-1], marker=MARKERS[slot], markersize=4.5, color=line.row.colour, zorder=3)


def _format_axis(axis: Any, form: Format | None, *, logarithmic: bool, whole: bool = False) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

    if form is not None:
        axis.set_major_formatter(FuncFormatter(lambda value, _: form(value)))
    if logarithmic:
        axis.set_minor_formatter(NullFormatter())
        axis.set_tick_params(which="minor", length=0)
    else:
        axis.set_major_locator(MaxNLocator(6, integer=whole, steps=[1, 2, 2.5, 5, 10]))


def _label_ends(axes: Axes, lines: Sequence[PlotLine]) -> None:
    """Write each method's name beside the end of its line, moved where names would overlap or leave the plot."""
    ends = [(line, *axes.transData.transform(line.points[-1])) for line in lines]
    ends.sort(key=lambda end: -end[2])
    heights = _apart([(x, y) for _, x, y in ends], lowest=axes.bbox.y0 + 3)
    for (line, _, y), height in zip(ends, heights, strict=True):
        axes.annotate(
            line.row.short, line.points[-1], xytext=(7, height - y), textcoords="offset points", va="center",
            color=line.row.colour, fontweight="bold", annotation_clip=False,
        )  # fmt: skip


def _apart(places: Sequence[tuple[float, float]], lowest: float, gap: float = 10.5, reach: float = 95) -> list[float]:
    """Return heights for names at these places (highest first) so that neighbours do not overlap.

    Names are neighbours if their x differ by less than `reach`; all numbers are in points.

    >>> _apart([(0, 50), (0, 49), (200, 49)], lowest=0, gap=10)
    [50, 40, 49]
    >>> _apart([(0, 5), (0, 4)], lowest=2, gap=10)
    [12, 2]
    """
    heights: list[float] = []
    for place, (x, y) in enumerate(places):
        above = [heights[other] - gap for other in range(place) if abs(places[other][0] - x) < reach]
        heights.append(min([y, *above]))
    for place in reversed(range(len(places))):
        x = places[place][0]
        below = [heights[o] + gap for o in range(place + 1, len(places)) if abs(places[o][0] - x) < reach]
        heights[place] = max([heights[place], lowest, *below])
    return heights


def bars(
    rows: Sequence[Row],
    panels: Sequence[PlotPanel],
    *,
    form: Format,
    alternative: str,
    columns: int = 4,
    full: float = 0.0,
) -> Markup:
    """Draw a panel for each quantity with one bar for each method, each with its value beside it.

    All bars have one scale: it reaches to the largest value, or to `full` where that is more.

    Args:
        rows: the methods.
        panels: the quantities.
        form: writes a value.
        alternative: text that says what is shown.
        columns: panels side by side.
        full: the least that the scale reaches to.
    """
    with drawing(alternative):
        from matplotlib.figure import Figure

        columns = {5: 5, 6: 3}.get(len(panels), 4) if columns == 4 else columns
        columns = min(columns, len(panels))
        lines = -(-len(panels) // columns)
        width, title = _FULL if columns > 1 else _HALF[0], 0.42  # inches
        thick = (
            0.7 * _HALF[1] / lines - title
        )  # of all bars of a panel that stands beside a curve: no half of it is empty
        bar = 0.27 if columns > 1 else min(0.62, max(0.27, thick / len(rows)))
        height = lines * (title + bar * len(rows))
        figure = Figure(figsize=(width, height), dpi=72)
        largest = max([full, *(value for panel in panels for value in panel.values if value is not None)])
        left = 0.15 + 0.078 * max(len(row.short) for row in rows)
        cell = (width - left) / columns
        for position, panel in enumerate(panels):
            line, column = divmod(position, columns)
            bottom = (lines - 1 - line) * (title + bar * len(rows)) + 0.08
            place = (left + column * cell, bottom, cell - 0.2, bar * len(rows))
            axes = figure.add_axes((place[0] / width, place[1] / height, place[2] / width, place[3] / height))
            _draw_panel(axes, rows, panel, form)
            axes.set_xlim(0, (largest or 1.0) / (1 - 56 / (72 * place[2])))  # room for the value beside the longest bar
            axes.set_yticks(range(len(rows)), [row.short if column == 0 else "" for row in rows])
            axes.tick_params(axis="y", pad=5, labelcolor=colour("ink"))
        return to_svg(figure, alternative)


def _draw_panel(axes: Axes, rows: Sequence[Row], panel: PlotPanel, form: Format) -> None:
    plain_axes(axes, grid="none")
    axes.set_ylim(len(rows) - 0.45, -0.55)
    axes.set_xticks([])
    axes.set_title(panel.title, loc="left", fontsize=8.5, fontweight="bold", pad=5)
    axes.axvline(0, color=colour("muted"), linewidth=0.8, zorder=4)
    for place, (row, value) in enumerate(zip(rows, panel.values, strict=True)):
        if value is not None:
            axes.barh(place, value, height=0.62, color=row.colour)
        text = "not given" if value is None else form(value)
        axes.annotate(
            text, (value or 0.0, place), xytext=(5, 0), textcoords="offset points", va="center",
            color=colour("ink" if value is not None else "muted"),
        )  # fmt: skip


def dots(
    rows: Sequence[Row], names: Sequence[str], values: Sequence[Sequence[float | None]], alternative: str
) -> Markup:
    """Draw a share for each class and method, the methods side by side within a class.

    Args:
        rows: the methods.
        names: of the classes.
        values: for each method, a share for each class or None.
        alternative: text that says what is shown.
    """
    with drawing(alternative):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(_FULL, 2.9), dpi=72)
        axes = figure.add_axes((0.05, 0.12, 0.94, 0.85))
        plain_axes(axes)
        step = min(0.2, 0.7 / max(1, len(rows)))
        for position, (row, shares) in enumerate(zip(rows, values, strict=True)):
            shift = (position - (len(rows) - 1) / 2) * step
            points = [(place + shift, share) for place, share in enumerate(shares) if share is not None]
            marker = MARKERS[row.slot % len(MARKERS)]
            if points:
                axes.plot(*zip(*points, strict=True), marker=marker, markersize=5, linestyle="none", color=row.colour)
        for boundary in range(1, len(names)):
            axes.axvline(boundary - 0.5, color=colour("grid"), linewidth=0.7, zorder=1)
        axes.set_xlim(-0.5, len(names) - 0.5)
        axes.margins(y=0.12)
        axes.set_xticks(range(len(names)), list(names))
        _format_axis(axes.yaxis, _tidy_percent, logarithmic=False)
        return to_svg(figure, alternative)


def _tidy_percent(share: float) -> str:
    return f"{share * 100:.4g} %"


def timeline(faults: FaultRecord, rounds: tuple[int, int], alternative: str) -> Markup:
    """Draw which shard was lost, or committed without some members, in which round.

    `rounds` are the first and the last; `alternative` is the text for those who do not see the picture.
    """
    with drawing(alternative):
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator

        height = 0.75 + min(4.0, max(0.6, 0.16 * faults.shards))
        figure = Figure(figsize=(_FULL, height), dpi=72)
        axes = figure.add_axes((0.05, 0.42 / height, 0.94, 1 - 0.5 / height))
        plain_axes(axes)
        first, last = rounds
        size = min(
            5.5, max(1.5, 560 / (last - first + 1))
        )  # a column of its own for each round, as long as that can be seen
        lost = [(entry.round, entry.shard) for entry in faults.lost]
        partial = [(round, shard) for round, shard, _ in faults.incomplete]
        for points, marker, tone in ((partial, "o", "muted"), (lost, "X", "alarm")):
            if points:
                axes.plot(
                    *zip(*points, strict=True), linestyle="none", marker=marker, markersize=size, markeredgewidth=0.9,
                    color=colour(tone), markerfacecolor="none" if tone == "muted" else colour(tone),
                )  # fmt: skip
        axes.set_xlim(first - 0.5, last + 0.5)
        axes.set_ylim(max(faults.shards, 1) - 0.4, -0.6)
        axes.xaxis.set_major_locator(MaxNLocator(12, integer=True))
        axes.set_yticks(range(0, max(faults.shards, 1), max(1, -(-faults.shards // 10))))
        axes.set_xlabel("round")
        axes.set_ylabel("shard")
        return to_svg(figure, alternative)
