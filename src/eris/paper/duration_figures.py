"""The paper's figures on distribution time: against clients, model size and transmission rate.

Eris is drawn in one hue, darker with more aggregators; the baselines are in colours that colour-blind readers can tell
apart, each with its own dash. Each line has its name at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eris.config import Config
from eris.errors import ConfigError, MissingExtra
from eris.paper.table_rules import formula_time
from eris.planner.duration import distribution_time
from eris.planner.fleet import Fleet
from eris.planner.scenario import Masks, Scenario, scenario

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["AGGREGATORS", "DurationCurve", "FigureRequest", "curves", "draw"]

AGGREGATORS = (2, 5, 10, 25, 50)
_CLIENTS = (10, 15, 20, 25, 30, 40, 50, 70, 100, 150, 200, 250, 300)
_SIZES = tuple(float(size) for size in np.geomspace(1e6, 1e9, 25))
_RATES = tuple(float(rate) for rate in np.geomspace(1e6, 125e6, 25))  # 8 Mbit/s to 1 Gbit/s

# Okabe and Ito's palette without its blues, which are eris'
_BASELINES = {
    "fedavg": ("FedAvg", "#000000", (0, ())),
    "priprune": ("PriPrune", "#D55E00", (0, (5, 1.5))),
    "soteriafl": ("SoteriaFL", "#CC79A7", (0, (4, 1.5, 1, 1.5))),
    "ako": ("Ako", "#B8860B", (0, (1, 1))),
    "shatter": ("Shatter", "#009E73", (0, (3, 1.2))),
}


@dataclass(frozen=True, slots=True)
class FigureRequest:
    """What to draw: the fixed quantities, and whether by the honest forms or by the formulas of the paper's text."""

    n: int = 10_000_000
    members: int = 50
    rate: float = 12.5e6
    keep: float = 0.05
    masks: Masks = "shared"
    as_printed: bool = False
    config: Config = field(default_factory=Config)


@dataclass(frozen=True, slots=True)
class DurationCurve:
    """One line of a figure."""

    label: str
    method: str
    aggregators: int | None  # None: as many as members, or not an eris curve
    x: tuple[float, ...]
    seconds: tuple[float, ...]


def curves(kind: str, question: FigureRequest) -> list[DurationCurve]:
    """Compute the lines of the figure ``clients``, ``size`` or ``rate``."""
    if kind not in _AXES:
        raise ConfigError(f"no figure is named {kind!r}", fix=f"use one of {', '.join(_AXES)}")
    points = _AXES[kind].points
    wanted: list[tuple[str, str, int | None]] = [(label, method, None) for method, (label, *_) in _BASELINES.items()]
    wanted += [(f"ERIS+DSC, A = {count}", "eris+dsc", count) for count in AGGREGATORS]
    wanted += [("ERIS+DSC, A = K", "eris+dsc", None), ("ERIS, A = K", "eris", None)]
    found = []
    for label, method, count in wanted:
        rounds = [(x, _round(kind, x, count, question)) for x in points]
        able = [(x, round) for x, round in rounds if round is not None]
        if able and not (count is not None and kind != "clients" and count == question.members):
            time = formula_time if question.as_printed else distribution_time
            x, seconds = zip(*((x, time(method, round)) for x, round in able), strict=True)
            found.append(DurationCurve(label, method, count, x, seconds))
    return found


def _round(kind: str, x: float, aggregators: int | None, question: FigureRequest) -> Scenario | None:
    """Return the round at one point of the axis; None where there are more aggregators than members."""
    members = int(x) if kind == "clients" else question.members
    if aggregators is not None and aggregators > members:
        return None
    rate = x if kind == "rate" else question.rate
    return scenario(
        n=int(x) if kind == "size" else question.n,
        fleet=Fleet.uniform(members, rate),
        aggregators=aggregators or members,
        keep=question.keep,
        masks=question.masks,
        config=question.config,
    )


@dataclass(frozen=True, slots=True)
class _Axis:
    title: Callable[[FigureRequest], str]
    label: str
    points: Sequence[float]
    scale: float = 1.0  # of the axis: 10⁶ for millions, 1/8 MB for Mbit


_AXES = {
    "clients": _Axis(lambda q: f"{q.n / 1e6:g} M values, {q.rate * 8 / 1e6:g} Mbit/s", "clients K", _CLIENTS),
    "size": _Axis(
        lambda q: f"{q.members} clients, {q.rate * 8 / 1e6:g} Mbit/s", "model size, millions of values", _SIZES, 1e6
    ),
    "rate": _Axis(
        lambda q: f"{q.n / 1e6:g} M values, {q.members} clients", "rate of every link, Mbit/s", _RATES, 125e3
    ),
}


def draw(path: str | Path, question: FigureRequest, *, kinds: Sequence[str] = ("clients", "size", "rate")) -> None:
    """Draw the figures side by side into a file: PNG, SVG or PDF, by its suffix.

    `question` fixes what the axes do not vary; `kinds` are the axes: clients, size or rate.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra("matplotlib", "report", "a plot") from error
    figure = Figure(figsize=(6.4 * len(kinds), 5.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = np.atleast_1d(figure.subplots(1, len(kinds), gridspec_kw={"wspace": 0.09}))
    for axis, kind in zip(axes, kinds, strict=True):
        _panel(axis, kind, question)
    source = "formulas of the paper's text" if question.as_printed else "lower bound, both roles counted"
    masks = "independent masks, dense download" if question.as_printed else f"{question.masks} masks"
    kept = f"DSC keeps {100 * question.keep:.3g} % of the values, {masks}"
    figure.suptitle(f"Minimum distribution time of one round\n{source}; {kept}", fontsize=10)
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise ConfigError(f"the plot cannot be written to {path}: {error}", fix="use a name like plan.png") from error


def _panel(axis: Axes, kind: str, question: FigureRequest) -> None:
    found = curves(kind, question)
    for curve in found:
        colour, dashes, width = _look(curve)
        x = np.array(curve.x) / _AXES[kind].scale
        axis.plot(x, curve.seconds, color=colour, linestyle=dashes, linewidth=width)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_title(_AXES[kind].title(question), fontsize=10, loc="left")
    axis.set_xlabel(_AXES[kind].label)
    axis.set_ylabel("seconds a round")
    axis.grid(visible=True, which="major", color="#DDDDDD", linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)
    _plain_ticks(axis, kind)
    _name_lines(axis, kind, found)


def _look(curve: DurationCurve) -> tuple[str, Any, float]:
    if curve.method in _BASELINES:
        _, colour, dashes = _BASELINES[curve.method]
        return colour, dashes, 1.5
    if curve.method == "eris":
        return "#08306B", (0, (6, 2)), 1.6
    depth = ("#7FB8DA", "#5BA3CF", "#3787C0", "#1B69AF", "#084D97", "#08306B")
    place = AGGREGATORS.index(curve.aggregators) if curve.aggregators in AGGREGATORS else len(AGGREGATORS)
    return depth[place], (0, ()), 1.8


def _plain_ticks(axis: Axes, kind: str) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

    ticks = {"clients": (10, 25, 50, 100, 200, 300), "size": (1, 10, 100, 1000), "rate": (10, 30, 100, 300, 1000)}
    axis.xaxis.set_major_locator(FixedLocator(ticks[kind]))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _name_lines(axis: Axes, kind: str, found: list[DurationCurve]) -> None:
    """Write each line's name beside its end, moved up or down just enough that names do not overlap."""
    low, high = (float(np.log10(bound)) for bound in axis.get_ylim())
    step = (high - low) * 0.042
    ends = sorted((float(np.log10(curve.seconds[-1])), number) for number, curve in enumerate(found))
    places = _spread([end for end, _ in ends], step)
    left, right = axis.get_xlim()
    for (end, number), place in zip(ends, places, strict=True):
        curve = found[number]
        colour, _, _ = _look(curve)
        x = curve.x[-1] / _AXES[kind].scale
        axis.annotate(
            curve.label,
            xy=(x, 10**end),
            xytext=(right * (right / left) ** 0.03, 10**place),
            color=colour,
            fontsize=8.5,
            va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.5, "shrinkA": 1, "shrinkB": 1},
        )


def _spread(wanted: Sequence[float], step: float) -> list[float]:
    """Return ascending places at least `step` apart, keeping blocks of neighbours centred on the wanted ones.

    >>> _spread([0.0, 0.1, 5.0], 1.0)
    [-0.45, 0.55, 5.0]
    """
    blocks: list[tuple[float, int]] = []  # centre and number of names; blocks that touch are merged
    for place in wanted:
        centre, count = place, 1
        while blocks and blocks[-1][0] + (blocks[-1][1] + count) * step / 2 > centre:
            other, size = blocks.pop()
            centre, count = (other * size + centre * count) / (size + count), size + count
        blocks.append((centre, count))
    return [centre + (number - (count - 1) / 2) * step for centre, count in blocks for number in range(count)]
