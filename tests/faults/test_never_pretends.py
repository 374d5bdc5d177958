"""A run that cannot train says so: it waits for the members it needs, or gives up and names them."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import Running, eris, running
from tests.faults.test_named_ends import NAMES, make

ROUNDS = 40
pytestmark = pytest.mark.timeout(280)


class Hospitals:
    """Three of them and a coordinator, each a command of its own."""

    def __init__(self, folder: Path, stack: ExitStack, *coordinator: object) -> None:
        self.folder, self._stack = folder, stack
        make(folder, n=2_000, rounds=ROUNDS)
        self.clock = self.start("coordinator", "clock", *coordinator)
        self.peers = {name: self.join(name) for name in NAMES}

    def start(self, verb: str, log: str, *words: object) -> Running:
        command = running(verb, "FEDERATION.toml", *words, cwd=self.folder, log=self.folder / f"{log}.log")
        return self._stack.enter_context(command)

    def join(self, name: str, log: str = "") -> Running:
        return self.start("join", log or name, "--peer", name, "--reproducible", "--out", name, "--json")

    def events(self, name: str, kind: str) -> list[dict[str, Any]]:
        lines = (self.folder / f"{name}.log").read_text().splitlines()
        found = [json.loads(line) for line in lines if line.startswith('{"event"') and line.endswith("}")]
        return [event for event in found if event["event"] == kind]

    def wait_for_round(self, name: str, round: int) -> None:
        until = time.monotonic() + 120
        while not any(event["round"] >= round for event in self.events(name, "RoundEnded")):
            assert time.monotonic() < until, (self.folder / f"{name}.log").read_text()[-3000:]
            time.sleep(0.05)

    def wait_for_state(self, state: str) -> dict[str, Any]:
        until, status = time.monotonic() + 60, {}
        while status.get("state") != state:
            assert time.monotonic() < until, status
            status = json.loads(eris("status", "--json", cwd=self.folder))
        return status

    def kill(self, name: str) -> None:
        self.peers[name].process.kill()
        self.peers[name].process.wait()

    def summary(self, name: str) -> dict[str, Any]:
        return json.loads((self.folder / name / "summary.json").read_text())  # type: ignore[no-any-return]


def test_one_is_killed_the_others_wait_it_comes_back_and_all_finish_alike(tmp_path: Path) -> None:
    with ExitStack() as stack:
        town = Hospitals(tmp_path, stack)
        town.wait_for_round("amber", 10)
        town.kill("cedar")
        status = town.wait_for_state("waiting")
        assert "needs 3 contributors, waiting for cedar (for 3," in status["why"]
        time.sleep(2.0)
        assert json.loads(eris("status", "--json", cwd=tmp_path))["round"] == status["round"] < ROUNDS  # nobody plays
        assert "waiting: round" in eris("status", cwd=tmp_path)
        town.peers["cedar"] = town.join("cedar", "cedar-again")
        for peer in (*town.peers.values(), town.clock):
            peer.wait(0, seconds=150)
    summaries = {name: town.summary(name) for name in NAMES}
    assert {(s["state"], s["ended"], s["rounds"]) for s in summaries.values()} == {("finished", "finished", ROUNDS)}
    assert len({s["model_digest"] for s in summaries.values()}) == 1
    # The round it died in is played again with it, unless the others had its parts already: then its own shard is lost.
    assert summaries["amber"]["lost_shards"] <= 1
    said = [(event["state"], event["why"]) for event in town.events("amber", "RunCourseChanged")]
    waited = next(index for index, (_, why) in enumerate(said) if "waiting for cedar (for" in why and "needs 3" in why)
    assert [state for state, _ in said[waited - 1 : waited + 2]] == ["training", "waiting", "training"]


def test_who_never_comes_back_ends_the_run_by_name_when_patience_is_over(tmp_path: Path) -> None:
    with ExitStack() as stack:
        town = Hospitals(tmp_path, stack, "--patience", 6)
        town.wait_for_round("amber", 10)
        town.kill("cedar")
        killed = time.monotonic()
        why = "not enough members returned within 6 s"
        assert why in town.clock.wait(14, seconds=60)
        for name in ("amber", "birch"):
            assert why in town.peers[name].wait(14, seconds=30)
        assert time.monotonic() - killed < 60
    for name in ("amber", "birch"):
        summary = town.summary(name)
        assert (summary["state"], summary["finished"]) == ("failed", False)
        assert "waiting for cedar" in summary["ended"]
        assert summary["rounds"] < ROUNDS
