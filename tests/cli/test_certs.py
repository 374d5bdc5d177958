"""`eris certs` as people type it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from eris.cli import certs
from eris.errors import ErisError
from eris.transport.identity import Refusal


@pytest.fixture
def run():  # type: ignore[no-untyped-def]
    app = typer.Typer()
    certs.register(app)

    def invoke(*words: object) -> str:
        result = CliRunner().invoke(app, ["certs", *map(str, words)], catch_exceptions=True)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == 0, result.output
        return result.output

    return invoke


def test_the_whole_way(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    federation, bob = tmp_path / "cardio", tmp_path / "bob"
    assert "'cardio'" in run("init", federation, "--federation", "cardio")
    issued = run("issue", federation, "alice", "--host", "10.0.0.7", "--host", "a.example.org", "--days", 20)
    assert "alice.cardio" in issued
    assert "10.0.0.7, a.example.org" in issued
    assert "expires in 20 days" in issued
    asked = run("request", "bob", "--out", bob)
    signed = run("sign", federation, bob / "bob.csr")
    fingerprint = asked.split("fingerprint")[-1].split()[0]
    assert len(fingerprint) == 64
    assert fingerprint in signed
    assert "bob.cardio" in run("show", federation)
    assert "withdrawn for alice" in run("revoke", federation, "alice")
    assert "revoked by the CA" in run("show", federation / "peers" / "alice")
    assert "nothing that was still valid" in run("revoke", federation, "alice")


def test_the_federation_has_a_name_by_default(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    run("init", tmp_path / "ca")
    assert "alice.eris" in run("issue", tmp_path / "ca", "alice")


def test_mistakes_are_explained(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ErisError, match="eris certs init"):
        run("issue", tmp_path / "none", "alice")
    with pytest.raises(ErisError, match="no certificate here"):
        run("show", tmp_path)
    with pytest.raises(ErisError, match=r"there is no such file .*nothing\.pem"):
        run("show", tmp_path / "nothing.pem")


def test_an_error_says_where_in_one_line_and_exits_with_2(tmp_path: Path) -> None:
    words = [sys.executable, "-c", "from eris.cli import main; main()", "certs", "issue", str(tmp_path), "alice"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert f"[folder={tmp_path}]" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_commands_of_the_document_work_as_they_stand(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    document = (Path(__file__).parents[2] / "docs" / "certificates.md").read_text()
    commands = [line.removeprefix("$ eris certs ").split() for line in document.splitlines() if line.startswith("$ ")]
    monkeypatch.chdir(tmp_path)
    for words in commands:
        run(*words)
    assert len(commands) == 11
    for word in Refusal:
        assert f"`{word.value}`" in document
