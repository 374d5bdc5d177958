"""`eris reproduce` as a user meets it: everything at the smallest size, and the claims that follow."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import time

import pytest
import typer
from typer.testing import CliRunner

from eris.audit.networks import network_is_here
from eris.cli import reproduce
from eris.errors import ConfigError
from eris.paper.catalogue import experiments_by_name
from eris.paper.claims import CLAIMS


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """Run all experiments once."""
    folder, began = tmp_path_factory.mktemp("paper"), time.monotonic()
    command = [sys.executable, "-m", "eris", "reproduce", "all", "--size", "smoke", "--workers", "2", "--out", "smoke"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-3000:]
    return folder / "smoke", done, time.monotonic() - began


def invoke(*arguments, columns=100):
    app = typer.Typer()
    reproduce.register(app)
    app.command()(lambda: None)
    return CliRunner(env={"COLUMNS": f"{columns}"}).invoke(app, ["reproduce", *arguments], catch_exceptions=False)


def test_everything_at_the_smallest_size(everything):
    folder, done, _ = everything
    assert "cells to do" in done.stderr  # the estimate comes first, piped too
    assert "left" in done.stderr
    for name in experiments_by_name():
        result = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        assert result["reading"] == "paper"
        assert not any(row["failed"] or row["missing"] for row in result["rows"]), name
        with (folder / f"{name}.csv").open(encoding="utf-8") as lines:
            assert len(list(csv.reader(lines))) > 1
        assert "<table" in (folder / f"{name}.html").read_text(encoding="utf-8")
    tables = (folder / "tables.md").read_text(encoding="utf-8")
    assert all(f"## {name}" in tables for name in experiments_by_name())
    assert not (folder / "scratch").exists() or not list((folder / "scratch").iterdir())


def test_figures_have_the_paper_s_shapes(everything):
    folder, *_ = everything
    drawn = {path.stem for path in folder.glob("*.svg")}
    assert {name for name in experiments_by_name() if name.startswith("figure-")} <= drawn


def test_pictures_are_measured_by_lpips_in_both_modes_beside_noise(everything):
    folder, *_ = everything
    rows = json.loads((folder / "figure-reconstruction.json").read_text(encoding="utf-8"))["rows"]
    measured = "lpips" if network_is_here("lpips") else "recovered"
    assert {(row["arm"], row["point"]) for row in rows if row["figures"][measured]["value"] is not None} == {
        (arm, point) for arm in ("zero-filled", "mask-aware", "random gradients") for point in (100.0, 50.0)
    }


def test_communication_tables_are_the_printed_ones(everything):
    folder, *_ = everything
    for name in ("table-communication-text", "table-communication-images"):
        for row in json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))["rows"]:
            for figure in row["figures"].values():
                # a printed cell has two decimals of its own unit
                assert figure["value"] == pytest.approx(figure["printed"], rel=6e-3, abs=0.0101), row


def test_claims_follow_from_results(everything):
    folder, *_ = everything
    claims = json.loads(invoke("claims", "--out", str(folder), "--json").output)
    assert len(claims) == len(CLAIMS)
    verdicts = {claim["says"]: claim["verdict"] for claim in claims}
    assert verdicts["ERIS has FedAvg's utility"] == "not decided here"  # one fold decides nothing
    assert verdicts["ERIS+LDP dominates FedAvg+LDP"] == "not decided here"  # and smoke measures no AUC
    assert verdicts["Distribution time falls by up to 1000 ×"].startswith(
        "holds under"
    )  # what is calculated is decided
    page = (folder / "claims.md").read_text(encoding="utf-8")
    assert all(says in page for says in verdicts)


def test_a_second_call_does_nothing_again(everything):
    folder, *_ = everything
    before = {path: path.stat().st_mtime_ns for path in (folder / "cells").iterdir()}
    done = invoke("table-mnist-few", "--out", str(folder))
    assert done.exit_code == 0
    assert {path: path.stat().st_mtime_ns for path in (folder / "cells").iterdir()} == before
    assert "LDP, ε = 10" in done.output


def test_what_there_is_and_what_it_costs():
    lines = json.loads(invoke("--list", "--json").output)
    assert [line["name"] for line in lines] == list(experiments_by_name())
    assert all(line["sizes"][size]["cells"] > 0 for line in lines for size in ("smoke", "small", "paper"))
    assert all(line["sizes"]["paper"]["seconds"] >= line["sizes"]["smoke"]["seconds"] for line in lines)
    shown = invoke("--list", columns=80).output.splitlines()
    assert max(len(line) for line in shown) <= 80
    assert [line.split()[0] for line in shown if line.startswith(("table-", "figure-"))] == list(experiments_by_name())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing"], "no experiment"),
        (["all", "--size", "huge"], "no size"),
        (["all", "--reading", "his"], "no reading"),
        (["table-rates", "--only", "xyz"], "no cell"),
        ([], "which experiment"),
    ],
)
def test_mistakes_are_said(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=words):
        invoke(*arguments)


def test_only_some_cells(tmp_path):
    done = invoke("table-communication", "--only", "CIFAR-10", "--only", "ERIS", "--out", str(tmp_path), "--json")
    rows = json.loads(done.output)[0]["rows"]
    done_rows = {(row["panel"], row["arm"]) for row in rows if not row["missing"]}
    assert done_rows == {("CIFAR-10", "ERIS"), ("CIFAR-10", "ERIS+DSC")}


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_no_width_takes_a_name_or_a_digit_from_a_table(tmp_path, columns):
    shown = invoke(
        "table-mnist-few", "--size", "small", "--out", str(tmp_path), "--tables-only", columns=columns
    ).output
    assert "…" not in shown
    assert all(arm in shown for arm in ("FedAvg", "SoteriaFL, ε = 10", "ERIS+DSC, ω = 19"))
    assert "86.4 ± 0.9" in shown
