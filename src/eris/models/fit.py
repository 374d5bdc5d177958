"""Check that a built-in network fits the data it will be trained on.

Torch would notice too, but only in the first step, and its error would be about kernels.

>>> from eris.data import mnist_sample
>>> require_fit("lenet5", {"classes": 5}, mnist_sample())
Traceback (most recent call last):
...
eris.errors.ConfigError: lenet5 does not fit mnist-sample [key=model.options]: set model.options.classes = 10 (it is 5)
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from eris.data.dataset import Dataset
from eris.errors import ConfigError
from eris.models.registry import builder_of

__all__ = ["require_fit"]


def require_fit(model: str, options: Mapping[str, Any], dataset: Dataset[Any]) -> None:
    """Refuse options, given or default, with which a built-in network cannot take these samples and labels."""
    shape = np.asarray(dataset.train.take(np.array([0]))[0]).shape[1:]
    parameters = inspect.signature(builder_of(model)).parameters
    if "channels" in parameters and len(shape) != 3:
        raise ConfigError(
            f"{model} takes pictures, channels × height × width, but samples of {dataset.name} have the shape {shape}",
            fix="use another model (mlp takes any shape), or give the samples this shape",
            key="model.name",
        )
    wanted = _of_shape(shape) | _of_labels(dataset)
    built = {name: options.get(name, parameters[name].default) for name in wanted if name in parameters}
    wrong = [name for name, value in built.items() if value != wanted[name]]
    if "classes" in wrong and isinstance(built["classes"], int) and built["classes"] > wanted["classes"]:
        wrong.remove("classes")  # unused outputs are not a mistake
    if wrong:
        fix = ", ".join(f"model.options.{name} = {wanted[name]} (it is {built[name]})" for name in wrong)
        raise ConfigError(f"{model} does not fit {dataset.name}", fix=f"set {fix}", key="model.options")


def _of_shape(shape: tuple[int, ...]) -> dict[str, int]:
    """Return the options that a network needs for samples of this shape."""
    wanted = {"inputs": math.prod(shape)}
    if len(shape) == 3:
        wanted |= {"channels": shape[0]} | ({"size": shape[1]} if shape[1] == shape[2] else {})
    return wanted


def _of_labels(dataset: Dataset[Any]) -> dict[str, int]:
    labels = [np.asarray(split.labels) for split in (dataset.train, dataset.test) if split.labels is not None]
    highest = max((int(each.max(initial=0)) for each in labels), default=-1)
    return {"classes": max(len(dataset.classes), highest + 1)} if labels else {}
