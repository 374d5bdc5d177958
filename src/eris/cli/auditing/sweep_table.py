"""Sweeps that are no membership attack, as tables of eighty columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["gaussianity_table", "inversion_table"]


def gaussianity_table(points: Sequence[Mapping[str, Any]]) -> Any:
    """Return a line for each round that was looked at."""
    columns = ("round", "no Gaussian\nat 5 %", "chance", "C_max\n(nats)", "of moving:\nlargest", "mean",
               "weights:\ndeviation", "excess\nkurtosis")  # fmt: skip
    table = _table(columns)
    for point in points:
        weights, moving = point["weights"], point["capacity_of_moving"]
        table.add_row(
            str(point["label"]),
            _percent(point["not_normal"]),
            _percent(point["chance"]),
            _nats(point["capacity"]["largest"]),
            _nats(moving and moving["largest"]),
            _nats(moving and moving["mean"]),
            f"{weights['deviation']:.3f}",
            f"{weights['excess_kurtosis']:.1f}",
        )
    return table


def inversion_table(points: Sequence[Mapping[str, Any]]) -> Any:
    """Return a line for each defence, attack and mode."""
    several = len({point["attack"] for point in points}) > 1  # a column only where there are
    named = ("defence", "attack") if several else ("defence",)
    table = _table((*named, "sees", "mode", "MSE", "recovered", "identified"), names=len(named))
    for point in points:
        table.add_row(
            *(point[name] for name in named),
            _percent(point["share"]),
            point["mode"],
            f"{point['mse']['median']:.1e}",
            f"{point['recovered']['rate']:.0%}",
            f"{point['identified']['rate']:.0%}",
        )
    return table


def _table(columns: Sequence[str], names: int = 0) -> Any:
    """Return a table of numbers; the first columns may be names, which are folded where there is no room."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for place, column in enumerate(columns):
        if place < names:
            table.add_column(column, vertical="bottom", overflow="fold")
        else:
            table.add_column(column, justify="right", vertical="bottom", no_wrap=True)
    return table


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"


def _nats(value: float | None) -> str:
    if value is None:
        return "–"
    return "∞" if math.isinf(value) else f"{value:.2f}"
