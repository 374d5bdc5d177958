"""A run in progress as a table in the terminal: what the live page shows, as far as there is room."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from eris.report.units import MISSING, format_bytes, format_percent, format_seconds
from eris.web.live_facts import LiveFacts

__all__ = ["live_table", "shown_live"]

_STYLES = {"training": "green", "finished": "green", "waiting": "yellow", "degraded": "red", "failed": "red"}
_LINES, _LOSSES = 4, 3  # of the log and of lost shards
_ABOVE = 14  # lines that everything but the peers takes

Facts = Mapping[str, Any]


@contextmanager
def shown_live(facts: LiveFacts, console: Console, refresh: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Draw the facts while the block runs, and once more, for good, at its end."""

    def drawn() -> RenderableType:
        refresh()
        return live_table(facts.whole(), console.height)

    live = Live(console=console, get_renderable=drawn, refresh_per_second=2, transient=True)
    with live:
        yield


def live_table(facts: Facts, height: int = 24) -> Group:
    """Return the whole view, about `height` lines tall."""
    run = facts["run"]
    parts: list[RenderableType] = [_head(run), *_bar(run), _figures(facts)]
    if facts["peers"]:
        parts.append(_peers(facts["peers"], max(3, height - _ABOVE)))
    parts += [_loss(row) for row in facts["losses"][-_LOSSES:]]
    parts += [_line(row) for row in facts["lines"][-_LINES:]]
    return Group(*parts)


def _head(run: Facts) -> Text:
    rounds, done = run.get("rounds") or 0, run.get("round") or 0
    state = str(run.get("state", ""))
    head = Text(f"{state:<9}", style=_STYLES.get(state, ""), no_wrap=True, overflow="ellipsis")
    head.append(f" round {done}/{rounds}  " if rounds else " ", style="default")
    head.append(str(run.get("title", "")), style="bold default")
    why = str(run.get("why") or "")
    if why and why != state:
        head.append(f"  {why}", style=_STYLES.get(state, "default"))
    return head


def _bar(run: Facts) -> list[RenderableType]:
    rounds, line = run.get("rounds") or 0, Table.grid()  # a bar alone would not end its line
    line.add_row(ProgressBar(total=rounds, completed=run.get("round") or 0, width=60))
    return [line] if rounds else []


def _figures(facts: Facts) -> Table:
    """Return names and values, two pairs a line."""
    table = Table.grid(padding=(0, 2))
    pairs = list(_pairs(facts))
    for style in ("dim", "", "dim", ""):
        width = max((len(name) for name, _ in pairs), default=0) if style else None
        table.add_column(style=style, no_wrap=True, overflow="ellipsis", min_width=width)
    for left, right in zip(pairs[::2], [*pairs[1::2], ("", "")], strict=False):
        table.add_row(left[0], Text(left[1]), right[0], Text(right[1]))
    return table


def _pairs(facts: Facts) -> Iterator[tuple[str, str]]:
    run, rounds = facts["run"], facts["rounds"]
    if any("here" in row for row in facts["peers"].values()):
        here = sum(bool(row.get("here")) for row in facts["peers"].values())
        yield "peers here", f"{here} of {len(facts['peers'])}"
    if run.get("accuracy") is not None:
        yield "accuracy", format_percent(run["accuracy"])
    loss = next((run[key] for key in ("loss", "train_loss") if run.get(key) is not None), None)
    if loss is not None:
        yield "loss", f"{loss:.4g}"
    if run.get("sent") or run.get("received"):
        yield "bytes", f"↑ {format_bytes(run['sent'])}  ↓ {format_bytes(run['received'])}"
    if rounds:
        yield "last round", _stages(rounds[-1]["seconds"])
    yield "lost shards", str(sum((run.get("lost") or {}).values()))
    if run.get("largest_share") is not None:
        floor = (run.get("floor") or {}).get("max_share")
        yield "exposure", f"{format_percent(run['largest_share'])}{f' of {format_percent(floor)}' if floor else ''}"
    for name, key in (("masking", "masking"), ("privacy", "epsilon")):
        if run.get(key):
            yield name, str(run[key])
    if run.get("budget"):
        yield "over all runs", str(run["budget"]["value"])


def _stages(seconds: Mapping[str, float]) -> str:
    whole = seconds.get("round", sum(seconds.values()))
    most = sorted(((took, name) for name, took in seconds.items() if name != "round"), reverse=True)[:2]
    said = ", ".join(f"{name} {format_seconds(took)}" for took, name in most)
    return f"{format_seconds(whole)}{f' ({said})' if said else ''}" if seconds else MISSING


def _peers(rows: Mapping[str, Facts], room: int) -> Table:
    """Return the peers; if there is no room for all, those in trouble come first."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("peer", "state", "aggregates", "late", "organisation"):
        table.add_column(title, no_wrap=True, justify="right" if title == "late" else "left", overflow="ellipsis")
    ordered = sorted(rows.items(), key=lambda pair: (pair[1].get("here", True), -(pair[1].get("late") or 0)))
    shown = rows.items() if len(rows) <= room else ordered[: room - 1]
    for name, row in shown:
        here = row.get("here")
        state = str(row.get("state") or MISSING) if here is None else "here" if here else "gone"
        aggregates = "yes" if row.get("aggregates") else "no"
        cells = Text(state, style="red" if here is False else ""), aggregates, str(row.get("late") or 0)
        table.add_row(Text(name), *cells, Text(str(row.get("organisation") or "")))
    if len(rows) > room:
        table.add_row(Text(f"and {len(rows) - room + 1:,} more", style="dim"), "", "", "", "")
    return table


def _loss(row: Facts) -> Text:
    text = f"round {row['round'] + 1}: shard {row['shard']} of {row['aggregator']} is lost: {row['why']}"
    return Text(text, style="yellow", no_wrap=True, overflow="ellipsis")


def _line(row: Facts) -> Text:
    style = {"warning": "yellow", "error": "red", "critical": "red"}.get(row["level"], "dim")
    return Text(row["text"], style=style, no_wrap=True, overflow="ellipsis")
