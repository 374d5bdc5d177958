"""Other people's code on eris, with their libraries installed: the pages as they stand, and the tests of `interop`."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.stories.library_environment import ROOT, environment, library_environment
from tests.test_docs import blocks

OWN = ROOT / "docs" / "bring-your-own.md"
FLOWER = ROOT / "docs" / "flower.md"
STORIES = {"A scikit-learn model": "digits", "A JAX model": "pytree", "A Lightning module": "module",
           "A Flower app": "hello"}  # fmt: skip
TESTS = ("test_flower.py", "test_jax.py", "test_lightning.py", "test_sklearn.py", "test_trackers.py")


@pytest.fixture(scope="module")
def programs() -> Path:
    return library_environment()


def shell(programs: Path, script: str, folder: Path) -> str:
    done = subprocess.run(
        ["bash", "-c", f"set -euo pipefail\n{script}"],
        cwd=folder,
        env=environment(programs),
        capture_output=True,
        text=True,
        timeout=800,
    )
    assert done.returncode == 0, script + done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def saved(text: str, folder: Path) -> None:
    """Save every block that begins with the name of a file."""
    for block in re.findall(r"```(?:python|toml)\n(.*?)```", text, re.DOTALL):
        if named := re.match(r"# ([\w/]+\.\w+)\n", block):
            path = folder / named[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block, encoding="utf-8")


def commands(text: str) -> str:
    console = re.findall(r"(?<!-->\n)```console\n(.*?)```", text, re.DOTALL)
    return "\n".join(line.removeprefix("$ ") for block in console for line in block.splitlines())


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("title", STORIES)
def test_a_story_simulated_and_with_processes(title: str, programs: Path, tmp_path: Path) -> None:
    page = OWN.read_text(encoding="utf-8")
    story = page[page.index(f"## {title}\n") :].partition("\n## ")[0]
    saved(story, tmp_path)
    said = shell(programs, commands(story), tmp_path)
    digests = re.findall(r'"model_digest": "([0-9a-f]{64})"', said)
    assert len(digests) == 1 + 1 + 4  # of the simulation, of all processes together, of every peer
    assert len(set(digests)) == 1
    lines = (tmp_path / f"{STORIES[title]}-simulated" / "metrics.jsonl").read_text().splitlines()
    losses = [json.loads(line)["loss"] for line in lines]
    assert losses[-1] < 0.9 * losses[0]
    for program in re.findall(r"```python\n(import eris\n.*?)```", story, re.DOTALL):
        assert shell(programs, f"python - <<'PROGRAM'\n{program}\nPROGRAM", tmp_path).strip()


@pytest.mark.timeout(1200)
def test_the_page_about_flower_as_it_stands(programs: Path, tmp_path: Path) -> None:
    page = FLOWER.read_text(encoding="utf-8")
    saved(page, tmp_path)
    assert all(block.runs or block.excuse for block in blocks(FLOWER) if block.language != "toml")
    said = shell(programs, commands(page), tmp_path)
    digests = re.findall(r'"model_digest": "([0-9a-f]{64})"', said)
    assert len(digests) == 6
    assert len(set(digests)) == 1
    assert 'name = "flower"' in said
    compressed = json.loads((tmp_path / "compressed" / "summary.json").read_text())
    assert compressed["method"] == "eris+dsc"
    assert compressed["finished"]


@pytest.mark.timeout(1200)
def test_what_needs_the_libraries(programs: Path, tmp_path: Path) -> None:
    """The tests of `interop`, none of them left out for want of a library."""
    here = [str(ROOT / "tests" / "interop" / name) for name in TESTS]
    words = [programs / "python", "-m", "pytest", "-q", "-n0", "-W", "ignore", "-p", "no:cacheprovider", *here]
    done = subprocess.run(
        words, cwd=ROOT, env=environment(programs), capture_output=True, text=True, timeout=1000, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "skipped" not in done.stdout.splitlines()[-1]
