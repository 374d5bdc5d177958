"""Which classes a member holds, and whose sample it is: found where there is something to find, else chance."""

from __future__ import annotations

import json

import numpy as np
import pytest

from eris.audit.inference import OnePlace, _Property, _Source, audit_inference
from eris.audit.observer import Observer, parse_observer
from eris.config import load_config
from eris.errors import ConfigError, InputError
from eris.local.numpy_task import LogisticTask
from eris.seeds import public_root

ONE_STEP = [
    "method=eris", "members=6", "aggregators=6", "rounds=3", "evaluate_every=3", "data.samples=12", "workers=1",
    "data.validation=0.0", "data.test_samples=200", "local.batch=full", "local.epochs=1", "local.lr=0.1",
    "local.momentum=0.0",
]  # fmt: skip
UNEVEN = [*ONE_STEP, "data.partition=dirichlet", "data.alpha=0.2"]
AGGREGATOR = parse_observer("aggregator")


def asked(question, changes, tmp_path, observer=AGGREGATOR, seeds=(1,), **options):
    return audit_inference(question, load_config(changes=changes), tmp_path, observer, seeds=seeds, **options)


def test_an_aggregator_tells_which_classes_members_hold(tmp_path):
    found = asked("property", UNEVEN, tmp_path)
    (run,) = found["runs"]
    assert run["value"] > 0.85
    assert run["low"] > run["chance"] == 0.5
    assert run["asked"] == 5 * 10  # the aggregator itself is not asked about
    assert json.loads((tmp_path / "property.json").read_text())["runs"][0]["value"] == run["value"]


def test_an_aggregator_tells_whose_sample_it_is(tmp_path):
    found = asked("source", ONE_STEP, tmp_path, seeds=(1, 2), asked=4)
    assert found["chance"] == pytest.approx(1 / 5)
    assert found["over_seeds"]["value"] > 0.7
    assert {run["asked"] for run in found["runs"]} == {5 * 4}
    assert len({run["seen"][0] for run in found["runs"]}) >= 1


def test_scores_that_know_nothing_are_at_chance():
    generator, task = np.random.default_rng(0), LogisticTask.synthetic(9, public_root(3), samples=20, classes=7)
    public = task.held_out(150)
    source = _Source(task, public, asked=10)
    rates = [source.judged(generator.standard_normal((9, 90)), (4,))["value"] for _ in range(200)]
    assert np.mean(rates) == pytest.approx(1 / 8, abs=0.01)
    skewed = task.restricted([np.flatnonzero(task.examples(k)[1] != k % 7) for k in range(9)])
    held = _Property(skewed, public)
    areas = [held.judged(generator.standard_normal((9, 7)), (4,))["value"] for _ in range(200)]
    assert np.mean(areas) == pytest.approx(0.5, abs=0.03)


def test_everybody_is_looked_at_from_one_place():
    place, seed = OnePlace("coalition", 2), public_root(5)
    seen = {tuple(place.vantages(victim, range(6), 6, seed, limit=8)) for victim in range(6)}
    assert len(seen) == 1
    assert len(Observer("coalition", 2).vantages(0, range(6), 6, seed, limit=8)) > 1


def test_what_cannot_be_asked_is_refused(tmp_path):
    with pytest.raises(InputError, match="every member holds every class"):
        asked("property", [*ONE_STEP, "data.samples=150"], tmp_path)
    with pytest.raises(ConfigError, match="sees no single member"):
        asked("source", ONE_STEP, tmp_path, parse_observer("broadcast"))
    with pytest.raises(ConfigError, match="common model"):
        asked("source", [*ONE_STEP, "method=gossip"], tmp_path)


def test_both_commands_end_with_a_table_and_a_file(invoke, tmp_path):
    few = [part for change in UNEVEN for part in ("--set", change)]
    done = invoke("audit", "property", *few, "--set", "rounds=1", "--seeds", "2", "--out", "a")
    assert done.exit_code == 0
    assert "a/property.json" in done.output
    done = invoke("audit", "source", *few, "--set", "rounds=1", "--seeds", "1", "--asked", "2", "--out", "b", "--json")
    assert json.loads(done.stdout)["runs"][0]["asked"] == 10
    assert (tmp_path / "b" / "source.json").exists()
