"""Membership audits along one axis: aggregators, colluders, compression, block size, or the shard plan's schedule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eris.audit.json_file import write_json
from eris.audit.membership_run import NOTES, SMALL, AuditPlan, MethodAudit, audit_method
from eris.audit.observer import Observer
from eris.config import Config, load_config
from eris.errors import ConfigError
from eris.events import Listener

__all__ = ["SIZES", "SWEEPS", "Sweep", "SweepPoint", "run_sweep", "sweep_by_name"]

_AGGREGATOR = (Observer("aggregator"),)

SIZES = {
    "small": SMALL,
    "paper": (
        "members=50", "rounds=250", "evaluate_every=10", "data.name=mnist", "data.samples=64", "data.validation=0.3",
        "local.batch=full", "local.lr=0.01", "local.momentum=0.9", "local.keep_state=true",
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One training of a sweep: its changes to the settings, and its observers."""

    label: str  # empty: each observer's size labels its own entry
    changes: tuple[str, ...]  # `key=value`
    observers: tuple[Observer, ...] = _AGGREGATOR


@dataclass(frozen=True, slots=True)
class Sweep:
    """A named axis to sweep along; `points` returns its trainings for a number of members."""

    name: str
    axis: str  # what changes from point to point, in words
    points: Callable[[int], list[SweepPoint]]


def _aggregators(members: int) -> list[SweepPoint]:
    """Return a server, which is one aggregator that is not a member, and then more and more aggregators."""
    counts = sorted({count for count in (2, 4, 8, 16, members) if count <= members})
    sharded = [SweepPoint(str(count), ("method=eris", f"aggregators={count}")) for count in counts]
    return [SweepPoint("server", ("method=fedavg",)), *sharded]


def _collusion(members: int) -> list[SweepPoint]:
    """Return one training, observed by coalitions of many sizes, which get sparser as they grow."""
    some = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, members - 1, members)
    sizes = sorted({size for size in some if 0 < size <= members and (size != members - 1 or members > 16)})
    return [SweepPoint("", ("method=eris",), tuple(Observer("coalition", size) for size in sizes))]


def _compression(members: int) -> list[SweepPoint]:
    del members
    kept = (1.0, 0.5, 0.2, 0.05, 0.02)
    return [SweepPoint(f"{1 / keep - 1:g}", ("method=eris+dsc", f"compression.keep={keep}")) for keep in kept]


def _blocks(members: int) -> list[SweepPoint]:
    del members
    sizes = [SweepPoint(str(size), ("method=eris", f"shards.block={size}")) for size in (1, 32, 1024)]
    return [*sizes, SweepPoint("contiguous", ("method=eris", "shards.plan=contiguous"))]


def _rotation(members: int) -> list[SweepPoint]:
    del members
    return [
        SweepPoint(schedule, ("method=eris", f"shards.schedule={schedule}"))
        for schedule in ("fixed", "redraw", "rotate")
    ]


SWEEPS = {
    sweep.name: sweep
    for sweep in (
        Sweep("aggregators", "number of aggregators", _aggregators),
        Sweep("collusion", "number of colluders", _collusion),
        Sweep("compression", "compression ω", _compression),
        Sweep("blocks", "coordinates in a block", _blocks),
        Sweep("rotation", "shard plan", _rotation),
    )
}


def sweep_by_name(name: str) -> Sweep:
    """Return the sweep of that name."""
    if name not in SWEEPS:
        raise ConfigError(f"there is no sweep {name!r}", fix=f"use one of {', '.join(SWEEPS)}")
    return SWEEPS[name]


def run_sweep(
    sweep: Sweep,
    base: Sequence[str],
    out: Path,
    attacks: tuple[str, ...],
    *,
    listeners: Sequence[Listener] = (),
    stopped: Callable[[], bool] = lambda: False,
    **options: Any,
) -> list[dict[str, Any]]:
    """Train every point of a sweep, write sweep-NAME.json and return its points as plain data, one for each label.

    Calling it again with the same arguments resumes where it stopped.

    Args:
        sweep: the axis.
        base: the settings that all points share, as `key=value`.
        out: the folder for the results.
        attacks: the attacks to report.
        listeners: hear the events of the trainings.
        stopped: asked whether to stop.
        options: further fields of `AuditPlan`.
    """
    path = out / f"sweep-{sweep.name}.json"
    found: list[dict[str, Any]] = []
    for number, (point, config) in enumerate(configurations(sweep, base)):
        plan = AuditPlan(point.observers, attacks, **options)
        folder = out / "runs" / f"{sweep.name}-{number}"
        trial = audit_method(config, folder, plan, listeners=listeners, stopped=stopped)
        found += _labelled(point, trial)
    write_json(path, {"sweep": sweep.name, "axis": sweep.axis, "settings": list(base), "notes": NOTES, "points": found})
    return found


def configurations(sweep: Sweep, base: Sequence[str]) -> list[tuple[SweepPoint, Config]]:
    """Return every point with its settings, so that all are checked before the first is trained."""
    members = load_config(changes=base).members
    return [(point, load_config(changes=[*base, *point.changes])) for point in sweep.points(members)]


def _labelled(point: SweepPoint, trial: MethodAudit) -> list[dict[str, Any]]:
    """Return an entry for each label: the point's own, or the size of each coalition."""
    plain, entries = trial.plain(), []
    for observer in point.observers:
        results = [result for result in plain["results"] if result["observer"] == str(observer)]
        entries.append({**plain, "label": point.label or str(observer.size), "results": results})
    return entries
