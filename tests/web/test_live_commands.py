"""`--web`, `eris watch` and `eris budget`, as processes of a real federation."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import socket
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import eris, running
from tests.web.test_live_page import fetch, said

PEERS = ("amber", "birch", "cedar")
SETTINGS = """
method = "eris"
rounds = {rounds}

[data]
name = "synthetic-clouds"

[privacy]
noise_multiplier = 3.0
clip = 1.0

[federation]
name = "cardio"
coordinator = "127.0.0.1:{port}"
peers = ["amber", "birch", "cedar"]
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@pytest.fixture
def federation(tmp_path: Path) -> Path:
    (tmp_path / "FEDERATION.toml").write_text(SETTINGS.format(rounds=4000, port=free_port()))
    eris("certs", "init", "ca", "--federation", "cardio", cwd=tmp_path)
    for name in ("coordinator", *PEERS):
        eris("certs", "issue", "ca", name, cwd=tmp_path)
    return tmp_path


def page_of(log: Path, seconds: float = 60.0) -> str:
    until = time.monotonic() + seconds
    while (found := re.search(r"live page: (\S+)", log.read_text())) is None:
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.1)
    return found[1]


def whole(address: str) -> dict[str, Any]:
    return said(address, 1)[0][1]


def when(address: str, holds: Any, seconds: float = 120.0) -> dict[str, Any]:
    until = time.monotonic() + seconds
    while not holds(facts := whole(address)):
        assert time.monotonic() < until, facts["run"]
        time.sleep(0.2)
    return facts


def test_coordinator_and_peer_have_pages_and_a_member_its_budget(federation: Path) -> None:
    logs = {name: federation / f"{name}.log" for name in ("coordinator", *PEERS)}
    words = {name: ("join", "FEDERATION.toml", "--peer", name, "--credentials", f"ca/peers/{name}") for name in PEERS}
    words = {name: (*line, "--listen", "127.0.0.1:0", "--budget", "spent") for name, line in words.items()}
    words["birch"] = (*words["birch"], "--report")
    serving = ("coordinator", "FEDERATION.toml", "--credentials", "ca/peers/coordinator", "--web")
    with (
        running(*serving, cwd=federation, log=logs["coordinator"]) as coordinator,
        running(*words["amber"], "--web", cwd=federation, log=logs["amber"]) as amber,
        running(*words["birch"], cwd=federation, log=logs["birch"]) as birch,
        running(*words["cedar"], cwd=federation, log=logs["cedar"]) as cedar,
    ):
        theirs = when(page_of(logs["coordinator"]), lambda facts: len(facts["rounds"]) > 2)
        own = when(page_of(logs["amber"]), lambda facts: len(facts["rounds"]) > 2)
        status = eris("watch", "FEDERATION.toml", "--once", "--credentials", "ca/peers/amber", cwd=federation)
        eris("stop", "FEDERATION.toml", "--credentials", "ca/peers/amber", "--yes", cwd=federation)
        for each in (amber, birch, cedar):
            each.wait(code=24)
        coordinator.wait(code=24)
    assert theirs["run"]["state"] == "training"
    assert all(theirs["peers"][name]["here"] for name in PEERS)
    assert "loss" not in theirs["run"]  # a member's own figures are on its own page
    assert any("begins with 3 peers" in line["text"] for line in theirs["lines"])
    assert {"train", "exchange", "verdict", "step"} <= own["rounds"][0]["seconds"].keys()
    assert own["run"]["floor"]["max_share"] < 1
    assert own["run"]["largest_share"] > 0
    assert own["run"]["privacy"].startswith("ε = ")
    assert own["run"]["accuracy"] > 0
    assert own["run"]["masking"] == "off"
    assert "3 of 3" in status
    assert "over all runs: 1 run, " in logs["birch"].read_text()
    assert next(federation.glob("runs/*/birch/report.html")).exists()
    kept = json.loads(eris("budget", "--budget", "spent", "--json", cwd=federation))
    assert set(kept) == set(PEERS)
    rounds = json.loads(next(federation.glob("runs/*/amber/summary.json")).read_text())["rounds"]
    assert kept["amber"]["rounds"] >= rounds > 2
    assert kept["amber"]["epsilon"][0]["value"] > 0
    assert "amber" in eris("budget", "amber", "--budget", "spent", cwd=federation)
    assert "birch" in eris("watch", next(federation.glob("runs/*/amber")), "--once", cwd=federation)
    limited = eris(*words["amber"], "--max-epsilon", "0.5", cwd=federation, code=13)
    assert "the limit is ε = 0.5" in limited


def test_a_simulation_is_watched_while_it_runs(tmp_path: Path) -> None:
    options = ("--set", "rounds=60", "--set", "data.name=synthetic-clouds", "--set", "members=5", "--set", "workers=1")
    methods = ("--set", 'method=["fedavg","eris"]')
    eris("run", *options, *methods, "--out", "run", "--quiet", cwd=tmp_path)
    shown = eris("watch", "run", "--once", cwd=tmp_path)
    assert "finished" in shown
    assert "60/60" in shown
    with running("watch", "run", cwd=tmp_path, log=tmp_path / "watch.log") as watching:  # it has ended: so does this
        assert "live page: http://127.0.0.1:" in watching.wait()
    nothing = eris("watch", ".", "--once", cwd=tmp_path / "run" / "eris" / "checkpoint", code=2)
    assert "there is no run in this folder" in nothing


def test_a_folder_is_followed_line_by_line(tmp_path: Path) -> None:
    from eris.web.follow_folder import FolderFollower
    from eris.web.live_page import LivePage

    options = ("--set", "rounds=6", "--set", "data.name=synthetic-clouds", "--set", "members=5", "--set", "workers=1")
    eris("run", *options, "--set", "method=eris", "--out", "run", "--quiet", cwd=tmp_path)
    lines = (tmp_path / "run" / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "run" / "summary.json").rename(tmp_path / "summary.json")
    (tmp_path / "run" / "metrics.jsonl").write_bytes(lines[0] + lines[1][:20])
    follower = FolderFollower(tmp_path / "run")
    follower.look()
    with LivePage(follower.facts) as served:
        assert len(whole(served.address)["rounds"]) == 1  # half a line is none
        (tmp_path / "run" / "metrics.jsonl").write_bytes(b"".join(lines))
        follower.look()
        facts = whole(served.address)
        assert [row["round"] for row in facts["rounds"]] == list(range(6))
        assert facts["run"]["state"] == "training"
        assert len(facts["peers"]) == 5
        (tmp_path / "summary.json").rename(tmp_path / "run" / "summary.json")
        follower.look()
        assert follower.ended
        assert whole(served.address)["run"]["state"] == "finished"
        assert fetch(served.address)[0] == 200


def test_in_a_terminal_the_same_facts_are_a_table(tmp_path: Path) -> None:
    options = ("--set", "rounds=6", "--set", "data.name=synthetic-clouds", "--set", "members=5", "--set", "workers=1")
    eris("run", *options, "--set", "method=eris", "--out", "run", "--quiet", cwd=tmp_path)
    (tmp_path / "run" / "summary.json").rename(tmp_path / "summary.json")
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    words = [sys.executable, "-m", "eris", "watch", "run", "--no-web"]
    with subprocess.Popen(words, cwd=tmp_path, env=environment, stdin=theirs, stdout=theirs, stderr=theirs) as child:
        os.close(theirs)
        shown, moved = "", False
        with contextlib.suppress(OSError):  # the terminal is gone when its last process is
            while piece := os.read(ours, 65536):
                shown += piece.decode(errors="replace")
                if "6/6" in shown and not moved:  # it is drawn while the run goes on; now the run ends
                    (tmp_path / "summary.json").rename(tmp_path / "run" / "summary.json")
                    moved = True
        os.close(ours)
        assert child.wait(60) == 0, shown
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert "training" in plain
    assert "finished" in plain
    assert "exposure" in plain
    assert "Traceback" not in plain
