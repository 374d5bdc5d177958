"""Exactly what one observer, or several pooling their knowledge, saw of one member in one round.

A view holds the coordinates of the shards that the observers own and that reached them, the values there, and the
scalars that came along. It holds nothing else: what everybody sees (plans, published means) is not part of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from eris.events import Sent
from eris.local.spec import Vector
from eris.shards.plan import Coordinates, ShardPlan
from eris.shards.policy import Layout

__all__ = ["View", "seen_shards", "view_of"]


@dataclass(frozen=True, slots=True)
class View:
    """What was seen: `values` at `coordinates` of the trainable part, `buffers` at `buffer_coordinates`."""

    round: int
    member: int
    coordinates: Coordinates = field(repr=False)
    values: Vector = field(repr=False)
    buffer_coordinates: Coordinates = field(repr=False)
    buffers: Vector = field(repr=False)
    scalars: Mapping[str, float]

    @property
    def size(self) -> int:
        """Number of coordinates seen."""
        return self.coordinates.size + self.buffer_coordinates.size


def view_of(
    sent: Sent,
    layout: Layout,
    assignment: tuple[int, ...],
    observers: Collection[int],
    witnesses: tuple[int, ...] = (),
    unmaskers: tuple[int, ...] = (),
) -> View:
    """Return the joint view of some observers; all aggregators together see the whole message.

    With replicas a shard also goes to its witness, which sees as much of it as its aggregator. A masked shard is seen
    only if all its unmaskers are among the observers: what an aggregator receives alone is independent of the values
    (for any values there is a pad that gives the same bytes), so it carries no information and is left out.

    Args:
        sent: what the member sent in the round.
        layout: the round's shard plan.
        assignment: shard → aggregating peer.
        observers: the peers that pool what they see.
        witnesses: shard → second aggregating peer, with replicas.
        unmaskers: those of shard 0, of shard 1, …; empty without masks.
    """
    owned = np.zeros(layout.shards, bool)
    owned[list(seen_shards(sent.reached, assignment, observers, witnesses, unmaskers))] = True
    seen = _owned(layout.trainable, sent.support, owned)
    everything = np.arange(layout.trainable.n, dtype=np.int64) if sent.support is None else sent.support
    rest = _owned(layout.buffers, None, owned)
    scalars = {"weight": sent.weight, "steps": sent.steps} if owned.any() else {}
    return View(sent.round, sent.member, everything[seen], sent.values[seen], rest, sent.buffers[rest], scalars)


def seen_shards(
    reached: Iterable[int],
    assignment: tuple[int, ...],
    observers: Collection[int],
    witnesses: tuple[int, ...] = (),
    unmaskers: tuple[int, ...] = (),
) -> tuple[int, ...]:
    """Return the shards in which these observers see a single member's values; arguments as for `view_of`.

    `reached` are the shards whose aggregator received the member's part.

    >>> seen_shards([0, 1], (5, 6), {5}), seen_shards([0, 1], (5, 6), {5}, unmaskers=(6, 7))
    ((0,), ())
    >>> seen_shards([0, 1], (5, 6), {5, 6}, unmaskers=(6, 7))
    (0,)
    """
    each = len(unmaskers) // max(len(assignment), 1)
    return tuple(
        shard
        for shard in reached
        if any(peers[shard] in observers for peers in (assignment, witnesses) if peers)
        and all(peer in observers for peer in unmaskers[shard * each : (shard + 1) * each])
    )


def _owned(plan: ShardPlan, support: Coordinates | None, owned: NDArray[np.bool_]) -> Coordinates:
    """Return the positions, in the support, of coordinates in the observers' shards."""
    coordinates = np.arange(plan.n, dtype=np.int64) if support is None else support
    return np.flatnonzero(owned[plan.owners_of(coordinates)])
