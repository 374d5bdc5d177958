"""The values that the paper prints, for comparison only: no result is computed from them.

Values behind figures were read from their plots. `tests/paper` says which of them contradict each other.

>>> printed_value("mnist", "FedAvg", "n=4|acc")
Printed(mean=80.69, deviation=1.71)
>>> printed_value("mnist", "FedAvg", "n=5|acc") is None
True
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from eris.paper.experiment import Metric, Panel, Treatment

__all__ = ["Printed", "printed_cell", "printed_tables", "printed_value"]


@dataclass(frozen=True, slots=True)
class Printed:
    """A printed mean and the value after its ±, if any."""

    mean: float
    deviation: float | None


@cache
def printed_tables() -> dict[str, Any]:
    """Return all printed tables as plain data."""
    found: dict[str, Any] = json.loads(resources.files("eris.paper").joinpath("printed.json").read_text("utf-8"))
    return found


def printed_value(table: str, row: str, column: str) -> Printed | None:
    """Return a printed cell, or None if there is none."""
    found = printed_tables()["tables"].get(table, {}).get(row, {}).get(column)
    return None if found is None else Printed(*found)


def printed_cell(panel: Panel, arm: Treatment, point: float | str, metric: Metric) -> Printed | None:
    """Return the printed value of a row at a point, or of the column for all points if the panel has none.

    Args:
        panel: names the printed table and its columns.
        arm: the row.
        point: on the axis; empty for a table over all points.
        metric: the figure.
    """
    if not panel.printed or not metric.printed:
        return None
    names = {"row": arm.row or arm.label, "x": f"{point:g}" if isinstance(point, float | int) else point}
    row, start = panel.rows.format(**names), panel.column.format(**names)
    return printed_value(panel.printed, row, f"{start}|{metric.printed}" if start else metric.printed)
