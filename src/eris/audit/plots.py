"""Plots of an audit: each attack beside its chance level."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eris.errors import MissingExtra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["COLOURS", "MUTED", "blank_figure", "plain_axes", "plot_membership", "plot_poisoning", "plot_sweep"]

COLOURS = ("#0067a3", "#b34700", "#00735a", "#9c3b76", "#7a5c00", "#5a6572")
_MARKERS = ("o", "s", "^", "D", "v", "P")
MUTED = "#8a94a0"
_CHANCE: dict[str, Any] = {"color": MUTED, "linewidth": 1.2, "linestyle": (0, (4, 3)), "zorder": 1}

_PARTS = ("value", "low", "high")

Entries = Sequence[dict[str, Any]]


def plot_membership(trials: Entries, path: Path) -> None:
    """Draw the area under the curve of every attack with its interval, over the band of the chance level."""
    rows = [(trial["method"], result) for trial in trials for result in trial["results"]]
    labels = [f"{method} · {result['observer']}" for method, result in rows]
    names = list(dict.fromkeys(labels))
    attacks = list(dict.fromkeys(result["attack"] for _, result in rows))
    figure = blank_figure(8.0, 1.7 + 0.55 * len(names))
    axes = figure.subplots()
    for label, (_, result) in zip(labels, rows, strict=True):
        slot = attacks.index(result["attack"])
        _mark(axes, names.index(label) + _offset(slot, len(attacks)), result, slot, across=True)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.axvline(0.5, **_CHANCE)
    axes.set_xlabel("area under the ROC curve (0.5: the attacker knows nothing)")
    _finish(figure, axes, attacks, f"Membership inference: {rows[0][1]['canaries']} canaries")
    figure.savefig(path, dpi=150)


def plot_sweep(points: Entries, axis: str, path: Path) -> None:
    """Draw every attack along a sweep, and the accuracy of the models below it; `axis` says in words what changes."""
    labels = [point["label"] for point in points]
    attacks = list(dict.fromkeys(result["attack"] for point in points for result in point["results"]))
    figure = blank_figure(7.2, 5.4)
    above, below = figure.subplots(2, sharex=True, height_ratios=(3, 1))
    for slot, attack in enumerate(attacks):
        found = [next(r for r in point["results"] if r["attack"] == attack) for point in points]
        places = [place + _offset(slot, len(attacks)) for place in range(len(points))]
        values = [result["figures"]["auc"]["value"] for result in found]
        above.plot(places, values, color=COLOURS[slot % 6], linewidth=1.2, alpha=0.6)
        for place, result in zip(places, found, strict=True):
            _mark(above, place, result, slot, across=False)
    above.axhline(0.5, **_CHANCE)
    below.plot(range(len(points)), [_percent(point["accuracy"]) for point in points], "o-", color=MUTED)
    below.set_xticks(range(len(points)), labels)
    below.set_xlabel(axis)
    below.set_ylabel("accuracy (%)")
    below.margins(y=0.3)
    above.set_ylabel("area under the ROC curve")
    plain_axes(below)
    _finish(figure, above, attacks, f"Membership inference by {axis}")
    figure.savefig(path, dpi=150)


def plot_poisoning(results: Entries, path: Path) -> None:
    """Draw accuracy and backdoor rate of every attack, side by side, with a mark and its interval for each rule."""
    attacks = list(dict.fromkeys(result["attack"] for result in results))
    rules = list(dict.fromkeys(result["rule"] for result in results))
    figure = blank_figure(8.0, 1.9 + 0.6 * len(attacks))
    left, right = figure.subplots(1, 2, sharey=True)
    for axes, name, label in ((left, "accuracy", "accuracy (%)"), (right, "backdoor_rate", "backdoor rate (%)")):
        for result in results:
            if (found := result[name]) is not None:
                slot = rules.index(result["rule"])
                place = attacks.index(result["attack"]) + _offset(slot, len(rules))
                _percent_mark(axes, place, found, slot)
        axes.set_xlim(-3, 103)
        axes.set_xlabel(label)
        plain_axes(axes)
    left.set_yticks(range(len(attacks)), attacks)
    left.set_ylim(len(attacks) - 0.4, -0.6)
    for slot, rule in enumerate(rules):
        left.plot([], [], _MARKERS[slot % 6], color=COLOURS[slot % 6], label=f"{rule}, 95 % interval")
    figure.suptitle("What attackers among the members do to the model", x=0.02, ha="left", fontsize=11)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)


def _percent_mark(axes: Axes, place: float, found: dict[str, Any], slot: int) -> None:
    value, low, high = (100 * (found["value"] if found[part] is None else found[part]) for part in _PARTS)
    spread = [[max(0.0, value - low)], [max(0.0, high - value)]]
    style: dict[str, Any] = {"fmt": _MARKERS[slot % 6], "color": COLOURS[slot % 6], "capsize": 2, "markersize": 5}
    axes.errorbar([value], [place], xerr=spread, **style)


def _mark(axes: Axes, place: float, result: dict[str, Any], slot: int, *, across: bool) -> None:
    """Draw one figure: its value and interval, over the band of its chance level.

    Args:
        place: on the axis that has the labels.
        slot: the attack's, which decides marker and colour.
        across: whether values run from left to right, else upwards.
    """
    found = result["figures"]["auc"]
    low, high = found["low"], found["high"]
    spread = [[max(0.0, found["value"] - low)], [max(0.0, high - found["value"])]] if low is not None else None
    half = 0.5 - (found["chance_95"] - 0.5)
    band = [half, found["chance_95"]]
    style: dict[str, Any] = {"fmt": _MARKERS[slot % 6], "color": COLOURS[slot % 6], "capsize": 3, "markersize": 6}
    if across:
        axes.plot(band, [place, place], color=MUTED, linewidth=7, alpha=0.35, solid_capstyle="butt")
        axes.errorbar([found["value"]], [place], xerr=spread, **style)
    else:
        axes.plot([place, place], band, color=MUTED, linewidth=7, alpha=0.35, solid_capstyle="butt")
        axes.errorbar([place], [found["value"]], yerr=spread, **style)


def _finish(figure: Figure, axes: Axes, attacks: Sequence[str], title: str) -> None:
    plain_axes(axes)
    for slot, attack in enumerate(attacks):
        axes.plot([], [], _MARKERS[slot % 6], color=COLOURS[slot % 6], label=f"{attack} attack, 95 % interval")
    axes.plot([], [], label="chance", **_CHANCE)
    axes.plot([], [], color=MUTED, linewidth=7, alpha=0.35, label="90 % of tosses")
    figure.suptitle(title, x=0.02, ha="left", fontsize=11)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False, fontsize=8)


def plain_axes(axes: Axes) -> None:
    """Strip the axes of everything but a light grid."""
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.grid(visible=True, color="#dfe4ea", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", length=0)


def _offset(slot: int, count: int) -> float:
    return 0.16 * (slot - (count - 1) / 2)


def _percent(share: float | None) -> float:
    return float("nan") if share is None else 100 * share


def blank_figure(width: float, height: float) -> Figure:
    """Return an empty figure; without matplotlib, raise an error that names the extra to install."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra("matplotlib", "report", "drawing the pictures of an audit") from error
    return Figure(figsize=(width, height), layout="constrained")
