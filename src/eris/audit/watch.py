"""Puts itself in each observer's place when a round is over, and scores every victim's canaries from there."""

from __future__ import annotations

from collections.abc import Mapping

from eris.audit.canaries import Problem
from eris.audit.neighbour import CrowdRecord, CrowdRecorder, Eavesdropper
from eris.audit.observer import Observer, Vantage
from eris.audit.reconstruct import Reconstruction
from eris.audit.score import SCORES, Scorer
from eris.audit.scorebook import ScoreBook
from eris.audit.transcript import Recorder, RoundRecord
from eris.audit.variation import TEXT_SCORES, TextScorer
from eris.compose import Composition
from eris.local.spec import Vector
from eris.seeds import Seed

__all__ = ["CommonWatch", "CrowdWatch", "Watch", "audit_seed", "score_names"]

Books = Mapping[Observer, ScoreBook]
AnyScorer = Scorer | TextScorer


class CommonWatch:
    """Attacks every round of a method that moves one common model."""

    def __init__(
        self,
        composition: Composition,
        problem: Problem,
        books: Books,
        views: int,
        *,
        masks_known: bool,
    ) -> None:
        self._composition, self._problem, self._books, self._masks_known = composition, problem, books, masks_known
        self.recorder = Recorder(composition.recipe, self._attack)
        self.watchers = {
            observer: [self._watch(observer, victim, views) for victim in range(problem.task.members)]
            for observer in books
        }

    def _watch(self, observer: Observer, victim: int, views: int) -> list[Reconstruction]:
        composition = self._composition
        # A trusted server tells nobody what it saw: everybody else has what it publishes.
        looking = Observer("broadcast") if composition.method.trusted else observer
        vantages = looking.vantages(
            victim,
            composition.aggregators,
            self._problem.task.members,
            audit_seed(composition),
            limit=views,
            server=composition.method.server,
        )
        momentum = _momentum(composition)
        return [
            Reconstruction(composition.recipe, victim, vantage, momentum=momentum, masks_known=self._masks_known)
            for vantage in vantages
        ]

    def _attack(self, record: RoundRecord) -> None:
        for victim in range(self._problem.task.members):
            if victim in record.sent:
                self._attack_member(record, victim)
            else:
                self._miss(record, victim)

    def _attack_member(self, record: RoundRecord, victim: int) -> None:
        scorer = _scorer(self._problem, victim, record.model, _step(self._composition))
        n = self._composition.recipe.spec.n
        for observer, book in self._books.items():
            estimates = [watcher.follow(record) for watcher in self.watchers[observer][victim]]
            found = [scorer.scores(estimate) for estimate in estimates]
            book.add(victim, found, [estimate.view.size / n for estimate in estimates])

    def _miss(self, record: RoundRecord, victim: int) -> None:
        for observer, book in self._books.items():
            watchers = self.watchers[observer][victim]
            for watcher in watchers:
                watcher.miss(record)
            book.away(victim, len(watchers))


class CrowdWatch:
    """Attacks every round of a method whose members have models of their own."""

    def __init__(self, composition: Composition, problem: Problem, books: Books, views: int) -> None:
        self._composition, self._problem, self._books = composition, problem, books
        self.recorder = CrowdRecorder(self._attack)
        members, seed = range(problem.task.members), audit_seed(composition)
        self.watchers = {
            observer: [
                [
                    self._watch(victim, vantage)
                    for vantage in observer.places_among(victim, len(members), seed, limit=views)
                ]
                for victim in members
            ]
            for observer in books
        }

    def _watch(self, victim: int, vantage: Vantage) -> Eavesdropper:
        composition = self._composition
        n, sends_models = composition.recipe.spec.n_trainable, composition.method.sends_models
        return Eavesdropper(victim, vantage, n, sends_models=sends_models, momentum=_momentum(composition))

    def _attack(self, record: CrowdRecord) -> None:
        for victim in range(self._problem.task.members):
            scorers = _Scorers(self._problem, victim)
            for observer, book in self._books.items():
                found, shares = [], []
                for watcher in self.watchers[observer][victim]:
                    model = watcher.model(record)
                    estimate = watcher.follow(record, model)
                    found.append(scorers.at(model).scores(estimate))
                    shares.append(estimate.view.size / len(model))
                book.add(victim, found, shares)


class _Scorers:
    """Scorers of one victim by the model they score at: gradients of canaries are dear, and many models the same."""

    def __init__(self, problem: Problem, victim: int) -> None:
        self._problem, self._victim = problem, victim
        self._made: dict[bytes, AnyScorer] = {}

    def at(self, model: Vector) -> AnyScorer:
        """Return the scorer at a model."""
        key = model.tobytes()
        if key not in self._made:
            self._made[key] = _scorer(self._problem, self._victim, model)
        return self._made[key]


Watch = CommonWatch | CrowdWatch


def score_names(problem: Problem) -> tuple[str, ...]:
    """Return the scores that are taken."""
    return SCORES if problem.copies is None else TEXT_SCORES


def _scorer(problem: Problem, victim: int, model: Vector, step: float = 1.0) -> AnyScorer:
    if problem.copies is None:
        return Scorer(problem.probe, victim, model, step=step)
    return TextScorer(problem.probe, problem.copies, victim, model, step=step)


def audit_seed(composition: Composition) -> Seed:
    """Return the seed of everything an audit draws; it has nothing to do with the coins."""
    return composition.recipe.public.child("audit")


def _momentum(composition: Composition) -> float:
    local = composition.config.local
    return local.momentum if local.keep_state and local.optimizer == "sgd" else 0.0


def _step(composition: Composition) -> float:
    """Return how far an update moves the model: a difference of models once, a gradient by the server's step."""
    config = composition.config
    return 1.0 if config.local.send == "delta" else float(config.server.optimizer_options.get("lr", 1.0))
