"""The plots of a report: each has a title, a sentence on how to read it, and its figures as alternative text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from eris.report.figures import MethodFigures
from eris.report.headline import baseline_of
from eris.report.markup import Markup, element
from eris.report.plots import PlotLine, PlotPanel, Row, bars, curves, dots, timeline
from eris.report.theme import SHAPES, series
from eris.report.units import (
    MISSING,
    format_bytes,
    format_count,
    format_counted,
    format_percent,
    format_round_bytes,
    format_seconds,
)

__all__ = ["fault_section", "gallery", "legend", "rows_of"]

Format = Callable[[float | None], str]

_ROLES = ("member", "aggregator or server")
_WAYS = (("up", "sends"), ("down", "receives"))
_MOST_CLASSES = 40
_MOST_STAGES = 8  # beyond that the shortest share one panel
_MOST_LISTED = 20


def rows_of(methods: Sequence[MethodFigures]) -> list[Row]:
    """Give each method its colour: grey for the one others are compared with, so that the eye goes to the others."""
    if len(methods) == 1:
        return [Row(methods[0].label, 1)]
    baseline = baseline_of(methods)
    others = iter(range(1, len(methods)))
    return [Row(method.label, 0 if method is baseline else next(others)) for method in methods]


def legend(rows: Sequence[Row]) -> Markup:
    """Return the key to colours and markers; the plots carry the names as well."""
    items = [element("li", _swatch(row), row.label) for row in rows]
    return element("ul", *items, class_="legend", aria_label="Methods and their colours")


def _swatch(row: Row) -> Markup:
    shape = element("path", d=SHAPES[row.slot % len(SHAPES)], fill=f"var(--{series(row.slot)})")
    return element("svg", shape, viewBox="0 0 12 12", aria_hidden="true")


def gallery(methods: Sequence[MethodFigures]) -> Markup:
    """Return every plot for which the run has numbers."""
    pairs = [(method, row) for method, row in zip(methods, rows_of(methods), strict=True) if method.rounds]
    methods, rows = [method for method, _ in pairs], [row for _, row in pairs]
    drawn = [draw(methods, rows) for draw in (_accuracy, _accuracy_by_bytes, _loss, _gradient)]
    narrow = [figure for figure in drawn if figure]
    exposure = _exposure(methods, rows, wide=len(narrow) % 2 == 0)  # narrow ones stand in pairs
    rest = [draw(methods, rows) for draw in (_bytes, _seconds, _classes)]
    shown = [figure for figure in (*narrow, exposure, *rest) if figure]
    return (
        element("div", *shown, class_="plots") if shown else element("p", "No round has finished yet.", class_="note")
    )


def _figure(title: str, reading: str, plot: Markup, *, wide: bool = False) -> Markup:
    caption = element("figcaption", element("h3", title), element("p", reading))
    return element("figure", caption, element("div", plot, class_="plot"), class_="wide" if wide else None)


def _lines(methods: Sequence[MethodFigures], rows: Sequence[Row], y: str, x: str = "round") -> list[PlotLine]:
    lines = [
        PlotLine(row, getattr(method.curve, x), getattr(method.curve, y))
        for row, method in zip(rows, methods, strict=True)
    ]
    return [line for line in lines if line.points]


def _ends(lines: Sequence[PlotLine], form: Format) -> str:
    """Say in words where each line ends."""
    return "; ".join(f"{line.row.label} ends at {form(line.points[-1][1])}" for line in lines) + "."


def _first_round(lines: Sequence[PlotLine]) -> str:
    return (
        " Rounds are counted from 0, as in metrics.jsonl."
        if min(x for line in lines for x, _ in line.points) == 0
        else ""
    )


def _coinciding(lines: Sequence[PlotLine]) -> str:
    """Name the methods whose curves lie on top of each other."""
    groups: dict[tuple[tuple[float, float], ...], list[str]] = {}
    for line in lines:
        groups.setdefault(tuple(line.points), []).append(line.row.label)
    same = [" and ".join(names) for names in groups.values() if len(names) > 1]
    return f" The curves of {'; '.join(same)} coincide." if same else ""


def _accuracy(methods: Sequence[MethodFigures], rows: Sequence[Row]) -> Markup | None:
    lines = _lines(methods, rows, "accuracy")
    if not lines:
        return None
    reading = f"Share of the test set classified correctly.{_first_round(lines)}"
    return _against_rounds(lines, "test accuracy", "Accuracy", reading, _whole_percent, format_percent)


def _against_rounds(
    lines: Sequence[PlotLine], what: str, title: str, reading: str, y_format: Format, said: Format
) -> Markup:
    """Draw curves over the rounds; the alternative text spells their ends as `said` writes them.

    Args:
        lines: one for each run.
        what: is drawn, in words.
        title: its name.
        reading: what a reader should look at.
        y_format: of the axis.
        said: writes a value in the alternative text.
    """
    same = _coinciding(lines)
    alternative = f"Line chart of {what} against rounds. {_ends(lines, said)}{same}"
    plot = curves(lines, x_label="round", y_format=y_format, alternative=alternative)
    return _figure(f"{title} against rounds", f"{reading}{same}", plot)


def _accuracy_by_bytes(methods: Sequence[MethodFigures], rows: Sequence[Row]) -> Markup | None:
    lines = [line for line in _lines(methods, rows, "accuracy", "uploaded") if line.points[-1][0] > 0]
    if not lines:
        return None
    totals = [line.points[-1][0] for line in lines]
    wide_range = max(totals) / min(totals) > 5
    scale = " The scale is logarithmic: each step is ten times as much." if wide_range else ""
    spent = "; ".join(f"{line.row.label} uploaded {format_bytes(line.points[-1][0])} in all" for line in lines)
    alternative = f"Line chart of test accuracy against bytes uploaded by one member. {spent}."
    plot = curves(
        [_positive(line) for line in lines] if wide_range else lines, x_label="uploaded by one member so far",
        y_format=_whole_percent, x_format=format_round_bytes, x_logarithmic=wide_range, alternative=alternative,
    )  # fmt: skip
    return _figure("Accuracy against bytes uploaded", f"Further left is cheaper.{scale}", plot)


def _positive(line: PlotLine) -> PlotLine:
    points = [(x, y) for x, y in line.points if x > 0]
    return PlotLine(line.row, [x for x, _ in points], [y for _, y in points])


def _loss(methods: Sequence[MethodFigures], rows: Sequence[Row]) -> Markup | None:
    lines = _lines(methods, rows, "loss")
    return _against_rounds(lines, "loss", "Loss", "Lower is better.", _plain, _plain) if lines else None


def _gradient(methods: Sequence[MethodFigures], rows: Sequence[Row]) -> Markup | None:
    lines = _lines(methods, rows, "gradient_norm_squared")
    if not lines or min(y for line in lines for _, y in line.points) <= 0:
        return None
    alternative = f"Line chart of the squared gradient norm against rounds. {_ends(lines, _plain)}"
    plot = curves(lines, x_label="round", y_format=_plain, y_logarithmic=True, alternative=alternative)
    return _figure("Squared gradient norm", "Over all training data; the scale is logarithmic.", plot)


def _exposure(methods: Sequence[MethodFigures], rows: Sequence[Row], *, wide: bool) -> Markup | None:
    panels = [
        PlotPanel("of one update, in one round", [method.largest_share for method in methods]),
        PlotPanel("of all coordinates, over all rounds", [method.union_share for method in methods]),
        PlotPanel("what this member's floor allows", [method.allowed_share for method in methods]),
    ]
    alternative = "Bar chart of what the best placed single observer saw. " + _in_words(rows, panels, format_percent)
    reading = "The most that any one observer (a server, an aggregator) saw of one member. Less is better."
    columns = 2 if wide else 1
    return _bar_figure(
        "Exposure", reading, rows, panels, format_percent, alternative, columns=columns, full=1.0, wide=wide
    )


def _bytes(methods: Sequence[MethodFigures], rows: Sequence[Row]) -> Markup | None:
    carried = [{way: _joined(roles) for way, roles in method.bytes_per_role.items()} for method in methods]
    named = [role for ways in carried for way in ways.values() for role in way]
    roles = [role for role in dict.fromkeys([*_ROLES, *named]) if role in named]
    panels = [
        PlotPanel(f"{role} {verb}", [ways.get(way, {}).get(role) for ways in carried])
        for role in roles
        for way, verb in _WAYS
    ]
    alternative = "Bar chart of bytes for each role, mean of a peer and round. " + _in_words(rows, panels, format_bytes)
    reading = "Mean of one peer in one round. A peer that is both member and aggregator carries both."
    return _bar_figure("Bytes for each role", reading, rows, panels, format_bytes, alternative)


def _joined(roles: Mapping[str, float]) -> dict[str, float]:
    """Put a server where the aggregators of other methods stand: the two are there to be compared."""
    return {_ROLES[1] if role in ("aggregator", "server") else role: count for role, count in roles.items()}


def _seconds(methods: Sequence[MethodFigures], rows: Sequence[Row]) -> Markup | None:
    stages = list(dict.fromkeys(stage for method in methods for stage in method.stage_seconds))
    by_size = sorted(stages, key=lambda stage: -max(method.stage_seconds.get(stage, 0.0) for method in methods))
    small = by_size[_MOST_STAGES - 1 :] if len(stages) > _MOST_STAGES else []
    large = [stage for stage in stages if stage not in small]
    panels = [PlotPanel(stage, [method.stage_seconds.get(stage) for method in methods]) for stage in large]
    if small:
        rest = [sum(method.stage_seconds.get(stage, 0.0) for stage in small) for method in methods]
        panels.append(PlotPanel("other", rest))
    alternative = "Bar chart of seconds for each stage, summed over rounds. " + _in_words(rows, panels, format_seconds)
    other = f" “Other” is {', '.join(small)}." if small else ""
    reading = f"Summed over all rounds, as measured on the machine of the run.{other}"
    return _bar_figure("Seconds for each stage", reading, rows, panels, format_seconds, alternative)


def _bar_figure(
    title: str, reading: str, rows: Sequence[Row], panels: Sequence[PlotPanel], form: Format, alternative: str,
    *, columns: int = 4, full: float = 0.0, wide: bool = True,
) -> Markup | None:  # fmt: skip
    shown = [panel for panel in panels if any(value is not None for value in panel.values)]
    if not shown:
        return None
    plot = bars(rows, shown, form=form, alternative=alternative, columns=columns, full=full)
    return _figure(title, reading, plot, wide=wide)


def _in_words(rows: Sequence[Row], panels: Sequence[PlotPanel], form: Format) -> str:
    parts = [
        f"{panel.title}: " + ", ".join(f"{row.label} {form(v)}" for row, v in zip(rows, panel.values, strict=True))
        for panel in panels
    ]
    return "; ".join(parts) + "."


def _classes(methods: Sequence[MethodFigures], rows: Sequence[Row]) -> Markup | None:
    pairs = [(row, method.per_class) for row, method in zip(rows, methods, strict=True) if method.per_class]
    count = max((len(values) for _, values in pairs), default=0)
    if not 1 < count <= _MOST_CLASSES:
        return None
    weakest = "; ".join(f"{row.label}: {_weakest(values)}" for row, values in pairs)
    alternative = f"Dot plot of test accuracy for each class. Weakest class of {weakest}."
    plot = dots([row for row, _ in pairs], [str(n) for n in range(count)], [values for _, values in pairs], alternative)
    reading = f"Last round. The axis does not begin at zero. Weakest class of {weakest}."
    return _figure("Accuracy for each class", reading, plot, wide=True)


def _weakest(values: Sequence[float | None]) -> str:
    known = [(value, place) for place, value in enumerate(values) if value is not None]
    value, place = min(known, default=(None, 0))
    return f"class {place} with {format_percent(value)}"


def fault_section(methods: Sequence[MethodFigures]) -> Markup | None:
    """Return what was lost in which round, or nothing if every shard arrived whole."""
    parts = [_fault_figure(method) for method in methods if method.faults.any]
    return element("section", element("h2", "Faults"), element("div", *parts, class_="plots")) if parts else None


def _fault_figure(method: MethodFigures) -> Markup:
    faults = method.faults
    counts = (
        f"{format_counted(len(faults.lost), 'shard')} lost, {format_count(len(faults.incomplete))} committed without "
        f"some members, in {format_counted(faults.verdicts, 'round')}."
    )
    late = ", ".join(f"peer {peer} ({times}×)" for peer, times in list(faults.late.items())[:_MOST_LISTED])
    words = [counts, " A lost shard keeps its coordinates where they were. Crosses: lost; rings: some members missing."]
    caption = [element("h3", method.label), element("p", *words, f" Late: {late}." if late else "")]
    marked = bool(faults.lost or faults.incomplete)
    plot = [timeline(faults, faults.rounds, f"Timeline of faults. {counts}")] if marked else []
    shown = (element("figcaption", *caption), element("div", *plot, class_="plot"), _lost_table(method))
    return element("figure", *shown, class_="wide")


def _lost_table(method: MethodFigures) -> Markup:
    reasons = list(method.faults.reasons.items())
    if not reasons:
        return Markup("")
    body = [
        element("tr", element("td", reason), element("td", format_count(times)))
        for reason, times in reasons[:_MOST_LISTED]
    ]
    head = element("tr", element("th", "Why", scope="col"), element("th", "Shards", scope="col"))
    caption = element("caption", f"Why shards of {method.label} were lost")
    return element("table", caption, element("thead", head), element("tbody", *body))


def _whole_percent(share: float | None) -> str:
    return format_percent(share, decimals=0)


def _plain(value: float | None) -> str:
    return MISSING if value is None else f"{value:.3g}"
