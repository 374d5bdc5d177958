"""A learning problem of the user's own, by import path: `eris join --task package.module:Task`.

What the path names is called once with the run's configuration and this peer's number, and returns a task:

    def task(config: eris.Config, peer: int) -> eris.Task: ...

A class does as well, if it takes these two arguments. Its methods are only ever asked about this peer: `samples(peer)`,
`memory(peer)`, `train(peer, …)`. It need not know anything of the others' data. Where the model is too long for memory
it is an `eris.BlockTask`: `initial_blocks` and `train_blocks` are asked for instead of `initial` and `train`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from eris.config import Config
from eris.errors import ConfigError, ErisError, TaskError
from eris.local.task import BlockTask, Task, rehearse
from eris.methods import method_by_name
from eris.tasks import TASKS, as_asked, build_task

__all__ = ["task_for"]

_ASKED = ("spec", "samples", "initial", "memory", "train", "evaluate")
_IN_BLOCKS = {"initial": "initial_blocks", "train": "train_blocks"}


def task_for(path: str | None, config: Config, peer: int) -> Task:
    """Build the task at an import path, or the one the configuration describes."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # the user's own modules, as `eris run` finds them
    _check_method(config, own=path is not None)
    if path is None:
        return build_task(config.model_dump(mode="json"))
    factory = TASKS.find(path)
    try:
        task = factory(config, peer)
    except ErisError:
        raise
    except Exception as error:
        raise TaskError(
            f"{path}(config, {peer}) failed: {type(error).__name__}: {error}",
            fix="it is called with the configuration and this peer's number",
        ) from error
    asked = [_IN_BLOCKS.get(name, name) for name in _ASKED] if isinstance(task, BlockTask) else _ASKED
    if lacking := [name for name in asked if not hasattr(task, name)]:
        raise TaskError(f"what {path} returned has no {', '.join(lacking)}", fix="see eris.Task for what a task does")
    rehearse(task, [peer])
    method = method_by_name(config.methods[0])
    return as_asked(method.completed(config), task)


def _check_method(config: Config, *, own: bool) -> None:
    """Refuse what peers cannot do yet, and noise that nobody would add."""
    method = method_by_name(config.methods[0])
    if method.exchange is not None:
        raise ConfigError(
            f"{method.name} has an exchange of its own, which only `eris run` plays", fix="use eris", key="method"
        )
    if own and method.with_defaults(config.for_method(method.name)).privacy.unit == "sample":
        raise ConfigError(
            "a task of one's own is trained as it is: DP-SGD cannot be put into it",
            fix="use privacy.unit = 'member'",
            key="privacy.unit",
        )
