"""A false mean: traps isolate pictures, fishing isolates a class, and each defence does what it is said to do."""

from __future__ import annotations

import json

import numpy as np
import pytest

from eris.audit import malicious
from eris.audit.false_mean import FalseMeanRound
from eris.audit.malicious import SMALL_MALICIOUS, FalseMean, audit_malicious, planted_traps
from eris.config import load_config
from eris.errors import InputError
from eris.methods import with_defaults
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
        two = results[plan, "second aggregator"]
        assert two["dropped"] == 1.0
        assert two["isolated"]["value"] <= two["honest"] + 0.03 < results[plan, "none"]["isolated"]["value"]
        assert two["fishing"]["value"] < 0.8
        assert results[plan, "noise, ε = 10 a sample"]["isolated"]["value"] == 0.0
        assert results[plan, "noise, ε = 10 a sample"]["fishing"]["value"] < 0.7
        assert results[plan, "masked sum"]["isolated"]["value"] < results[plan, "none"]["isolated"]["value"]


def played(replicas, plan="random"):
    """Let the aggregator with most of the first layer plant traps, in a federation of real roles."""
    case = FalseMean(plan, "second aggregator", True)
    config = load_config(changes=[*SMALL_MALICIOUS, f"shards.replicas={replicas}", "seed=3"])
    config = with_defaults(config, "eris")
    scene = malicious._Scene(config, case, 8)
    made = malicious._with_peers(config, case, 8, scene)
    found = FalseMeanRound.play(made, scene.model, scene.trained, scene.trapped, shard=scene.shard_of_first_layer)
    return scene, found


@pytest.mark.parametrize("plan", ["contiguous", "random"])
def test_alone_a_liar_moves_the_model_and_beside_another_aggregator_it_loses_its_shards(plan):
    scene, alone = played(1, plan)
    trapped = scene.trapped(scene.model, alone.seen)
    assert len(alone.told) == 1
    assert alone.lost == ()
    assert np.allclose(alone.model[alone.seen], trapped[alone.seen], rtol=1e-4, atol=1e-6)
    scene, beside = played(2, plan)
    assert len(beside.told) == 2  # its own, and the one that it averages a second time
    assert sorted(beside.lost) == sorted(beside.told)
    assert np.array_equal(beside.model[beside.seen], scene.model[beside.seen])  # as if there had been no round
    assert (beside.model != scene.model)[~beside.seen].mean() > 0.3  # elsewhere there was one
    assert scene.isolated(alone.read, alone.seen) > scene.isolated(beside.read, beside.seen) + 0.03


def test_it_reads_what_it_is_sent_and_nothing_else():
    scene, found = played(2)
    update = scene.trained(0, found.model).update
    assert np.array_equal(found.read[found.seen], update[found.seen])
    assert not found.read[~found.seen].any()
    assert found.seen.mean() == pytest.approx(2 / 8, abs=0.01)


def test_only_ones_own_coordinates_are_read(results):
    assert results["random", "none"]["read"] == pytest.approx(1 / 8, abs=0.02)
    assert results["contiguous", "none"]["read"] > 0.8


def test_networks_without_a_layer_on_the_pictures_are_refused(tmp_path):
    with pytest.raises(InputError, match="perceptron"):
        audit_malicious(tmp_path, changes=["model.name=logistic"], seeds=[1])


def test_the_command_ends_with_a_table_and_a_file(invoke, tmp_path):
    done = invoke("audit", "malicious", "--seeds", "1", "--set", "data.samples=8", "--out", "here")
    assert done.exit_code == 0
    assert "with a false mean 100% (contiguous), 100% (random) were dropped" in done.output
    assert len(json.loads((tmp_path / "here" / "malicious.json").read_text())["results"]) == 12
