"""Configuration → the learning problem: a model, data, and who has which part of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from eris.config import Config, load_config
from eris.errors import ConfigError
from eris.local.task import Task
from eris.methods import settled
from eris.methods.noise_budget import on_steps
from eris.seeds import Seed, public_root

if TYPE_CHECKING:
    from eris.local.numpy_task import Descent
    from eris.local.torch_gradient import LocalGradient
    from eris.local.torch_work import LocalWork

__all__ = ["build_task", "own_task", "task_at_home"]

Arrays = tuple[Any, Any]


def build_task(config: Mapping[str, Any]) -> Task:
    """Build the task that plain configuration data describes; a worker process calls this too."""
    resolved = load_config(config)
    if len(resolved.methods) == 1:
        resolved = settled(resolved, resolved.methods[0])  # a method may ask for noise in every local step
    made_up = {"synthetic-quadratic": _quadratics, "synthetic-clouds": _clouds}
    if build := made_up.get(resolved.data.name):
        _require_no_sample_noise(resolved, f"{resolved.data.name} has no gradients of single samples")
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
        gradient=_gradient(config, [len(part) for part in shares.train]),
    )


def task_at_home(config: Config, model: Callable[[], Any], train: Arrays, test: Arrays | None = None) -> Task:
    """Build the task of one peer from inputs and labels it has at home; it knows nothing of what others have.

    This is what `eris join --task` needs for a torch model: call it with the configuration that is handed in.
    """
    import numpy as np

    from eris.data import ArrayExamples
    from eris.local.torch_task import TorchTask

    _require_no_sample_noise(config, "a task of one's own is trained as it is")
    everything = np.arange(len(train[0]))
    return TorchTask(
        model,
        ArrayExamples(*train),
        [everything] * config.members,  # whatever this peer's number is
        test=ArrayExamples(*test) if test is not None else None,
        work=_work(config),
    )


def _torch_task(config: Config) -> Task:
    from eris.data import load
    from eris.models.assembly import divide, torch_task

    dataset: Any = load(config.data.name)
    shares = divide(dataset, config.members, _data_seed(config), **_division(config))
    model, tests = config.model, config.data.test_samples
    gradient = _gradient(config, [len(part) for part in shares.train])
    return torch_task(
        dataset, shares, model.name, model.options, work=_work(config), gradient=gradient, test_samples=tests or None
    )


def _gradient(config: Config, samples: list[int]) -> LocalGradient | None:
    """Return the noisy gradient of DP-SGD where samples are to be private, else None."""
    noise = on_steps(config, samples)
    if noise is None:
        return None
    from eris.local.torch_private import PrivateGradient

    return PrivateGradient(noise.bound, noise.multiplier)


def _require_no_sample_noise(config: Config, why: str) -> None:
    if on_steps(config, [1]) is not None:
        raise ConfigError(f"DP-SGD is asked for, but {why}", fix="use privacy.unit = 'member'", key="privacy.unit")


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

    local = config.local.model_dump(exclude={"cohort"})
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
