"""A run in progress: a line for each method with round, accuracy, bytes and the time left."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from eris.config import Config
from eris.events import Event, RoundEnded, RunEnded, RunStarted

__all__ = ["RunProgress", "round_bar"]


def round_bar(console: Console, name: str, width: int) -> Progress:
    """Return bars of rounds: `name`, a bar `width` wide, how many of how many, the field `facts`, the time left."""
    return Progress(
        TextColumn(name),
        BarColumn(bar_width=width),
        MofNCompleteColumn(),
        TextColumn("{task.fields[facts]}"),
        TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        console=console,
    )


class RunProgress:
    """Listens to a run and draws it."""

    hears = (RunStarted, RoundEnded, RunEnded)

    def __init__(self, config: Config, console: Console) -> None:
        self._progress = round_bar(console, "{task.description}", 24)
        self._rows: dict[str, TaskID] = {
            method: self._progress.add_task(f"{method:<9}", total=config.rounds, start=False, facts="")
            for method in config.methods
        }
        self._current: TaskID | None = None  # before the first there is nothing to draw: the run may be refused

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._current is not None:
            self._progress.stop()

    def __call__(self, event: Event) -> None:
        """Draw what happened."""
        if isinstance(event, RunStarted):
            self._current = self._rows[event.method]
            self._progress.start()  # once: a second call does nothing
            self._progress.start_task(self._current)
            self._progress.update(self._current, completed=event.first_round)
        elif isinstance(event, RoundEnded) and self._current is not None:
            self._progress.update(self._current, completed=event.round + 1, facts=_facts(event))
        elif isinstance(event, RunEnded) and self._current is not None:
            self._progress.stop_task(self._current)


def _facts(event: RoundEnded) -> str:
    from eris.report.units import format_bytes, format_percent

    accuracy, loss = event.metrics.get("accuracy"), event.metrics.get("loss")
    shown = f"accuracy {format_percent(accuracy)}" if accuracy is not None else f"loss {loss:.4g}" if loss else ""
    lost = f"  {event.lost_shards} shards lost" if event.lost_shards else ""
    return f"{shown}  ↑ {format_bytes(event.traffic.member.up)}  ↓ {format_bytes(event.traffic.member.down)}{lost}"
