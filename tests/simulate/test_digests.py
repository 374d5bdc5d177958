"""One digest, however the work is cut: aggregators, workers, engines. And digests that must differ."""

from __future__ import annotations

import numpy as np
import pytest

from eris.simulate.intake import Intake
from eris.simulate.process_engine import ProcessEngine
from eris.simulate.worker_process import TaskSource
from tests.simulate.setting import play, prepare, settings


@pytest.mark.parametrize("method", ["eris", "eris+dsc"])
def test_the_number_of_aggregators_does_not_change_a_bit(method, tmp_path):
    digests = {
        play(settings("members=10", f"aggregators={count}", method=method), tmp_path / str(count)).digest
        for count in (1, 2, 7, 10)
    }
    assert len(digests) == 1


def test_eris_is_fedavg(tmp_path):
    assert (
        play(settings(method="eris"), tmp_path / "a").digest == play(settings(method="fedavg"), tmp_path / "b").digest
    )


@pytest.mark.parametrize("changes", [["shards.block=5"], ["shards.plan=tensor"], ["shards.schedule=redraw"]])
def test_neither_does_the_plan(changes, tmp_path):
    config = settings("participation=0.7", method="eris+dsc")
    other = settings("participation=0.7", *changes, method="eris+dsc")
    assert play(config, tmp_path / "a").digest == play(other, tmp_path / "b").digest


def test_seeds_differ(tmp_path):
    digests = {play(settings(f"seed={seed}", "data.fold=1"), tmp_path / str(seed)).digest for seed in range(3)}
    assert len(digests) == 3


def test_dsc_differs_from_none(tmp_path):
    digests = {play(settings(method=method), tmp_path / method).digest for method in ("eris", "eris+dsc")}
    assert len(digests) == 2


def test_one_value_inside_one_aggregator_moves_exactly_its_coordinate(tmp_path, monkeypatch):
    honest = play(settings("rounds=1"), tmp_path / "a")
    cut = Intake.cut

    def tampering(intake):
        outcomes = cut(intake)
        outcomes[3].values[2] += np.float32(1)
        return outcomes

    monkeypatch.setattr(Intake, "cut", tampering)
    tampered = play(settings("rounds=1"), tmp_path / "b")
    before, after = honest.simulation.replica.model, tampered.simulation.replica.model
    changed = np.flatnonzero(before != after).tolist()
    assert changed == [int(honest.composition.recipe.layout(0).trainable.coordinates(3)[2])]
    assert np.isclose(before[changed[0]] - after[changed[0]], 1, atol=1e-6)
    assert honest.digest != tampered.digest


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("eris", []),
        ("eris+dsc", ["participation=0.7"]),
        ("eris+dsc", ["compression.masks=independent", "faults.link_failure=0.2"]),
    ],
)
def test_worker_processes_do_not_change_a_bit(method, changes, tmp_path, workers):
    config = settings("local.keep_state=true", *changes, method=method)
    alone = play(config, tmp_path / "a")
    together = prepare(config, tmp_path / "b", engine=workers)
    together.simulation.play(config.rounds)
    assert alone.digest == together.digest
    assert np.array_equal(alone.simulation.replica.model, together.simulation.replica.model)
    for member in range(config.members):
        one, other = alone.simulation.states.read(member), together.simulation.states.read(member)
        assert (one is None and other is None) or np.array_equal(one, other)


@pytest.fixture(scope="module", params=[1, 3])
def workers(request):
    config = settings("local.keep_state=true")
    plain = config.model_dump(mode="json", exclude_none=True)
    engine = ProcessEngine(TaskSource("eris.tasks:build_task", {"config": plain}), request.param)
    yield engine
    engine.close()
