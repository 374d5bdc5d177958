"""A false mean: traps isolate pictures, fishing isolates a class, and each defence does what it is said to do."""

from __future__ import annotations

import json

import numpy as np
import pytest

from eris.audit.malicious import audit_malicious, planted_traps
from eris.errors import InputError
from eris.seeds import public_root


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    found = audit_malicious(tmp_path_factory.mktemp("malicious"), seeds=[1, 2])
    return {(result["plan"], result["defence"]): result for result in found}


def test_traps_are_on_for_about_one_picture_of_a_batch():
    generator = np.random.default_rng(0)
    public = generator.random((2000, 50))
    weights, biases = generator.normal(0, 0.1, (30, 50)).astype(np.float32), generator.normal(0, 0.1, 30)
    for seen in (np.ones((30, 50), bool), generator.random((30, 50)) < 0.25):
        flat = weights.ravel().copy()
        planted_traps(flat, seen, biases.astype(np.float32), public, 20, public_root(1))
        rows = flat.reshape(30, 50)
        assert np.array_equal(rows[~seen], weights[~seen])  # what is not the aggregator's stays as it was
        on = (generator.random((2000, 50)) @ rows.T + biases > 0).mean(axis=0)
        assert 0.5 / 20 < np.median(on) < 2 / 20


@pytest.mark.parametrize("plan", ["contiguous", "random"])
def test_a_false_mean_isolates_pictures_and_an_honest_one_does_not(results, plan):
    lie, honest = results[plan, "none"], results[plan, "honest mean"]
    assert lie["isolated"]["value"] > honest["isolated"]["value"] + 0.03
    assert lie["fishing"]["value"] > 0.99
    assert honest["fishing"]["value"] < 0.7


def test_defences_do_what_they_are_said_to_do(results):
    for plan in ("contiguous", "random"):
        honest = results[plan, "honest mean"]
        assert results[plan, "second aggregator"]["isolated"] == honest["isolated"]
        assert results[plan, "noise, ε = 10 a sample"]["isolated"]["value"] == 0.0
        assert results[plan, "noise, ε = 10 a sample"]["fishing"]["value"] < 0.7
        assert results[plan, "masked sum"]["isolated"]["value"] < results[plan, "none"]["isolated"]["value"]


def test_only_ones_own_coordinates_are_read(results):
    assert results["random", "none"]["read"] == pytest.approx(1 / 8, abs=0.02)
    assert results["contiguous", "none"]["read"] > 0.8


def test_networks_without_a_layer_on_the_pictures_are_refused(tmp_path):
    with pytest.raises(InputError, match="perceptron"):
        audit_malicious(tmp_path, changes=["model.name=logistic"], seeds=[1])


def test_the_command_ends_with_a_table_and_a_file(invoke, tmp_path):
    done = invoke("audit", "malicious", "--seeds", "1", "--set", "data.samples=8", "--out", "here")
    assert done.exit_code == 0
    assert "second aggregator" in done.output
    assert len(json.loads((tmp_path / "here" / "malicious.json").read_text())["results"]) == 12
