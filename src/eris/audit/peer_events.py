"""Audit a real run from one aggregating peer: turn what it received into the events that an audit listens to.

A simulated run reports what every member sent, and an observer takes its part of that. A real peer has only its part:
`Received`, shard by shard. Joined by member these give the same views, so the same audit computes the same scores, bit
for bit, from this peer alone. In fixed point and with masked shards a peer keeps no contributions: what it has of the
others is that they took part, and the published sums.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np

from eris.events import Event, Listener, Received, RoundStarted, Sent, VerdictWritten
from eris.protocol.recipe import Recipe
from eris.protocol.round_plan import RoundPlan

__all__ = ["PeerEvents"]


class PeerEvents:
    """Listens at one real peer and passes each round on to an audit, with what the peer received in place of `Sent`."""

    def __init__(self, recipe: Recipe, audit: Listener) -> None:
        self._recipe, self._audit = recipe, audit
        self._received: dict[int, list[Received]] = defaultdict(list)
        self._own: dict[int, Sent] = {}

    def __call__(self, event: Event) -> None:
        """Record an event; a round is passed on once its verdict is written."""
        if isinstance(event, RoundStarted):
            self._received.clear()
            self._own.clear()
        if isinstance(event, Received):
            copies = {
                name: getattr(event, name).copy() for name in ("coordinates", "values", "buffer_coordinates", "buffers")
            }
            self._received[event.member].append(replace(event, **copies))
        elif isinstance(event, Sent):
            self._own[event.member] = replace(event, values=event.values.copy(), buffers=event.buffers.copy())
        else:
            if isinstance(event, VerdictWritten):
                self._pass_on()
                self._pass_on_unseen(event.plan)
            self._audit(event)

    def _pass_on(self) -> None:
        for member, parts in sorted(self._received.items()):
            if member not in self._own:
                self._audit(self._as_sent(parts))
        for own in self._own.values():
            self._audit(own)

    def _pass_on_unseen(self, plan: RoundPlan) -> None:
        """Report members of whom nothing but their part of a sum is known: what they sent reached nobody who looks."""
        if self._recipe.encoding is None:
            return
        none, nowhere = np.empty(0, np.float32), np.empty(0, np.int64)
        buffers = np.zeros(self._recipe.spec.n - self._recipe.spec.n_trainable, np.float32)
        for member in plan.participants:
            if member not in self._own:
                weight, silent = float(plan.weights[member]), (0,) * plan.shards
                self._audit(
                    Sent(
                        round=plan.round,
                        member=member,
                        reached=(),
                        bytes=silent,
                        weight=weight,
                        steps=1.0,
                        values=none,
                        support=nowhere,
                        buffers=buffers,
                    )
                )

    def _as_sent(self, parts: list[Received]) -> Sent:
        """Return the part of one member's message that this peer received, as a `Sent` event."""
        first = parts[0]
        coordinates, places, values, buffers = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("coordinates", "buffer_coordinates", "values", "buffers")
        )
        order = np.argsort(coordinates)
        dense = np.zeros(self._recipe.spec.n - self._recipe.spec.n_trainable, np.float32)
        dense[places] = buffers
        reached = tuple(sorted({part.shard for part in parts}))
        sizes = tuple(int(shard in reached) for shard in range(self._recipe.policy.shards))
        return Sent(
            round=first.round,
            member=first.member,
            reached=reached,
            bytes=sizes,
            weight=first.weight,
            steps=first.steps,
            values=values[order],
            support=coordinates[order],
            buffers=dense,
        )
