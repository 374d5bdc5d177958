"""Tables, and the footnotes below them."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["SHARE_NOTE", "Notes", "coalitions", "make_table"]

SHARE_NOTE = "A share of an update is no measure of what it gives away: docs/audit.md."


class Notes:
    """Footnotes, numbered in the order they are first used."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def mark(self, text: str) -> str:
        """Return the note's number as a small raised figure."""
        if text not in self.texts:
            self.texts.append(text)
        return str(self.texts.index(text) + 1).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))

    def print(self, console: Console) -> None:
        """Write them below the table."""
        grid = Table.grid(padding=(0, 1))
        for number, text in enumerate(self.texts, start=1):
            grid.add_row(f"[dim]{number:>3}[/]", text)
        console.print(grid)


def make_table(title: str, *columns: str) -> Table:
    """Return an empty table whose first column is a name and whose others are numbers."""
    titled = Text(title, style="bold")  # which may name a file: no markup
    table = Table(title=titled, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right", no_wrap=True)
    return table


def coalitions(count: int) -> list[int]:
    """Return a few sizes of coalitions worth a line: 1, 2, 5, 10, … up to all."""
    return [c for c in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if c < count] + [count]
