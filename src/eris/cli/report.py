"""`eris report`: write the report of a run again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eris.errors import InputError, MissingExtra

__all__ = ["register", "report_or_reason"]


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def report(
        directory: Annotated[Path, typer.Argument(help="The folder of the run.", metavar="DIR")],
        section: Annotated[
            list[str] | None, typer.Option(help="A further section, by name or module:name; repeatable.")
        ] = None,
    ) -> None:
        """Write DIR/report.html again, from what the run in DIR wrote."""
        from eris.report import write_report

        typer.echo(str(write_report(directory, section or ())))


def report_or_reason(directory: Path) -> Path | str:
    """Write the report of a run that has just ended; return where, or why not: the run is over and whole either way."""
    from eris.report import write_report

    try:
        return write_report(directory)
    except (ImportError, MissingExtra, InputError, OSError) as error:
        return f"not written ({error})"
