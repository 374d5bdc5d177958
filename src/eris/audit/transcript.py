"""The events of a round, gathered into one value: what was sent, and what everybody got to know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from eris.errors import InputError
from eris.events import Event, RoundStarted, Sent, ShardPublished, VerdictWritten
from eris.local.spec import Vector
from eris.protocol.recipe import Recipe
from eris.shards.plan import Coordinates
from eris.shards.policy import Layout

__all__ = ["Mean", "Recorder", "RoundRecord"]


@dataclass(frozen=True, slots=True)
class Mean:
    """A committed shard as it was published: v̄ at these coordinates, over these members."""

    coordinates: Coordinates = field(repr=False)
    values: Vector = field(repr=False)
    contributors: tuple[int, ...]


@dataclass
class RoundRecord:
    """One round. `model`, `assignment`, weights and `means` are public; `sent` is not."""

    round: int
    assignment: tuple[int, ...]
    layout: Layout
    model: Vector = field(repr=False)  # x^t
    sent: dict[int, Sent] = field(default_factory=dict, repr=False)
    means: dict[int, Mean] = field(default_factory=dict, repr=False)
    weights: dict[int, float] = field(default_factory=dict, repr=False)  # w_k of the roster, Σ = 1
    new_references: bool = False  # a reference epoch began with this round
    witnesses: tuple[int, ...] = ()  # shard → second aggregating peer, with replicas; public too

    def accepted(self, member: int) -> tuple[int, ...]:
        """Return the shards that were committed with this member among the contributors."""
        return tuple(shard for shard, mean in self.means.items() if member in mean.contributors)


class Recorder:
    """Listens to a run and hands over every round when its verdict is there."""

    def __init__(self, recipe: Recipe, deliver: Callable[[RoundRecord], None]) -> None:
        self._recipe, self._deliver = recipe, deliver
        self._record: RoundRecord | None = None

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

    def _begin(self, event: RoundStarted) -> RoundRecord:
        if event.model is None:
            raise InputError("this run's events do not carry the model", fix="audit a simulated run", round=event.round)
        layout, model = self._recipe.layout(event.round), event.model.copy()
        return RoundRecord(event.round, event.assignment, layout, model, witnesses=event.witnesses)

    def _mean(self, record: RoundRecord, event: ShardPublished, values: Vector) -> Mean:
        support = self._recipe.published_support(event.round, event.shard)
        if support is None:
            support = record.layout.trainable.coordinates(event.shard)
        return Mean(support, values.copy(), event.contributors)

    def _close(self, record: RoundRecord, event: VerdictWritten) -> None:
        total = sum(entry.weight for entry in event.plan.roster)
        record.weights = {entry.peer: entry.weight / total for entry in event.plan.roster}
        record.weights |= {member: sent.weight for member, sent in record.sent.items()}
        record.new_references = event.plan.reference_begins == event.round > 0
        self._record = None
        self._deliver(record)
