"""Trackers: send a run's figures, round by round, to TensorBoard, MLflow, W&B or a tracker of your own.

A tracker gets figures from the run's events and nothing else. In a simulation it has those of all members; in the
network every peer has its own tracker, because a peer's losses stay with the peer.

It is made by a function of the run's name and folder: by name, as module:name, or from a package (`eris.trackers`):

    def printed(name, folder):
        return Printed()          # with settings, figures, artefact and close: see `Tracker`
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

from eris.config import Config, dump_config
from eris.errors import ConfigError, MissingExtra
from eris.events import Event, RoundEnded, RunEnded, RunStarted
from eris.registry import Lazy, Registry

__all__ = ["TRACKERS", "MakeTracker", "TensorBoard", "Tracker", "Tracking", "figures_of_round", "tensorboard"]

_ASKED = ("settings", "figures", "artefact", "close")


class Tracker(Protocol):
    """Where the figures of one run go."""

    def settings(self, text: str) -> None:
        """Record the run's configuration, given as TOML."""
        ...

    def figures(self, figures: Mapping[str, float], round: int) -> None:
        """Record the figures of a round; all are finite."""
        ...

    def artefact(self, path: Path) -> None:
        """Record a file that the run has produced, such as its report."""
        ...

    def close(self) -> None:
        """Write everything down."""
        ...


MakeTracker = Callable[[str, Path], Tracker]  # the run's name, and its folder


class TensorBoard:
    """Event files in the run's folder, `tensorboard/METHOD`, for `tensorboard --logdir`."""

    def __init__(self, name: str, folder: Path) -> None:
        try:
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError as error:
            raise MissingExtra("tensorboard", "track", "event files") from error
        self._writer = EventFileWriter(str(folder / "tensorboard" / name))

    def settings(self, text: str) -> None:
        """Show the configuration among the texts."""
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.plugins.text.metadata import create_summary_metadata
        from tensorboard.util.tensor_util import make_tensor_proto

        indented = "\n".join(f"    {line}" for line in text.splitlines())  # a block of code, in Markdown
        tensor, kind = make_tensor_proto([indented.encode()]), create_summary_metadata("configuration", "")
        value = Summary.Value(tag="configuration/text_summary", metadata=kind, tensor=tensor)
        self._add(Summary(value=[value]), 0)

    def figures(self, figures: Mapping[str, float], round: int) -> None:
        """Add a point to every curve."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        self._add(Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in figures.items()]), round)

    def artefact(self, path: Path) -> None:
        """Leave it where it is: event files are in the same folder."""

    def close(self) -> None:
        """Write everything that is still buffered."""
        self._writer.close()

    def _add(self, summary: Any, round: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event as Line

        self._writer.add_event(Line(wall_time=time.time(), step=round, summary=summary))


def tensorboard(name: str, folder: Path) -> Tracker:
    """Write event files for TensorBoard into the run's folder."""
    return TensorBoard(name, folder)


TRACKERS: Registry[MakeTracker] = Registry(
    "tracker",
    "eris.trackers",
    {
        "tensorboard": tensorboard,
        "mlflow": Lazy(
            "eris.interop.mlflow_tracker:mlflow", "Write to MLflow: by default, a database in the run's folder."
        ),
        "wandb": Lazy("eris.interop.wandb_tracker:wandb", "Write a W&B run into the run's folder, by default offline."),
    },
    refuses=lambda thing: "" if callable(thing) else "it cannot be called with a run's name and folder",
)


class Tracking:
    """Listens to runs, one after another, and hands their figures to trackers.

    A tracker that fails causes a warning and is left out from then on: the training matters more than its curves.

    `names` are trackers by name or functions that make one; `folder` is where they write, `config` what they record.
    """

    hears = (RunStarted, RoundEnded, RunEnded)

    def __init__(self, names: Iterable[str | MakeTracker], folder: Path, config: Config) -> None:
        self._makers = [TRACKERS.find(name) for name in names]
        self._folder, self._config = folder, config
        self._open: list[Tracker] = []
        self._current: list[Tracker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._tell(self._open, lambda tracker: tracker.close())

    def __call__(self, event: Event) -> None:
        """Pass an event on as figures."""
        if isinstance(event, RunStarted):
            self._begin(event.method)
        elif isinstance(event, RoundEnded):
            figures = figures_of_round(event)
            self._tell(self._current, lambda tracker: tracker.figures(figures, event.round))

    def artefact(self, path: Path) -> None:
        """Hand a file to the trackers of every run."""
        self._tell(self._open, lambda tracker: tracker.artefact(path))

    def _begin(self, method: str) -> None:
        self._current = [self._made(make, method) for make in self._makers]
        self._open += self._current
        settings = dump_config(self._config)
        self._tell(self._current, lambda tracker: tracker.settings(settings))

    def _made(self, make: MakeTracker, method: str) -> Tracker:
        tracker = make(method, self._folder)
        if lacking := [part for part in _ASKED if not hasattr(tracker, part)]:
            raise ConfigError(
                f"a tracker has no {', '.join(lacking)}", fix="add what eris.interop.trackers.Tracker asks for"
            )
        return tracker

    def _tell(self, trackers: Sequence[Tracker], what: Callable[[Tracker], None]) -> None:
        for tracker in list(trackers):
            try:
                what(tracker)
            except Exception as error:  # noqa: BLE001 - a tracker may raise anything
                warnings.warn(
                    f"{type(tracker).__name__} failed and is no longer used: {type(error).__name__}: {error}",
                    stacklevel=3,
                )
                for each in (self._open, self._current):
                    if tracker in each:
                        each.remove(tracker)


def figures_of_round(event: RoundEnded) -> dict[str, float]:
    """Return every finite number of a round by name: metrics, bytes, seconds.

    >>> from eris.events import RoleBytes, RoundTraffic
    >>> traffic = RoundTraffic(RoleBytes(10, 20), RoleBytes(30, 40), 100, 0.5, float("nan"))
    >>> figures = figures_of_round(RoundEnded(0, {"loss": 0.5, "per_class": [1.0, 0.0]}, traffic, {"train": 2.0}))
    >>> figures["loss"], figures["per_class/1"], figures["seconds/train"]
    (0.5, 0.0, 2.0)
    """
    traffic = event.traffic
    found: dict[str, Any] = {
        **event.metrics,
        "bytes/member_up": traffic.member.up,
        "bytes/member_down": traffic.member.down,
        "bytes/aggregator_up": traffic.aggregator.up,
        "bytes/aggregator_down": traffic.aggregator.down,
        "bytes/total": traffic.total,
        "lost_shards": event.lost_shards,
        **{f"seconds/{stage}": seconds for stage, seconds in event.seconds.items()},
    }
    flat: dict[str, float] = {}
    for name, value in found.items():
        several = list(enumerate(value)) if isinstance(value, list | tuple) else []
        flat |= {f"{name}/{number}": each for number, each in several} if several else {name: value}
    numbers = {name: value for name, value in flat.items() if isinstance(value, int | float)}
    return {name: float(value) for name, value in numbers.items() if math.isfinite(value)}
