"""The answer of an audit: a table that loses nothing on a narrow terminal, and notes on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from eris.errors import MissingExtra

if TYPE_CHECKING:
    from rich.console import ConsoleOptions
    from rich.table import Table

__all__ = ["ResultsTable", "drawn", "percent_interval", "show", "wrapped"]

_GAP = 2  # between two columns
_UNBOUNDED = 10_000  # wider than any table


class ResultsTable:
    """A table of names and figures; if the terminal is too narrow for it, a row's names share a column and wrap there.

    Args:
        columns: the titles, in order.
        names: those of the columns that hold names, not figures.
    """

    def __init__(self, columns: Sequence[str], *, names: Sequence[str] = ()) -> None:
        self._columns, self._names = tuple(columns), frozenset(names)
        self._rows: list[tuple[str, ...]] = []

    def add(self, *cells: str) -> None:
        """Add a row, with a cell for every column."""
        self._rows.append(cells)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        """Draw every column where there is room, else one for all names."""
        from rich.measure import Measurement

        def width(table: Table) -> int:
            return Measurement.get(console, options.update(width=_UNBOUNDED), table).maximum

        lines, named = [self._columns, *self._rows], [column in self._names for column in self._columns]
        wide = _table(lines, named)
        if width(wide) <= options.max_width:
            yield wide
            return
        names = [[cell for cell, is_name in zip(line, named, strict=True) if is_name] for line in lines]
        figures = [[cell for cell, is_name in zip(line, named, strict=True) if not is_name] for line in lines]
        are_figures = [False] * len(figures[0])
        room = options.max_width - width(_table(figures, are_figures)) - _GAP
        joined = [[wrapped(own, room), *rest] for own, rest in zip(names, figures, strict=True)]
        yield _table(joined, [True, *are_figures])


def wrapped(names: Sequence[str], room: int) -> str:
    """Join names in lines of at most this width, breaking between two names rather than within one.

    >>> print(wrapped(["ERIS, A = 8", "coalition:3", "inverting-gradients"], 30))
    ERIS, A = 8 · coalition:3 ·
    inverting-gradients
    """
    lines = [""]
    for place, name in enumerate(names):
        part = name if place == len(names) - 1 else f"{name} ·"
        if lines[-1] and len(lines[-1]) + 1 + len(part) > room:
            lines.append(part)
        else:
            lines[-1] = f"{lines[-1]} {part}".lstrip()
    return "\n".join(lines)


def _table(lines: Sequence[Sequence[str]], named: Sequence[bool]) -> Table:
    """Draw lines of cells, of which the first has the titles; names fold only if a single one is too long."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for title, is_name in zip(lines[0], named, strict=True):
        if is_name:
            table.add_column(title, vertical="bottom", overflow="fold")
        else:
            table.add_column(title, vertical="bottom", justify="right", no_wrap=True)
    for line in lines[1:]:
        table.add_row(*(Text(cell) for cell in line))
    return table


def percent_interval(figure: Mapping[str, Any]) -> str:
    """Return an interval in percent, or a dash if there is none.

    >>> percent_interval({"low": 0.1, "high": 0.25}), percent_interval({"low": None, "high": None})
    ('10%–25%', '–')
    """
    return "–" if figure["low"] is None else f"{figure['low']:.0%}–{figure['high']:.0%}"


def show(table: ResultsTable, notes: str) -> None:
    """Print a table and the notes below it."""
    console = Console()
    console.print(table)
    console.print(notes, soft_wrap=True, highlight=False, markup=False)


def drawn(draw: Callable[[], None], path: Path) -> str:
    """Draw a picture and return where it is, or why there is none."""
    try:
        draw()
    except MissingExtra as error:
        return f"not drawn ({error})"
    return str(path)
