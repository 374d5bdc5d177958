"""The picture of `eris compare`: accuracy against rounds, bytes and exposure; where it was audited, against leakage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eris.report.canvas import drawing, plain_axes
from eris.report.figures import label_of
from eris.report.theme import DASHES, LIGHT, MARKERS, series
from eris.report.units import format_round_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["write_compare_plots"]

_SIZE = (13.5, 4.9)  # inches
_NAMES_IN_A_ROW = 6
_LEAKS = {"auc": "AUC", "accuracy": "right guesses", "paper_mean": "right guesses"}

Lines = Sequence[Mapping[str, Any]]


def write_compare_plots(result: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw a compare.json as compare.svg and compare.png; nothing where no method has an accuracy."""
    lines = [line for line in result["methods"] if "accuracy" in line["curve"]]
    if not lines:
        return []
    with drawing("compare"):
        figure = _figure(lines, int(result["folds"]), result.get("audit"))
        paths = [folder / "compare.svg", folder / "compare.png"]
        for path in paths:
            figure.savefig(path, facecolor=LIGHT["surface"], dpi=110)
        return paths


def _figure(lines: Lines, folds: int, audit: Mapping[str, Any] | None) -> Figure:
    from matplotlib.figure import Figure

    rows = -(-len(lines) // _NAMES_IN_A_ROW)
    panels = 4 if audit else 3
    figure = Figure(figsize=(_SIZE[0] * panels / 3, _SIZE[1] + 0.24 * rows))
    left, middle, right, *last = figure.subplots(1, panels, sharey=True)
    _dress(left, "Accuracy, round by round", "rounds")
    _dress(middle, "Accuracy for its bytes", "bytes a member has sent")
    _dress(right, "Accuracy against exposure", "largest share of an update that one observer saw in a round")
    if audit:
        _draw_trade(last[0], lines, audit)
    for slot, line in enumerate(lines):
        _draw_curve(left, slot, line, [round + 1 for round in line["curve"]["round"]])
        _draw_curve(middle, slot, line, line["curve"]["uploaded"])
        _draw_point(right, slot, line)
    left.set_ylabel("test accuracy" + (f" (mean of {folds} folds, band: ± deviation)" if folds > 1 else ""))
    _scales(left, middle, right, lines)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="lower center", ncols=min(len(lines), _NAMES_IN_A_ROW), frameon=False,
        labelcolor=LIGHT["ink"], handlelength=3.2,
    )  # fmt: skip
    figure.subplots_adjust(
        left=0.055, right=0.99, top=0.91, bottom=(0.62 + 0.24 * rows) / figure.get_figheight(), wspace=0.08
    )
    return figure


def _dress(axes: Axes, title: str, below: str) -> None:
    plain_axes(axes)
    axes.set_title(title, loc="left", color=LIGHT["ink"], fontweight="bold", pad=10)
    axes.set_facecolor(LIGHT["surface"])
    axes.grid(visible=True, axis="y", color=LIGHT["grid"])
    axes.tick_params(which="both", length=0, labelcolor=LIGHT["muted"])
    axes.set_xlabel(below, color=LIGHT["ink"])
    axes.yaxis.label.set_color(LIGHT["ink"])


def _style(slot: int) -> dict[str, Any]:
    turn = slot + slot // len(DASHES)  # after eight the colours come again, with other dashes
    dashes = DASHES[turn % len(DASHES)]
    return {"linestyle": (0, dashes) if dashes else "solid"}


def _mark(slot: int) -> dict[str, Any]:
    """Return a method's colour and marker; after eight the markers are hollow."""
    inside = LIGHT[series(slot)] if slot < len(MARKERS) else LIGHT["surface"]
    return {"color": LIGHT[series(slot)], "marker": MARKERS[slot % len(MARKERS)], "markerfacecolor": inside}


def _draw_curve(axes: Axes, slot: int, line: Mapping[str, Any], x: Sequence[float]) -> None:
    curve = line["curve"]["accuracy"]
    measured = zip(x, curve["mean"], curve["std"], strict=True)
    points = [(place, mean, std or 0.0) for place, mean, std in measured if mean is not None]
    places, means, deviations = (list(column) for column in zip(*points, strict=True))
    width = 3.2 if slot == 0 else 1.9  # the first shows on both sides of a line that runs on top of it
    axes.plot(
        places, means, label=label_of(line["label"]), linewidth=width, markersize=5,
        markevery=max(1, len(places) // 6), **_style(slot), **_mark(slot),
    )  # fmt: skip
    if any(deviations):
        spread = list(zip(means, deviations, strict=True))
        low, high = [max(0.0, mean - d) for mean, d in spread], [min(1.0, mean + d) for mean, d in spread]
        axes.fill_between(places, low, high, color=LIGHT[series(slot)], alpha=0.13, linewidth=0)


def _draw_point(axes: Axes, slot: int, line: Mapping[str, Any]) -> None:
    share, accuracy = line["table"]["exposure"], line["table"]["accuracy"]
    if share["mean"] is None or accuracy["mean"] is None:
        return
    axes.errorbar(
        share["mean"], accuracy["mean"], yerr=accuracy["std"] or None, xerr=share["std"] or None, markersize=8,
        linestyle="none", elinewidth=1.2, **_mark(slot),
    )  # fmt: skip


def _draw_trade(axes: Axes, lines: Lines, audit: Mapping[str, Any]) -> None:
    """Draw accuracy against 1 − AUC of the membership attack, the front, and where chance is."""
    _dress(axes, "Accuracy against leakage", f"1 − {_LEAKS[audit['figure']]} of the membership attack (dashed: chance)")
    front = sorted((audit["points"][label]["one_minus_leak"], audit["points"][label]["accuracy"])
                   for label in audit["front"])  # fmt: skip
    axes.plot(*zip(*front, strict=True), drawstyle="steps-pre", color=LIGHT["muted"], linewidth=1.2, zorder=1)
    axes.axvline(0.5, color=LIGHT["muted"], linewidth=0.9, linestyle=(0, (4, 3)), zorder=0)
    for slot, line in enumerate(lines):
        figure, accuracy = audit["methods"][line["label"]][0]["figures"][audit["figure"]], line["table"]["accuracy"]
        chosen = line["label"] in audit["front"]
        axes.errorbar(
            1 - figure["mean"], accuracy["mean"], yerr=accuracy["std"] or None, xerr=_leak_spread(figure),
            markersize=11 if chosen else 7, linestyle="none", elinewidth=1.0, **_mark(slot),
        )  # fmt: skip


def _leak_spread(figure: Mapping[str, Any]) -> Any:
    """Return the deviation over folds, or the interval of the only one."""
    if figure["std"] is not None:
        return figure["std"]
    if figure["low"] is None:
        return None
    return [[max(0.0, figure["high"] - figure["mean"])], [max(0.0, figure["mean"] - figure["low"])]]


def _scales(left: Axes, middle: Axes, right: Axes, lines: Lines) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

    left.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    low, high = left.get_ylim()
    left.set_ylim(max(0.0, low), min(1.02, high))
    left.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.4g} %"))
    middle.set_xscale("log")
    middle.xaxis.set_major_formatter(FuncFormatter(lambda count, _: format_round_bytes(count)))
    middle.xaxis.set_minor_formatter(NullFormatter())
    shares = [line["table"]["exposure"]["mean"] for line in lines]
    if all(share for share in shares):
        right.set_xscale("log")
        right.set_xlim(min(shares) / 2, 2)
        right.xaxis.set_minor_formatter(NullFormatter())
    else:
        right.set_xlim(-0.04, 1.04)
    right.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.3g} %"))
