"""`eris report`: write the report of a run again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def report(
        directory: Annotated[Path, typer.Argument(help="The folder of the run.", metavar="DIR")],
        section: Annotated[
            list[str] | None, typer.Option(help="A further section, by name or module:name (again for more).")
        ] = None,
    ) -> None:
        """Write DIR/report.html again, from what the run in DIR wrote."""
        from eris.report import write_report

        typer.echo(str(write_report(directory, section or ())))
