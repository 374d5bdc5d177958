"""Membership inference on the events of a run, from several observers at once.

The audit listens. When a round has its verdict, it puts itself in each observer's place, estimates every victim's
update, and scores that victim's canaries. Nothing it uses goes beyond an observer's view, what is public, and the
observer's own update.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eris.audit.attack import Attack
from eris.audit.canaries import Problem
from eris.audit.guesses import Scores
from eris.audit.observer import Observer
from eris.audit.reconstruct import Reconstruction
from eris.audit.score import SCORES, Scorer
from eris.audit.statistic import Figure, Sheet, by_round, epsilon, figures
from eris.audit.transcript import Recorder, RoundRecord
from eris.compose import Composition
from eris.errors import ConfigError
from eris.events import Event
from eris.seeds import Seed

__all__ = ["Membership", "MembershipAudit"]


@dataclass(frozen=True)
class Membership:
    """What one attack from one observer came to."""

    method: str
    observer: str
    attack: str
    rounds: int
    members: int
    canaries: int
    visible_share: float  # of the update, mean over rounds, members and views
    views: int
    figures: dict[str, Figure] = field(repr=False)
    epsilon: dict[str, Any] = field(repr=False)
    by_round: list[float] = field(repr=False)  # right guesses, mean over views and members

    def plain(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
        data = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "figures"}
        return data | {"figures": {name: figure.plain() for name, figure in self.figures.items()}}


class MembershipAudit:
    """Listens to the run of one composition in which canaries are planted."""

    def __init__(
        self,
        composition: Composition,
        problem: Problem,
        observers: Sequence[Observer],
        *,
        views: int = 8,
        masks_known: bool = False,
    ) -> None:
        if composition.method.exchange is not None:
            raise ConfigError(
                f"members of {composition.method.name} have models of their own, which this audit cannot follow",
                fix="audit a method that moves one common model",
                key="method",
            )
        self._masks_known = masks_known
        self._composition, self._problem, self.observers = composition, problem, tuple(observers)
        self._recorder = Recorder(composition.recipe, self._attack)
        self._watchers = {
            observer: [self._watch(observer, victim, views) for victim in range(problem.task.members)]
            for observer in self.observers
        }
        self._books = {observer: _Book(problem) for observer in self.observers}

    def __call__(self, event: Event) -> None:
        """Take note of an event."""
        self._recorder(event)

    def result(
        self, observer: Observer, attack: Attack, *, delta: float = 1e-5, tosses: int = 1000, resamples: int = 200
    ) -> Membership:
        """Return what an attack came to; it can be asked for several attacks after one run."""
        coins, seed = self._problem.canaries.coins, self._seed.child("statistics")
        book = self._books[observer]
        sheet = Sheet.of(attack.apply(book.scores), seed)
        return Membership(
            method=self._composition.method.name,
            observer=str(observer),
            attack=attack.name,
            rounds=book.rounds,
            members=self._problem.task.members,
            canaries=self._problem.canaries.count,
            visible_share=float(np.mean(book.shares)),
            views=max(len(watchers) for watchers in self._watchers[observer]),
            figures=figures(sheet, coins, seed, tosses=tosses, resamples=resamples),
            epsilon=epsilon(sheet, coins, delta=delta),
            by_round=by_round(sheet, coins),
        )

    def scores(self, observer: Observer) -> dict[str, list[Scores]]:
        """Return the raw scores: for each name and member, rounds × views × canaries."""
        return self._books[observer].scores

    @property
    def _seed(self) -> Seed:
        return self._composition.recipe.public.child("audit")

    def _watch(self, observer: Observer, victim: int, views: int) -> list[Reconstruction]:
        composition, local = self._composition, self._composition.config.local
        # A trusted server tells nobody what it saw: everybody else has what it publishes.
        looking = Observer("broadcast") if composition.method.trusted else observer
        vantages = looking.vantages(
            victim,
            composition.aggregators,
            self._problem.task.members,
            self._seed,
            limit=views,
            server=composition.method.server,
        )
        momentum = local.momentum if local.keep_state and local.optimizer == "sgd" else 0.0
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
        scorer = Scorer(self._problem.probe, victim, record.model, step=self._step)
        n = self._composition.recipe.spec.n
        for observer in self.observers:
            estimates = [watcher.follow(record) for watcher in self._watchers[observer][victim]]
            found = [scorer.scores(estimate) for estimate in estimates]
            self._books[observer].add(victim, found, [estimate.view.size / n for estimate in estimates])

    def _miss(self, record: RoundRecord, victim: int) -> None:
        for observer in self.observers:
            watchers = self._watchers[observer][victim]
            for watcher in watchers:
                watcher.miss(record)
            self._books[observer].away(victim, len(watchers))

    @property
    def _step(self) -> float:
        """How far an update moves the model: a difference of models once, a gradient by the server's step."""
        config = self._composition.config
        return 1.0 if config.local.send == "delta" else float(config.server.optimizer_options.get("lr", 1.0))


class _Book:
    """The scores of one observer as they come in."""

    def __init__(self, problem: Problem) -> None:
        self._canaries = [len(places) for places in problem.canaries.places]
        self._lists: dict[str, list[list[Scores]]] = {name: [[] for _ in self._canaries] for name in SCORES}
        self.shares: list[float] = []

    def add(self, victim: int, found: Sequence[dict[str, Scores]], shares: Sequence[float]) -> None:
        """Write down one round of a victim, a view after the other."""
        for name in SCORES:
            self._lists[name][victim].append(np.stack([scores[name] for scores in found]))
        self.shares.extend(shares)

    def away(self, victim: int, views: int) -> None:
        """Note that a victim took no part in a round."""
        for name in SCORES:
            self._lists[name][victim].append(np.full((views, self._canaries[victim]), np.nan))

    @property
    def rounds(self) -> int:
        """Rounds so far."""
        return len(self._lists[SCORES[0]][0])

    @property
    def scores(self) -> dict[str, list[Scores]]:
        """For each name and member: rounds × views × canaries."""
        return {name: [np.stack(rounds) for rounds in members] for name, members in self._lists.items()}
