"""Configuration → the learning problem: a model, data, and who has which part of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from eris.config import Config, load_config
from eris.errors import ConfigError
from eris.local.task import Task
from eris.seeds import Seed, public_root

if TYPE_CHECKING:
    from eris.data import Partition

__all__ = ["build_task", "task_of"]

Arrays = tuple[Any, Any]


def build_task(config: Mapping[str, Any]) -> Task:
    """Build the task that plain configuration data describes; a worker process calls this too."""
    resolved = load_config(config)
    made_up = {"synthetic-quadratic": _quadratics, "synthetic-clouds": _clouds}
    if build := made_up.get(resolved.data.name):
        return build(resolved, public_root(resolved.data.fold).child("synthetic"))
    return task_of(resolved)


def _quadratics(config: Config, seed: Seed) -> Task:
    from eris.local.numpy_task import QuadraticTask

    n = int(config.model.options.get("n", 100))
    return QuadraticTask.synthetic(config.members, n, seed, descent=_descent(config))


def _clouds(config: Config, seed: Seed) -> Task:
    from eris.local.numpy_task import LogisticTask

    return LogisticTask.synthetic(
        config.members,
        seed,
        samples=config.data.samples or 20,
        epochs=config.local.epochs,
        batch=None if config.local.batch == "full" else config.local.batch,
        descent=_descent(config),
    )


def _descent(config: Config) -> Any:
    from eris.local.numpy_task import Descent

    return Descent(config.local.lr, config.local.momentum if config.local.keep_state else 0.0)


def task_of(config: Config, model: Callable[[], Any] | None = None, data: tuple[Arrays, Arrays] | None = None) -> Task:
    """Build a task in torch; a model or arrays of one's own take the place of those the configuration names."""
    from eris.data import load
    from eris.local.torch_task import TorchTask
    from eris.local.torch_work import LocalWork
    from eris.models.assembly import torch_task
    from eris.models.registry import model_factory

    work = LocalWork(**config.local.model_dump())
    if data is None and model is None:
        dataset = load(config.data.name)
        labels = len(dataset.train) if dataset.train.labels is None else dataset.train.labels
        shares = _shares(config, labels, dataset.train.ids)
        return torch_task(dataset, shares, config.model.name, config.model.options, work=work)
    train, test, labels = _own_examples(*data) if data else _named_examples(config)
    shares = _shares(config, labels, getattr(train, "ids", None))
    return TorchTask(
        model or model_factory(config.model.name, **config.model.options),
        train,
        shares.train,
        test=test,
        validation=shares.validation,
        work=work,
    )


def _named_examples(config: Config) -> tuple[Any, Any, Any]:
    from eris.data import Texts, load

    dataset = load(config.data.name)
    if isinstance(dataset.train, Texts) or isinstance(dataset.test, Texts):
        raise ConfigError(
            f"{config.data.name} is text, and a model of one's own takes arrays",
            fix="name the model by its import path with the option tokenizer, or give token numbers as arrays",
            key="data.name",
        )
    return dataset.train, dataset.test, dataset.train.labels


def _own_examples(train: Arrays, test: Arrays) -> tuple[Any, Any, Any]:
    from eris.data import ArrayExamples

    return ArrayExamples(*train), ArrayExamples(*test), train[1]


def _shares(config: Config, labels: Any, ids: Any) -> Partition:
    from eris.data import partition

    data = config.data
    return partition(
        labels,
        config.members,
        public_root(config.seed).child("data", data.fold),
        kind=data.partition,
        alpha=data.alpha,
        classes_per_member=data.classes_per_member,
        ids=ids,
        samples=data.samples or None,
        validation=data.validation,
    )
