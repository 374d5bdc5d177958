"""The result of an experiment: our value with its interval beside the printed one, row by row.

Over several folds the interval is Student's t for 95 %; for a single fold it is that of the attack within its run, if
there is one. Where the table shows means over an axis, they are computed fold by fold.
"""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from eris.paper.experiment import Experiment, Metric, Panel, Size, Treatment
from eris.paper.printed_tables import Printed, printed_cell
from eris.paper.reading import PAPER, Reading
from eris.paper.run import CellStore
from eris.simulate.spread import reach_of

__all__ = ["ExperimentResult", "Measured", "ResultRow", "gather", "measured_over", "table_csv"]


@dataclass(frozen=True, slots=True)
class Measured:
    """One figure of one row: our value with its interval and chance level, and the printed one."""

    value: float | None
    low: float | None = None
    high: float | None = None
    folds: int = 0
    chance: float | None = None
    chance_high: float | None = None  # chance stays below this in 95 of 100 cases
    values: tuple[float, ...] = ()
    note: str = ""  # which attack, for instance
    printed: float | None = None
    printed_deviation: float | None = None

    @property
    def deviation(self) -> float | None:
        """Our value minus the printed one, in the printed unit."""
        return None if self.value is None or self.printed is None else self.value - self.printed


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One row at one point: a figure for each metric, or the reason why there is none."""

    panel: str
    arm: str
    point: float | str
    figures: Mapping[str, Measured]
    failed: str = ""
    missing: int = 0  # folds that were not done


@dataclass(frozen=True)
class ExperimentResult:
    """All rows of an experiment at one size."""

    experiment: Experiment
    size: Size
    reading: Reading
    rows: list[ResultRow]
    extras: list[dict[str, Any]] = field(default_factory=list, repr=False)  # whole cells, for plots that need more
    seconds: float = 0.0
    when: str = ""

    @property
    def done(self) -> int:
        """The number of complete rows."""
        return sum(not row.missing and not row.failed for row in self.rows)

    def row(self, panel: str, arm: str, point: float | str = "") -> ResultRow | None:
        """Return the row of this panel, arm and point, or None."""
        found = (row for row in self.rows if (row.panel, row.arm, row.point) == (panel, arm, point))
        return next(found, None)

    def plain(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "experiment": self.experiment.name,
            "title": self.experiment.title,
            "size": self.size,
            "reading": self.reading.name,
            "when": self.when,
            "processor_seconds": round(self.seconds, 1),
            "stand_ins": sorted({panel.stand_in for panel in self.experiment.sizes[self.size] if panel.stand_in}),
            "rows": [
                {**asdict(row), "figures": {key: asdict(figure) for key, figure in row.figures.items()}}
                for row in self.rows
            ],
        }


def gather(experiment: Experiment, size: Size, store: CellStore, reading: Reading = PAPER) -> ExperimentResult:
    """Read the results of an experiment's cells from a store, and return them beside the printed values.

    `reading` is the reading of the paper's text with which the cells were run.
    """
    found: dict[tuple[str, str, float | str], list[dict[str, Any] | None]] = {}
    for cell in experiment.cells(size, reading):
        found.setdefault((cell.panel, cell.arm, cell.point), []).append(store.find(cell))
    cells = {id(cell): cell for folds in found.values() for cell in folds if cell is not None}.values()
    rows = [row for panel in experiment.sizes[size] for row in _rows(experiment, panel, found)]
    whole = [cell for cell in cells if "figures" in cell]
    return ExperimentResult(
        experiment,
        size,
        reading,
        rows,
        whole,
        sum(float(cell.get("processor_seconds", 0.0)) for cell in whole),
        max((str(cell["when"]) for cell in whole if "when" in cell), default=""),
    )


def _rows(
    experiment: Experiment, panel: Panel, found: Mapping[tuple[str, str, float | str], Sequence[dict[str, Any] | None]]
) -> Iterable[ResultRow]:
    if not experiment.averaged:
        for point in panel.points:
            for arm in panel.arms:
                cells = [found[panel.label, arm.label, point.value]]
                yield _row(experiment, panel, arm, point.value, cells, point.prefix)
        return
    for arm in panel.arms:
        yield _row(experiment, panel, arm, "", [found[panel.label, arm.label, point.value] for point in panel.points])


def _row(
    experiment: Experiment,
    panel: Panel,
    arm: Treatment,
    point: float | str,
    points: Sequence[Sequence[dict[str, Any] | None]],
    prefix: str = "",
) -> ResultRow:
    """Return one row of the result.

    Args:
        experiment: the experiment.
        panel: the panel of the row.
        arm: the arm of the row.
        point: the point of the row; empty for a mean over points.
        points: for each point the results of its folds; None where a cell is missing.
        prefix: of the figures' names in a cell.
    """
    folds = [[by_point[fold] for by_point in points] for fold in range(panel.folds)]
    whole = [[cell for cell in cells if cell] for cells in folds if all(cell and "figures" in cell for cell in cells)]
    failed = next((cell["failed"] for cells in folds for cell in cells if cell and "failed" in cell), "")
    figures = {}
    for metric in experiment.metrics:
        printed = printed_cell(panel, arm, point, metric)
        name = f"{prefix}{arm.prefix}{metric.key}"
        found = [[cell["figures"].get(name, _same(cell, metric)) for cell in cells] for cells in whole]
        measured = measured_over(found, metric)
        if measured is not None or printed is not None:
            figures[metric.key] = _beside(measured or Measured(None), printed)
    return ResultRow(panel.label, arm.label, point, figures, failed, panel.folds - len(whole) - bool(failed))


def _same(cell: Mapping[str, Any], metric: Metric) -> Any:
    """Return a figure of the training itself, which is the same for every observer; None for other figures."""
    return cell["figures"].get(metric.key) if metric.key in ("accuracy", "best_round") else None


def _beside(measured: Measured, printed: Printed | None) -> Measured:
    if printed is None:
        return measured
    plain = asdict(measured) | {"printed": printed.mean, "printed_deviation": printed.deviation}
    return Measured(**plain)


def measured_over(folds: Sequence[Sequence[Mapping[str, Any] | None]], metric: Metric) -> Measured | None:
    """Return a figure over folds, each the mean over one or more cells; None if there is no number.

    >>> of = lambda value: [{"value": value, "chance": 0.5}]
    >>> found = measured_over([of(0.8), of(0.9)], Metric("mia", "", unit="%"))
    >>> round(found.value, 1), round(found.low, 1), round(found.high, 1), found.chance
    (85.0, 21.5, 100.0, 50.0)
    """
    known = [[cell for cell in cells if cell and cell.get("value") is not None] for cells in folds]
    known = [cells for cells in known if cells]
    if not known:
        return None
    scale = metric.scale
    values = tuple(scale * statistics.fmean(cell["value"] for cell in cells) for cells in known)
    mean = statistics.fmean(values)
    low, high = _within(known, scale) if len(values) == 1 else _over(values, metric.most)
    chances = [cell["chance"] for cells in known for cell in cells if cell.get("chance") is not None]
    limits = [cell["chance_95"] for cells in known for cell in cells if cell.get("chance_95") is not None]
    return Measured(
        mean, low, high, len(values),
        scale * statistics.fmean(chances) if chances else None,
        scale * statistics.fmean(limits) if limits else None,
        values, str(known[0][0].get("attack", "")),
    )  # fmt: skip


def _over(values: Sequence[float], most: float) -> tuple[float, float]:
    """Return Student's t interval, cut off at the limits of possible values."""
    mean, reach = statistics.fmean(values), reach_of(values) or 0.0
    return mean - reach if math.isinf(most) else max(0.0, mean - reach), min(most, mean + reach)


def _within(known: Sequence[Sequence[Mapping[str, Any]]], scale: float) -> tuple[float | None, float | None]:
    """Return the interval within a run, which only a single cell has."""
    [cells] = known
    if len(cells) > 1 or cells[0].get("low") is None:
        return None, None
    return scale * float(cells[0]["low"]), scale * float(cells[0]["high"])


def table_csv(result: ExperimentResult) -> str:
    """Return every figure of every row as CSV."""
    lines = io.StringIO()
    names = [name for name in Measured.__dataclass_fields__ if name not in ("values", "note")]
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(["panel", "arm", "point", "metric", *names, "ours_less_printed", "failed"])
    for row in result.rows:
        for metric in result.experiment.metrics:
            figure = row.figures.get(metric.key, Measured(None))
            values = [_short(getattr(figure, name)) for name in (*names, "deviation")]
            writer.writerow([row.panel, row.arm, row.point, metric.key, *values, row.failed])
    return lines.getvalue()


def _short(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value
