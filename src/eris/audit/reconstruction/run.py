"""Run a reconstruction audit: every defence, observer, attack and mode, picture by picture, with the chance level.

Every result is written as soon as it is known. Calling it again with the same folder resumes where it stopped, also
with more pictures or another attack.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from eris.audit.json_file import write_json
from eris.audit.observer import Observer
from eris.audit.reconstruction.attack import Labels, Mode, ReconstructionAttack, reconstruction_attack
from eris.audit.reconstruction.attack_setup import AttackSetup, attack_setup, other_pictures
from eris.audit.reconstruction.collect import VictimObservation, check_attackable
from eris.audit.reconstruction.defence import Defence
from eris.audit.reconstruction.observation import UpdateObservation
from eris.audit.reconstruction.public_model import PublicModel
from eris.audit.reconstruction.scores import (
    Pictures,
    ReconstructionJob,
    ReconstructionScores,
    ScoredJob,
    keep,
    kept,
    scored,
    summarise,
)
from eris.audit.side_by_side import Map
from eris.local.spec import Vector
from eris.local.torch_module import one_thread
from eris.seeds import public_root

__all__ = ["NOTES", "RANDOM", "Notice", "ReconstructionPlan", "ReconstructionReport", "audit_reconstruction"]

Notice = Callable[[int, int, str], None]

RANDOM = "random values"
NOTES = (
    "recovered: the mean squared error is below 0.001, with pixels from 0 to 1",
    "identified: closer to its original than to any other candidate, by squared error or (identified_by_pattern) by "
    "correlation, which also catches pictures that are merely pale; chance is 1 / candidates",
    "mask-aware attacks match only the coordinates that were seen; zero-filled attacks set the others to zero, as the "
    "published attacks do",
    "random values: the same attack on noise of the same length, which contains no picture",
    "an attack that finds nothing does not prove that there is nothing to find",
)


@dataclass(frozen=True)
class ReconstructionPlan:
    """What to attack: the defences, observers, attacks and modes, and how many pictures."""

    defences: tuple[Defence, ...]
    observers: tuple[Observer, ...] = (Observer("aggregator"),)
    attacks: tuple[str, ...] = ("boxed",)
    modes: tuple[Mode, ...] = ("mask-aware", "zero-filled")
    pictures: int = 4  # for each defence; whole members are attacked, so perhaps a few more
    rounds: int = 1  # to train; the last one is attacked
    together: bool = False  # whether what was seen in the rounds before is used too
    candidates: int = 100  # for identification
    controls: int = 4  # members whose values are replaced by noise
    options: Mapping[str, Any] = field(default_factory=dict)  # of the attacks
    model: Vector | None = field(default=None, repr=False)  # where the training starts, if not at the initial model
    told: bool = False  # whether the attacks are told the labels


@dataclass(frozen=True, eq=False)
class ReconstructionReport:
    """The results of a reconstruction audit."""

    results: list[dict[str, Any]]  # one for each defence, observer, attack and mode
    entries: list[ScoredJob] = field(repr=False)


@dataclass(frozen=True, eq=False)
class _Work:
    """A job with everything needed to do it, in another process too."""

    job: ReconstructionJob
    observation: UpdateObservation  # what is attacked: of the victim, or noise of the same length
    public: PublicModel
    seed: int  # of the training
    originals: Pictures  # the victim's
    labels: Labels  # the victim's
    attack: ReconstructionAttack
    told: bool  # whether it is given the labels


def _do(work: _Work) -> ReconstructionScores:
    """Run the attack and score it."""
    job, began = work.job, time.perf_counter()
    seed = public_root(work.seed).child("inversion", job.attack, job.victim)
    mode: Mode = "zero-filled" if job.mode == "zero-filled" else "mask-aware"
    with one_thread():  # on these small networks a second one takes more time than it saves
        found = work.attack.recover(
            work.observation, work.public, mode=mode, seed=seed, labels=work.labels if work.told else None
        )
    return scored(work.originals, work.labels, found, time.perf_counter() - began)


def audit_reconstruction(
    plan: ReconstructionPlan, out: Path, *, notice: Notice | None = None, each: Map = map
) -> ReconstructionReport:
    """Do every job of a plan that is not done yet, write reconstruction.json, and return all results.

    Args:
        plan: what to attack.
        out: the folder for the results.
        notice: told how many jobs are done, how many there are, and which one comes next.
        each: does the jobs (`eris.audit.side_by_side.in_processes`: several at once).
    """
    notice = notice or _silent
    works = list(_works(plan, notice))
    paths = [out / "pictures" / f"{work.job.name}.npz" for work in works]
    found = [kept(path, work.job) for path, work in zip(paths, works, strict=True)]
    left = [number for number, scores in enumerate(found) if scores is None]
    results = iter(each(_do, [works[number] for number in left]))
    for done, number in enumerate(left, start=len(works) - len(left)):
        job = works[number].job
        notice(done, len(works), f"{job.defence}, {job.attack}, {job.mode}")
        found[number] = scores = next(results)
        paths[number].parent.mkdir(parents=True, exist_ok=True)
        keep(paths[number], job, scores)
    notice(len(works), len(works), "done")
    entries = [ScoredJob(work.job, scores) for work, scores in zip(works, found, strict=True) if scores is not None]
    config = plan.defences[0].config
    summary = summarise(entries, other_pictures(config, plan.candidates))
    settings = {defence.label: defence.config.model_dump(mode="json") for defence in plan.defences}
    facts = {"settings": settings, "rounds": plan.rounds, "notes": NOTES}
    write_json(
        out / "reconstruction.json", {**facts, "results": summary, "found": [entry.plain() for entry in entries]}
    )
    return ReconstructionReport(summary, entries)


def _silent(done: int, total: int, what: str) -> None:
    del done, total, what


def _works(plan: ReconstructionPlan, notice: Notice) -> Iterator[_Work]:
    """Train every defence up to the attacked round and yield the attacks on it; those on noise come last."""
    attacks = {name: reconstruction_attack(name, **plan.options) for name in plan.attacks}
    for defence in plan.defences:  # check all of them before the first is trained
        check_attackable(defence.config, plan.observers, plan.rounds)
    setups = []
    for number, defence in enumerate(plan.defences):
        notice(number, len(plan.defences), f"training {defence.label}")
        setups.append(
            attack_setup(
                defence.config,
                plan.observers,
                pictures=plan.pictures,
                rounds=plan.rounds,
                model=plan.model,
                together=plan.together,
            )
        )
    for defence, setup in zip(plan.defences, setups, strict=True):
        for name, attack in attacks.items():
            for mode in plan.modes:
                yield from _of_mode(plan, defence, setup, name, attack, mode)
    for name, attack in attacks.items():
        yield from _controls(plan, setups[0], name, attack)


def _of_mode(
    plan: ReconstructionPlan, defence: Defence, setup: AttackSetup, name: str, attack: ReconstructionAttack, mode: Mode
) -> Iterator[_Work]:
    for seen in setup.observations:
        # If everything was seen there is nothing to fill, and the second mode would repeat the first.
        if seen.observation.seen.size < setup.public.n or mode == plan.modes[0]:
            yield _work(plan, _job(plan, defence, seen, name, mode), seen.observation, setup, attack)


def _controls(plan: ReconstructionPlan, setup: AttackSetup, name: str, attack: ReconstructionAttack) -> Iterator[_Work]:
    """Yield an attack (called `name`) on noise instead of updates, from the first observer: the chance level."""
    first = [seen for seen in setup.observations if seen.observer == str(plan.observers[0])]
    for seen in first[: plan.controls]:
        seed = public_root(setup.seed).child("random-values", seen.victim)
        job = _job(plan, Defence(RANDOM, plan.defences[0].config), seen, name, "mask-aware")
        yield _work(plan, job, seen.observation.randomised(seed), setup, attack)


def _work(
    plan: ReconstructionPlan,
    job: ReconstructionJob,
    observation: UpdateObservation,
    setup: AttackSetup,
    attack: ReconstructionAttack,
) -> _Work:
    victim = job.victim
    of_victim = setup.originals[victim], setup.labels[victim]
    return _Work(job, observation, setup.public, setup.seed, *of_victim, attack, plan.told)


def _job(
    plan: ReconstructionPlan, defence: Defence, seen: VictimObservation, attack: str, mode: str
) -> ReconstructionJob:
    model = "" if plan.model is None else sha256(plan.model.tobytes()).hexdigest()
    facts = (defence.config.digest, plan.rounds, model, sorted(plan.options.items()), plan.told)
    settings = repr((*facts, "together") if plan.together else facts)
    return ReconstructionJob(
        defence=defence.label,
        method=defence.config.methods[0],
        observer=seen.observer,
        attack=attack,
        mode=mode,
        victim=seen.victim,
        share=seen.share,
        settings=settings,
    )
