"""docs/first-hour.md: every command of it, in order, as it stands."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.processes import eris

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "first-hour.md").read_text(encoding="utf-8")


def commands() -> list[str]:
    blocks = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    assert all(line.startswith("$ ") for line in lines)
    return [line.removeprefix("$ ") for line in lines]


def test_the_page_walks_through_the_commands_of_the_network() -> None:
    text = "\n".join(commands())
    for verb in (
        "run",
        "up",
        "certs init",
        "certs issue",
        "certs request",
        "certs sign",
        "coordinator",
        "status",
        "join",
    ):
        assert f"eris {verb}" in text
    assert "--check" in text


@pytest.mark.slow
@pytest.mark.story
@pytest.mark.timeout(900)
def test_every_command_works_as_it_stands(tmp_path: Path) -> None:
    examples = tmp_path / "examples" / "first-hour"
    shutil.copytree(ROOT / "examples" / "first-hour", examples)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    file = examples / "FEDERATION.toml"
    assert "127.0.0.1:7443" in file.read_text()
    file.write_text(file.read_text().replace("127.0.0.1:7443", f"127.0.0.1:{port}"))
    bin_folder = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    script = "set -euo pipefail\n" + "\n".join(commands())
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=800, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    digests = re.findall(r'"model_digest": "([0-9a-f]{64})"', done.stdout)
    assert len(digests) >= 5
    hour = tmp_path / "hour"
    simulated, processes, again = (
        json.loads((hour / path).read_text())["model_digest"]
        for path in ("simulated/summary.json", "processes/outcome.json", "again/summary.json")
    )
    assert simulated == processes == again
    joined = {json.loads(path.read_text())["model_digest"] for path in hour.glob("hospital-*/run/summary.json")}
    assert len(joined) == 1
    assert joined != {simulated}
    assert "wrong " not in done.stdout


@pytest.mark.slow
@pytest.mark.story
@pytest.mark.timeout(600)
def test_the_network_of_the_readme_ends_with_the_model_it_promises(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8").replace("\n", " ")
    up = re.search(r"\$ eris (up [^`]+?) *`", readme)
    run = re.search(r"the model of `eris (run [^`]+)`", readme)
    assert up
    assert run
    networked = json.loads(eris(*up[1].split(), "--json", cwd=tmp_path, seconds=300))
    simulated = json.loads(eris(*run[1].split(), "--json", cwd=tmp_path, seconds=300))
    assert networked["model_digest"] == simulated["summaries"][0]["model_digest"]
