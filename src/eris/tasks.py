"""Build the task that a configuration describes: a model, a loss, data, and who has which part of it.

Every task is first tried on a dry batch (`eris.local.dry_batch`), in the process that builds it, so that mistakes in
data or model show up before anything is written.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from eris.config import Config, concerning, load_config
from eris.errors import ConfigError, DataError, InputError, MissingExtra
from eris.local.correction import corrected
from eris.local.task import Task
from eris.methods import with_defaults
from eris.methods.noise_budget import on_steps
from eris.registry import Registry, imported
from eris.seeds import Seed, public_root

if TYPE_CHECKING:
    from eris.local.numpy_task import Descent
    from eris.local.torch_gradient import LocalGradient
    from eris.local.torch_objective import Objective
    from eris.local.torch_work import LocalWork

__all__ = ["FLOWER", "OWN", "TASKS", "as_asked", "build_task", "check_task", "own_task", "task_at_home"]

Loss = str | Callable[[Any, Any], Any]
Metrics = Mapping[str, Callable[[Any, Any], Any]] | Sequence[str | Callable[[Any, Any], Any]]
OWN = "own"  # stands in for the name of a model, data or a loss that was given as an object
FLOWER = "flower"  # data.name of a run whose members are a Flower app

_UNUSED_ALWAYS = (
    *("data.partition", "data.validation", "model.name"),
    *(
        "local.steps",
        "local.micro_batch",
        "local.optimizer",
        "local.weight_decay",
        "local.send",
        "local.estimator",
        "local.refresh",
    ),
    *("local.loss", "local.metrics", "local.keep", "local.device", "local.precision"),
)
_UNUSED = {  # settings that synthetic tasks ignore
    "synthetic-clouds": (*_UNUSED_ALWAYS, "model.options"),
    "synthetic-quadratic": (*_UNUSED_ALWAYS, "data.samples", "data.test_samples", "local.epochs", "local.batch"),
}
_TESTS = 200  # test rows of synthetic-clouds
_TRUE_ANYWAY = {
    "data.validation": (0.0,),
    "local.steps": (0, 1),
    "local.batch": ("full",),
    "local.device": ("auto",),
}
_PAIRS = (
    "give ((inputs, targets), (test inputs, test targets)), two datasets to train and to test on, "
    "or a function of the member; ids may come third in the first pair"
)


TASKS: Registry[Callable[..., Task]] = Registry(
    "task",
    "eris.tasks",
    {},
    refuses=lambda thing: "" if callable(thing) else "it cannot be called with a configuration and a peer's number",
)


def build_task(config: Mapping[str, Any], *, dry: bool = True) -> Task:
    """Build the task that plain configuration data describes; a worker process calls this too.

    ``dry=False`` skips the dry batch, for callers that only need the model's size.
    """
    resolved = load_config(config)
    if len(resolved.methods) == 1:
        resolved = with_defaults(resolved, resolved.methods[0])  # a method may ask for noise in every local step
    check_task(resolved)
    if build := {"synthetic-quadratic": _quadratics, "synthetic-clouds": _clouds}.get(resolved.data.name):
        return as_asked(resolved, build(resolved, public_root(resolved.data.fold).child("synthetic")))
    return as_asked(resolved, _torch_task(resolved, given=_data_elsewhere(resolved), dry=dry))


def as_asked(config: Config, task: Task) -> Task:
    """Return the task with its local gradients corrected as the configuration says."""
    with concerning("local.correction"):
        return (
            corrected(task, config.local.correction, config.local.correction_options)
            if config.local.correction
            else task
        )


def check_task(config: Config) -> None:
    """Refuse settings that no task could satisfy, before any data is read."""
    from eris.data.catalogue import DATASETS
    from eris.data.partition import PARTITIONS
    from eris.models.registry import model_factory

    name = config.data.name
    if name in _UNUSED:
        _require_no_sample_noise(config, f"{name} has no gradients of single samples")
        _require_used(config, _UNUSED[name])
        return
    named = {"data.name": name, "model.name": config.model.name, "local.loss": config.local.loss}
    if own := [key for key, value in named.items() if value == OWN]:
        raise ConfigError(
            "this run uses a model, data, a loss or a task that was given in Python",
            fix="resume it from Python, Federation(…).resume(folder), with the same arguments; or give --task again",
            key=own[0],
        )
    if name == FLOWER:
        raise ConfigError("this run trains a Flower app", fix="give its folder again: --flower DIR", key="data.name")
    with concerning("data.name"):
        DATASETS.find(name)
    with concerning("data.partition"):
        PARTITIONS.find(config.data.partition)
    _require_torch()
    model_factory(config.model.name)
    _work(config)
    _objective(config)


def own_task(
    config: Config,
    model: Callable[[], Any] | None,
    data: Any,
    *,
    loss: Loss | None = None,
    metrics: Metrics | None = None,
    collate: Callable[[list[Any]], Any] | None = None,
) -> Task:
    """Build a task with your own model, data or loss in place of those that the configuration names.

    Args:
        config: all other settings.
        model: makes the network; None: the one that the configuration names.
        data: a pair of training and test data (None: no tests). Each is a pair of arrays (inputs, targets), with ids as
            a third for a natural partition; a dictionary of columns; or anything indexed by sample number. Or a
            function of the member's number that returns that member's training data, or its training and test data.
        loss: a name, or a function of the model's outputs and the targets.
        metrics: further figures to report, as functions of outputs and targets.
        collate: puts single samples together into a batch.
    """
    _require_torch()
    if data is None and config.data.name in _UNUSED:
        raise ConfigError(f"{config.data.name} comes with its own model", fix="leave the model out", key="data.name")
    objective = _objective(config, loss, metrics)
    if data is None:
        data = _data_elsewhere(config)
    return _torch_task(config, model, data, objective=objective, collate=collate)


def task_at_home(
    config: Config,
    model: Callable[[], Any],
    train: Any,
    test: Any = None,
    *,
    loss: Loss | None = None,
    metrics: Metrics | None = None,
    collate: Callable[[list[Any]], Any] | None = None,
) -> Task:
    """Build one peer's task from the data it has; it knows nothing of the others' data.

    This is what `eris join --task` needs for a torch model: pass on the configuration you are called with. `train` and
    `test` are arrays (inputs, labels), a dictionary of columns, or anything indexed by sample number. `loss`, `metrics`
    and `collate` are those of `own_task`.
    """
    _require_torch()
    import numpy as np

    from eris.local.torch_task import TorchTask

    _require_no_sample_noise(config, "your own task takes its local steps itself")
    examples, tests = _examples(train, collate), None if test is None else _examples(test, collate)
    task = TorchTask(
        model,
        examples,
        [np.arange(len(examples))] * config.members,  # the same for whatever number this peer has
        test=tests,
        tests=[] if tests is None else [np.arange(len(tests))] * config.members,
        work=_work(config),
        objective=_objective(config, loss, metrics),
    )
    try:
        task.rehearse([0])
    except DataError as error:  # "member 0" would be misleading: this peer may have any number
        where = {key: value for key, value in error.where.items() if key != "peer"}
        raise DataError(error.what, fix=error.fix, **where) from error
    return task


def _data_elsewhere(config: Config) -> Any:
    """Return data from a path or an installed package; None if the data set is built in."""
    from eris.data.catalogue import DATASETS, is_ours

    if is_ours(config.data.name):
        return None
    with concerning("data.name"):
        return DATASETS.find(config.data.name)


def _require_torch() -> None:
    """Refuse a network if torch is missing, before a worker process stumbles over it."""
    if importlib.util.find_spec("torch") is None:
        raise MissingExtra("torch", "torch", "training a network")


def _examples(part: Any, collate: Callable[[list[Any]], Any] | None) -> Any:
    """Return one split of the user's data in the form that a task takes."""
    from eris.data import ArrayExamples
    from eris.local.own_examples import Columns, Items, array_of, is_items

    if isinstance(part, Mapping):
        return Columns(part)
    if _are_arrays(part):
        if isinstance(part[0], Mapping):
            return Columns({**part[0], "labels": part[1]})
        arrays = [array_of(what, each) for what, each in zip(("inputs", "targets"), part, strict=False)]
        return ArrayExamples(*arrays, *(_ids(part[2]) if len(part) == 3 else ()))
    if not is_items(part) or isinstance(part, tuple) or hasattr(part, "dtype"):
        raise InputError("data must be two pairs of arrays, one to train and one to test on", fix=_PAIRS)
    return Items(part, collate)


def _ids(ids: Any) -> tuple[Any]:
    import numpy as np

    return (np.asarray(ids),)


def _are_arrays(part: Any) -> bool:
    """Return whether something is inputs with their targets, and perhaps ids."""
    if not isinstance(part, tuple | list) or len(part) not in (2, 3):
        return False
    inputs, targets = part[0], part[1]
    return (_is_array(inputs) or isinstance(inputs, Mapping)) and _is_array(targets)


def _is_array(part: Any) -> bool:
    listed = isinstance(part, list) and bool(part) and not isinstance(part[0], tuple | Mapping)
    return listed or (hasattr(part, "dtype") and hasattr(part, "shape") and len(part.shape) > 0)


def _torch_task(
    config: Config,
    model: Callable[[], Any] | None = None,
    given: Any = None,
    *,
    objective: Objective | None = None,
    collate: Callable[[list[Any]], Any] | None = None,
    dry: bool = True,
) -> Task:
    from eris.models.assembly import torch_task

    dataset, shares = _divided(config, given, collate)
    task = torch_task(
        dataset,
        shares,
        model or config.model.name,
        config.model.options,
        work=_work(config),
        gradient=_gradient(config, [len(part) for part in shares.train]),
        objective=objective or _objective(config),
        test_samples=config.data.test_samples or None,
    )
    if dry:
        task.rehearse()
    return task


def _divided(config: Config, given: Any, collate: Callable[[list[Any]], Any] | None) -> tuple[Any, Any]:
    """Return the data, by name or as given, and which member has which samples."""
    from eris.data import Dataset, load
    from eris.models.assembly import divide

    if callable(given) and not hasattr(given, "__getitem__"):
        if _takes_a_member(given):
            return _of_members(config, given, collate)
        with concerning("data.name"):
            given = given()
    if given is None:
        with concerning("data.name"):
            dataset = load(config.data.name)
    elif isinstance(given, Dataset):
        dataset = given
    else:
        if not isinstance(given, tuple | list) or len(given) != 2 or _are_arrays(given):
            raise InputError("data must be two pairs of arrays, one to train and one to test on", fix=_PAIRS)
        train, test = _examples(given[0], collate), None if given[1] is None else _examples(given[1], collate)
        dataset = Dataset(OWN, "given", (), train, test)
    return dataset, divide(dataset, config.members, _data_seed(config), **_division(config))


def _takes_a_member(make: Callable[..., Any]) -> bool:
    parameters = inspect.signature(make).parameters.values()
    return any(each.default is each.empty and each.kind is not each.VAR_KEYWORD for each in parameters)


def _of_members(config: Config, make: Callable[[int], Any], collate: Any) -> tuple[Any, Any]:
    """Return the data of members that bring their own: it is not divided, but some is held back for validation.

    `make` returns a member's data, given its number; `collate` is that of `own_task`.
    """
    import numpy as np

    from eris.data import Dataset, Partition
    from eris.local.own_examples import JoinedExamples

    if config.data.partition != "iid":
        raise ConfigError(
            f"data.partition is {config.data.partition!r}, but every member has its own data",
            fix="leave it out",
            key="data.partition",
        )
    if (counts := getattr(make, "samples", None)) is not None:
        return _made_later(config, make, counts, collate)
    splits = [_split(make(member), member) for member in range(config.members)]
    train = JoinedExamples([_examples(own, collate) for own, _ in splits])
    tests = [_examples(test, collate) for _, test in splits if test is not None]
    test: Any = JoinedExamples(tests) if tests else None
    all_test = len(tests) == len(splits) > 0
    own_tests = [np.arange(test.starts[k], test.starts[k + 1]) for k in range(config.members)] if all_test else []
    shares = []
    for member in range(config.members):
        own = np.arange(train.starts[member], train.starts[member + 1])
        if not len(own):
            raise DataError(
                f"member {member} has no samples", fix="give it some, or leave it out", key="members", peer=member
            )
        order = own[_data_seed(config).child("member", member).permutation(len(own))]
        most = max(1, int(len(order) / (1 + config.data.validation) + 1e-9))
        count = min(config.data.samples or most, most)
        held = int(count * config.data.validation + 1e-9)
        shares.append((np.sort(order[:count]), np.sort(order[count : count + held])))  # in the member's own order
    return Dataset(OWN, "given by member", (), train, test), Partition(
        "natural", tuple(own for own, _ in shares), tuple(held for _, held in shares), tuple(own_tests)
    )


def _made_later(config: Config, make: Callable[[int], Any], counts: Any, collate: Any) -> tuple[Any, Any]:
    """Return data made on demand, by a function that says beforehand how many samples each member has.

    None of it is held back for validation; all members are tested on the function's attribute `test`, if it has one.

    `make` returns a member's data, given its number; `counts` is one number for all, or one for each.
    """
    import numpy as np

    from eris.data import Dataset, Partition
    from eris.local.own_examples import LaterExamples

    given = np.asarray(counts)
    if given.dtype.kind not in "iu" or given.shape not in ((), (config.members,)) or not (given > 0).all():
        raise InputError(
            f"the attribute samples of the function that makes the data is {counts!r}",
            fix=f"set it to one number for all members, or to {config.members} numbers, all above 0",
        )
    each = np.minimum(np.broadcast_to(given, config.members), config.data.samples or given)
    train = LaterExamples(lambda member: _examples(_split(make(member), member)[0], collate), each)
    test = getattr(make, "test", None)
    dataset: Dataset[Any] = Dataset(
        OWN, "made by member", (), train, None if test is None else _examples(test, collate)
    )
    return dataset, Partition("natural", train.shares, ())


def _split(made: Any, member: int) -> tuple[Any, Any]:
    if isinstance(made, tuple) and len(made) == 2 and not _are_arrays(made):
        return made
    if made is None or isinstance(made, int | float | str):
        raise InputError(
            f"the function that makes the data returned {made!r} for member {member}",
            fix="return inputs and targets, a dataset, or a pair of training and test data",
        )
    return made, None


def _objective(config: Config, loss: Loss | None = None, metrics: Metrics | None = None) -> Objective | None:
    """Return what is minimised; None to leave it to the data's own default."""
    chosen = config.local.loss if loss is None else loss
    named = _metrics(config.local.metrics if metrics is None else metrics)
    if chosen == "cross-entropy" and not named:
        return None
    from eris.local.torch_losses import objective_of

    if isinstance(chosen, str) and ":" in chosen:
        chosen = _imported(chosen, "local.loss")
    if not isinstance(chosen, str) and not callable(chosen):
        raise ConfigError(
            f"the loss is a {type(chosen).__name__}", fix="give a function or the name of a loss", key="local.loss"
        )
    return objective_of(chosen, named)


def _metrics(metrics: Metrics) -> dict[str, Callable[[Any, Any], Any]]:
    if isinstance(metrics, Mapping):
        return dict(metrics)
    found = [_imported(each, "local.metrics") if isinstance(each, str) else each for each in metrics]
    for each in found:
        if not callable(each):
            raise ConfigError(
                f"a metric is a {type(each).__name__}", fix="give functions of outputs and targets", key="local.metrics"
            )
    return {str(getattr(each, "__name__", type(each).__name__)): each for each in found}


def _imported(path: str, key: str) -> Any:
    """Import and return the object at a path `module:name`."""
    if ":" not in path:
        raise ConfigError(f"{key} is {path!r}", fix="write package.module:function", key=key)
    with concerning(key):
        return imported(path, key)


def _gradient(config: Config, samples: list[int]) -> LocalGradient | None:
    """Return the noisy gradient of DP-SGD if samples are to be private, else None."""
    noise = on_steps(config, samples)
    if noise is None:
        return None
    from eris.privacy.torch_private import PrivateGradient

    return PrivateGradient(noise.bound, noise.multiplier, config.privacy.per_sample, config.local.micro_batch or None)


def _require_no_sample_noise(config: Config, why: str) -> None:
    if on_steps(config, [1]) is not None:
        raise ConfigError(f"DP-SGD is asked for, but {why}", fix="use privacy.unit = 'member'", key="privacy.unit")


def _require_used(config: Config, unused: tuple[str, ...]) -> None:
    """Refuse settings that a synthetic task would ignore, unless they are at their defaults."""
    default = Config()
    for key in unused:
        table, _, name = key.partition(".")
        value, kept = (getattr(getattr(each, table), name) for each in (config, default))
        if value not in (kept, *_TRUE_ANYWAY.get(key, ())):
            raise ConfigError(
                f"{key} is {value!r}, which {config.data.name} does not use",
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
        "options": data.partition_options,
        "samples": data.samples or None,
        "validation": data.validation,
    }


def _work(config: Config) -> LocalWork:
    from eris.local.torch_work import LocalWork

    local = config.local.model_dump(exclude={"cohort", "loss", "metrics", "correction", "correction_options"})
    return LocalWork(**{**local, **{name: local[name] or None for name in ("steps", "micro_batch")}})


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
