"""Pictures of the reconstruction sweeps: how far from its original what was recovered is, beside random values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eris.audit.plot import COLOURS, MUTED, blank_figure, plain_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_defences", "plot_shares"]

Points = Sequence[Mapping[str, Any]]

_LEAST = 1e-12  # of what is drawn: an exact recovery has no logarithm
_STYLES: dict[str, dict[str, Any]] = {
    "mask-aware": {"marker": "o", "linestyle": "-"},
    "zero-filled": {"marker": "s", "linestyle": ":"},
}


def plot_shares(points: Points, path: Path) -> None:
    """Draw each attack's difference to the originals against the share it sees, in both modes."""
    attacks = list(dict.fromkeys(point["attack"] for point in points))
    figure = blank_figure(4.2 * len(attacks), 4.3)
    for axes, attack in zip(figure.subplots(1, len(attacks), squeeze=False, sharey=True)[0], attacks, strict=True):
        _draw_attack(axes, [point for point in points if point["attack"] == attack])
        axes.set_title(attack, fontsize=10)
        if attack == attacks[0]:
            axes.set_ylabel("mean squared difference, median (dashed: recovered)", fontsize=8)
    figure.suptitle("Reconstruction against the share of the update that is seen", x=0.02, ha="left", fontsize=11)
    figure.savefig(path, dpi=150)


def plot_defences(points: Points, path: Path) -> None:
    """Draw every defence's difference to the originals, in both modes."""
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


def _draw_attack(axes: Axes, points: Points) -> None:
    for slot, (mode, style) in enumerate(_STYLES.items()):
        whole = [point for point in points if point["share"] == 1.0 and point["defence"] != "random values"]
        chosen = [point for point in points if point["mode"] == mode and point["defence"] != "random values"]
        line = sorted({(p["share"], _difference(p)) for p in [*chosen, *whole]})
        axes.plot(*zip(*line, strict=True), color=COLOURS[slot], label=mode, **style)
    for point in points:
        if point["defence"] == "random values":
            axes.axhline(_difference(point), color=MUTED, linewidth=3, alpha=0.5, label="random values")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    shares = sorted({point["share"] for point in points})
    axes.set_xticks(shares, [f"{100 * share:.3g} %" for share in shares], fontsize=7)
    axes.set_xlabel("share seen")
    _mark_recovery(axes, across=False)
    axes.legend(frameon=False, fontsize=7)
    plain_axes(axes)


def _mark_recovery(axes: Axes, *, across: bool) -> None:
    line = axes.axvline if across else axes.axhline
    line(1e-3, color=MUTED, linewidth=0.9, linestyle=(0, (4, 3)), zorder=0)


def _difference(point: Mapping[str, Any]) -> float:
    return max(float(point["mse"]["median"]), _LEAST)
