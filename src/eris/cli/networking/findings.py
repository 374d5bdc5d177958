"""How `eris doctor` and `eris join --check` print what they found."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer

from eris.cli.exit_code import ExitCode
from eris.printable import printable

if TYPE_CHECKING:
    from eris.peer.preflight import CheckResult

__all__ = ["show_findings"]


def show_findings(findings: Iterable[CheckResult]) -> None:
    """Print a line for each finding as it comes; exit with a code of its own if something is wrong."""
    wrong = 0
    for finding in findings:
        wrong += not finding.well
        word, colour = ("ok", typer.colors.GREEN) if finding.well else ("wrong", typer.colors.RED)
        typer.echo(f"{typer.style(f'{word:<5}', fg=colour)}  {finding.what:<12} {printable(finding.text)}")
    if wrong:
        raise typer.Exit(ExitCode.UNHEALTHY)
