"""Membership inference on the events of a run, from several observers at once.

The audit listens. When a round has its verdict, it puts itself in each observer's place, estimates every victim's
update, and scores that victim's canaries. Nothing it uses goes beyond an observer's view, what is public, and the
observer's own update.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.audit.attack import Attack
from eris.audit.canaries import Problem
from eris.audit.guesses import Scores
from eris.audit.neighbour import Eavesdropper
from eris.audit.observer import Observer
from eris.audit.reconstruct import Reconstruction
from eris.audit.scorebook import ScoreBook
from eris.audit.statistic import Figure, Sheet, by_member, by_round, epsilon, figures
from eris.audit.watch import CommonWatch, CrowdWatch, Watch, audit_seed, score_names
from eris.compose import Composition
from eris.events import Event

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
    by_member: list[float] = field(repr=False)  # right guesses at the last round, mean over views

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
        self._composition, self._problem, self.observers = composition, problem, tuple(observers)
        counts = [len(places) for places in problem.canaries.places]
        self._books = {observer: ScoreBook(score_names(problem), counts) for observer in self.observers}
        self.watch: Watch
        if composition.method.exchange is None:
            self.watch = CommonWatch(composition, problem, self._books, views, masks_known=masks_known)
        else:
            self.watch = CrowdWatch(composition, problem, self._books, views)

    def __call__(self, event: Event) -> None:
        """Take note of an event."""
        self.watch.recorder(event)

    def result(
        self,
        observer: Observer,
        attack: Attack,
        *,
        rounds: int | None = None,
        delta: float = 1e-5,
        tosses: int = 1000,
        resamples: int = 200,
    ) -> Membership:
        """Return what an attack came to after `rounds` rounds (all); it can be asked for several after one run."""
        coins, seed = self._problem.canaries.coins, audit_seed(self._composition).child("statistics")
        book = self._books[observer]
        scores = {name: [part[:rounds] for part in members] for name, members in book.scores.items()}
        sheet = Sheet.of(attack.apply(scores), seed)
        return Membership(
            method=self._composition.method.name,
            observer=str(observer),
            attack=attack.name,
            rounds=len(scores["loss"][0]),
            members=self._problem.task.members,
            canaries=self._problem.canaries.count,
            visible_share=float(np.mean(book.shares)),
            views=max(part.shape[1] for part in scores["loss"]),
            figures=figures(sheet, coins, seed, tosses=tosses, resamples=resamples),
            epsilon=epsilon(sheet, coins, delta=delta),
            by_round=by_round(sheet, coins),
            by_member=by_member(sheet, coins),
        )

    def scores(self, observer: Observer) -> dict[str, list[Scores]]:
        """Return the raw scores: for each name and member, rounds × views × canaries."""
        return self._books[observer].scores

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all scores as arrays by name, for a file."""
        return {f"{who}/{name}": part for who, book in self._books.items() for name, part in book.arrays().items()}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take over scores that were put away: what was listened to once can be asked again."""
        for observer, book in self._books.items():
            start = f"{observer}/"
            book.load({name.removeprefix(start): part for name, part in arrays.items() if name.startswith(start)})

    def memory(self) -> dict[str, NDArray[Any]]:
        """Return all that is known after the rounds that are over: the scores, and what each observer has gathered."""
        kept = self.arrays()
        for start, watcher in self._watchers():
            kept |= {start + name: part for name, part in watcher.memory().items()}
        return kept

    def remember(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Know again what `memory` gave."""
        self.load(arrays)
        for start, watcher in self._watchers():
            watcher.remember({n.removeprefix(start): part for n, part in arrays.items() if n.startswith(start)})

    def _watchers(self) -> Iterator[tuple[str, Reconstruction | Eavesdropper]]:
        """Yield everybody who looks at somebody, each with the start of its names."""
        watchers: Mapping[Observer, Sequence[Sequence[Reconstruction | Eavesdropper]]] = self.watch.watchers
        for observer, members in watchers.items():
            for victim, places in enumerate(members):
                for place, watcher in enumerate(places):
                    yield f"{observer}/watcher/{victim}/{place}/", watcher
