"""The small table at the end of `eris run`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from eris.report.figures import label_of
from eris.report.results import number
from eris.report.units import format_bytes, format_percent, format_rate, format_seconds

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["summary_table"]

_TITLES = (
    "test\naccuracy",
    "upload\nper\nmember\nand round",
    "download\nper\nmember\nand round",
    "largest\nshare of\nan update\none saw",
)


def summary_table(summaries: Sequence[Mapping[str, Any]], *, rate: float | None = 20e6) -> Table:
    """Set the methods of a run side by side, from their `summary.json`; what a summary lacks is a dash.

    `rate` is that of the links behind the estimated time, in bytes a second; None where links differ.

    >>> summary_table([{"method": "eris", "final_accuracy": 0.964}]).row_count
    1
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    table.add_column("method", vertical="bottom", overflow="fold")  # the one that may take a second line
    links = f"at {format_rate(rate)}" if rate else "of a round"
    for title in (*_TITLES, f"time to\ndistribute\n{links}\n(estimate)"):
        table.add_column(title, justify="right", no_wrap=True, vertical="bottom")
    for summary in summaries:
        failed = " (failed)" if summary.get("failed") else ""
        table.add_row(
            Text(label_of(str(summary.get("method", "?"))) + failed),  # a name is a name, not rich's markup
            format_percent(number(summary, "final_accuracy")),
            format_bytes(number(summary, "bytes.up_per_member_round")),
            format_bytes(number(summary, "bytes.down_per_member_round")),
            format_percent(number(summary, "exposure.largest_share_per_round") if summary.get("rounds") else None),
            format_seconds(number(summary, "distribution_seconds")),
        )
    return table
