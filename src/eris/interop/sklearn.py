"""scikit-learn tasks: linear models and multilayer perceptrons with `partial_fit`.

    def task(config, peer):
        return sklearn_task(SGDClassifier(loss="log_loss"), my_rows(peer), test=held_out, classes=range(10))

`coef_` and `intercept_`, or those of every layer, are averaged as float32. An epoch is one `partial_fit` over the
peer's rows. The step count of `SGDClassifier` and its kin carries on over rounds; Adam's moments start afresh in each.
Estimators without such weights, like trees and forests, cannot be averaged and are refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eris.errors import ConfigError, InputError, MissingExtra
from eris.interop.foreign_call import number_of
from eris.interop.home_task import Arrays, Fitted, HomeTask
from eris.local.spec import Role
from eris.local.task import Memory
from eris.seeds import Seed

__all__ = ["SklearnLearner", "sklearn_task"]

_STEPS = "t"  # samples that the model has seen: its step shrinks with them


def sklearn_task(
    model: Any, train: tuple[Any, Any], *, test: tuple[Any, Any] | None = None, classes: Any = None, epochs: int = 1
) -> HomeTask:
    """Make the task of one peer.

    Args:
        model: an estimator with `partial_fit`.
        train: the peer's rows, (features, labels).
        test: rows to test on.
        classes: all labels there are, the same for every peer, because a peer may lack some.
        epochs: passes over the rows in a round.
    """
    return HomeTask(SklearnLearner(model, train, test, classes, epochs))


class SklearnLearner:
    """An estimator with `partial_fit`, and one peer's rows."""

    roles: Mapping[str, Role] = {}

    def __init__(
        self, model: Any, train: tuple[Any, Any], test: tuple[Any, Any] | None, classes: Any, epochs: int
    ) -> None:
        """Prepare to train; the arguments are those of `sklearn_task`."""
        self._model, self._epochs = _averaged(model), epochs
        self._train, self._test = _rows(train), None if test is None else _rows(test)
        self._classifies = hasattr(model, "predict_proba") or hasattr(model, "classes_") or _is_classifier(model)
        self._classes = _classes(model, classes, self._train[1]) if self._classifies else None
        self._shapes = {name: array.shape for name, array in _weights(self._blank(0)).items()}

    @property
    def count(self) -> int:
        """How many rows there are to train on."""
        return len(self._train[1])

    def begin(self, seed: Seed) -> Arrays:
        """Return zeros for a linear model, Glorot's uniform weights for layers."""
        arrays = {name: np.zeros(shape, np.float32) for name, shape in self._shapes.items()}
        for name, array in arrays.items():
            if name.startswith("coefs_"):
                bound = math.sqrt((2.0 if self._model.activation == "logistic" else 6.0) / sum(array.shape))
                drawn = 2 * seed.child("weights", int(name.removeprefix("coefs_"))).uniforms(array.size) - 1
                array[:] = (bound * drawn).astype(np.float32).reshape(array.shape)
        return arrays

    def memory(self) -> Memory:
        """Return the number of samples seen, for estimators whose step shrinks with it."""
        return {_STEPS: np.ones(1, np.float32)} if hasattr(self._blank(0), "t_") else {}

    def fit(self, arrays: Arrays, memory: Memory, seed: Seed) -> Fitted:
        """Call `partial_fit` once for each epoch."""
        model = self._loaded(arrays, number_of(seed) % 2**31)
        if _STEPS in memory:
            model.t_ = float(memory[_STEPS][0])
        for _ in range(self._epochs):
            model.partial_fit(*self._train)
        if _STEPS in memory:
            memory[_STEPS][0] = model.t_
        loss = {"loss": model.loss_} if isinstance(getattr(model, "loss_", None), float) else {}
        return Fitted(_weights(model), float(self._epochs), loss)

    def score(self, arrays: Arrays) -> Mapping[str, Any]:
        """Return sums and counts: hits and, if there are probabilities, the loss; for a regression, errors."""
        if self._test is None:
            return {}
        model, (features, labels) = self._loaded(arrays, 0), self._test
        rows = len(labels)
        if not self._classifies:
            away = model.predict(features) - labels
            return {"loss": (float(np.sum(away**2)), rows), "mae": (float(np.sum(np.abs(away))), rows)}
        figures = {"accuracy": (float(np.sum(model.predict(features) == labels)), rows)}
        if hasattr(model, "predict_proba"):
            places = np.searchsorted(model.classes_, labels)
            chances = model.predict_proba(features)[np.arange(len(labels)), places]
            figures["loss"] = float(-np.sum(np.log(np.maximum(chances, 1e-15)))), rows
        return figures

    def _blank(self, number: int) -> Any:
        """Return the estimator with weights of the right shapes, made by fitting one row of each class."""
        from sklearn.base import clone

        model = clone(self._model)
        if "random_state" in model.get_params():
            model.set_params(random_state=number)
        features, labels = self._train
        if self._classes is None:
            model.partial_fit(features[:1], labels[:1])
        else:
            model.partial_fit(features[:1], labels[:1], classes=self._classes)
        return model

    def _loaded(self, arrays: Arrays, number: int) -> Any:
        model = self._blank(number)
        for name, array in _places(model).items():
            array[...] = arrays[name].reshape(array.shape)
        if hasattr(model, "_optimizer"):
            del model._optimizer  # it has seen the rows that made the shapes
        return model


def _averaged(model: Any) -> Any:
    """Return an estimator if its weights can be averaged; otherwise refuse it."""
    try:
        from sklearn.base import BaseEstimator
    except ImportError as error:
        raise MissingExtra("scikit-learn", "sklearn", "an estimator") from error
    name = type(model).__name__
    if not isinstance(model, BaseEstimator):
        raise ConfigError(f"{name} is not a scikit-learn estimator", fix="give one: SGDClassifier(loss='log_loss')")
    if not hasattr(model, "partial_fit") or not _has_weights(model):
        raise ConfigError(
            f"{name} has no weights that could be averaged",
            fix="use a linear model with partial_fit (SGDClassifier, SGDRegressor, Perceptron) or an MLP; "
            "trees and forests have no such weights",
        )
    if getattr(model, "average", False) or getattr(model, "early_stopping", False):
        said = "average" if getattr(model, "average", False) else "early_stopping"
        raise ConfigError(f"{name} has {said}, which only makes sense in one long fit", fix=f"leave {said} out")
    return model


def _has_weights(model: Any) -> bool:
    """Return whether an estimator's weights are `coef_` and `intercept_`, or those of layers."""
    families = {base.__name__ for base in type(model).__mro__}
    return bool(families & {"BaseSGD", "BaseMultilayerPerceptron"})


def _is_classifier(model: Any) -> bool:
    from sklearn.base import is_classifier

    return bool(is_classifier(model))


def _classes(model: Any, classes: Any, labels: Any) -> Any:
    if classes is None:
        raise ConfigError(
            f"{type(model).__name__} must know all classes, but a peer may lack some",
            fix="give classes=…, the same for every peer",
        )
    known = np.array(sorted(classes))
    if missing := sorted(set(labels.tolist()) - set(known.tolist())):
        raise InputError(f"label {missing[0]!r} is not one of the classes {known.tolist()}", fix="name all classes")
    return known


def _rows(rows: tuple[Any, Any]) -> tuple[Any, Any]:
    if not isinstance(rows, Sequence) or len(rows) != 2:
        raise InputError("rows must be a pair (features, labels)", fix="give two arrays")
    features, labels = np.asarray(rows[0]), np.asarray(rows[1])
    if len(features) != len(labels):
        raise InputError(f"there are {len(features)} rows and {len(labels)} labels", fix="give one label for each row")
    return features, labels


def _places(model: Any) -> dict[str, Any]:
    """Return the estimator's own arrays by name."""
    if hasattr(model, "coefs_"):
        layers = {f"coefs_{place}": array for place, array in enumerate(model.coefs_)}
        return layers | {f"intercepts_{place}": array for place, array in enumerate(model.intercepts_)}
    return {"coef_": model.coef_, "intercept_": model.intercept_}


def _weights(model: Any) -> Arrays:
    return {name: np.asarray(array, np.float32) for name, array in _places(model).items()}
