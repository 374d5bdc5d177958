"""Cells on a Ray cluster come to the same as in worker processes."""

from __future__ import annotations

import pytest

from eris.paper.experiment import Experiment, Measure, Panel, Treatment
from eris.paper.reading import ERIS
from eris.paper.run import CellStore, run_cells

pytestmark = pytest.mark.slow

BASE = ("data.name=synthetic-clouds", "members=4", "rounds=2", "local.batch=full", "workers=1")
ROWS = (Treatment("FedAvg", ("method=fedavg",)), Treatment("wrong", ("method=none-such",)))
PANEL = Panel("clouds", BASE, ROWS, measure=Measure("training", {"audit": False}))


def test_the_same_figures(tmp_path):
    ray = pytest.importorskip("ray")
    cells = Experiment("test", "", "", {"smoke": (PANEL,)}).cells("smoke", ERIS)
    here, there = CellStore(tmp_path / "here"), CellStore(tmp_path / "there")
    run_cells(cells, here, lambda done: None, workers=1)
    try:
        run_cells(cells, there, lambda done: None, ray=True)
    finally:
        ray.shutdown()
    found = [(store.find(cells[0])["figures"], store.find(cells[1])["failed"]) for store in (here, there)]
    assert found[0] == found[1]
