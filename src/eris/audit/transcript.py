"""The events of a round, gathered into one value: what was sent, and what everybody got to know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from eris.errors import InputError
from eris.events import Event, RoundEnded, RoundStarted, Sent, ShardPublished, VerdictWritten
from eris.local.spec import Vector
from eris.protocol.recipe import Recipe
from eris.shards.plan import Coordinates
from eris.shards.policy import Layout

__all__ = ["DecentralisedRecorder", "DecentralisedTranscript", "PublishedMean", "RoundTranscript", "TranscriptRecorder"]

Models = NDArray[np.float32]  # members × coordinates


@dataclass(frozen=True, slots=True)
class PublishedMean:
    """A committed shard as it was published: v̄ at these coordinates, over these members."""

    coordinates: Coordinates = field(repr=False)
    values: Vector = field(repr=False)
    contributors: tuple[int, ...]


@dataclass
class RoundTranscript:
    """One round. `model`, `assignment`, weights and `means` are public; `sent` is not."""

    round: int
    assignment: tuple[int, ...]
    layout: Layout
    model: Vector = field(repr=False)  # x^t
    sent: dict[int, Sent] = field(default_factory=dict, repr=False)
    means: dict[int, PublishedMean] = field(default_factory=dict, repr=False)
    weights: dict[int, float] = field(default_factory=dict, repr=False)  # w_k of the roster, Σ = 1
    new_references: bool = False  # a reference epoch began with this round
    witnesses: tuple[int, ...] = ()  # shard → second aggregating peer, with replicas; public too
    unmaskers: tuple[int, ...] = ()  # of shard 0, of shard 1, …, where contributions are masked; public too

    @property
    def owners(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Who has which duty for each shard: aggregators, witnesses, unmaskers."""
        return self.assignment, self.witnesses, self.unmaskers

    def accepted(self, member: int) -> tuple[int, ...]:
        """Return the shards that were committed with this member among the contributors."""
        return tuple(shard for shard, mean in self.means.items() if member in mean.contributors)


class TranscriptRecorder:
    """Listens to a run and hands over every round when its verdict is there."""

    def __init__(self, recipe: Recipe, deliver: Callable[[RoundTranscript], None]) -> None:
        self._recipe, self._deliver = recipe, deliver
        self._record: RoundTranscript | None = None

    def __call__(self, event: Event) -> None:
        """Take note of what a round consists of."""
        if isinstance(event, RoundStarted):
            self._record = self._begin(event)
        elif (record := self._record) is None:
            return
        elif isinstance(event, Sent):
            # The arrays belong to the engine, which uses them again.
            record.sent[event.member] = replace(event, values=event.values.copy(), buffers=event.buffers.copy())
        elif isinstance(event, ShardPublished) and not event.lost and event.values is not None:
            record.means[event.shard] = self._mean(record, event, event.values)
        elif isinstance(event, VerdictWritten):
            self._close(record, event)

    def _begin(self, event: RoundStarted) -> RoundTranscript:
        if event.model is None:
            raise InputError("this run's events do not carry the model", fix="audit a simulated run", round=event.round)
        layout, model = self._recipe.layout(event.round), event.model.copy()
        return RoundTranscript(
            event.round, event.assignment, layout, model, witnesses=event.witnesses, unmaskers=event.unmaskers
        )

    def _mean(self, record: RoundTranscript, event: ShardPublished, values: Vector) -> PublishedMean:
        support = self._recipe.published_support(event.round, event.shard)
        if support is None:
            support = record.layout.trainable.coordinates(event.shard)
        return PublishedMean(support, values.copy(), event.contributors)

    def _close(self, record: RoundTranscript, event: VerdictWritten) -> None:
        total = sum(entry.weight for entry in event.plan.roster)
        record.weights = {entry.peer: entry.weight / total for entry in event.plan.roster}
        record.weights |= {member: sent.weight for member, sent in record.sent.items()}
        record.new_references = event.plan.reference_begins == event.round > 0
        self._record = None
        self._deliver(record)


@dataclass
class DecentralisedTranscript:
    """One round among many models; nobody is shown all of it."""

    round: int
    models: Models = field(repr=False)  # where each member began
    sent: dict[int, list[Sent]] = field(default_factory=dict, repr=False)


class DecentralisedRecorder:
    """Listens to a run and hands over every round when it is over."""

    def __init__(self, deliver: Callable[[DecentralisedTranscript], None]) -> None:
        self._deliver = deliver
        self._record: DecentralisedTranscript | None = None

    def __call__(self, event: Event) -> None:
        """Take note of what a round consists of."""
        if isinstance(event, RoundStarted):
            if event.models is None:
                raise InputError("this run's events do not carry the models", fix="audit a simulated run")
            self._record = DecentralisedTranscript(event.round, event.models.copy())
        elif (record := self._record) is None:
            return
        elif isinstance(event, Sent):
            # The arrays belong to the exchange, which uses them again.
            record.sent.setdefault(event.member, []).append(replace(event, values=event.values.copy()))
        elif isinstance(event, RoundEnded):
            self._record = None
            self._deliver(record)
