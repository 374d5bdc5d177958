from pathlib import Path

import typer
from typer.testing import CliRunner

from eris.cli import report


def app() -> typer.Typer:
    made = typer.Typer()
    made.callback()(lambda: None)
    report.register(made)
    return made


def test_the_report_is_written_again(run: Path) -> None:
    done = CliRunner().invoke(app(), ["report", str(run)])
    assert done.exit_code == 0, done.output
    assert (run / "report.html").is_file()
    assert "report.html" in done.output.replace("\n", "")
