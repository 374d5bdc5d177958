"""Plots of reconstruction: recovered pictures beside their originals, and how far off they are in a sweep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from eris.audit.plots import COLOURS, MUTED, blank_figure, plain_axes
from eris.audit.reconstruction.scores import ScoredJob
from eris.errors import MissingExtra

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_grid", "plot_defences", "plot_shares"]

Points = Sequence[Mapping[str, Any]]
Pictures = NDArray[np.float32]

_LEAST = 1e-12  # the smallest difference drawn: an exact recovery has no logarithm
_STYLES: dict[str, dict[str, Any]] = {
    "mask-aware": {"marker": "o", "linestyle": "-"},
    "zero-filled": {"marker": "s", "linestyle": ":"},
}


def plot_shares(points: Points, path: Path) -> None:
    """Draw each attack against the share it sees, in both modes: how far off it is, and how often it identifies.

    Attacks with a trained network never come as near to the originals as the others; the lower row shows how often
    they still identify the picture.
    """
    attacks = list(dict.fromkeys(point["attack"] for point in points))
    figure = blank_figure(1.2 + 2.7 * len(attacks), 6.4)
    above, below = figure.subplots(2, len(attacks), squeeze=False, sharex=True, sharey="row")
    for column, attack in enumerate(attacks):
        own = [point for point in points if point["attack"] == attack]
        _draw_attack(above[column], own, _difference)
        _draw_attack(below[column], own, _identified)
        above[column].set_yscale("log")
        _mark_recovery(above[column], across=False)
        below[column].set_ylim(-0.04, 1.04)
        _label_shares(below[column], own)
        above[column].set_title(attack, fontsize=10)
    above[0].set_ylabel("mean squared difference, median\n(below the dashed line: recovered)", fontsize=8)
    below[0].set_ylabel(f"identified by pattern among {points[0]['identified']['candidates']}", fontsize=8)
    figure.suptitle("Reconstruction against the share of the update that is seen", x=0.02, ha="left", fontsize=11)
    handles = above[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)


def plot_defences(points: Points, path: Path) -> None:
    """Draw how far recovered pictures are from the originals under every defence, in both modes."""
    names = list(dict.fromkeys(point["defence"] for point in points))
    figure = blank_figure(8.0, 1.4 + 0.42 * len(names))
    axes = figure.subplots()
    for slot, (mode, style) in enumerate(_STYLES.items()):
        chosen = [point for point in points if point["mode"] == mode]
        places = [names.index(point["defence"]) + 0.16 * (slot - 0.5) for point in chosen]
        axes.plot([_difference(point) for point in chosen], places, linestyle="none", marker=style["marker"],
                  color=COLOURS[slot], label=mode)  # fmt: skip
    axes.set_xscale("log")
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    _mark_recovery(axes, across=True)
    axes.set_xlabel("mean squared difference, median (left of the dashed line: recovered)")
    axes.legend(frameon=False, fontsize=8)
    plain_axes(axes)
    figure.savefig(path, dpi=150)


def _draw_attack(axes: Axes, points: Points, score: Callable[[Mapping[str, Any]], float]) -> None:
    real = [point for point in points if point["defence"] != "random values"]
    for slot, (mode, style) in enumerate(_STYLES.items()):
        line = sorted({(p["share"], score(p)) for p in real if p["mode"] == mode or p["share"] == 1.0})
        axes.plot(*zip(*line, strict=True), color=COLOURS[slot], label=mode, **style)
    for point in points:
        if point["defence"] == "random values":
            axes.axhline(score(point), color=MUTED, linewidth=3, alpha=0.5, label="random values")
    axes.set_xscale("log", base=2)
    plain_axes(axes)


def _label_shares(axes: Axes, points: Points) -> None:
    shares = sorted({point["share"] for point in points})
    axes.set_xticks(shares, [f"{100 * share:.3g} %" for share in shares], fontsize=7)
    axes.set_xlabel("share seen", fontsize=8)


def _mark_recovery(axes: Axes, *, across: bool) -> None:
    line = axes.axvline if across else axes.axhline
    line(1e-3, color=MUTED, linewidth=0.9, linestyle=(0, (4, 3)), zorder=0)


def _difference(point: Mapping[str, Any]) -> float:
    return max(float(point["mse"]["median"]), _LEAST)


def _identified(point: Mapping[str, Any]) -> float:
    return float(point["identified_by_pattern"]["rate"])


def draw_grid(entries: Sequence[ScoredJob], path: Path, *, columns: int = 8) -> None:
    """Draw up to `columns` pictures of every defence, observer, attack and mode among the entries.

    Rows with the same originals share one row of them; where a defence has other members (a larger batch), its
    originals are shown again.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise MissingExtra("matplotlib", "report", "a sheet of pictures") from error
    rows = _rows(entries, columns)
    width = max(len(pictures) for _, pictures in rows)
    figure = Figure(figsize=(3.4 + 0.9 * width, 0.95 * len(rows) + 0.2), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(rows), width, squeeze=False)
    for axes, (label, pictures) in zip(grid, rows, strict=True):
        _fill(axes, label, pictures)
    figure.savefig(path, dpi=110)


def _rows(entries: Sequence[ScoredJob], columns: int) -> list[tuple[str, Pictures]]:
    groups: dict[tuple[str, ...], list[ScoredJob]] = {}
    for entry in entries:
        job = entry.job
        groups.setdefault((job.defence, job.observer, job.attack, job.mode), []).append(entry)
    several = {place: len({key[place] for key in groups}) > 1 for place in (1, 2)}
    rows: list[tuple[str, Pictures]] = []
    shown: Pictures | None = None
    for key, group in groups.items():
        originals = np.concatenate([entry.scores.originals for entry in group])[:columns]
        if shown is None or not np.array_equal(shown, originals):
            rows.append(("original", originals))
            shown = originals
        extra = [key[place] for place in (1, 2) if several[place]]
        share = np.mean([entry.job.share for entry in group])
        label = "\n".join([key[0], ", ".join([f"{share:.1%} seen", key[3], *extra])])
        rows.append((label, np.concatenate([entry.scores.images for entry in group])[:columns]))
    return rows


def _fill(axes: Any, label: str, pictures: Pictures) -> None:
    for cell in axes:
        cell.set_axis_off()
    for cell, picture in zip(axes, pictures, strict=False):
        _show(cell, picture)
    bold = "bold" if label == "original" else "normal"
    first: Axes = axes[0]
    first.text(-0.12, 0.5, label, transform=first.transAxes, ha="right", va="center", fontsize=8, weight=bold)


def _show(axes: Axes, picture: Pictures) -> None:
    values = picture[0] if len(picture) == 1 else picture.transpose(1, 2, 0)
    axes.imshow(values, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
