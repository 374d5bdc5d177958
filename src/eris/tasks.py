"""Configuration → the learning problem: a model, data, and who has which part of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from eris.config import Config, load_config
from eris.local.task import Task
from eris.seeds import Seed, public_root

if TYPE_CHECKING:
    from eris.local.numpy_task import Descent
    from eris.local.torch_work import LocalWork

__all__ = ["build_task", "own_task"]

Arrays = tuple[Any, Any]


def build_task(config: Mapping[str, Any]) -> Task:
    """Build the task that plain configuration data describes; a worker process calls this too."""
    resolved = load_config(config)
    made_up = {"synthetic-quadratic": _quadratics, "synthetic-clouds": _clouds}
    if build := made_up.get(resolved.data.name):
        return build(resolved, public_root(resolved.data.fold).child("synthetic"))
    return _torch_task(resolved)


def own_task(config: Config, model: Callable[[], Any] | None, data: tuple[Arrays, Arrays] | None) -> Task:
    """Build a task with a model or arrays of one's own in place of what the configuration names."""
    from eris.data import ArrayExamples, load, partition
    from eris.local.torch_task import TorchTask
    from eris.models.registry import model_factory

    if data is None:
        dataset: Any = load(config.data.name)
        train, test, labels = dataset.train, dataset.test, dataset.train.labels
    else:
        train, test, labels = ArrayExamples(*data[0]), ArrayExamples(*data[1]), data[0][1]
    shares = partition(labels, config.members, _data_seed(config), **_division(config))
    return TorchTask(
        model or model_factory(config.model.name, **config.model.options),
        train,
        shares.train,
        test=test,
        validation=shares.validation,
        work=_work(config),
    )


def _torch_task(config: Config) -> Task:
    from eris.data import load
    from eris.models.assembly import divide, torch_task

    dataset: Any = load(config.data.name)
    shares = divide(dataset, config.members, _data_seed(config), **_division(config))
    model, tests = config.model, config.data.test_samples
    return torch_task(dataset, shares, model.name, model.options, work=_work(config), test_samples=tests or None)


def _data_seed(config: Config) -> Seed:
    return public_root(config.seed).child("data", config.data.fold)


def _division(config: Config) -> dict[str, Any]:
    data = config.data
    return {
        "kind": data.partition,
        "alpha": data.alpha,
        "classes_per_member": data.classes_per_member,
        "samples": data.samples or None,
        "validation": data.validation,
    }


def _work(config: Config) -> LocalWork:
    from eris.local.torch_work import LocalWork

    local = config.local.model_dump()
    return LocalWork(**{**local, "steps": local["steps"] or None})


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


def _descent(config: Config) -> Descent:
    from eris.local.numpy_task import Descent

    return Descent(config.local.lr, config.local.momentum if config.local.keep_state else 0.0)
