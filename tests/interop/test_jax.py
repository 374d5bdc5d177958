"""JAX: pytrees as models. Runs where jax is installed; `make test-stories` has an environment with it."""

from __future__ import annotations

import numpy as np
import pytest

jax = pytest.importorskip("jax")

from eris import Federation
from eris.errors import ErisError
from eris.interop.jax import jax_task
from eris.seeds import private_root, public_root

numpy = jax.numpy


def rows(seed: int):
    random = np.random.default_rng(seed)
    features = random.normal(size=(60, 4)).astype("float32")
    return features, (features @ np.float32([1, -1, 2, 0]) > 0).astype("float32")


def init(key):
    return {"dense": {"kernel": 0.1 * jax.random.normal(key, (4,)), "bias": numpy.zeros(())}, "seen": numpy.int32(0)}


def loss(params, features, labels):
    scores = features @ params["dense"]["kernel"] + params["dense"]["bias"]
    return numpy.mean(numpy.logaddexp(0, scores) - labels * scores)


def train(params, data, key):
    value, gradient = jax.value_and_grad(loss, allow_int=True)(params, *data)
    dense = jax.tree.map(lambda p, g: p - 0.5 * g, params["dense"], gradient["dense"])
    return {"dense": dense, "seen": params["seen"] + 1}, {"loss": value}


def task(config, peer):
    return jax_task(init, train, rows(peer), evaluate=lambda params: {"loss": loss(params, *rows(99))})


def test_members_learn_together_and_eris_is_fedavg(tmp_path):
    result = Federation(task=task, method=["eris", "fedavg"], members=4, rounds=5).run(tmp_path / "run", report=False)
    assert result["eris"]["model_digest"] == result["fedavg"]["model_digest"]
    assert result["eris"]["final_loss"] < 0.6


def test_leaves_are_tensors_under_their_paths_and_counters_stay_at_home():
    spec = task(None, 0).spec
    assert {tensor.name: tensor.role for tensor in spec.tensors} == {
        "['dense']['bias']": "trainable",
        "['dense']['kernel']": "trainable",
        "['seen']": "local",
    }
    assert spec.n == 5


def test_the_bits_are_those_of_the_function_itself():
    own, seed = task(None, 0), private_root(1, 0)
    start = own.initial(public_root(1))
    result = own.train(0, start, {}, round=0, seed=seed)
    tree = own._learner._whole(own._arrays(start))
    trained, figures = train(tree, rows(0), None)
    assert np.array_equal(start - result.update, own.spec.flatten(own._learner._leaves(trained)))
    assert result.loss == pytest.approx(float(figures["loss"]))
    assert result.samples == 60


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"init": lambda key: {"w": np.zeros(3)}},
            "\"['w']\" is float64, but updates are float32: make the model float32: eris does not round silently",
        ),
        (
            {"train": lambda params, data, key: {"other": numpy.zeros(4)}},
            "train returned a different tree than init: return the parameters, or a pair of them and figures",
        ),
        (
            {"train": lambda params, data, key: jax.tree.map(lambda leaf: numpy.zeros(7), params)},
            "training returned \"['dense']['bias']\" with shape (7,), which the model does not have: "
            "return the model with its original names and shapes",
        ),
        ({"data": (np.zeros((0, 4)),)}, "there are no samples to train on: give this peer some, or leave it out"),
    ],
    ids=["float64", "a different tree", "other shapes", "no samples"],
)
def test_what_cannot_be_is_said_in_a_sentence(changes, sentence):
    given = {"init": init, "train": train, "data": rows(0), **changes}
    with pytest.raises(ErisError) as told:
        jax_task(**given).rehearse()
    assert str(told.value) == sentence
