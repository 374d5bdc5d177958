"""docs/extend.md as it stands: an outside package is built, installed into an environment of its own, and used."""

from __future__ import annotations

import json
import os
import re
import site
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.test_docs import ROOT, blocks

PAGE = ROOT / "docs" / "extend.md"


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the page's files and an environment that finds what this one has installed."""
    folder = tmp_path_factory.mktemp("extend")
    for block in blocks(PAGE):
        if found := re.match(r"# (outside/\S+)\n", block.text):
            path = folder / found[1]
            path.parent.mkdir(exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
    home = folder / "environment"
    venv.create(home, with_pip=False)
    (library,) = home.glob("lib/python3*/site-packages")
    here = [str(ROOT / "src"), *site.getsitepackages(), *(path for path in sys.path if path.endswith("site-packages"))]
    (library / "beside.pth").write_text("\n".join(dict.fromkeys(here)), encoding="utf-8")
    for name in ("eris", "pip"):
        program = home / "bin" / name
        program.write_text(f'#!/bin/sh\nexec "{home}/bin/python" -m {name} "$@"\n', encoding="utf-8")
        program.chmod(0o755)
    return folder


def shell(story: Path, script: str) -> str:
    path = f"{story / 'environment' / 'bin'}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", f"set -euo pipefail\n{script}"],
        cwd=story,
        env={**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "PIP_NO_INDEX": "1"},
        capture_output=True,
        text=True,
        timeout=800,
    )
    assert done.returncode == 0, script + done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(900)
def test_the_page_as_it_stands(story: Path) -> None:
    commands = "\n".join(block.text for block in blocks(PAGE) if block.language == "console" and block.runs)
    said = shell(story, re.sub(r"^\$ ", "", commands, flags=re.MULTILINE))
    assert re.search(r"midrange +The middle between the smallest and the largest [^(]*\(outside 0\.1\)", said)
    assert "Gentle" in said
    summary = json.loads((story / "rings" / "summary.json").read_text())
    assert summary["method"] == "gentle"
    config = (story / "rings" / "config.toml").read_text()
    assert "[options.gentle]\npull = 0.2" in config
    assert json.loads((story / "coarse" / "summary.json").read_text())["finished"]
    listed = json.loads(shell(story, "eris list --json"))
    ours = {kind: [line["name"] for line in lines if line["origin"] == "outside 0.1"] for kind, lines in listed.items()}
    expected = {"compressors": ["coarse"], "rules": ["midrange"], "methods": ["gentle"], "datasets": ["rings"]}
    assert {kind: names for kind, names in ours.items() if names} == {**expected, "attacks": ["gap"]}


@pytest.mark.timeout(900)
def test_the_attack_attacks(story: Path) -> None:
    few = "--set method=eris --set members=4 --set aggregators=2 --set rounds=2 --set data.samples=16 --canaries 8"
    shell(story, "pip install --no-build-isolation --no-deps ./outside")
    said = json.loads(
        shell(story, f"eris audit membership --attack gap {few} --seeds 1 --views 1 --json --out audited")
    )
    assert "gap" in json.dumps(said)


@pytest.mark.timeout(900)
def test_the_same_in_real_processes(story: Path) -> None:
    """Peers find the package's names as the simulator does, to the same bits."""
    shell(story, "pip install --no-build-isolation --no-deps ./outside")
    common = (
        "--set method=gentle --set server.rule=midrange --set data.name=rings --set model.name=mlp "
        '--set "model.options={inputs=2, classes=2}" --set members=4 --set rounds=2'
    )
    shell(story, f"eris run {common} --out simulated && eris up {common} --out processes")
    simulated = json.loads((story / "simulated" / "summary.json").read_text())["model_digest"]
    assert json.loads((story / "processes" / "outcome.json").read_text())["model_digest"] == simulated
