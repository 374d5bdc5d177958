"""Cells are durable: whatever happens to a run, the same command goes on, and a failure is a row."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from eris.errors import ConfigError
from eris.paper.cell import do_cell
from eris.paper.experiment import Experiment, Measure, Panel, Point, Treatment
from eris.paper.reading import ERIS
from eris.paper.result import gather, table_csv
from eris.paper.run import CellDone, CellStore, run_cells

BASE = (
    "data.name=synthetic-clouds", "members=4", "rounds=2", "local.batch=full", "workers=1",
)  # fmt: skip


def experiment(*arms: Treatment, kind="training") -> Experiment:
    panel = Panel("clouds", BASE, arms, (Point(1), Point(2, ("rounds=3",))), 2, Measure(kind, {"audit": False}))
    return Experiment("test", "A test", "nothing", {"smoke": (panel,)})


FEDAVG, WRONG = Treatment("FedAvg", ("method=fedavg",)), Treatment("wrong", ("method=none-such",))


def test_a_failing_cell_is_a_row_with_its_reason_and_is_tried_again(tmp_path):
    store, heard = CellStore(tmp_path), list[CellDone]()
    trial = experiment(FEDAVG, WRONG)
    run_cells(trial.cells("smoke", ERIS), store, heard.append, workers=2)
    assert len(heard) == 8
    assert sum("none-such" in done.failed for done in heard) == 4
    result = gather(trial, "smoke", store, ERIS)
    assert [(row.arm, bool(row.failed)) for row in result.rows] == [("FedAvg", False), ("wrong", True)] * 2
    assert all(len(row.figures["accuracy"].values) == 2 for row in result.rows if row.arm == "FedAvg")
    assert "none-such" in table_csv(result)
    assert [cell.arm for cell in store.missing(trial.cells("smoke", ERIS))] == ["wrong"] * 4
    assert not (tmp_path / "scratch").exists() or not list((tmp_path / "scratch").iterdir())


def test_what_two_experiments_share_is_done_once(tmp_path):
    store, heard = CellStore(tmp_path), list[CellDone]()
    one, other = experiment(FEDAVG), experiment(Treatment("the same by another name", ("method=fedavg",)))
    run_cells([*one.cells("smoke", ERIS), *other.cells("smoke", ERIS)], store, heard.append, workers=1)
    assert len(heard) == 4
    assert gather(other, "smoke", store, ERIS).done == 2


def test_a_worker_that_dies_loses_one_cell(tmp_path, monkeypatch):
    (tmp_path / "fatal.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    store, heard = CellStore(tmp_path / "out"), list[CellDone]()
    deadly = Treatment("deadly", ("method=fedavg", "data.name=mnist-sample", "model.name=fatal:Model"))
    run_cells(experiment(deadly, FEDAVG).cells("smoke", ERIS), store, heard.append, workers=1)
    assert {(done.cell.arm, "signal 9" in done.failed) for done in heard} == {("deadly", True), ("FedAvg", False)}


def test_two_runs_do_not_share_a_folder(tmp_path):
    store = CellStore(tmp_path)
    with store.claimed(), pytest.raises(ConfigError, match="another process"):
        run_cells(experiment(FEDAVG).cells("smoke", ERIS), CellStore(tmp_path), lambda done: None)


def test_killed_and_gone_on_with_gives_the_same_table(tmp_path):
    """The whole command is killed without warning while it is at work; the second call ends with the same table."""
    command = [sys.executable, "-m", "eris", "reproduce", "figure-dropout", "--workers", "2", "--json", "--out"]
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "cwd": tmp_path}
    whole = subprocess.run([*command, "whole"], check=True, **quiet)
    process = subprocess.Popen([*command, "cut"], start_new_session=True, **quiet)
    deadline = time.monotonic() + 60
    while len(list((tmp_path / "cut").glob("cells/*.json"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    before = {path.name: path.read_bytes() for path in (tmp_path / "cut" / "cells").glob("*.json")}
    time.sleep(1.2)  # workers end by themselves
    again = subprocess.run([*command, "cut"], check=True, **quiet)
    assert all((tmp_path / "cut" / "cells" / name).read_bytes() == kept for name, kept in before.items())
    rows = [[row for result in json.loads(done.stdout) for row in result["rows"]] for done in (whole, again)]
    assert rows[0] == rows[1]
    assert before
    for name in ("figure-dropout.csv", "figure-dropout.svg"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "cut" / name).read_bytes()


def test_a_cell_is_written_whole(tmp_path):
    cell = experiment(FEDAVG).cells("smoke", ERIS)[0]
    store = CellStore(tmp_path)
    store.path(cell).parent.mkdir(parents=True)
    found = do_cell(cell.plain(), store.path(cell), store.scratch(cell))
    assert store.find(cell) == found
    assert found["figures"]["accuracy"]["value"] > 0.3
    assert [path.name for path in store.path(cell).parent.iterdir()] == [f"{cell.key}.json"]


def test_what_another_version_left_behind_is_done_again(tmp_path):
    cell = experiment(FEDAVG).cells("smoke", ERIS)[0]
    store = CellStore(tmp_path)
    store.path(cell).parent.mkdir(parents=True)
    store.scratch(cell).mkdir(parents=True)
    (store.scratch(cell) / "config.toml").write_text("no_such_key = 1\n", encoding="utf-8")
    assert "figures" in do_cell(cell.plain(), store.path(cell), store.scratch(cell))
