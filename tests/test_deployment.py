"""The units and the compose file that docs/operate.md offers: eris understands every command line in them."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer import Typer
from typer.main import get_group

from eris.cli import coordinator, join
from eris.cli.exit_code import ExitCode

DOCS = Path(__file__).parents[1] / "docs"
UNITS = sorted((DOCS / "systemd").glob("*.service"))
COMPOSE = yaml.safe_load((DOCS / "compose" / "compose.yaml").read_text(encoding="utf-8"))
WORTH_ANOTHER_TRY = {ExitCode.FAILED, ExitCode.UNREACHABLE, ExitCode.STOPPED, ExitCode.INTERRUPTED}
OF_OTHER_VERBS = {ExitCode.MODELS_DIFFER, ExitCode.PEER_FAILED, ExitCode.UNHEALTHY}
OF_PEERS = {ExitCode.BELOW_FLOOR, ExitCode.TASK_FAILED, ExitCode.NO_DATA}
units = pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)


def service(unit: Path) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment]
    parser.read_string(re.sub(r"\\\n\s*", "", unit.read_text(encoding="utf-8")))
    return parser["Service"]


def understood(words: list[str]) -> dict[str, object]:
    """Return what a command line means to eris, without running it; a wrong option is an error."""
    app = Typer()
    for verb in (coordinator, join):
        verb.register(app)
    with get_group(app).commands[words[0]].make_context(words[0], words[1:]) as context:
        return dict(context.params)


@units
def test_the_command_of_a_unit_is_one_that_eris_understands(unit: Path) -> None:
    program, *words = shlex.split(service(unit)["ExecStart"])
    assert Path(program).name == "eris"
    assert understood(words)["log_json"]


@units
def test_a_unit_restarts_what_a_restart_can_help(unit: Path) -> None:
    prevented = {ExitCode(int(code)) for code in service(unit)["RestartPreventExitStatus"].split()}
    wanted = set(ExitCode) - WORTH_ANOTHER_TRY - OF_OTHER_VERBS - {ExitCode.FINISHED}
    assert prevented == (wanted if "peer" in unit.name else wanted - OF_PEERS)
    assert service(unit)["Restart"] == "on-failure"


@units
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_finds_nothing_wrong(unit: Path, tmp_path: Path) -> None:
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text(encoding="utf-8").replace("/opt/eris/bin/eris", sys.executable), encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", str(copy)],
        env={**os.environ, "SYSTEMD_LOG_LEVEL": "warning"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, unit.name.partition(".")[0] in done.stderr) == (0, False), done.stderr


@pytest.mark.parametrize("name", sorted(COMPOSE["services"]))
def test_the_command_of_a_service_is_one_that_eris_understands(name: str) -> None:
    entry = COMPOSE["services"][name]
    params = understood(shlex.split(entry["command"]))
    inside = {volume.split(":")[1] for volume in entry["volumes"]}
    kept = params["state"] if name == "coordinator" else params["out"]
    assert {str(params["file"]), str(params["credentials"]), str(kept)} == inside
    port = str(params["listen"]).removeprefix(":")
    assert entry["ports"] == [f"{port}:{port}"]
    assert entry["restart"].startswith("on-failure")


def test_the_dockerfile_starts_eris_with_what_pyproject_offers() -> None:
    text = (DOCS / "compose" / "Dockerfile").read_text(encoding="utf-8")
    assert 'ENTRYPOINT ["eris"]' in text
    name, extras = re.search(r"'([\w-]+)\[([\w,]+)\]'", text).groups()  # type: ignore[union-attr]
    project = (DOCS.parent / "pyproject.toml").read_text(encoding="utf-8")
    assert f'name = "{name}"' in project
    for extra in extras.split(","):
        assert re.search(rf"^{extra} = \[", project, re.MULTILINE), f"there is no extra {extra}"
