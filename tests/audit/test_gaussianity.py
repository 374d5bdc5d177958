"""The law of one coordinate over redrawn batches: the test keeps its level and finds what is no Gaussian."""

from __future__ import annotations

import json

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from eris.audit.gaussianity import CHANGES, not_normal, run_gaussianity
from eris.cli import audit, bounds
from eris.errors import RunStopped
from eris.events import RoundEnded
from eris.seeds import public_root

FEW = ["data.name=synthetic-clouds", "data.samples=24", "members=4", "rounds=4", "workers=1", *CHANGES]
SEED = public_root(3)


def test_gaussian_numbers_are_rejected_as_often_as_they_should():
    numbers = np.random.default_rng(1).standard_normal((32, 20_000)).astype(np.float32)
    assert not_normal(numbers, SEED) == pytest.approx(0.05, abs=0.006)


def test_other_laws_are_found():
    generator = np.random.default_rng(2)
    for draw in (generator.exponential, lambda size: generator.integers(2, size=size), generator.standard_cauchy):
        assert not_normal(np.asarray(draw(size=(64, 500)), np.float32), SEED) > 0.5


def test_every_probed_round_leaves_what_bounds_can_read(tmp_path):
    points = run_gaussianity(FEW, tmp_path, draws=12, probes=3)
    assert [point["label"] for point in points] == ["0", "2", "3"]
    path = tmp_path / "transcripts" / points[0]["transcripts"]
    with np.load(path) as arrays:
        assert arrays["members"].shape == (4, 27)
        assert arrays["redraws"].shape == (12, 27)
        assert np.ptp(arrays["redraws"], axis=0).min() > 0  # batches make a difference
    app = typer.Typer()
    for verb in (bounds, audit):
        verb.register(app)
    told = CliRunner().invoke(app, ["bounds", "--transcripts", str(path), "--json"], catch_exceptions=False)
    said = json.loads(told.output)["leakage"]["capacity"]
    assert said["value"] == points[0]["capacity"]["largest"]
    assert "4 members, 12 redraws" in said["remark"]
    written = json.loads((tmp_path / "sweep-gaussianity.json").read_text())
    assert written["points"][2]["weights"]["deviation"] > 0


def test_full_batches_have_no_law_and_no_bound(tmp_path):
    (point, _) = run_gaussianity([*FEW, "local.batch=full"], tmp_path, draws=4, probes=2)
    assert point["moving"] == 0
    assert point["not_normal"] is None
    assert point["capacity"]["largest"] == float("inf")


def test_it_goes_on_where_it_was(tmp_path):
    done = []
    stopping = {"listeners": [done.append], "stopped": lambda: sum(isinstance(e, RoundEnded) for e in done) > 1}
    whole = run_gaussianity(FEW, tmp_path / "whole", draws=6, probes=3)
    with pytest.raises(RunStopped):
        run_gaussianity(FEW, tmp_path / "part", draws=6, probes=3, **stopping)
    assert (tmp_path / "part" / "transcripts" / "round-0000.npz").exists()
    assert run_gaussianity(FEW, tmp_path / "part", draws=6, probes=3) == whole
    assert run_gaussianity(FEW, tmp_path / "part", draws=6, probes=3) == whole


def test_the_command_draws_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    app = typer.Typer()
    audit.register(app)
    few = [part for change in FEW for part in ("--set", change)]
    done = CliRunner().invoke(app, ["audit", "sweep", "gaussianity", *few, "--out", "g"], catch_exceptions=False)
    assert done.exit_code == 0
    for word in ("not Gaussian", "chance", "g/sweep-gaussianity.json"):
        assert word in done.output
    assert (tmp_path / "g" / "sweep-gaussianity.png").read_bytes().startswith(b"\x89PNG")
    full = [*few, "--set", "local.batch=full", "--out", "f", "--json"]
    said = CliRunner().invoke(app, ["audit", "sweep", "gaussianity", *full], catch_exceptions=False)
    assert json.loads(said.stdout)["points"][0]["capacity"]["largest"] is None  # JSON has no word for ∞
