"""The membership attack's results as a table of eighty columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["membership_footnotes", "membership_table"]


def membership_table(entries: Sequence[dict[str, Any]], key: str, title: str) -> Any:
    """Return what fits into eighty columns; the file has the rest."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    several = len({result["observer"] for entry in entries for result in entry["results"]}) > 1
    table.add_column(title, vertical="bottom", overflow="fold")
    if several:
        table.add_column("observer", vertical="bottom", no_wrap=True)
    for column in ("sees", "attack", "AUC", "95 %", "chance", "p", "ε ≥"):
        table.add_column(column, vertical="bottom", justify="left" if column == "attack" else "right", no_wrap=True)
    for entry in entries:
        for result in entry["results"]:
            table.add_row(str(entry[key]), *([result["observer"]] if several else []), *_cells(result))
    return table


def _cells(result: dict[str, Any]) -> list[str]:
    auc = result["figures"]["auc"]
    return [
        f"{result['visible_share']:.1%}",
        result["attack"],
        f"{auc['value']:.2f}",
        f"{auc['low']:.2f}–{auc['high']:.2f}",
        f"{auc['chance']:.2f}",
        f"{auc['p_value']:.3f}",
        f"{result['epsilon']['lower_bound']:.2f}",
    ]


def membership_footnotes(entries: Sequence[dict[str, Any]], path: Path, picture: str) -> str:
    """Say who looked, what the columns mean and where the rest is."""
    observers = {result["observer"] for entry in entries for result in entry["results"]}
    who = f"Observer: {observers.pop()}. " if len(observers) == 1 else ""
    return (
        f"{who}Sees: the share of an update that is seen in a round, mean over rounds, members and views.\n"
        "AUC: area under the ROC curve. Chance: the same on coins tossed again. ε: what the guesses at the\n"
        "last round from one view refute at 95 %, for one sample more or less (δ in the file); no guarantee.\n"
        f"results: {path}\npicture: {picture}"
    )
