"""A sheet of pictures: the originals on top, below them what each attack made of each defence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from eris.audit.inversion.tally import Entry
from eris.errors import MissingExtra

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_grid"]

Pictures = NDArray[np.float32]


def draw_grid(entries: Sequence[Entry], path: Path, *, columns: int = 8) -> None:
    """Draw up to `columns` pictures of every defence, observer, attack and mode.

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


def _rows(entries: Sequence[Entry], columns: int) -> list[tuple[str, Pictures]]:
    groups: dict[tuple[str, ...], list[Entry]] = {}
    for entry in entries:
        task = entry.task
        groups.setdefault((task.defence, task.observer, task.attack, task.mode), []).append(entry)
    several = {place: len({key[place] for key in groups}) > 1 for place in (1, 2)}
    rows: list[tuple[str, Pictures]] = []
    shown: Pictures | None = None
    for key, group in groups.items():
        originals = np.concatenate([entry.finding.originals for entry in group])[:columns]
        if shown is None or not np.array_equal(shown, originals):
            rows.append(("original", originals))
            shown = originals
        extra = [key[place] for place in (1, 2) if several[place]]
        share = np.mean([entry.task.share for entry in group])
        label = "\n".join([key[0], ", ".join([f"{share:.1%} seen", key[3], *extra])])
        rows.append((label, np.concatenate([entry.finding.images for entry in group])[:columns]))
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
