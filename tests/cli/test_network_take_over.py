"""A coordinator is killed and its folder removed; what an operator types then, and what every surface says."""

from __future__ import annotations

import json
import shutil
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.processes import Running, eris, running
from tests.faults.fleet import free_port

NAMES = ("amber", "birch", "cedar")
FILE = """
method = "eris"
rounds = 250
aggregators = 3

[data]
name = "synthetic-quadratic"

[server]
max_step = 1000.0

[federation]
name = "grove"
coordinator = "127.0.0.1:{first}"
standbys.reserve = "127.0.0.1:{second}"
peers = ["amber", "birch", "cedar"]
connect = 3
"""


def round_reached(folder: Path) -> int:
    path = folder / "run-amber" / "metrics.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0


def wait_for_round(folder: Path, round: int, *logs: Running) -> None:
    until = time.monotonic() + 120.0
    while round_reached(folder) < round:
        assert time.monotonic() < until, "\n".join(one.log.read_text() for one in logs)
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_an_operator_takes_over(tmp_path: Path) -> None:
    (tmp_path / "FEDERATION.toml").write_text(FILE.format(first=free_port(), second=free_port()))
    eris("certs", "init", "certs", "--federation", "grove", cwd=tmp_path)
    for name in ("coordinator", "reserve", *NAMES):
        eris("certs", "issue", "certs", name, cwd=tmp_path)
    with ExitStack() as stack:

        def start(name: str, *words: str) -> Running:
            return stack.enter_context(running(*words, cwd=tmp_path, log=tmp_path / f"{name}.log"))

        clock = start("clock", "coordinator", "FEDERATION.toml", "--state", "first")
        options = ("--reproducible", "--budget", "none", "--no-report")
        peers = [
            start(name, "join", "FEDERATION.toml", "--peer", name, "--out", f"run-{name}", *options) for name in NAMES
        ]
        wait_for_round(tmp_path, 5, clock, *peers)
        said = eris("status", cwd=tmp_path)
        assert "coordinator coordinator at 127.0.0.1:" in said
        assert ", term 0, epoch 0" in said
        clock.process.kill()
        clock.process.wait()
        shutil.rmtree(tmp_path / "first")
        reached = round_reached(tmp_path)
        second = start(
            "reserve", "coordinator", "FEDERATION.toml", "--take-over", "--state", "second", "--metrics", "0"
        )
        wait_for_round(tmp_path, reached + 5, second, *peers)
        status = json.loads(eris("status", "--json", cwd=tmp_path))
        assert (status["coordinator"], status["term"], status["epoch"]) == ("reserve", 1, 1 << 20)
        refused = eris("coordinator", "FEDERATION.toml", "--state", "again", cwd=tmp_path, code=2)
        assert "reserve has taken over in term 1, with the votes of amber, birch, cedar" in refused
        for peer in peers:
            peer.wait(seconds=200)
        assert "reserve coordinates in term 1, with the votes of amber, birch, cedar" in second.wait(seconds=60)
    stays = [json.loads((tmp_path / f"run-{name}" / "summary.json").read_text()) for name in NAMES]
    assert {stay["ended"] for stay in stays} == {"finished"}
    assert len({stay["model_digest"] for stay in stays}) == 1
    eris("run", "run-amber/config.toml", "--replay", "run-amber/verdicts.jsonl", "--out", "replay", cwd=tmp_path)
    (summary,) = (tmp_path / "replay").rglob("summary.json")
    assert json.loads(summary.read_text())["model_digest"] == stays[0]["model_digest"]


def test_nobody_can_take_over_where_nobody_is_listed(tmp_path: Path) -> None:
    lines = [line for line in FILE.format(first=1, second=2).splitlines() if not line.startswith("standbys")]
    (tmp_path / "FEDERATION.toml").write_text("\n".join(lines))
    refused = eris("coordinator", "FEDERATION.toml", "--take-over", cwd=tmp_path, code=2)
    assert "this federation lists no standby that may take over" in refused
    assert 'standbys.NAME = "host:port"' in refused
