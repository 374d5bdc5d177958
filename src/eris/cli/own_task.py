"""`--task` and `--flower`: a learning problem that the configuration does not describe, for `run`, `up` and `join`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eris.errors import ConfigError

if TYPE_CHECKING:
    from eris.config import Config
    from eris.interop.flower import FlowerApp
    from eris.peer.own_task import MakeTask
    from eris.simulate.worker_process import TaskSource

__all__ = ["FlowerOption", "NodeConfigOption", "TaskOption", "again", "for_all", "for_peer", "said", "with_flower"]

TaskOption = Annotated[
    str | None,
    typer.Option(metavar="MODULE:TASK", help="Your own learning problem; called with (config, peer's number)."),
]
FlowerOption = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Run the ClientApp of this Flower project; the method replaces its strategy."),
]
NodeConfigOption = Annotated[
    str,
    typer.Option(metavar="PAIRS", help="For --flower: this node's config, e.g. 'partition-id=0 num-partitions=2'."),
]


def with_flower(
    flower: Path, settings: Callable[[list[str]], Config], changes: list[str], *, defaults: bool
) -> tuple[Config, FlowerApp]:
    """Read a Flower project and the settings of its run; by default the method is eris, the rounds are the project's.

    Settings that only a built-in task would read are refused.

    Args:
        flower: the project's folder.
        settings: reads a configuration with these changes.
        changes: those of the command line.
        defaults: whether eris and the project's rounds are the default.
    """
    from eris.federation import require_nothing_else
    from eris.interop.flower import FlowerApp, configured
    from eris.tasks import FLOWER

    app = FlowerApp.load(flower)
    rounds = app.options.get("num-server-rounds")
    given = ["method=eris", *([f"rounds={rounds}"] if isinstance(rounds, int) else [])] if defaults else []
    config = settings([*given, *changes])
    if config.data.name != FLOWER:
        require_nothing_else(config, heard={"model.options"})
    return configured(app, config), app


def said(app: FlowerApp, config: Config) -> None:
    """Say what replaces the server."""
    methods = ", ".join(config.methods)
    typer.echo(f"Flower app {app.known_as}: the ClientApp runs as it is, {methods} replaces the strategy", err=True)


def for_all(config: Config, task: str | None, app: FlowerApp | None) -> tuple[Config, TaskSource | None]:
    """Return the settings and where the workers of a simulation get the task from; None where settings describe it.

    `task` is the path after --task, `app` that of --flower.
    """
    from eris.federation import with_names_of_its_own
    from eris.simulate.worker_process import TaskSource

    if task and app:
        raise ConfigError("--task and --flower each give a learning problem", fix="give one of them")
    if app is not None:
        return config, TaskSource("eris.interop.flower:flower_task", {"folder": str(app.folder.resolve())})
    if task is not None:
        return with_names_of_its_own(config), TaskSource("eris.peer.own_task:task_of_all", {"path": task})
    return config, None


def again(task: str | None, flower: Path | None) -> str:
    """Return the options to repeat when resuming a run."""
    return f" --flower {flower}" if flower else f" --task {task}" if task else ""


def for_peer(task: str | None, flower: Path | None, node_config: str) -> str | MakeTask | None:
    """Return what makes the task of one peer; None where the settings describe it.

    The arguments are the command's options: --task, --flower and --node-config.
    """
    if task and flower:
        raise ConfigError("--task and --flower each give a learning problem", fix="give one of them")
    if flower is None:
        if node_config:
            raise ConfigError("--node-config is for Flower apps", fix="give --flower DIR with it")
        return task
    from eris.interop.flower import flower_peer, parsed_node_config

    return flower_peer(flower, parsed_node_config(node_config) if node_config else {})
