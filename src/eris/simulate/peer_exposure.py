"""Exposure among members that exchange messages: the share of a member's vector that another member received.

Models and gradients count alike, by their coordinates.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from eris.events import Event, RoundEnded, RoundStarted, Sent
from eris.shards.plan import ShardPlan
from eris.view import View

__all__ = ["PeerExposure", "view_among"]


def view_among(sent: Sent, observers: Collection[int], n: int) -> View:
    """Return what some members together received of one message: all of it, or nothing; models have `n` values."""
    reached = not set(sent.reached).isdisjoint(observers)
    everything = np.arange(n, dtype=np.int64) if sent.support is None else sent.support
    coordinates, values = (everything, sent.values) if reached else (everything[:0], sent.values[:0])
    nothing = np.empty(0, np.int64)
    return View(sent.round, sent.member, coordinates, values, nothing, sent.buffers[:0], {})


class PeerExposure:
    """Listens to a run and adds up exposure, chunk by chunk."""

    def __init__(self, chunks: ShardPlan, members: int) -> None:
        self._chunks, self._members, self._shares = chunks, members, chunks.sizes / chunks.n
        self._ever = np.zeros((members, members, chunks.shards), bool)  # sender × receiver × chunk
        self._now = self._ever.copy()
        self._largest, self._sum, self._rounds, self._total = 0.0, 0.0, 0, 0.0
        self.of_round: dict[int, float] = {}  # the largest share of each round, until it is fetched

    def __call__(self, event: Event) -> None:
        """Record the events that concern exposure."""
        if isinstance(event, RoundStarted):
            self._now[:] = False
        elif isinstance(event, Sent):
            chunk = 0 if event.support is None else int(self._chunks.owners_of(event.support[:1])[0])
            self._now[event.member, list(event.reached), chunk] = True
        elif isinstance(event, RoundEnded):
            self._close(event.round)

    def _close(self, round: int) -> None:
        seen = (self._now @ self._shares).max(axis=1)
        self._ever |= self._now
        self.of_round[round] = float(seen.max(initial=0.0))
        self._largest = max(self._largest, self.of_round[round])
        self._total += self.of_round[round]
        self._sum += float(seen.mean())
        self._rounds += 1

    def summary(self) -> dict[str, Any]:
        """Return the figures so far."""
        union = (self._ever @ self._shares).max(axis=0)
        return {
            "coordinates": self._chunks.n,
            "observers": "members",
            "largest_share_per_round": self._largest,
            "mean_share_per_round": self._sum / self._rounds if self._rounds else 0.0,
            "published_share_per_round": 0.0,
            "union_over_rounds": float(union.max(initial=0.0)),
            "union_by_observer": {str(peer): float(share) for peer, share in enumerate(union)},
            "values_over_rounds": round(self._total * self._chunks.n),
            "side_scalars": [],
        }

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint must keep."""
        ever = np.packbits(self._ever).tobytes().hex()
        return {"largest": self._largest, "sum": self._sum, "rounds": self._rounds, "total": self._total, "ever": ever}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint."""
        self._largest, self._sum = state["largest"], state["sum"]
        self._rounds, self._total = state["rounds"], state["total"]
        bits = np.unpackbits(np.frombuffer(bytes.fromhex(state["ever"]), np.uint8), count=self._ever.size)
        self._ever = bits.astype(bool).reshape(self._ever.shape)
