"""Configuration → the learning problem: a model, data, and who has which part of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eris.config import Config, load_config
from eris.errors import ConfigError
from eris.local.task import Task
from eris.seeds import Seed, public_root

__all__ = ["build_task"]


def build_task(config: Mapping[str, Any]) -> Task:
    """Build the task that plain configuration data describes; a worker process calls this too."""
    resolved = load_config(config)
    made_up = {"synthetic-quadratic": _quadratics, "synthetic-clouds": _clouds}
    if build := made_up.get(resolved.data.name):
        return build(resolved, public_root(resolved.data.fold).child("synthetic"))
    return _torch_task(resolved)


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


def _torch_task(config: Config) -> Task:
    from eris.data import Texts, load, partition
    from eris.local.torch_task import TorchTask
    from eris.local.torch_work import LocalWork
    from eris.models.registry import model_factory

    data, dataset = config.data, load(config.data.name)
    if isinstance(dataset.train, Texts) or isinstance(dataset.test, Texts):
        raise ConfigError(f"{data.name} is text, {config.model.name} takes pictures", fix="use a set of pictures")
    shares = partition(
        dataset.train.labels,
        config.members,
        public_root(config.seed).child("data", data.fold),
        kind=data.partition,
        alpha=data.alpha,
        classes_per_member=data.classes_per_member,
        ids=getattr(dataset.train, "ids", None),
        samples=data.samples or None,
        validation=data.validation,
    )
    return TorchTask(
        model_factory(config.model.name, **config.model.options),
        dataset.train,
        shares.train,
        test=dataset.test,
        validation=shares.validation,
        work=LocalWork(**config.local.model_dump()),
    )
