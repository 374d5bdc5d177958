"""`eris up`: real processes end with the model of `eris run`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from eris.config import load_config
from eris.simulate.run import run
from tests.cli.processes import ENVIRONMENT, eris

QUADRATIC = ["data.name=synthetic-quadratic", "rounds=3", "server.min_contributors=1"]
FEDADAM = ["server.optimizer=fedadam", "server.optimizer_options={lr = 0.1}"]
TINY = ["rounds=2", "data.samples=20", "data.validation=0.0", "evaluate_every=2"]


def up(folder: Path, *changes: str) -> dict[str, Any]:
    words = [word for change in changes for word in ("--set", change)]
    return dict(json.loads(eris("up", *words, "--out", folder, "--json", cwd=folder.parent, seconds=240)))


def simulated(folder: Path, *changes: str) -> str:
    config = load_config(changes=[*changes, "workers=1"])
    return str(run(config, folder).summaries[0]["model_digest"])


def summaries(folder: Path) -> dict[str, dict[str, Any]]:
    return {path.parent.name: json.loads(path.read_text()) for path in folder.glob("peers/*/summary.json")}


def test_processes_with_everything_on_end_with_the_simulated_model(tmp_path: Path) -> None:
    changes = [*QUADRATIC, "method=eris+dsc", "members=4", "aggregators=3", "participation=0.5", *FEDADAM]
    outcome = up(tmp_path / "up", *changes)
    assert outcome["model_digest"] == simulated(tmp_path / "run", *changes)
    stays = summaries(tmp_path / "up")
    assert len({stay["pid"] for stay in stays.values()} | {os.getpid()}) == 5
    assert sorted(stays) == ["peer-0", "peer-1", "peer-2", "peer-3"]
    counted = [link for stay in stays.values() for side in stay["links"].values() for link in side]
    assert len(counted) == 2 * 4 * 3 - 2 * 3  # each of four dials each of three aggregators but itself
    for link in counted:
        assert link["kernel_sent"] == pytest.approx(link["wire_sent"], abs=64)
        assert link["kernel_received"] == pytest.approx(link["wire_received"], abs=64)
    replay = eris("run", "--replay", tmp_path / "up/peers/peer-2/verdicts.jsonl", "--json", cwd=tmp_path)
    assert json.loads(replay)["summaries"][0]["model_digest"] == outcome["model_digest"]


def test_lenet_in_real_processes_is_lenet_simulated(tmp_path: Path) -> None:
    changes = [*TINY, "method=eris", "members=3"]
    outcome = up(tmp_path / "up", *changes)
    assert outcome["model_digest"] == simulated(tmp_path / "run", *changes)
    assert outcome["peers"][0]["accuracy"] is not None


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        ["method=eris", "aggregators=1"],
        ["method=eris", "aggregators=3"],
        ["method=eris", "model.name=tiny-batchnorm"],
        ["method=eris+dsc", "aggregators=3", "model.name=tiny-batchnorm"],
        ["method=eris+dsc+masked", "aggregators=3", "model.name=tiny-batchnorm"],
        ["method=eris", *FEDADAM],
        ["method=eris+dsc", "participation=0.5", "server.min_contributors=1", *FEDADAM],
    ],
    ids=lambda changes: " ".join(changes)[:60],
)
def test_torch_in_real_processes(tmp_path: Path, changes: list[str]) -> None:
    changes = [*TINY, "members=4", *changes]
    assert up(tmp_path / "up", *changes)["model_digest"] == simulated(tmp_path / "run", *changes)


def in_its_third_round(folder: Path, *changes: str) -> subprocess.Popen[str]:
    """Start `eris up` in a process of its own and return when it has played some rounds."""
    words = [sys.executable, "-m", "eris", "up", "--out", "up"]
    words += [word for change in changes for word in ("--set", change)]
    process = subprocess.Popen(words, cwd=folder, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    while "round 3" not in process.stdout.readline():
        pass
    return process


def test_an_interruption_ends_every_process(tmp_path: Path) -> None:
    process = in_its_third_round(tmp_path, *QUADRATIC, "members=2", "rounds=100000")
    assert process.stdout is not None
    children = _children(process.pid)
    assert len(children) == 3
    process.send_signal(signal.SIGINT)
    said = process.stdout.read()
    assert process.wait(60) == 130
    process.stdout.close()
    assert said.rstrip().endswith("stopped; continue with: eris up --resume up")
    assert [peer["exit_code"] for peer in json.loads((tmp_path / "up/outcome.json").read_text())["peers"]] == [130, 130]
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
    assert {stay["ended"] for stay in summaries(tmp_path / "up").values()} == {"interrupted"}


def test_a_run_that_was_interrupted_goes_on_to_the_same_model(tmp_path: Path) -> None:
    changes = [*QUADRATIC, "method=eris", "members=2", "rounds=40"]
    process = in_its_third_round(tmp_path, *changes)
    assert process.stdout is not None
    process.send_signal(signal.SIGINT)
    process.stdout.read()
    process.stdout.close()
    assert process.wait(60) == 130
    outcome = json.loads(eris("up", "--resume", "up", "--json", cwd=tmp_path))
    assert [peer["rounds"] for peer in outcome["peers"]] == [40, 40]
    assert outcome["model_digest"] == simulated(tmp_path / "run", *changes)
    assert "--resume continues with the folder's own settings" in eris(
        "up", "--resume", "up", "--peers", 2, cwd=tmp_path, code=2
    )


def test_a_run_that_was_stopped_by_hand_did_not_fail(tmp_path: Path) -> None:
    process = in_its_third_round(tmp_path, *QUADRATIC, "members=2", "rounds=100000")
    assert process.stdout is not None
    assert "stopped by coordinator" in eris("stop", "up/FEDERATION.toml", "--yes", cwd=tmp_path)
    said = process.stdout.read()
    process.stdout.close()
    assert process.wait(60) == 24
    assert "ended with exit code" not in said
    assert said.rstrip().endswith("stopped; continue with: eris up --resume up")


def test_children_do_not_outlive_a_parent_that_is_killed(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "eris", "up", "--peers", "1", "--out", "up"]
    words += [word for change in (*QUADRATIC, "rounds=100000") for word in ("--set", change)]
    process = subprocess.Popen(words, cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    while "round 3" not in process.stdout.readline():
        pass
    children = _children(process.pid)
    process.kill()
    process.wait()
    process.stdout.close()
    until = time.monotonic() + 30
    while any(_alive(pid) for pid in children) and time.monotonic() < until:
        time.sleep(0.1)
    assert not [pid for pid in children if _alive(pid)]


def test_a_peer_that_cannot_start_ends_the_rest_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "halls.py").write_text(
        "from eris.tasks import build_task\n"
        "def task(config, peer):\n"
        "    if peer == 2: raise RuntimeError('no such disk')\n"
        "    return build_task(config.model_dump(mode='json'))\n"
    )
    words = [word for change in QUADRATIC for word in ("--set", change)]
    said = eris("up", *words, "--peers", 3, "--task", "halls:task", "--out", "up", cwd=tmp_path, code=20)
    why = r"halls:task\(config, 2\) failed: RuntimeError: no such disk.*\(log: (up/peers/peer-2/log\.jsonl)\)"
    named = re.search(rf"peer-2 ended with exit code \d+: {why}", said)
    assert named, said
    assert "RuntimeError: no such disk" in (tmp_path / named[1]).read_text()
    assert "exit code -" not in said


def test_a_task_that_no_peer_could_make_starts_nothing(tmp_path: Path) -> None:
    said = eris("up", "--peers", 3, "--task", "nothing.here:Task", "--out", "up", cwd=tmp_path, code=2)
    assert "'nothing.here:Task' cannot be imported" in said
    assert not (tmp_path / "up").exists()


def test_settings_that_contradict_each_other_start_nothing(tmp_path: Path) -> None:
    said = eris("up", "--peers", 3, "--set", "members=5", "--out", "up", cwd=tmp_path, code=2)
    assert "--peers is 3, members is 5" in said
    assert "min_contributors is 3, but only 2 of 2" in eris("up", "--peers", 2, "--out", "up", cwd=tmp_path, code=2)
    (tmp_path / "a-file").touch()
    assert "a file, not a folder" in eris("up", "--out", "a-file", cwd=tmp_path, code=2)
    assert not (tmp_path / "up").exists()


def _children(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=True)
    own = [int(word) for word in found.stdout.split()]
    return [child for child in own if "eris" in Path(f"/proc/{child}/cmdline").read_text()]


def _alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for by anybody does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
