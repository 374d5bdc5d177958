"""The four panels of the paper's communication tables: their inputs only, as the rows are computed.

A panel is a model size, a number of clients (all of them aggregators), three pruning rates, two compressions and a
degree for Shatter; `rows` computes its eleven rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from eris.errors import ConfigError
from eris.paper.table_rules import BaselineSettings, PrintedRow, share_text, size_text, table_row, time_text

__all__ = ["MAIN_TEXT", "PANELS", "RATE", "PrintedLine", "PrintedPanel", "main_text", "panel", "rows"]

RATE = 20e6  # bytes per second, of every link
SOTERIA_KEEP = 0.05


@dataclass(frozen=True, slots=True)
class PrintedPanel:
    """The inputs of one panel: a data set with its model and the methods' settings."""

    name: str
    n: int
    members: int
    prune: tuple[float, float, float]
    keep: float
    degree: int = 4


@dataclass(frozen=True, slots=True)
class PrintedLine:
    """A row of a panel with its label."""

    label: str
    row: PrintedRow

    @property
    def cells(self) -> tuple[str, str, str, str, str]:
        """The five cells as printed: compression, upload, download, total, time."""
        row = self.row
        sizes = size_text(row.upload), size_text(row.download), size_text(row.total)
        return (share_text(row.compression), *sizes, time_text(row.time))


PANELS = {
    panel.name: panel
    for panel in (
        PrintedPanel("cnn-dailymail", 1_300_000_000, 10, (0.1, 0.2, 0.3), 0.01, degree=3),
        PrintedPanel("imdb", 67_000_000, 25, (0.1, 0.2, 0.3), 0.00012),
        PrintedPanel("cifar-10", 1_650_000, 50, (0.01, 0.05, 0.1), 0.006),
        PrintedPanel("mnist", 62_000, 50, (0.01, 0.05, 0.1), 0.033),
    )
}

MAIN_TEXT = ("cnn-dailymail", "cifar-10")


def panel(name: str) -> PrintedPanel:
    """Return the panel of that name."""
    if name not in PANELS:
        raise ConfigError(f"no panel is named {name!r}", fix=f"use one of {', '.join(PANELS)} or main-text")
    return PANELS[name]


def rows(panel: PrintedPanel, *, rate: float = RATE, aggregators: int | None = None) -> list[PrintedLine]:
    """Compute the eleven rows of a panel.

    `rate` is that of every link in bytes per second; `aggregators` is A, by default K.
    """

    def row(method: str, *, keep: float = 1.0, prune: float = 0.0) -> PrintedRow:
        settings = BaselineSettings(prune=prune, soteria_keep=SOTERIA_KEEP, shatter_degree=panel.degree)
        count = panel.members if aggregators is None else aggregators
        return table_row(
            method, n=panel.n, members=panel.members, aggregators=count, rate=rate, keep=keep, baselines=settings
        )

    settings = BaselineSettings()
    return [
        PrintedLine("FedAvg", row("fedavg")),
        PrintedLine(f"Shatter (r={panel.degree})", row("shatter")),
        PrintedLine(f"Ako (p={settings.ako_partitions})", row("ako")),
        PrintedLine(f"Q-DPSGD-1 (degree {settings.graph_share:g})", row("qdpsgd")),
        *(PrintedLine(f"PriPrune ({share:g})", row("priprune", prune=share)) for share in panel.prune),
        PrintedLine("SoteriaFL", row("soteriafl")),
        PrintedLine("ERIS", row("eris")),
        PrintedLine("ERIS+DSC as SoteriaFL", row("eris+dsc", keep=SOTERIA_KEEP)),
        PrintedLine("ERIS+DSC", row("eris+dsc", keep=panel.keep)),
    ]


def main_text(*, rate: float = RATE) -> dict[str, list[PrintedLine]]:
    """Return the main text's table: upload and time of eight methods, for a large and a small model.

    There the compression of ERIS takes into account that a client keeps its own shard, (A−1)/A; in the appendix it does
    not.
    """
    chosen = ("FedAvg", "Shatter", "PriPrune", "SoteriaFL", "ERIS")
    return {name: [_kept_at_home(line, PANELS[name]) for line in rows(PANELS[name], rate=rate)
                   if line.label.split(" (")[0] in (*chosen, "ERIS+DSC")] for name in MAIN_TEXT}  # fmt: skip


def _kept_at_home(line: PrintedLine, panel: PrintedPanel) -> PrintedLine:
    if line.label != "ERIS":
        return line
    return PrintedLine(line.label, replace(line.row, compression=line.row.upload / (4 * panel.n)))
