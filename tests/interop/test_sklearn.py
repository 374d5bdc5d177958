"""scikit-learn's estimators as tasks: what is averaged, what goes on, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, SGDClassifier, SGDRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor

from eris import Federation
from eris.errors import ErisError
from eris.interop.sklearn import sklearn_task
from eris.seeds import private_root, public_root


def rows(seed: int, count: int = 90):
    random = np.random.default_rng(seed)
    features = random.normal(size=(count, 5))
    return features, (features[:, 0] + features[:, 1] > 0).astype(int) + (features[:, 2] > 0.5)


MODELS = {
    "linear": lambda: SGDClassifier(loss="log_loss", alpha=0.01),
    "hinge": SGDClassifier,
    "layers": lambda: MLPClassifier(hidden_layer_sizes=(8,), learning_rate_init=0.02),
}


@pytest.mark.parametrize("kind", MODELS)
def test_members_learn_together_and_eris_is_fedavg(kind, tmp_path):
    def task(config, peer):
        return sklearn_task(MODELS[kind](), rows(peer), test=rows(99), classes=range(3), epochs=2)

    result = Federation(task=task, method=["eris", "fedavg"], members=4, rounds=6).run(tmp_path / "run", report=False)
    assert result["eris"]["model_digest"] == result["fedavg"]["model_digest"]
    assert result["eris"]["final_accuracy"] > 0.6


def test_one_member_alone_is_plain_partial_fit():
    """One member, no averaging: the same numbers as the estimator's own `partial_fit`, up to float32."""
    features, labels = rows(0)
    steady = {"loss": "log_loss", "shuffle": False, "learning_rate": "invscaling", "eta0": 0.1}
    task = sklearn_task(SGDClassifier(**steady), (features, labels), classes=range(3))
    model, memory = task.initial(public_root(1)), task.memory(0)
    plain = SGDClassifier(**steady)
    for number in range(3):
        model = model - task.train(0, model, memory, round=number, seed=private_root(1, 0)).update
        plain.partial_fit(features, labels, classes=range(3))
    arrays = task.spec.unflatten(model)
    assert np.allclose(arrays["coef_"], plain.coef_, atol=1e-4)
    assert np.allclose(arrays["intercept_"], plain.intercept_, atol=1e-4)
    assert memory["t"][0] == plain.t_  # its step goes on getting smaller


def test_the_same_seed_gives_the_same_bits_and_others_do_not():
    task = sklearn_task(MLPClassifier(hidden_layer_sizes=(8,), batch_size=16), rows(0), classes=range(3))
    start = task.initial(public_root(1))
    assert not np.array_equal(start, task.initial(public_root(2)))
    once, again, other = (
        task.train(0, start, task.memory(0), round=0, seed=private_root(seed, 0)).update for seed in (1, 1, 2)
    )
    assert np.array_equal(once, again)
    assert not np.array_equal(once, other)


@pytest.mark.parametrize("model", [SGDRegressor, lambda: MLPRegressor(hidden_layer_sizes=(8,))])
def test_numbers_are_predicted_too(model, tmp_path):
    def task(config, peer):
        features, _ = rows(peer)
        return sklearn_task(model(), (features, features[:, 0] - features[:, 3]), test=(features, features[:, 0]))

    result = Federation(task=task, members=3, rounds=2).run(tmp_path / "run", report=False)
    assert 0 < result["eris"]["final_loss"] < 10


AVERAGED = (
    "use a linear model with partial_fit (SGDClassifier, SGDRegressor, Perceptron) or an MLP; "
    "trees and forests have no such weights"
)


@pytest.mark.parametrize(
    ("model", "options", "sentence"),
    [
        (RandomForestClassifier(), {}, f"RandomForestClassifier has no weights that could be averaged: {AVERAGED}"),
        (
            GradientBoostingClassifier(),
            {},
            f"GradientBoostingClassifier has no weights that could be averaged: {AVERAGED}",
        ),
        (LogisticRegression(), {}, f"LogisticRegression has no weights that could be averaged: {AVERAGED}"),
        (
            SGDClassifier(),
            {"classes": None},
            "SGDClassifier must know all classes, but a peer may lack some: give classes=…, the same for every peer",
        ),
        (
            SGDClassifier(average=True),
            {},
            "SGDClassifier has average, which only makes sense in one long fit: leave average out",
        ),
        (SGDClassifier(), {"classes": range(2)}, "label 2 is not one of the classes [0, 1]: name all classes"),
        ("a forest", {}, "str is not a scikit-learn estimator: give one: SGDClassifier(loss='log_loss')"),
    ],
    ids=["forest", "boosting", "no partial_fit", "no classes", "average", "an unknown class", "no estimator"],
)
def test_what_cannot_be_averaged_is_refused_in_a_sentence(model, options, sentence):
    with pytest.raises(ErisError) as told:
        sklearn_task(model, rows(0), **{"classes": range(3), **options})
    assert str(told.value) == sentence
