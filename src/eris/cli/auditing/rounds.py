"""Bars of what an audit has done: rounds of its trainings, or attacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from eris.events import Event

__all__ = ["Attacks", "Rounds"]


class Rounds:
    """Shows how many rounds of all trainings are done."""

    def __init__(self, total: int, *, visible: bool) -> None:
        from rich.progress import Progress

        self._progress = Progress(console=Console(stderr=True), disable=not visible)
        self._row = self._progress.add_task("rounds, attacked", total=total)
        self._before = 0  # rounds of the trainings that are over

    def __enter__(self) -> Rounds:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def __call__(self, event: Event) -> None:
        """Count a round that is over."""
        from eris.events import RoundEnded, RunEnded, RunStarted

        if isinstance(event, RunStarted):
            self._progress.update(self._row, description=f"{event.method:<9} rounds, attacked")
        elif isinstance(event, RoundEnded):
            self._progress.update(self._row, completed=self._before + event.round + 1)
        elif isinstance(event, RunEnded):  # perhaps of a training that was done in an earlier call
            self._before += event.rounds
            self._progress.update(self._row, completed=self._before)


class Attacks:
    """Shows how many attacks of a kind are done, and which is under way."""

    def __init__(self, *, visible: bool) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, console=Console(stderr=True), disable=not visible)
        self._row = self._progress.add_task("training", total=None)

    def __enter__(self) -> Attacks:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def __call__(self, done: int, total: int, what: str) -> None:
        """Say what is under way."""
        self._progress.update(self._row, completed=done, total=total, description=what)
