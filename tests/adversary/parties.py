"""Parties that speak the real protocol over real TLS, with certificates of their own, and lie in it.

Each is built around a real peer or a real coordinator: handshakes, frames, signatures and calls are the ones that
honest peers use, and only what is said in them is false.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eris.errors import ErisError, Reason
from eris.peer.node import Node
from eris.protocol.coordinator import Coordinator
from eris.protocol.messages import Published, Withheld, payload_hash
from eris.protocol.round_plan import RoundPlan
from eris.transport.bulletins import PlanBulletin, decode_bulletin
from eris.transport.calls import NewsAnswer, NewsRequest
from eris.transport.control_server import ControlServer
from eris.transport.identity import PeerIdentity
from eris.wire.schema import decode, encode
from tests.peer.town import Town


class LyingAggregator:
    """Aggregates honestly, and beside every shard that it publishes calls the coordinator with a false notice."""

    def __init__(self, node: Node, contributors: Callable[[RoundPlan], tuple[int, ...]]) -> None:
        self.node, self._contributors, self.refused = node, contributors, list[ErisError]()
        node.fault_points.listener = self._hear

    def _hear(self, point: str, facts: dict[str, Any]) -> None:
        plan = self.node.links.aggregator.plan
        if point != "cut" or plan is None:
            return
        for shard in plan.shards_of(self.node.number):
            notice = Withheld(plan.digest, shard, self.node.number, Reason.TOO_FEW, self._contributors(plan))
            try:
                self.node.line.control.report(notice)
            except ErisError as error:
                self.refused.append(error)


def publish_instead(node: Node, change: Callable[[np.ndarray[Any, Any]], None]) -> None:
    """Let a peer sign and publish other means than its contributions come to; its signature and hash are good."""
    role = node.links.aggregator._aggregator
    honest = role._cut

    def cut(shard: Any, plan: RoundPlan) -> Published | Withheld:
        outcome = honest(shard, plan)
        if isinstance(outcome, Withheld):
            return outcome
        values = outcome.values.copy()
        change(values)
        manifest = replace(outcome.manifest, hash=payload_hash(values, outcome.buffers), signature="")
        signed = replace(manifest, signature=node._book.sign(manifest.signed_bytes))
        return Published(signed, values, outcome.buffers)

    role._cut = cut  # type: ignore[method-assign]


def forge_plans(patch: pytest.MonkeyPatch, forged: Callable[[RoundPlan], RoundPlan]) -> None:
    """Let coordinators write other plans than their rules give; they are journalled, numbered and posted as any."""
    honest = Coordinator._next_plan
    patch.setattr(Coordinator, "_next_plan", lambda self: forged(honest(self)))


class TwoFacedCoordinator:
    """Tells some callers of other plans than the others; every one of them is signed as plans are."""

    def __init__(
        self, patch: pytest.MonkeyPatch, place: Town, deceived: set[str], other: Callable[[RoundPlan], RoundPlan]
    ) -> None:
        self._place, self._other = place, other
        honest = ControlServer._next

        def answer(server: ControlServer, caller: PeerIdentity, request: NewsRequest) -> bytes:
            said = honest(server, caller, request)
            return self._rewritten(said) if caller.name in deceived else said

        patch.setattr(ControlServer, "_next", answer)
        place.coordinator.close()
        place.coordinator = place.open_coordinator()

    def _rewritten(self, said: bytes) -> bytes:
        news = decode(NewsAnswer, said)
        posted = tuple(replace(one, bulletin=self._bulletin(one.bulletin)) for one in news.posted)
        return encode(replace(news, posted=posted))

    def _bulletin(self, data: bytes) -> bytes:
        run = self._place.coordinator._run
        bulletin = decode_bulletin(data, run._journal.find_roster)
        if isinstance(bulletin, PlanBulletin):
            plan = self._other(bulletin.plan)
            return encode(replace(bulletin, plan=plan, seal=run.sealed(plan)))
        return data
