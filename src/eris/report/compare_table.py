"""The table of `eris compare`: a line for each method, means and deviations over folds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from eris.report.figures import label_of
from eris.report.units import MISSING, format_bytes, format_percent, format_seconds

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["audit_table", "compare_table", "with_deviation"]


def _whole(value: float | None) -> str:
    return MISSING if value is None else f"{value:.0f}"


_COLUMNS: tuple[tuple[str, str, Callable[[float | None], str]], ...] = (
    ("accuracy\nat best", "accuracy", lambda share: format_percent(share, 1)),
    ("best\nround", "best_round", _whole),
    ("up\na round", "upload", format_bytes),
    ("down\na round", "download", format_bytes),
    ("time\n(est.)", "distribution_seconds", format_seconds),
    ("largest\nshare", "exposure", format_percent),
)


def with_deviation(value: Mapping[str, Any], form: Callable[[float | None], str]) -> str:
    """Write a mean ± its 95 % interval, or else its deviation, unless that is zero; a shared unit is written once.

    >>> with_deviation({"mean": 0.912, "std": 0.004}, lambda share: format_percent(share, 1))
    '91.2 ± 0.4 %'
    >>> with_deviation({"mean": 0.912, "std": None}, lambda share: format_percent(share, 1))
    '91.2 %'
    """
    mean, deviation = value.get("mean"), value.get("reach", value.get("std"))
    if mean is None or not deviation:
        return form(mean)
    first, second = form(mean), form(deviation)
    unit = second.partition(" ")[2]
    return f"{first.removesuffix(f' {unit}') if unit else first} ± {second}"


_MOST_LETTERS = 26  # of a label: numbers keep their room, and nothing wraps; --arm gives short names


def _cut(label: str) -> str:
    return label if len(label) <= _MOST_LETTERS else label[: _MOST_LETTERS - 1] + "…"


_LEAKS = {"auc": "AUC", "accuracy": "guesses", "paper_mean": "guesses,\npaper"}


def compare_table(result: Mapping[str, Any]) -> Table:
    """Set the methods of a compare.json side by side."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    table.add_column("method", vertical="bottom", overflow="ellipsis", no_wrap=True, min_width=13)
    for title, _, _ in _COLUMNS:
        table.add_column(title, justify="right", vertical="bottom", no_wrap=True)
    for line in result["methods"]:
        cells = [with_deviation(line["table"][key], form) for _, key, form in _COLUMNS]
        table.add_row(Text(_cut(label_of(line["label"])) + (" (failed)" if "failed" in line else "")), *cells)
    return table


def audit_table(result: Mapping[str, Any]) -> Table:
    """Show how well the membership attack did, beside chance, and mark the front."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    audit = result["audit"]
    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    table.add_column("method", overflow="ellipsis", no_wrap=True, min_width=13)
    for title in ("accuracy", "seen", _LEAKS.get(audit["figure"], audit["figure"]), "95 %", "chance", "p", "front"):
        table.add_column(title, justify="right", no_wrap=True)
    for line in (line for line in result["methods"] if "failed" not in line):
        accuracy = with_deviation(line["table"]["accuracy"], lambda share: format_percent(share, 1))
        table.add_row(Text(_cut(label_of(line["label"]))), accuracy, *_attacked(audit, line["label"]))
    return table


def _attacked(audit: Mapping[str, Any], label: str) -> list[str]:
    found = audit["methods"][label][0]
    figure = found["figures"][audit["figure"]]
    value = with_deviation(figure, lambda share: MISSING if share is None else f"{share:.2f}")
    low, high = figure["low"], figure["high"]
    return [
        format_percent(found["visible_share"]),
        value,
        MISSING if low is None else f"{low:.2f}–{high:.2f}",
        f"{figure['chance']:.2f}",
        f"{figure['p_value']:.3f}",
        "★" if label in audit["front"] else "",
    ]
