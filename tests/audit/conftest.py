import pytest
import typer
from typer.testing import CliRunner

from eris.cli import audit


@pytest.fixture
def invoke(monkeypatch, tmp_path):
    """Return `eris audit` as a function, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    app = typer.Typer()
    audit.register(app)

    def call(*arguments):
        return CliRunner().invoke(app, list(arguments), catch_exceptions=False)

    return call
