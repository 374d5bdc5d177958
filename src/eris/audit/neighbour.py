"""Where members have models of their own: what those that a member talks to make of what they hear.

A neighbour is sent the victim's model, or a chunk of it, after local training. What moved it there is the difference
to where the victim began, which nobody was told. The neighbour takes its own model of that moment instead: members
that mix their models are close to each other, and under a full graph they begin every round from the same one. Where
a method sends gradients there is nothing to guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.audit.estimate import UpdateEstimate
from eris.audit.observer import Vantage
from eris.audit.transcript import DecentralisedTranscript
from eris.local.spec import Vector
from eris.view import View

__all__ = ["NeighbourEstimator"]


class NeighbourEstimator:
    """Follows one victim from the place of some members, or from the wire, through the rounds.

    With `sends_models` messages carry parts of the victim's model, else parts of its gradient.
    """

    def __init__(self, victim: int, vantage: Vantage, n: int, *, sends_models: bool, momentum: float = 0.0) -> None:
        self.victim, self.vantage = victim, vantage
        self._n, self._sends_models, self._momentum = n, sends_models, np.float32(momentum)
        self._heard: dict[int, Vector] = {}  # by the wire: what each member sent last
        self._before: Vector | None = None

    def model(self, record: DecentralisedTranscript) -> Vector:
        """Return the model that the victim is taken to have begun the round with: the mean of the observers' own.

        The wire has none. It begins with the model that everybody began with, and goes on with the mean of what all
        members sent last.
        """
        if self.vantage.peers:
            return _mean([record.models[peer] for peer in self.vantage.peers])
        if not self._heard:
            self._heard = {member: record.models[member].copy() for member in range(len(record.models))}
        return _mean([self._heard[member] for member in sorted(self._heard)])

    def follow(self, record: DecentralisedTranscript, model: Vector) -> UpdateEstimate:
        """Return the estimate of the victim's update, given the model it is taken to have begun with."""
        seen, values = self._seen(record)
        update = model[seen] - values if self._sends_models else values
        if not self.vantage.peers and self._sends_models:
            self._remember(record)
        nothing, no_place = np.empty(0, np.float32), np.empty(0, np.int64)
        view = View(record.round, self.victim, seen, update, no_place, nothing, {})
        return UpdateEstimate(view, seen, update, no_place, nothing, 0.0, self._fresh(seen, update), nothing)

    def memory(self) -> dict[str, NDArray[Any]]:
        """Return what the next rounds need."""
        kept: dict[str, NDArray[Any]] = {}
        if self._heard:
            kept["heard"] = np.stack([self._heard[member] for member in sorted(self._heard)])
        if self._before is not None:
            kept["before"] = self._before
        return kept

    def remember(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Know again what `memory` gave."""
        if "heard" in arrays:
            self._heard = {member: model.copy() for member, model in enumerate(arrays["heard"])}
        if "before" in arrays:
            self._before = arrays["before"].copy()

    def _seen(self, record: DecentralisedTranscript) -> tuple[NDArray[np.int64], Vector]:
        """Return the victim's coordinates that reached the observers, each once, and their values."""
        values, reached = np.zeros(self._n, np.float32), np.zeros(self._n, bool)
        for sent in record.sent.get(self.victim, ()):
            if self.vantage.hears(sent):
                places = slice(None) if sent.support is None else sent.support
                values[places], reached[places] = sent.values, True
        seen = np.flatnonzero(reached)
        return seen, values[seen]

    def _remember(self, record: DecentralisedTranscript) -> None:
        for member, messages in record.sent.items():
            for sent in messages:
                if sent.reached:
                    self._heard[member][slice(None) if sent.support is None else sent.support] = sent.values

    def _fresh(self, seen: NDArray[np.int64], update: Vector) -> Vector:
        """Take off what momentum carried over, where the coordinate was seen in the last round too."""
        if not self._momentum:
            return update
        now = np.full(self._n, np.nan, np.float32)
        now[seen] = update
        before, self._before = self._before, now
        return update if before is None else update - self._momentum * np.nan_to_num(before[seen])


def _mean(models: list[Vector]) -> Vector:
    total = models[0].copy()
    for model in models[1:]:
        total += model
    return total / np.float32(len(models))
