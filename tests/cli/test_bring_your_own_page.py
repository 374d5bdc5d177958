"""docs/bring-your-own.md: every file, program and command of it as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from eris.config import Config
from eris.local.torch_losses import loss_names

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "bring-your-own.md").read_text(encoding="utf-8")
STORIES = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:4]
NAMES = ["price", "scans", "words"]
ENVIRONMENT = {
    **os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1",
}  # fmt: skip


def blocks(story: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", story, re.DOTALL)


def files(story: str, folder: Path) -> None:
    """Save every block that begins with the name of a file."""
    for block in blocks(story, "python") + blocks(story, "toml"):
        if named := re.match(r"# (\w+\.\w+)\n", block):
            (folder / named[1]).write_text(block, encoding="utf-8")


def done(words: list[str], folder: Path) -> str:
    ended = subprocess.run(words, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=400, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
    return ended.stdout


@pytest.mark.parametrize("story", STORIES, ids=NAMES)
def test_the_simulation_learns_and_the_program_runs(story: str, tmp_path: Path) -> None:
    files(story, tmp_path)
    command = next(line for line in blocks(story, "console")[0].splitlines() if line.startswith("$ eris run"))
    done(["bash", "-c", command.removeprefix("$ ")], tmp_path)
    (folder,) = tmp_path.glob("*-simulated")
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    losses = [float(re.search(r'"loss":([\d.]+)', line)[1]) for line in lines]  # type: ignore[index]
    assert losses[-1] < 0.9 * losses[0]
    program = next(block for block in blocks(story, "python") if block.startswith("import eris"))
    assert done([sys.executable, "-c", program], tmp_path).strip()


def test_a_metric_of_ones_own_is_in_every_line(tmp_path: Path) -> None:
    files(STORIES[1], tmp_path)
    done(["bash", "-c", "eris run scans.toml --set rounds=2 --set workers=1 --out here"], tmp_path)
    for line in (tmp_path / "here" / "metrics.jsonl").read_text().splitlines():
        assert {"f1", "f1_macro", "exact"} <= set(re.findall(r'"(\w+)":', line))
        assert "accuracy" not in line


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("story", STORIES, ids=NAMES)
def test_real_processes_end_with_the_simulated_model(story: str, tmp_path: Path) -> None:
    files(story, tmp_path)
    lines = [line for block in blocks(story, "console") for line in block.splitlines()]
    assert all(line.startswith("$ ") for line in lines)
    script = "\n".join(["set -euo pipefail", *(line.removeprefix("$ ") for line in lines)])
    digests = re.findall(r'"model_digest": "([0-9a-f]{64})"', done(["bash", "-c", script], tmp_path))
    assert len(digests) == 1 + 1 + 4  # of the simulation, of all processes together, of every peer
    assert len(set(digests)) == 1


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_members_score_together_to_the_same_end(tmp_path: Path) -> None:
    files(STORIES[1], tmp_path)
    story = PAGE[PAGE.index("## Score it together\n") :].partition("\n## ")[0]
    lines = [line.removeprefix("$ ") for block in blocks(story, "console") for line in block.splitlines()]
    said = done(["bash", "-c", "\n".join(["set -euo pipefail", *lines])], tmp_path)
    digests = re.findall(r'"model_digest": "([0-9a-f]{64})"', said)
    assert len(digests) == 1 + 1 + 4
    assert len(set(digests)) == 1
    for folder in ("together-simulated", "together-processes/peers/peer-0"):
        assert '"stopped": true' in (tmp_path / folder / "summary.json").read_text()


def test_every_loss_and_setting_is_explained() -> None:
    named = set(re.findall(r"`([\w.-]+)`", PAGE))
    assert set(loss_names()) <= named
    local = set(Config().local.model_dump())
    assert {f"local.{key}" for key in ("loss", "metrics", "device", "precision")} <= named
    assert {key.partition(".")[2] for key in named if key.startswith("local.")} <= local
