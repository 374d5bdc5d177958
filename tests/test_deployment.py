"""The units and the compose file that docs/operate.md offers: eris understands every command line in them."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from typer import Typer
from typer.main import get_group

from eris.cli import coordinator, join
from eris.cli.exit_code import ExitCode
from eris.peer.gauges import CoordinatorGauges, PeerGauges

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
UNITS = sorted((DOCS / "systemd").glob("*.service"))
COMPOSE = yaml.safe_load((DOCS / "compose" / "compose.yaml").read_text(encoding="utf-8"))
DOCKERFILE = (DOCS / "compose" / "Dockerfile").read_text(encoding="utf-8")
BUILD = re.findall(r"docker build .+", DOCKERFILE)[0]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ALERTS = yaml.safe_load(
    re.findall(r"```yaml\n(.*?)```", (DOCS / "operate.md").read_text(encoding="utf-8"), re.DOTALL)[0]
)
WORTH_ANOTHER_TRY = {ExitCode.FAILED, ExitCode.UNREACHABLE, ExitCode.STOPPED, ExitCode.INTERRUPTED}
OF_OTHER_VERBS = {ExitCode.MODELS_DIFFER, ExitCode.PEER_FAILED, ExitCode.UNHEALTHY, ExitCode.NO_PLAN}
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


@pytest.mark.parametrize("name", sorted(COMPOSE["services"]))
def test_a_service_can_write_what_it_must_keep(name: str) -> None:
    entry = COMPOSE["services"][name]
    assert f"--tag {entry['image']} ." in BUILD
    writable = [volume.split(":") for volume in entry["volumes"] if not volume.endswith(":ro")]
    (kept,) = [(volume, inside) for volume, inside in writable if not volume.startswith(".")]
    assert kept[0] in COMPOSE["volumes"]
    made = DOCKERFILE.index(f"install --directory --owner eris --group eris --mode 700 {kept[1]}")
    assert made < DOCKERFILE.index("USER eris")  # a new volume belongs to whom the image's folder belongs to
    credentials = understood(shlex.split(entry["command"]))["credentials"]
    assert name == "coordinator" or [f"./{name}", str(credentials)] in writable


def test_the_image_installs_this_checkout_with_extras_that_it_offers() -> None:
    assert 'ENTRYPOINT ["eris"]' in DOCKERFILE
    place, extras = re.search(r"'(/\w+)\[([\w,]+)\]'", DOCKERFILE).groups()  # type: ignore[union-attr]
    assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
    copied = [line.split()[1:] for line in DOCKERFILE.splitlines() if line.startswith("COPY ")]
    sources = {source for *sources, _ in copied for source in sources}
    assert {"pyproject.toml", "src", PROJECT["readme"], *PROJECT["license-files"]} <= sources
    assert all((ROOT / source).exists() for source in sources)
    assert all(target.startswith(place) for *_, target in copied)


def test_the_user_of_the_image_has_the_number_that_the_build_is_given() -> None:
    argument = re.search(r"--build-arg (\w+)=\$\(id -u\)", BUILD)
    assert argument
    assert f"ARG {argument[1]}=" in DOCKERFILE
    assert f"useradd --create-home --uid ${{{argument[1]}}} eris" in DOCKERFILE
    assert BUILD in (DOCS / "operate.md").read_text(encoding="utf-8")


def test_alerts_are_about_metrics_that_there_are() -> None:
    overview = {"round": 0, "peers": [], "lost": {}, "control": {"received": 0, "sent": 0}}
    node: Any = SimpleNamespace(federation=SimpleNamespace(name="cardio"), overview=lambda: overview)
    served = [PeerGauges("cardio", "amber", 0), CoordinatorGauges(node, 0)]
    try:
        known = {sample.name for gauges in served for metric in gauges._registry.collect() for sample in metric.samples}
    finally:
        for gauges in served:
            gauges.close()
    rules = {rule["alert"]: rule["expr"] for group in ALERTS["groups"] for rule in group["rules"]}
    for expression in rules.values():
        assert set(re.findall(r"eris_\w+", expression)) <= known
    assert "or absent(eris_coordinator_rounds)" in rules["ErisStandsStill"]  # else nobody hears that it is gone
