"""One training with canaries in it, and the audit that listens; what it heard is kept beside the run.

When the training is finished the scores are written to `scores.npz` in its folder. Whoever asks again, because a sweep
was interrupted or another attack is of interest, gets them from there. Until then what the observers know is in the
run's checkpoints: a training that was interrupted goes on from the last one, and nobody has missed a round.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from eris.atomic_file import write_atomically
from eris.audit.attack import Attack
from eris.audit.canaries import AuditableTask, Problem, plant_in
from eris.audit.membership import Membership, MembershipAudit
from eris.audit.observer import Observer, parse_observer
from eris.audit.variation import varied
from eris.audit.watch import score_names
from eris.compose import compose
from eris.config import Config
from eris.errors import ConfigError, InputError
from eris.events import Event, RunEnded
from eris.seeds import public_root
from eris.tasks import build_task

__all__ = ["Attempt", "Plan", "planted"]

_MARK, _SCORES, _SUMMARY = "canaries.json", "scores.npz", "summary.json"


@dataclass(frozen=True)
class Plan:
    """What is measured, whatever is trained."""

    observers: tuple[Observer, ...]
    attacks: tuple[Attack, ...]
    canaries: int = 64  # at most so many a member
    views: int = 8  # at most so many places to look at a member from
    masks_known: bool = False  # let the attacker know what each member kept under independent masks
    tosses: int = 1000
    resamples: int = 200
    filler: str = ""  # a local model that perturbs texts; with it they are attacked by losses alone
    copies: int = 10  # perturbed ones of each text

    @property
    def listening(self) -> dict[str, Any]:
        """What the scores depend on; attacks and statistics are made of them afterwards."""
        observers = [str(observer) for observer in self.observers]
        texts = {"filler": self.filler, "copies": self.copies} if self.filler else {}
        return {
            "observers": observers,
            "canaries": self.canaries,
            "views": self.views,
            "masks_known": self.masks_known,
            **texts,
        }


def planted(folder: Path, attacks: tuple[Attack, ...]) -> Plan | None:
    """Return how a finished run with canaries was listened to, so that it can be asked again; None for others."""
    if not all((folder / name).exists() for name in (_MARK, _SCORES, _SUMMARY)):
        return None
    facts = json.loads((folder / _MARK).read_text(encoding="utf-8"))
    observers = tuple(parse_observer(text) for text in facts.pop("observers"))
    del facts["key"]
    return Plan(observers, attacks, **facts)


class Attempt:
    """Plants canaries in the task of a configuration, listens to its training, and says what each attack came to."""

    def __init__(self, config: Config, folder: Path, plan: Plan) -> None:
        self.config, self.folder, self._plan = config, folder, plan
        self._problem: Problem = _planted(config, plan)
        for attack in plan.attacks:
            attack.check(score_names(self._problem))
        samples = [self._problem.task.samples(member) for member in range(config.members)]
        composition = compose(config, self._problem.task.spec, samples)
        self._audit = MembershipAudit(
            composition, self._problem, plan.observers, views=plan.views, masks_known=plan.masks_known
        )
        self._key = sha256(json.dumps([config.digest, plan.listening]).encode()).hexdigest()
        self.finished = False
        if folder.exists() and any(not path.name.startswith(".") for path in folder.iterdir()):
            self._take_up()
            return
        folder.mkdir(parents=True, exist_ok=True)
        facts = {"key": self._key, **plan.listening}
        write_atomically(folder / _MARK, (json.dumps(facts, indent=1) + "\n").encode())

    @property
    def task(self) -> AuditableTask:
        """What is trained."""
        return self._problem.task

    @property
    def begun(self) -> bool:
        """Whether there is a training to go on with."""
        return (self.folder / "config.toml").exists()

    @property
    def summary(self) -> dict[str, Any]:
        """What the finished run came to."""
        summary: dict[str, Any] = json.loads((self.folder / _SUMMARY).read_text(encoding="utf-8"))
        return summary

    def __call__(self, event: Event) -> None:
        """Listen; put the scores away at the end."""
        if self.finished:
            return
        self._audit(event)
        if isinstance(event, RunEnded) and event.finished:
            content = io.BytesIO()
            np.savez_compressed(content, **cast(Any, self._audit.arrays()))
            write_atomically(self.folder / _SCORES, content.getvalue())
            self.finished = True

    def memory(self) -> dict[str, NDArray[Any]]:
        """Return what the observers know so far, for a checkpoint."""
        return self._audit.memory()

    def remember(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Let the observers know what they knew at a checkpoint."""
        if not self.finished:
            self._audit.remember(arrays)

    def results(self, rounds: int | None = None) -> list[Membership]:
        """Return what each observer's attacks came to after so many rounds (all)."""
        plan = self._plan
        options: dict[str, Any] = {"rounds": rounds, "delta": self.config.privacy.delta}
        options |= {"tosses": plan.tosses, "resamples": plan.resamples}
        return [
            self._audit.result(observer, attack, **options) for observer in plan.observers for attack in plan.attacks
        ]

    def _take_up(self) -> None:
        """Take over the scores of the same audit if it was finished; go on with the same audit only."""
        mark = self.folder / _MARK
        if not mark.exists():
            raise ConfigError("there is something else in this folder", fix="choose another --out", path=self.folder)
        if json.loads(mark.read_text(encoding="utf-8"))["key"] != self._key:
            raise ConfigError(
                "there is an audit with other settings in this folder already", fix="choose another --out", path=mark
            )
        if not (self.folder / _SCORES).exists() or not (self.folder / _SUMMARY).exists():
            return
        with np.load(self.folder / _SCORES, allow_pickle=False) as arrays:
            self._audit.load(dict(arrays))
        self.finished = True


def _planted(config: Config, plan: Plan) -> Problem:
    task = build_task(config.model_dump(mode="json", exclude_none=True))
    if not hasattr(task, "sample_gradients"):
        raise InputError(f"{config.data.name} has no samples to ask about", fix="audit a data set with samples")
    problem = plant_in(cast(AuditableTask, task), config.seed, fold=config.data.fold, most=plan.canaries)
    if not plan.filler:
        return problem
    from eris.audit.filling import filler_of

    seed = public_root(config.seed).child("audit", "variations", config.data.fold)
    return replace(problem, copies=varied(problem.probe, filler_of(plan.filler), seed, copies=plan.copies))
