"""The progress of an audit: bars on a terminal, an occasional plain line where the output is piped."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

    from eris.events import Event

__all__ = ["Attacks", "Rounds"]

_PAUSE = 10.0  # seconds between two lines


class _Progress:
    """A progress bar; plain lines if not on a terminal."""

    def __init__(self, begin: str, total: int | None, columns: tuple[ProgressColumn, ...], *, visible: bool) -> None:
        from rich.progress import Progress

        self._console = Console(stderr=True)
        self._lines = visible and not self._console.is_terminal
        self._bar = Progress(*columns, console=self._console, disable=not visible or self._lines)
        self._row = self._bar.add_task(begin, total=total)
        self._said, self._what, self._total = -_PAUSE, begin, total

    def start(self) -> None:
        self._bar.start()

    def stop(self) -> None:
        self._bar.stop()

    def show(self, done: float | None = None, *, total: int | None = None, what: str | None = None) -> None:
        """Draw what is done; print a line only if the last one was a while ago."""
        self._bar.update(self._row, completed=done, total=total, description=what)
        self._what, self._total = what or self._what, total or self._total
        if self._lines and time.monotonic() - self._said >= _PAUSE:
            self._said = time.monotonic()
            count = f"{done or 0:g}/{self._total} " if self._total else ""
            self._console.print(f"{count}{self._what}", soft_wrap=True, highlight=False, markup=False)


class Rounds:
    """Shows how many rounds of all trainings are done."""

    def __init__(self, total: int, *, visible: bool, what: str = "rounds, attacked") -> None:
        from rich.progress import Progress

        columns = Progress.get_default_columns()
        self._progress, self._what = _Progress(what, total, columns, visible=visible), what
        self._before = 0  # rounds of finished trainings

    def __enter__(self) -> Rounds:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def __call__(self, event: Event) -> None:
        """Count a finished round."""
        from eris.events import RoundEnded, RunEnded, RunStarted

        if isinstance(event, RunStarted):
            self._progress.show(self._before, what=f"{event.method:<9} {self._what}")
        elif isinstance(event, RoundEnded):
            self._progress.show(self._before + event.round + 1)
        elif isinstance(event, RunEnded):  # perhaps of a training that was done in an earlier call
            self._before += event.rounds
            self._progress.show(self._before)


class Attacks:
    """Shows how many attacks of a kind are done, and which is under way."""

    def __init__(self, *, visible: bool) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._progress = _Progress("training", None, columns, visible=visible)

    def __enter__(self) -> Attacks:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def __call__(self, done: int, total: int, what: str) -> None:
        """Say what is under way."""
        self._progress.show(done, total=total, what=what)
