"""Models by name.

A model is built by a function or class that takes options and returns a `torch.nn.Module`. Its initial weights come
from torch's random generator, which is seeded while the model is built and restored afterwards.

>>> model_names()[:4]
['language-model', 'lenet5', 'logistic', 'minilm-l6']
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from eris.config import concerning
from eris.errors import ConfigError
from eris.registry import BUILT_IN, Lazy, Registry

if TYPE_CHECKING:
    import torch

__all__ = [
    "MODELS",
    "PRETRAINED_KINDS",
    "ModelFactory",
    "builder_of",
    "is_ours",
    "model_by_name",
    "model_factory",
    "model_names",
]

ModelFactory = Callable[[], "torch.nn.Module"]

MODELS: Registry[Callable[..., Any]] = Registry(
    "model",
    "eris.models",
    {
        "language-model": Lazy("eris.models.text:LanguageModel", "a causal language model (transformers)"),
        "lenet5": Lazy("eris.models.lenet:LeNet5", "LeNet-5 for small pictures"),
        "logistic": Lazy("eris.models.perceptron:Logistic", "one linear layer"),
        "mlp": Lazy("eris.models.perceptron:Perceptron", "fully connected layers"),
        "resnet18": Lazy("eris.models.resnet18:ResNet18", "ResNet-18, for 32 × 32 or ImageNet's pictures"),
        "resnet9": Lazy("eris.models.resnet9:ResNet9", "ResNet-9 without running statistics"),
        "text-classifier": Lazy("eris.models.text:TextClassifier", "a text encoder with a head (transformers)"),
        "tiny-batchnorm": Lazy("eris.models.tiny:TinyBatchNorm", "a few layers with running statistics"),
        "minilm-l6": Lazy("eris.models.text:TextClassifier", "text-classifier on MiniLM-L6 (`eris data get` first)"),
        "smollm2-135m": Lazy("eris.models.text:LanguageModel", "language-model on SmolLM2 (`eris data get` first)"),
    },
    refuses=lambda thing: "" if callable(thing) else "it cannot be called: name a class or a function",
)

PRETRAINED_KINDS = {"minilm-l6": "text-classifier", "smollm2-135m": "language-model"}


def model_names() -> list[str]:
    """Return the names `model_by_name` knows; the pretrained ones must be fetched first (`eris data get`)."""
    return sorted(MODELS)


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
            f"model {name!r} cannot be built with {options}: {error}",
            fix="correct the options in [model]",
            key="model.options",
        ) from error
    from eris.local.torch_module import require_module

    return require_module(model)


def builder_of(name: str) -> Callable[..., Any]:
    """Return the class or function that a name or an import path stands for."""
    with concerning("model.name"):
        return MODELS.find(name)


def is_ours(name: str) -> bool:
    """Return whether a name is that of eris's own network, rather than an import path or a package's."""
    return name not in PRETRAINED_KINDS and name in MODELS and MODELS.origin(name) == BUILT_IN


def model_factory(name: str, **options: Any) -> ModelFactory:
    """Return a function without arguments that builds the model; it can be handed to a worker process."""
    if ":" not in name and name not in MODELS and name not in PRETRAINED_KINDS:
        builder_of(name)  # raises, and lists the models there are
    return partial(model_by_name, name, **options)
