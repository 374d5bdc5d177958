"""The whole audit: every defence, observer, attack and mode, picture by picture, with what chance would have found.

Every result is written as soon as it is there. Whoever calls again with the same folder goes on where it ended, also
with more pictures or another attack.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from eris.audit.inversion.attack import Inversion, Labels, Mode, inversion_by_name
from eris.audit.inversion.defence import Defence
from eris.audit.inversion.finding import Finding, Task, keep, kept, scored
from eris.audit.inversion.sight import Sight
from eris.audit.inversion.sighting import Sighting
from eris.audit.inversion.stage import Stage, other_pictures, stage
from eris.audit.inversion.tally import Entry, tally
from eris.audit.observer import Observer
from eris.audit.plain import write_json
from eris.local.spec import Vector
from eris.seeds import public_root

__all__ = ["NOTES", "RANDOM", "Aim", "Notice", "Report", "audit_reconstruction"]

Notice = Callable[[int, int, str], None]

RANDOM = "random values"
NOTES = (
    "recovered: a mean squared difference below 0.001, pixels from 0 to 1",
    "identified: nearer to its original than to all other candidates, by squared difference or (identified_by_pattern) "
    "by correlation, which also finds what is only pale; chance is 1 / candidates",
    "mask-aware attacks match only what was seen; zero-filled ones take the rest for zero, as the published attacks do",
    "random values: the same attack on noise of the same length, which holds no picture",
    "an attack that finds nothing does not show that there is nothing to find",
)


@dataclass(frozen=True)
class Aim:
    """What is attacked, from where and how."""

    defences: tuple[Defence, ...]
    observers: tuple[Observer, ...] = (Observer("aggregator"),)
    attacks: tuple[str, ...] = ("boxed",)
    modes: tuple[Mode, ...] = ("mask-aware", "zero-filled")
    pictures: int = 4  # of each defence; whole members, so perhaps a few more
    rounds: int = 1  # the last of so many is attacked
    candidates: int = 100
    controls: int = 4  # members whose values are replaced by noise
    options: Mapping[str, Any] = field(default_factory=dict)  # of the attacks
    model: Vector | None = field(default=None, repr=False)  # where the training begins, if not at the beginning
    told: bool = False  # whether the attacks are told the labels


@dataclass(frozen=True, eq=False)
class Report:
    """What an audit came to."""

    results: list[dict[str, Any]]  # one for each defence, observer, attack and mode
    entries: list[Entry] = field(repr=False)


@dataclass(frozen=True, eq=False)
class _Job:
    task: Task
    sight: Sight
    stage: Stage
    inversion: Inversion

    def do(self, aim: Aim) -> Finding:
        """Attack and score."""
        task, began = self.task, time.perf_counter()
        seed = public_root(self.stage.seed).child("inversion", task.attack, task.victim)
        labels: Labels | None = self.stage.labels[task.victim] if aim.told else None
        mode: Mode = "zero-filled" if task.mode == "zero-filled" else "mask-aware"
        found = self.inversion.recover(self.sight, self.stage.public, mode=mode, seed=seed, labels=labels)
        originals = self.stage.originals[task.victim]
        return scored(originals, self.stage.labels[task.victim], found, time.perf_counter() - began)


def audit_reconstruction(aim: Aim, out: Path, *, notice: Notice | None = None) -> Report:
    """Do all that is not done yet, write reconstruction.json, and return every result."""
    jobs, entries = list(_jobs(aim)), list[Entry]()
    notice = notice or _silent
    for number, job in enumerate(jobs):
        notice(number, len(jobs), f"{job.task.defence}, {job.task.attack}, {job.task.mode}")
        entries.append(Entry(job.task, _done(job, aim, out / "pictures" / f"{job.task.name}.npz")))
    notice(len(jobs), len(jobs), "done")
    config = aim.defences[0].config
    results = tally(entries, other_pictures(config, aim.candidates))
    settings = {defence.label: defence.config.model_dump(mode="json") for defence in aim.defences}
    facts = {"settings": settings, "rounds": aim.rounds, "notes": NOTES}
    write_json(
        out / "reconstruction.json", {**facts, "results": results, "found": [entry.plain() for entry in entries]}
    )
    return Report(results, entries)


def _silent(done: int, total: int, what: str) -> None:
    del done, total, what


def _done(job: _Job, aim: Aim, path: Path) -> Finding:
    found = kept(path, job.task)
    if found is None:
        found = job.do(aim)
        path.parent.mkdir(parents=True, exist_ok=True)
        keep(path, job.task, found)
    return found


def _jobs(aim: Aim) -> Iterator[_Job]:
    attacks = {name: inversion_by_name(name, **aim.options) for name in aim.attacks}
    stages = [
        stage(defence.config, aim.observers, pictures=aim.pictures, rounds=aim.rounds, model=aim.model)
        for defence in aim.defences
    ]
    for defence, set_up in zip(aim.defences, stages, strict=True):
        for name, inversion in attacks.items():
            for mode in aim.modes:
                yield from _of_mode(aim, defence, set_up, name, inversion, mode)
    for name, inversion in attacks.items():
        yield from _controls(aim, aim.defences[0], stages[0], name, inversion)


def _of_mode(aim: Aim, defence: Defence, set_up: Stage, name: str, inversion: Inversion, mode: Mode) -> Iterator[_Job]:
    for sighting in set_up.sightings:
        # With everything seen there is nothing to fill: the second mode would be the first once more.
        if sighting.sight.seen.size < set_up.public.n or mode == aim.modes[0]:
            task = _task(aim, defence, sighting, name, mode)
            yield _Job(task, sighting.sight, set_up, inversion)


def _controls(aim: Aim, defence: Defence, set_up: Stage, name: str, inversion: Inversion) -> Iterator[_Job]:
    """Attack noise instead of updates, from the first observer."""
    first = [sighting for sighting in set_up.sightings if sighting.observer == str(aim.observers[0])]
    for sighting in first[: aim.controls]:
        seed = public_root(set_up.seed).child("random-values", sighting.victim)
        task = _task(aim, Defence(RANDOM, defence.config), sighting, name, "mask-aware")
        yield _Job(task, sighting.sight.randomised(seed), set_up, inversion)


def _task(aim: Aim, defence: Defence, sighting: Sighting, attack: str, mode: str) -> Task:
    model = "" if aim.model is None else sha256(aim.model.tobytes()).hexdigest()
    settings = repr((defence.config.digest, aim.rounds, model, sorted(aim.options.items()), aim.told))
    return Task(
        defence=defence.label,
        method=defence.config.methods[0],
        observer=sighting.observer,
        attack=attack,
        mode=mode,
        victim=sighting.victim,
        share=sighting.share,
        settings=settings,
    )
