"""The plot of the sweep `gaussianity`: the distributions, how often they are not Gaussian, and C_max."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eris.audit.plots import COLOURS, MUTED, blank_figure, plain_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_gaussianity"]

Points = Sequence[Mapping[str, Any]]


def plot_gaussianity(points: Points, path: Path) -> None:
    """Draw the results of a gaussianity sweep, one point for each tested round."""
    figure = blank_figure(12.0, 3.9)
    weights, redraws, told = figure.subplots(1, 3)
    _draw_densities(weights, points, "weights", "weights of a member, over coordinates")
    _draw_densities(redraws, points, "redraws", "one coordinate, over redrawn batches")
    _draw_told(told, points)
    figure.suptitle("Is it Gaussian, and what can one coordinate tell?", x=0.02, ha="left", fontsize=11)
    figure.savefig(path, dpi=150)


def _draw_densities(axes: Axes, points: Points, key: str, title: str) -> None:
    for slot, point in enumerate(points):
        if point[key] is not None:
            middles = [
                (low + high) / 2 for low, high in zip(point[key]["edges"], point[key]["edges"][1:], strict=False)
            ]
            density = [share or math.nan for share in point[key]["density"]]
            axes.plot(middles, density, color=COLOURS[slot % 6], linewidth=1.2,
                      label=f"round {point['label']}")  # fmt: skip
    places = [place / 10 for place in range(-50, 51)]
    normal = [math.exp(-place * place / 2) / math.sqrt(2 * math.pi) for place in places]
    axes.plot(places, normal, color=MUTED, linewidth=3, alpha=0.5, label="Gaussian", zorder=0)
    axes.set_yscale("log")
    axes.set_ylim(1e-5, 3)
    axes.set_ylabel("density")
    axes.set_xlabel(f"{title}\n(in standard deviations)")
    axes.legend(frameon=False, fontsize=7)
    plain_axes(axes)


def _draw_told(axes: Axes, points: Points) -> None:
    places = range(len(points))
    shares = [100 * point["not_normal"] if point["not_normal"] is not None else math.nan for point in points]
    axes.plot(places, shares, "o-", color=COLOURS[0], label="not Gaussian at 5 %")
    axes.plot(places, [100 * point["chance"] for point in points], "-", color=MUTED, label="chance: Gaussian numbers")
    axes.set_xticks(places, [str(point["label"]) for point in points])
    axes.set_xlabel("round")
    axes.set_ylabel("coordinates (%)", color=COLOURS[0])
    beside = axes.twinx()
    beside.plot(places, [_mean_capacity(point) for point in points], "s--", color=COLOURS[1],
                label="C, mean of those that move")  # fmt: skip
    beside.set_ylabel("nats", color=COLOURS[1])
    plain_axes(axes)
    plain_axes(beside)
    beside.grid(visible=False)
    for each in (axes, beside):
        each.set_ylim(0, 1.45 * each.get_ylim()[1])  # room for the legend above the lines
    lines = [*axes.get_lines(), *beside.get_lines()]
    axes.legend(lines, [str(line.get_label()) for line in lines], frameon=False, fontsize=7, loc="upper left")


def _mean_capacity(point: Mapping[str, Any]) -> float:
    return math.nan if point["capacity_of_moving"] is None else float(point["capacity_of_moving"]["mean"])
