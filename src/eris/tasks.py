"""Configuration → the learning problem: a model, data, and who has which part of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from eris.config import Config, concerning, load_config
from eris.errors import ConfigError, InputError
from eris.local.task import Task
from eris.methods import settled
from eris.methods.noise_budget import on_steps
from eris.seeds import Seed, public_root

if TYPE_CHECKING:
    from eris.local.numpy_task import Descent
    from eris.local.torch_gradient import LocalGradient
    from eris.local.torch_work import LocalWork

__all__ = ["OWN", "build_task", "check_task", "own_task", "task_at_home"]

Arrays = tuple[Any, ...]  # inputs, targets and, perhaps, ids
OWN = "own"  # the name of what has none: a model or data given as objects

_UNUSED_ALWAYS = (
    *("data.partition", "data.validation", "model.name"),
    *("local.steps", "local.optimizer", "local.weight_decay", "local.send", "local.estimator", "local.refresh"),
)
_UNUSED = {  # what made-up tasks do not look at
    "synthetic-clouds": (*_UNUSED_ALWAYS, "model.options"),
    "synthetic-quadratic": (*_UNUSED_ALWAYS, "data.samples", "data.test_samples", "local.epochs", "local.batch"),
}
_TESTS = 200  # rows that synthetic-clouds has to test on
_TRUE_ANYWAY = {"data.validation": (0.0,), "local.steps": (0, 1), "local.batch": ("full",)}


def build_task(config: Mapping[str, Any]) -> Task:
    """Build the task that plain configuration data describes; a worker process calls this too."""
    resolved = load_config(config)
    if len(resolved.methods) == 1:
        resolved = settled(resolved, resolved.methods[0])  # a method may ask for noise in every local step
    check_task(resolved)
    if build := {"synthetic-quadratic": _quadratics, "synthetic-clouds": _clouds}.get(resolved.data.name):
        return build(resolved, public_root(resolved.data.fold).child("synthetic"))
    return _torch_task(resolved)


def check_task(config: Config) -> None:
    """Refuse what no task of one method can be, before any data is read."""
    from eris.data.built_in import BUILT_IN
    from eris.data.catalogue import entry_by_name
    from eris.models.registry import model_factory

    name = config.data.name
    if name in _UNUSED:
        _require_no_sample_noise(config, f"{name} has no gradients of single samples")
        _require_used(config, _UNUSED[name])
        return
    if OWN in (name, config.model.name):
        raise ConfigError(
            "this run has a model, arrays or a task of its own, which were given in Python",
            fix="go on with it there: Federation(…).resume(folder), with the same arguments",
            key="data.name" if name == OWN else "model.name",
        )
    if name not in BUILT_IN:
        with concerning("data.name"):
            entry_by_name(name)
    model_factory(config.model.name)
    _work(config)


def own_task(config: Config, model: Callable[[], Any] | None, data: tuple[Arrays, Arrays] | None) -> Task:
    """Build a task with a model or arrays of one's own in place of what the configuration names.

    Arrays are (inputs, targets), or (inputs, targets, ids) for a natural partition.
    """
    from eris.data import ArrayExamples, Dataset

    if data is None:
        if config.data.name in _UNUSED:
            raise ConfigError(f"{config.data.name} has a model of its own", fix="name no model", key="data.name")
        return _torch_task(config, model)
    _require_pairs(data)
    arrays = [ArrayExamples(*_ready(*part)) for part in data]
    return _torch_task(config, model, Dataset("own", "given as arrays", (), *arrays))


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
        ArrayExamples(*_ready(*train)),
        [everything] * config.members,  # whatever this peer's number is
        test=ArrayExamples(*_ready(*test)) if test is not None else None,
        work=_work(config),
    )


def _require_pairs(data: tuple[Any, ...]) -> None:
    """Refuse anything but what to train and what to test on, each inputs with their targets."""
    if len(data) != 2 or not all(isinstance(part, tuple | list) and len(part) in (2, 3) for part in data):
        raise InputError(
            "data are two pairs of arrays, to train and to test on",
            fix="give ((inputs, targets), (test inputs, test targets)); ids may come third in the first pair",
        )


def _ready(inputs: Any, targets: Any, ids: Any = None) -> Arrays:
    """Return arrays as a network takes them: real numbers as float32, class numbers as int64."""
    import numpy as np

    inputs, targets = np.asarray(inputs), np.asarray(targets)
    for what, array in (("inputs", inputs), ("targets", targets)):
        if array.dtype.kind not in "fiub":
            raise InputError(
                f"the {what} are {array.dtype}, not numbers", fix="give numpy arrays of numbers, all rows equally long"
            )
    inputs, targets = (
        part.astype(np.float32, copy=False) if part.dtype.kind == "f" else part for part in (inputs, targets)
    )
    targets = targets if targets.dtype.kind == "f" else targets.astype(np.int64, copy=False)
    return (inputs, targets) if ids is None else (inputs, targets, np.asarray(ids))


def _torch_task(config: Config, model: Callable[[], Any] | None = None, dataset: Any = None) -> Task:
    from eris.data import load
    from eris.models.assembly import divide, torch_task

    if dataset is None:
        with concerning("data.name"):
            dataset = load(config.data.name)
    shares = divide(dataset, config.members, _data_seed(config), **_division(config))
    return torch_task(
        dataset,
        shares,
        model or config.model.name,
        config.model.options,
        work=_work(config),
        gradient=_gradient(config, [len(part) for part in shares.train]),
        test_samples=config.data.test_samples or None,
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


def _require_used(config: Config, unused: tuple[str, ...]) -> None:
    """Refuse settings that a made-up task does not look at; at its default one claims nothing."""
    default = Config()
    for key in unused:
        table, _, name = key.partition(".")
        value, kept = (getattr(getattr(each, table), name) for each in (config, default))
        if value not in (kept, *_TRUE_ANYWAY.get(key, ())):
            raise ConfigError(
                f"{key} is {value!r}, which {config.data.name} makes nothing of",
                fix="leave it out, or use a data set that a network is trained on",
                key=key,
            )
    if not config.local.keep_state and config.local.momentum not in (0.0, default.local.momentum):
        raise ConfigError(
            f"momentum is {config.local.momentum}, but {config.data.name} has momentum only if it is kept over rounds",
            fix="set local.keep_state = true",
            key="local.momentum",
        )


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
        tests=min(config.data.test_samples or _TESTS, _TESTS),
        epochs=config.local.epochs,
        batch=None if config.local.batch == "full" else config.local.batch,
        descent=_descent(config),
    )


def _descent(config: Config) -> Descent:
    from eris.local.numpy_task import Descent

    return Descent(config.local.lr, config.local.momentum if config.local.keep_state else 0.0)
