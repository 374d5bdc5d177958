"""Property and source inference: which classes a member holds, and which member a sample belongs to.

**Property**: for every member and class, does the member hold it? Judged by the area under the ROC curve over all
pairs; chance is ½. **Source**: given a sample that was trained on, by which member? Judged by the share of samples
for which the right member is named; chance is one over the number of possible members.

Both listen to a run as the membership audit does, from one place that observes all members. Nothing is planted.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from eris.audit.attacks.composition import ClassComposition
from eris.audit.attacks.whitened_regression import WhitenedRegression
from eris.audit.canaries import AuditableTask, Canaries, Coins, PlantedTask, public_samples
from eris.audit.intervals import area_interval, mean_over_seeds, placements, rate_interval
from eris.audit.json_file import write_json
from eris.audit.membership import MembershipAudit
from eris.audit.observer import Observer, Vantage
from eris.audit.scoring import Scores, area, standardised
from eris.compose import compose
from eris.config import Config
from eris.errors import ConfigError, InputError
from eris.events import Listener
from eris.local.spec import Vector
from eris.methods import method_by_name, with_defaults
from eris.seeds import Seed
from eris.simulate.run import run
from eris.tasks import build_task

__all__ = ["SMALL_PROPERTY", "SMALL_SOURCE", "InferenceResult", "OnePlace", "Question", "audit_inference"]

Question = Literal["property", "source"]

_NOBODY: Mapping[int, Sequence[int]] = {}

_TRAINED = (
    "method=eris", "members=8", "rounds=5", "evaluate_every=5", "data.samples=32", "data.validation=0.0",
    "data.test_samples=500", "local.batch=full", "local.epochs=5", "local.lr=0.1", "local.momentum=0.0", "workers=1",
)  # fmt: skip
SMALL_PROPERTY = (*_TRAINED, "data.partition=dirichlet", "data.alpha=0.3")
SMALL_SOURCE = _TRAINED

NOTES = {
    "property": "AUC over all pairs of a member and a class: does the member hold samples of that class? Chance is ½",
    "source": "share of the samples asked about that are traced to the right member; chance is 1 / possible members",
}


@dataclass(frozen=True, slots=True)
class OnePlace(Observer):
    """An observer that looks at all members from the same place, so that their scores can be compared."""

    def vantages(
        self,
        victim: int,
        aggregators: Sequence[int],
        members: int,
        seed: Seed,
        *,
        limit: int,
        server: bool = False,
        partners: Mapping[int, Sequence[int]] = _NOBODY,
    ) -> list[Vantage]:
        """Return the one place, drawn once for all victims; the arguments are those of `Observer.vantages`."""
        del victim, limit
        nobody = -1
        place = Observer(self.kind, self.size)
        return place.vantages(nobody, aggregators, members, seed, limit=1, server=server, partners=partners)


@dataclass(frozen=True)
class InferenceResult:
    """The result of one training: a figure, its chance level and an interval within the run."""

    question: Question
    observer: str
    seed: int
    value: float  # the AUC, or the share of right answers
    low: float  # of the 95 % interval
    high: float
    chance: float  # the value of blind guessing
    asked: int  # pairs, or samples
    accuracy: float | None  # of the model
    seen: tuple[int, ...] = field(default=(), repr=False)  # the peers that looked

    def plain(self) -> dict[str, Any]:
        """Return plain data."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


class _SameForAll:
    """A probe whose answer does not depend on the member: every member is asked about the same samples."""

    def __init__(self, task: AuditableTask, gradients: Callable[[Vector], Vector]) -> None:
        self._task, self._gradients = task, gradients
        self._model, self._found = b"", np.empty((0, 0), np.float32)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    def sample_gradients(self, member: int, model: Vector) -> Vector:
        """Return the gradients, computed once for each model."""
        del member
        if (now := model.tobytes()) != self._model:
            self._model, self._found = now, self._gradients(model)
        return self._found


def audit_inference(
    question: Question,
    config: Config,
    out: Path,
    observer: Observer,
    *,
    seeds: Sequence[int],
    asked: int = 8,
    listeners: Sequence[Listener] = (),
) -> dict[str, Any]:
    """Train with every seed, answer the question, write QUESTION.json and return its content.

    Args:
        question: `property` or `source`.
        config: what to train: one method with a common model.
        out: the folder for the results.
        observer: who looks.
        seeds: to train with.
        asked: how many samples of each member are asked about (source only).
        listeners: hear the events of the trainings.
    """
    _check(config, observer)
    found = [_one(question, config, observer, seed, asked, listeners) for seed in seeds]
    values = [result.value for result in found]
    over = mean_over_seeds(values) if len(values) > 1 else None
    content: dict[str, Any] = {
        "question": question,
        "settings": config.model_dump(mode="json"),
        "note": NOTES[question],
        "chance": float(np.mean([result.chance for result in found])),
        "over_seeds": over,
        "runs": [result.plain() for result in found],
    }
    write_json(out / f"{question}.json", content)
    return content


def _check(config: Config, observer: Observer) -> None:
    if len(config.methods) != 1 or method_by_name(config.methods[0]).exchange is not None:
        raise ConfigError("this audit is for one method with a common model", fix="use --set method=eris", key="method")
    if observer.kind in ("neighbour", "broadcast"):
        raise ConfigError(
            f"{observer} sees no single member's values here", fix="use aggregator, pair, coalition:C, server or wire"
        )


def _one(
    question: Question, config: Config, observer: Observer, seed: int, asked: int, listeners: Sequence[Listener]
) -> InferenceResult:
    config = with_defaults(config.model_copy(update={"seed": seed}), config.methods[0])
    task = build_task(config.model_dump(mode="json", exclude_none=True))
    if not hasattr(task, "sample_gradients"):
        raise InputError(f"{config.data.name} has no samples to ask about", fix="audit a data set with samples")
    own = cast(AuditableTask, task)
    public = public_samples(own)
    if public is None:
        raise InputError("there are no public samples to compare with", fix="audit a data set with a test split")
    ask = _Property(own, public) if question == "property" else _Source(own, public, asked)
    composition = compose(config, own.spec, [own.samples(member) for member in range(config.members)])
    place = OnePlace(observer.kind, observer.size)
    audit = MembershipAudit(composition, ask.planted, [place], views=1, attacks=[ask.attack])
    with tempfile.TemporaryDirectory() as folder:
        result = run(config, Path(folder) / "run", task=own, listeners=[audit, *listeners])
        accuracy = result.summaries[0].get("final_accuracy")
    scores = np.stack([part[-1, 0] for part in audit.scores(place)[ask.attack.name]])  # members × asked
    watchers = audit.places[place][0][0].estimator.vantage.peers
    facts = {"question": question, "observer": str(observer), "seed": seed, "accuracy": accuracy, "seen": watchers}
    return InferenceResult(**ask.judged(scores, watchers), **facts)  # type: ignore[arg-type]


def _planted(
    task: AuditableTask, public: AuditableTask, gradients: Callable[[Vector], Vector], rows: int
) -> PlantedTask:
    """Present a question as canaries, so that the membership audit can score it; nothing is planted.

    Args:
        task: what is trained.
        public: public samples, as if they were one member's.
        gradients: returns at a model the gradient of whatever is asked about.
        rows: how many things are asked about, of every member.
    """
    places = tuple(np.arange(rows) for _ in range(task.members))
    canaries = Canaries(places, tuple(np.zeros(rows, bool) for _ in places), places)
    return PlantedTask(task, cast(AuditableTask, _SameForAll(task, gradients)), canaries, public=public)


class _Property:
    """The property question: does a member hold class c?"""

    def __init__(self, task: AuditableTask, public: AuditableTask) -> None:
        self._held = [_labels(task, member) for member in range(task.members)]
        labels = _labels(public, 0)
        self._classes = int(max(labels.max(), *(own.max() for own in self._held))) + 1
        if missing := sorted(set(range(self._classes)) - set(labels.tolist())):
            raise InputError(f"no public sample is of class {missing[0]}", fix="use more test samples")
        self.attack = ClassComposition(labels, self._classes)
        empty = np.zeros((self._classes, 1), np.float32)
        self.planted = _planted(task, public, lambda _: empty, self._classes)

    def judged(self, scores: Scores, watchers: Sequence[int]) -> dict[str, Any]:
        """Return the area under the ROC curve over all pairs whose member is not observing."""
        victims = [member for member in range(len(scores)) if member not in watchers]
        holds: Coins = np.stack([np.isin(np.arange(self._classes), self._held[member]) for member in victims])
        if holds.all() or not holds.any():
            raise InputError(
                "every member holds every class: there is nothing to tell apart",
                fix="use --set data.partition=dirichlet, or label-skew",
            )
        flat, coins = scores[victims].ravel(), holds.ravel()
        groups = np.repeat(np.arange(len(victims)), self._classes)
        low, high = area_interval(placements(flat, coins), coins, groups)
        return {"value": float(area(flat, coins)), "low": low, "high": high, "chance": 0.5, "asked": coins.size}


class _Source:
    """The source question: which member does a sample belong to? Up to `asked` samples of each are asked about."""

    attack = WhitenedRegression()

    def __init__(self, task: AuditableTask, public: AuditableTask, asked: int) -> None:
        counts = [min(asked, task.samples(member)) for member in range(task.members)]
        some = task.restricted([np.arange(count) for count in counts])
        self._owners = np.repeat(np.arange(task.members), counts)

        def gradients(model: Vector) -> Vector:
            return np.vstack([some.sample_gradients(member, model) for member in range(task.members)])

        self.planted = _planted(task, public, gradients, len(self._owners))

    def judged(self, scores: Scores, watchers: Sequence[int]) -> dict[str, Any]:
        """Return how often the member with the highest score is the right one.

        Observing members know their own samples, so they are not candidates.
        """
        victims = np.array([member for member in range(len(scores)) if member not in watchers])
        asked = np.isin(self._owners, victims)
        within = np.stack([standardised(scores[member, asked]) for member in victims])
        named = victims[within.argmax(axis=0)]
        right = int((named == self._owners[asked]).sum())
        low, high = rate_interval(right, int(asked.sum()))
        return {
            "value": right / int(asked.sum()),
            "low": low,
            "high": high,
            "chance": 1 / len(victims),
            "asked": int(asked.sum()),
        }


def _labels(task: AuditableTask, member: int) -> NDArray[np.int64]:
    labels = np.asarray(cast(Any, task).examples(member)[1])
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise InputError("there are no classes to ask about", fix="audit a classification task")
    return labels.astype(np.int64)
