"""docs/bring-your-own.md: the stories with models of the Hugging Face library, as they stand."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from eris.data.cache import manifest_of

pytest.importorskip("peft")

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "bring-your-own.md").read_text(encoding="utf-8")
STORIES = {
    "reviews": "A classifier from the Hugging Face library",
    "notes": "A language model with an adapter",
    "private": "Noise on every sample of a transformer",
}
FETCHED = pytest.mark.skipif(manifest_of("smollm2-135m") is None, reason="eris data get smollm2-135m")
BOTH = ["reviews", pytest.param("notes", marks=[pytest.mark.slow, FETCHED])]
ENVIRONMENT = {
    **os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1",
    "PYTHONWARNINGS": "error",
}  # fmt: skip


def story(name: str) -> str:
    return PAGE.split(f"## {STORIES[name]}\n")[1].split("\n## ")[0]


def saved(name: str, folder: Path) -> list[str]:
    """Save every block that begins with the name of a file; return the commands."""
    text = story(name)
    for block in re.findall(r"```(?:python|toml)\n(.*?)```", text, re.DOTALL):
        named = re.match(r"# (\w+\.\w+)\n", block)
        assert named, block
        (folder / named[1]).write_text(block, encoding="utf-8")
    lines = [line for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    assert all(line.startswith("$ ") for line in lines)
    return [line.removeprefix("$ ") for line in lines]


def done(script: str, folder: Path) -> str:
    ended = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True,
        timeout=900, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
    return ended.stdout


@pytest.mark.timeout(1000)
@pytest.mark.parametrize("name", BOTH)
def test_simulated_and_used(name: str, tmp_path: Path) -> None:
    first = saved(name, tmp_path)[0]
    figure = float(done(first, tmp_path).split()[-1])
    assert figure > 0.9 if name == "reviews" else figure < 3.0
    said = done(f"python {name}_used.py", tmp_path)
    assert "[1, 0]" in said if name == "reviews" else "Ward 3, bed 2: the patient slept" in said


@pytest.mark.slow
@pytest.mark.timeout(1900)
@pytest.mark.parametrize("name", BOTH)
def test_real_processes_end_with_the_simulated_model(name: str, tmp_path: Path) -> None:
    said = done("\n".join(saved(name, tmp_path)), tmp_path)
    digests = re.findall(r'"model_digest": "([0-9a-f]{64})"', said)
    assert len(digests) == 2 + (4 if name == "reviews" else 3)  # the simulation, all processes, every peer
    assert len(set(digests)) == 1
    for peer in (tmp_path / f"{name}-processes").glob("**/pretrained"):
        assert (peer / ("adapter_model.safetensors" if name == "notes" else "model.safetensors")).exists()


def private(folder: Path) -> list[str]:
    """Save the story of noise on every sample, and the classifier it is about."""
    saved("reviews", folder)
    return saved("private", folder)


@pytest.mark.timeout(400)
def test_noise_on_every_sample(tmp_path: Path) -> None:
    pytest.importorskip("opacus")
    methods = ["eris+ldp", "fedavg-dpsgd", "soteriafl"]
    said = done(f"{private(tmp_path)[0]} --set 'method={json.dumps(methods)}'", tmp_path)
    for method in methods:
        assert re.search(rf"{re.escape(method)}: ε = (?:8|7\.\d+) at δ = 1e-05 for one sample", said), said


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_noise_on_every_sample_in_processes(tmp_path: Path) -> None:
    pytest.importorskip("opacus")
    digests = re.findall(r'"model_digest": "([0-9a-f]{64})"', done("\n".join(private(tmp_path)), tmp_path))
    assert len(digests) == 2 + 4
    assert len(set(digests)) == 1
