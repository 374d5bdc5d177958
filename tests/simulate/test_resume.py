"""A run that is stopped or killed, whenever, and gone on with ends as if nothing had happened."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time

import pytest

from eris.config import load_config
from eris.errors import CheckpointError
from eris.simulate.run import resume, run
from tests.simulate.setting import SMALL

HARD = [
    *SMALL, "method=eris+dsc", "rounds=60", "members=6", "participation=0.7", "local.keep_state=true",
    "faults.link_failure=0.1", "server.optimizer=fedadam", "server.optimizer_options={lr=0.05}",
]  # fmt: skip


def lines(folder, name):
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def essence(folder):
    """Everything a run wrote but how long it took."""
    summary = json.loads((folder / "summary.json").read_text())
    for key in ("seconds", "peak_memory_bytes"):
        summary.pop(key)
    metrics = lines(folder, "metrics.jsonl")
    for line in metrics:
        line.pop("seconds")
    exposure = json.loads((folder / "exposure.json").read_text())
    return summary, metrics, lines(folder, "verdicts.jsonl"), exposure


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    run(load_config(changes=HARD), folder)
    return essence(folder)


def test_stopping_between_rounds_and_going_on(tmp_path, undisturbed):
    asked = iter(range(10**9))
    result = run(load_config(changes=HARD), tmp_path / "run", stopped=lambda: next(asked) > 50)
    assert not result.finished
    assert 0 < result.summaries[0]["rounds"] < 60
    assert resume(tmp_path / "run").finished
    assert essence(tmp_path / "run") == undisturbed


def test_going_on_with_what_is_finished_changes_nothing(tmp_path, undisturbed):
    run(load_config(changes=HARD), tmp_path / "run")
    resume(tmp_path / "run")
    assert essence(tmp_path / "run") == undisturbed


def test_several_methods(tmp_path):
    changes = [*SMALL, 'method=["fedavg", "eris+dsc"]', "rounds=6"]
    whole = run(load_config(changes=changes), tmp_path / "whole")
    asked = iter(range(10**9))
    part = run(load_config(changes=changes), tmp_path / "part", stopped=lambda: next(asked) > 55)
    assert [summary["method"] for summary in part.summaries] == ["fedavg", "eris+dsc"]
    assert not part.finished
    again = resume(tmp_path / "part")
    for method in ("fedavg", "eris+dsc"):
        assert again[method]["model_digest"] == whole[method]["model_digest"]
        assert essence(tmp_path / "part" / method) == essence(tmp_path / "whole" / method)


def killed(folder, verdicts, delay, arguments):
    """Run the command line; kill it a moment after so many rounds have a verdict. Return whether it had finished."""
    command = [sys.executable, "-c", "from eris.cli import main; main()", "run", "--quiet"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([*command, "--checkpoint-seconds", "0.02", *arguments], env=environment)
    while process.poll() is None and rounds_of(folder) < verdicts:
        time.sleep(0.002)
    time.sleep(delay)
    process.kill()
    return process.wait() == 0


def rounds_of(folder):
    path = folder / "verdicts.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else -1


def kill_and_resume(folder, moments, workers):
    """Kill a run at each of the moments (rounds with a verdict, seconds after that), then let it finish."""
    arguments = [part for change in [*HARD, f"workers={workers}"] for part in ("--set", change)]
    arguments += ["--out", str(folder)]
    for verdicts, delay in moments:
        assert not killed(folder, verdicts, delay, arguments)
        arguments = ["--resume", str(folder)]
    resume(folder)


@pytest.mark.parametrize(("seed", "workers"), [(1, 1), (2, 2)])
def test_killed_and_gone_on_with(tmp_path, undisturbed, seed, workers):
    draw = random.Random(seed)
    moments = [(0, draw.uniform(0, 0.02)), (draw.randrange(10, 50), draw.uniform(0, 0.02))]
    kill_and_resume(tmp_path / "run", moments, workers)
    assert essence(tmp_path / "run") == undisturbed


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_killed_at_twenty_moments(tmp_path, undisturbed, seed):
    draw = random.Random(100 + seed)
    rounds = sorted(draw.sample(range(55), 2))
    kill_and_resume(tmp_path / "run", [(r, draw.uniform(0, 0.05)) for r in rounds], workers=1 + seed % 2)
    assert essence(tmp_path / "run") == undisturbed


def test_a_damaged_checkpoint_is_passed_over(tmp_path, undisturbed):
    asked = iter(range(10**9))
    run(load_config(changes=HARD), tmp_path / "run", stopped=lambda: next(asked) > 50, checkpoint_seconds=0)
    newest = sorted((tmp_path / "run" / "checkpoint").glob("round-*"))[-1]
    data = bytearray(newest.read_bytes())
    data[-3] ^= 1
    newest.write_bytes(data)
    resume(tmp_path / "run")
    assert essence(tmp_path / "run") == undisturbed


def test_a_checkpoint_of_another_configuration_is_refused(tmp_path):
    run(load_config(changes=[*SMALL, "method=eris"]), tmp_path / "run")
    path = tmp_path / "run" / "config.toml"
    path.write_text(path.read_text().replace("rounds = 4", "rounds = 5"))
    with pytest.raises(CheckpointError, match="another configuration"):
        resume(tmp_path / "run")


def test_nothing_to_go_on_with(tmp_path):
    with pytest.raises(CheckpointError, match="no run in this folder"):
        resume(tmp_path)
