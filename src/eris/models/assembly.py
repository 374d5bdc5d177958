"""Build a task from a model and a data set: pictures go in as they are, texts through the model's tokenizer.

>>> from eris.data import mnist_sample
>>> from eris.seeds import public_root
>>> digits = mnist_sample()
>>> shares = divide(digits, 10, public_root(1), samples=16)
>>> task = torch_task(digits, shares, "lenet5")
>>> task.members, task.samples(3), task.spec.n
(10, 16, 61706)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from eris.data.dataset import Dataset, Texts
from eris.data.partition import Partition, partition
from eris.errors import ConfigError
from eris.local.torch_examples import Chosen, Examples
from eris.local.torch_gradient import LocalGradient
from eris.local.torch_objective import Objective
from eris.local.torch_task import TorchTask
from eris.local.torch_work import LocalWork
from eris.models.fit import require_fit
from eris.models.registry import PRETRAINED_KINDS, ModelFactory, is_ours, model_factory
from eris.seeds import Seed, public_root

__all__ = ["divide", "torch_task"]

Built = tuple[Any, Examples, Examples, dict[str, Any]]

_TEXT_MODELS = {"text-classifier", *PRETRAINED_KINDS}


def divide(dataset: Dataset[Any], members: int, seed: Seed, **options: Any) -> Partition:
    """Divide a set's train split among members; see `eris.data.partition` for the options."""
    split = dataset.train
    labels = len(split) if split.labels is None else np.asarray(split.labels)
    return partition(labels, members, seed, ids=split.ids, **options)


def torch_task(
    dataset: Dataset[Any],
    shares: Partition,
    model: str | ModelFactory,
    options: Mapping[str, Any] | None = None,
    *,
    work: LocalWork | None = None,
    gradient: LocalGradient | None = None,
    objective: Objective | None = None,
    test_samples: int | None = None,
) -> TorchTask:
    """Return the task of training `model` on `dataset`.

    Args:
        dataset: a data set of pictures or texts.
        shares: which member has which samples.
        model: a model by name, or a function that builds one.
        options: the model's own. For texts they also bound lengths in tokens: `length` for a classifier, `article` and
            `summary` for a language model, and `generate` for the summaries written for ROUGE-1 (0: none).
        work: what a member does in a round.
        gradient: computes the gradient of a batch, if not the plain mean.
        objective: replaces cross-entropy, or the scoring of summaries.
        test_samples: limits evaluation to the first so many of a fixed random order.
    """
    if isinstance(dataset.train, Texts):
        build = _classifier if dataset.train.labels is not None else _summariser
        factory, train, test, extra = build(dataset, model, dict(options or {}))
    else:
        if isinstance(model, str) and is_ours(model) and objective is None:
            require_fit(model, options or {}, dataset)
        factory, train, test, extra = _factory(model, options or {}), dataset.train, dataset.test, {}
    return TorchTask(
        factory,
        train,
        shares.train,
        test=_some(test, test_samples),
        validation=shares.validation,
        tests=shares.tests if test_samples is None else (),
        work=work,
        gradient=gradient,
        **{**extra, **({} if objective is None else {"objective": objective})},
    )


def _factory(model: str | ModelFactory, options: Mapping[str, Any]) -> ModelFactory:
    """Return a function that builds the model; `options` are for a model by name only."""
    return model_factory(model, **options) if isinstance(model, str) else model


def _classifier(dataset: Dataset[Texts], model: str | ModelFactory, options: dict[str, Any]) -> Built:
    from eris.models.tokens import LabelledTokens

    tokenizer, length = _tokenizer(model, options), int(options.pop("length", 128))
    if model in _TEXT_MODELS:
        options.setdefault("classes", len(dataset.classes))
    train, test = (LabelledTokens(split, tokenizer, length) for split in (dataset.train, dataset.test))
    return _factory(model, options), train, test, {"evaluation_batch": 64}


def _summariser(dataset: Dataset[Texts], model: str | ModelFactory, options: dict[str, Any]) -> Built:
    from eris.models.language import Summarisation
    from eris.models.tokens import SummaryTokens

    tokenizer = _tokenizer(model, options)
    article, summary = int(options.pop("article", 800)), int(options.pop("summary", 128))
    objective = Summarisation(tokenizer, generate=int(options.pop("generate", 128)))
    train, test = (SummaryTokens(split, tokenizer, article, summary) for split in (dataset.train, dataset.test))
    return _factory(model, options), train, test, {"objective": objective, "evaluation_batch": 4}


def _tokenizer(model: str | ModelFactory, options: dict[str, Any]) -> Any:
    """Return the tokenizer of the model's source; your own module names one as the option `tokenizer`."""
    from eris.models.text import tokenizer_of

    source = options.pop("tokenizer", None) or options.get("source") or (model if model in PRETRAINED_KINDS else None)
    if source is None:
        raise ConfigError(
            f"model {model!r} is trained on texts but has no tokenizer",
            fix="set its option source (folder, hub id or pretrained name) or, for a module of your own, tokenizer",
            key="model.options",
        )
    return tokenizer_of(str(source))


def _some(examples: Examples | None, count: int | None) -> Examples | None:
    if examples is None or count is None or count >= len(examples):
        return examples
    order = public_root(0).child("test-samples").permutation(len(examples))
    return Chosen(examples, np.sort(order[:count]))
