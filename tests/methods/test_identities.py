"""Methods that must be one another, settings that cannot be, and what noise costs."""

from __future__ import annotations

import numpy as np
import pytest

from eris.compose import compose
from eris.config import load_config
from eris.errors import ConfigError
from eris.events import Sent
from eris.local.spec import ModelSpec
from eris.methods import METHODS, with_defaults
from eris.privacy import noise_of
from tests.simulate.setting import play, settings

QUADRATIC = ["data.name=synthetic-quadratic", "model.options={n=300}", "rounds=6", "server.weights=uniform"]


def digest(tmp_path, method, *changes):
    return play(settings(*QUADRATIC, *changes, method=method), tmp_path / method / str(len(changes))).digest


def test_fedavg_is_eris_with_one_aggregator_and_with_many(tmp_path):
    server = digest(tmp_path, "fedavg")
    assert server == digest(tmp_path, "eris", "aggregators=1") == digest(tmp_path, "eris")


def test_soteriafl_without_noise_is_eris_with_dsc_and_one_aggregator(tmp_path):
    changes = ["compression.masks=independent", "compression.keep=0.05", "aggregators=1"]
    still = digest(tmp_path, "soteriafl", "privacy.epsilon=none")
    assert still == digest(tmp_path, "eris+dsc", *changes)
    assert still != digest(tmp_path, "eris+dsc", *changes, "seed=2")
    assert still != digest(tmp_path, "soteriafl")  # which has noise


def test_noise_before_the_shift_is_the_same_noise(tmp_path):
    noisy = ["privacy.noise_multiplier=0.5", "privacy.clip=2.0"]
    changes = ["compression.masks=independent", "compression.keep=0.05", "aggregators=1"]
    assert digest(tmp_path, "soteriafl", *noisy) == digest(tmp_path, "eris+dsc", *changes, *noisy)
    assert digest(tmp_path, "fedavg-ldp", *noisy) == digest(tmp_path, "eris+ldp", *noisy)


def test_min_leakage_is_fedavg_seen_by_nobody(tmp_path):
    assert digest(tmp_path, "min-leakage") == digest(tmp_path, "fedavg")


def test_cdp_sgd_has_no_reference():
    made = composed("cdp-sgd")
    assert made.recipe.chain.describe().endswith("→ rand_k(0.05, independent=True)")
    assert not made.recipe.keeps_references


def test_pseudo_pruning_keeps_what_it_withholds(tmp_path):
    changes = ["baselines.prune=0.3", "rounds=60", "local.lr=0.2"]
    plain, pseudo = (
        play(settings(*QUADRATIC, *changes, method=m), tmp_path / m) for m in ("priprune", "priprune-pseudo")
    )
    best = play(settings(*QUADRATIC, *changes, method="fedavg"), tmp_path / "fedavg").simulation.replica.model
    far, near = (float(np.linalg.norm(p.simulation.replica.model - best)) for p in (plain, pseudo))
    assert plain.digest != pseudo.digest
    assert near < far
    assert all(len(sent.values) == 210 for sent in plain.of(Sent))  # the 30 % largest stay at home


def composed(method, *changes):
    config = load_config(changes=["members=5", f"method={method}", *changes])
    return compose(config, ModelSpec.flat(40), [7] * 5)


def test_a_method_that_noise_makes_has_the_papers_unless_said():
    noise = composed("fedavg-ldp", "rounds=80").noise
    assert noise.bound == 1.0
    assert noise.multiplier == pytest.approx(4.737, abs=0.01)
    assert noise.spent(80, 1e-5).value == pytest.approx(10, abs=0.011)
    paper = composed("eris+ldp", "rounds=80", "privacy.accounting=per-round").noise
    assert paper.multiplier == pytest.approx(0.5298, abs=1e-4)
    assert paper.spent(80, 1e-5).value == pytest.approx(221, abs=1)
    assert composed("eris+ldp", "privacy.noise_multiplier=3.0").noise.multiplier == 3.0
    assert composed("soteriafl", "privacy.epsilon=none").noise is None
    assert composed("fedavg").noise is None


def test_noise_on_the_update_has_the_stated_deviation(tmp_path):
    changes = ["model.options={n=4000}", "rounds=1", "privacy.clip=1.0"]
    noisy = play(settings(*QUADRATIC, *changes, "privacy.noise_multiplier=0.7", method="fedavg-ldp"), tmp_path / "a")
    still = play(settings(*QUADRATIC, *changes, "privacy.epsilon=none", method="fedavg-ldp"), tmp_path / "b")
    noise = noisy.of(Sent)[0].values - still.of(Sent)[0].values
    deviation = noise_of(noisy.composition.recipe.chain).deviation
    assert deviation == pytest.approx(0.7 * 2 * 1.0)
    assert abs(noise.std() / deviation - 1) < 4 / np.sqrt(2 * noise.size)


@pytest.mark.parametrize("name", METHODS)
def test_settling_twice_changes_nothing(name):
    config = with_defaults(load_config(), name)
    assert with_defaults(config, name) == config
    assert config.methods == (name,)


@pytest.mark.parametrize(
    ("method", "changes", "says"),
    [
        ("priprune", ["baselines.prune=1.5"], "less than 1"),
        ("priprune", ["baselines.prune=1"], "less than 1"),
        ("fedavg-ldp", ["privacy.epsilon=0"], "greater than 0"),
        ("fedavg-ldp", ["privacy.epsilon=-1.0"], "greater than 0"),
        ("eris", ["aggregators=6"], "aggregators is 6, but there are 5 members"),
        ("fedavg-ldp", ["privacy.epsilon=3.0", "privacy.noise_multiplier=1.0"], "given twice"),
        ("eris", ["privacy.epsilon=3.0"], "not clipped"),
        ("shater", [], "did you mean shatter"),
        ("shatter", ["baselines.virtual_nodes=1", "baselines.virtual_degree=3"], "5 nodes cannot have 3"),
        ("shatter", ["participation=0.8"], "their own models"),
        ("ako", ["faults.link_failure=0.1"], "their own models"),
        ("gossip", ["server.rule=median"], "their own models"),
        ("qdpsgd", ["server.optimizer=fedadam"], "their own models"),
    ],
)
def test_refused(method, changes, says):
    with pytest.raises(ConfigError, match=says):
        composed(method, *changes)
