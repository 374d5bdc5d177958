"""Reconstruction against the visible share and against defences, with attacks that take no time."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from eris.audit.reconstruction.plots import plot_defences, plot_shares
from eris.audit.reconstruction.run import RANDOM
from eris.audit.reconstruction.sweep import (
    DEFENCES,
    RECONSTRUCTION_SIZES,
    ReconstructionSize,
    left_out,
    run_defences,
    run_shares,
)
from eris.config import load_config
from eris.errors import ConfigError, DataError

pytest.importorskip("torch")

TINY = ReconstructionSize(1, ("rank-one", "idlg"), (1, 2, 4), "idlg", {"idlg": {"steps": 2, "restarts": 1}})

# Whoever starts the tests in the background may have told them not to hear Ctrl-C.
HEARING = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from eris.cli import main; main()"


def test_each_attack_sees_less_with_every_shard(tmp_path):
    points = run_shares(TINY, ["members=4"], tmp_path)
    for attack in TINY.attacks:
        shares = {p["defence"]: p["share"] for p in points if p["attack"] == attack and p["mode"] == "mask-aware"}
        assert shares["FedAvg"] == 1.0
        assert shares["ERIS A=2"] == pytest.approx(1 / 2, abs=0.01)
        assert shares["ERIS A=4"] == pytest.approx(1 / 4, abs=0.01)
        assert RANDOM in shares
    written = json.loads((tmp_path / "sweep-reconstruction.json").read_text())
    assert len(written["points"]) == len(points) == 2 * (1 + 2 * 2 + 1)
    found = {(p["defence"], p["mode"]): p["mse"]["median"] for p in points if p["attack"] == "rank-one"}
    assert found["FedAvg", "mask-aware"] < 1e-3  # a fully connected layer gives its input away
    assert found["ERIS A=2", "mask-aware"] < 1e-3
    plot_shares(points, tmp_path / "shares.png")
    assert (tmp_path / "shares.png").read_bytes().startswith(b"\x89PNG")


def test_more_shards_than_members_bring_members(tmp_path):
    points = run_shares(replace(TINY, attacks=("rank-one",), shares=(1, 8)), ["members=4"], tmp_path)
    assert {round(point["share"], 2) for point in points} == {1.0, 0.12}


def test_all_defences_are_in_the_table_and_nothing_is_done_twice(tmp_path):
    done = []
    points = run_defences(TINY, [], tmp_path, notice=lambda at, total, what: done.append(what))
    labels = list(dict.fromkeys(point["defence"] for point in points))
    assert labels == [*(label for label, _ in DEFENCES), RANDOM]
    shares = {point["defence"]: point["share"] for point in points}
    assert shares["top-k, 10 %"] == pytest.approx(0.1, abs=0.01)
    assert shares["PriPrune, p = 0.1"] == pytest.approx(0.9, abs=0.02)
    assert shares["ERIS, A = 8 + DSC, p = 0.2"] == pytest.approx(0.025, abs=0.01)
    plot_defences(points, tmp_path / "defences.png")
    files = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/pictures/*.npz")}
    assert files
    again = run_defences(TINY, [], tmp_path)
    assert [{**point, "seconds": 0} for point in again] == [{**point, "seconds": 0} for point in points]
    assert {path: path.stat().st_mtime_ns for path in files} == files


def test_attacks_without_their_trained_network_are_left_out_and_said_to_be(tmp_path, monkeypatch):
    monkeypatch.setenv("ERIS_DATA", str(tmp_path / "empty"))
    size = replace(TINY, attacks=("rank-one", "rog", "ggl"), shares=(1, 2))
    points = run_shares(size, [], tmp_path)
    assert {point["attack"] for point in points} == {"rank-one"}
    written = json.loads((tmp_path / "sweep-reconstruction.json").read_text())["left_out"]
    assert written == {"rog": "run `eris data get rog-mnist`", "ggl": "run `eris data get ggl-mnist`"}
    assert "no network is known" in left_out(size, ["data.name=fashion-mnist"])["rog"]
    with pytest.raises(DataError, match="eris data get ggl-mnist"):
        run_shares(size, [], tmp_path / "asked", attacks=["ggl"])  # by name: it is missed


def test_an_attack_with_a_prior_has_its_place_in_the_sweep(tmp_path):
    size = replace(TINY, options={"rog": {"enhancer": "", "steps": 20}}, shares=(1, 2))
    points = run_shares(size, [], tmp_path, attacks=["rog"])
    cases = [(point["defence"], point["mode"]) for point in points]
    assert cases == [
        ("FedAvg", "mask-aware"), ("ERIS A=2", "mask-aware"), ("ERIS A=2", "zero-filled"), (RANDOM, "mask-aware"),
    ]  # fmt: skip
    plot_shares(points, tmp_path / "shares.png")


def test_an_interrupted_sweep_does_nothing_twice_and_comes_to_the_same(tmp_path):
    size, attacked = replace(TINY, pictures=2, shares=(1, 2)), []

    def interrupted(done, total, what):
        if what.startswith("ERIS A=2, idlg, zero"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_shares(size, [], tmp_path / "part", notice=interrupted)
    assert not (tmp_path / "part" / "sweep-reconstruction.json").exists()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("part/runs/*/pictures/*.npz")}
    assert len(before) == (2 + 4 + 2) + (2 + 2)  # the first attack entirely, of the second both mask-aware cells
    again = run_shares(size, [], tmp_path / "part", notice=lambda done, total, what: attacked.append(what))
    assert {path: path.stat().st_mtime_ns for path in before} == before
    whole = run_shares(size, [], tmp_path / "whole")
    assert [{**point, "seconds": 0} for point in again] == [{**point, "seconds": 0} for point in whole]


@pytest.mark.parametrize("command", [("sweep", "reconstruction"), ("reconstruction",)], ids=" ".join)
def test_ctrl_c_is_clean_and_the_same_command_goes_on(tmp_path, command):
    """A real process and a real signal: no trace of the program, and the finished pictures stay."""
    out, settings = tmp_path / "found", ("--set", "members=8", "--attack", "idlg", "--out", str(tmp_path / "found"))
    program = [sys.executable, "-c", HEARING, "audit", *command, *settings]
    process = subprocess.Popen(program, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    ends = time.monotonic() + 120
    while not list(out.rglob("*.npz")) and process.poll() is None and time.monotonic() < ends:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=120)[1]
    assert process.returncode == 130
    assert f"--out {out} continues" in said.replace("\n", "")
    assert "Traceback" not in said
    finished = list(out.rglob("*.npz"))
    assert finished
    for path in finished:
        with np.load(path) as arrays:
            assert json.loads(str(arrays["facts"]))["attack"] == "idlg"


def test_an_attack_on_another_model_has_no_place_among_the_defences(tmp_path):
    with pytest.raises(ConfigError, match="another model"):
        run_defences(TINY, [], tmp_path, attacks=["rank-one"])


@pytest.mark.parametrize("size", RECONSTRUCTION_SIZES.values(), ids=RECONSTRUCTION_SIZES)
def test_every_size_has_settings_that_can_be(size):
    from eris.audit.reconstruction.attack import reconstruction_attack
    from eris.audit.reconstruction.defence import SMALL

    for name in (*size.attacks, size.defence_attack):
        assert reconstruction_attack(name, **size.options.get(name, {})).name == name
    for _, own in DEFENCES:
        assert load_config(changes=[*SMALL, *size.changes, *own]).members >= 8
