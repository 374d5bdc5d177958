"""Models by name.

A model is built by a function or class that takes options and returns a `torch.nn.Module`; its initial weights come
from torch's random generator, which is lent a seed for the time of building and given back as it was.

>>> model_names()[:4]
['language-model', 'lenet5', 'logistic', 'minilm-l6']
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from eris.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    import torch

__all__ = [
    "PRETRAINED_KINDS",
    "ModelFactory",
    "builder_of",
    "is_ours",
    "model_by_name",
    "model_factory",
    "model_names",
]

ModelFactory = Callable[[], "torch.nn.Module"]

_MODELS = {
    "language-model": "eris.models.text:LanguageModel",
    "lenet5": "eris.models.lenet:LeNet5",
    "logistic": "eris.models.perceptron:Logistic",
    "mlp": "eris.models.perceptron:Perceptron",
    "resnet18": "eris.models.resnet18:ResNet18",
    "resnet9": "eris.models.resnet9:ResNet9",
    "text-classifier": "eris.models.text:TextClassifier",
    "tiny-batchnorm": "eris.models.tiny:TinyBatchNorm",
}


PRETRAINED_KINDS = {"minilm-l6": "text-classifier", "smollm2-135m": "language-model"}


def model_names() -> list[str]:
    """Return the names `model_by_name` knows; the pretrained ones must be fetched first (`eris data get`)."""
    return sorted([*_MODELS, *PRETRAINED_KINDS])


def model_by_name(name: str, **options: Any) -> torch.nn.Module:
    """Build a model by its name, or by an import path such as ``package.module:Class``.

    >>> sum(parameter.numel() for parameter in model_by_name("lenet5").parameters())
    61706
    """
    if name in PRETRAINED_KINDS:
        return model_by_name(PRETRAINED_KINDS[name], **{"source": name, **options})
    builder = builder_of(name)
    try:
        model = builder(**options)
    except TypeError as error:
        raise ConfigError(
            f"model {name!r} cannot be built with {options}: {error}", fix="check [model]", key="model.options"
        ) from error
    return _require_module(name, model)


def builder_of(name: str) -> Callable[..., Any]:
    """Return the class or function that a name or an import path stands for."""
    return _imported(_path(name))


def is_ours(name: str) -> bool:
    """Return whether a name stands for a network that eris knows, not for one by its import path."""
    return name in _MODELS


def model_factory(name: str, **options: Any) -> ModelFactory:
    """Return a function without arguments that builds the model; it can be handed to a worker process."""
    _path(name)
    return partial(model_by_name, name, **options)


def _path(name: str) -> str:
    path = _MODELS.get(PRETRAINED_KINDS.get(name, name), name)
    if ":" not in path:
        raise ConfigError(
            f"no model is named {name!r}",
            fix=f"use one of {', '.join(model_names())}, or package.module:Class",
            key="model.name",
        )
    return path


def _imported(path: str) -> Callable[..., Any]:
    module_name, _, attribute = path.partition(":")
    try:
        builder = getattr(importlib.import_module(module_name), attribute)
    except ModuleNotFoundError as error:
        if error.name == "torch":
            raise MissingExtra("torch", "torch", "a neural network") from error
        raise ConfigError(f"model {path!r} cannot be imported: {error}", fix="check the path and PYTHONPATH") from error
    except AttributeError as error:
        raise ConfigError(
            f"module {module_name!r} has no {attribute!r}", fix="check the name after the colon"
        ) from error
    if not callable(builder):
        raise ConfigError(f"{path!r} cannot be called", fix="name a class or a function that returns a module")
    return builder  # type: ignore[no-any-return]


def _require_module(name: str, model: Any) -> torch.nn.Module:
    import torch

    if not isinstance(model, torch.nn.Module):
        raise ConfigError(f"{name!r} gave a {type(model).__name__}", fix="return a torch.nn.Module")
    return model
