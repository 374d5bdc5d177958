"""docs/run.md: every command of it as it stands, and every field that a run writes."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eris import Federation
from eris.config import Config, Faults, Network, load_config
from eris.step.schedule import SCHEDULES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "run.md").read_text(encoding="utf-8")
NAMED = set(re.findall(r"`([\w.]+)`", PAGE))


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def commands() -> list[str]:
    lines = [line for block in blocks("console") for line in block.splitlines()]
    assert all(line.startswith("$ ") for line in lines)
    return [line.removeprefix("$ ") for line in lines]


def keys(data: Any) -> Iterator[str]:
    if isinstance(data, dict):
        for key, value in data.items():
            yield key
            yield from keys(value)


FEW_DIGITS = {"name": "mnist-sample", "samples": 8, "test_samples": 50}


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "eris", "model": "logistic", "data": FEW_DIGITS, "gradient_norm": True},
        {"method": "fedavg"},
        {"method": "gossip"},
        {"method": "eris+ldp", "privacy": {"clip": 1.0, "noise_multiplier": 1.0}},
    ],
    ids=lambda settings: settings["method"],
)
def test_every_field_that_a_run_writes_is_explained(settings: dict[str, Any], tmp_path: Path) -> None:
    Federation(**{"data": "synthetic-clouds", "members": 4, "rounds": 1, "workers": 1, **settings}).run(tmp_path)
    line = json.loads((tmp_path / "metrics.jsonl").read_text())
    summary = json.loads((tmp_path / "summary.json").read_text())
    del summary["versions"]  # its keys are packages
    assert {*keys(line), *keys(summary)} <= NAMED
    written = {path.name for path in tmp_path.iterdir()} - {"checkpoint"}
    assert written <= NAMED


@pytest.mark.parametrize("table", [Faults, Network])
def test_every_key_of_what_goes_wrong_and_of_the_clock_is_explained(table: type[Faults | Network]) -> None:
    assert set(table.model_fields) <= NAMED


def test_every_schedule_is_there_with_its_options() -> None:
    for name, make in SCHEDULES.items():
        assert {name, *inspect.signature(make).parameters} <= NAMED


def test_settings_that_the_text_names_are_settings() -> None:
    plain = Config().model_dump(mode="json")
    settings = [key.split(".")[:2] for key in NAMED - {"model.safetensors"} if "." in key]
    for table, name in settings:
        assert table not in plain or name in plain[table], f"there is no {table}.{name}"


@pytest.mark.slow
@pytest.mark.story
@pytest.mark.timeout(600)
def test_every_command_works_as_it_stands(tmp_path: Path) -> None:
    file = next(block for block in blocks("toml") if block.startswith("# small.toml"))
    (tmp_path / file.splitlines()[0].removeprefix("# ")).write_text(file, encoding="utf-8")
    bin_folder = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    script = "\n".join(["set -euo pipefail", *commands()])
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    load_config(tmp_path / "all.toml")
    digests = re.findall(r'"model_digest": "([0-9a-f]{64})"', done.stdout)
    assert digests[0] == digests[1]  # the run with losses and its replay
    assert digests[2] == digests[3]  # worker processes and Ray
    assert json.loads((tmp_path / "faulty" / "summary.json").read_text())["lost_shards"] > 0


@pytest.mark.slow
@pytest.mark.story
@pytest.mark.timeout(300)
def test_the_programs_run(tmp_path: Path) -> None:
    for program in blocks("python"):
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("python ")
