"""What is said of the time that cells take, before and while they are done."""

from __future__ import annotations

import json

import pytest

from eris.paper import estimate
from eris.paper.catalogue import experiment_by_name, experiments_by_name
from eris.paper.estimate import Remaining, corrections, estimated_seconds
from eris.paper.run import CellStore


@pytest.fixture(autouse=True)
def the_machine_of_the_costs(monkeypatch):
    """Whether work counts as enough to correct anything must not depend on how fast this machine is."""
    monkeypatch.setattr(estimate, "machine_factor", lambda: 1.0)


def cells(name="figure-dropout"):
    return list({cell.key: cell for cell in experiment_by_name(name).cells("small")}.values())


def test_finished_cells_correct_what_is_said_of_those_of_their_kind():
    some, others = cells(), cells("table-defences")
    slow = {cell.key: (cell, 3 * estimated_seconds([cell])) for cell in some[:6]}
    corrected = corrections(slow)
    left = Remaining(some[6:], 2, corrected)
    assert left.processor_seconds == pytest.approx(3 * estimated_seconds(some[6:]))
    assert left.seconds == pytest.approx(left.processor_seconds / 2)  # with processors of its own
    assert Remaining(others, 1, corrected).seconds == pytest.approx(estimated_seconds(others))


def test_a_few_seconds_of_work_correct_nothing():
    [cell, *_] = cells()
    assert corrections({cell.key: (cell, 1.0)}) == {}


def test_a_run_corrects_itself_and_ends_at_nothing():
    some = cells()
    left = Remaining(some, 1)
    for cell in some[:-1]:
        left.finished(cell, 2 * estimated_seconds([cell]))
    assert left.processor_seconds == pytest.approx(2 * estimated_seconds(some[-1:]), rel=0.05)
    left.finished(some[-1], 1.0)
    assert left.seconds == 0.0


def test_processor_seconds_are_read_from_the_cells(tmp_path):
    store, some = CellStore(tmp_path), cells()[:3]
    (tmp_path / "cells").mkdir()
    for cell, found in zip(some, ({"figures": {}, "processor_seconds": 7.0}, {"failed": "no"}, None), strict=True):
        if found is not None:
            store.path(cell).write_text(json.dumps(found), encoding="utf-8")
    assert store.finished(some) == {some[0].key: (some[0], 7.0)}


def test_every_cell_has_an_estimate():
    for experiment in experiments_by_name().values():
        for size in ("smoke", "small", "paper"):
            assert all(estimated_seconds([cell]) > 0 for cell in experiment.cells(size)[:40])
