"""The rounds that have a verdict, as the coordinator's journal tells them."""

from __future__ import annotations

import logging

from eris.peer.inbox import Inbox
from eris.peer.roster_cache import RosterCache
from eris.protocol.round_plan import RoundPlan
from eris.protocol.verdict import Verdict
from eris.transport.calls import RoundsAnswer, RoundsRequest
from eris.transport.control_client import ControlClient
from eris.transport.link import LinkClosed, LinkTimeout

__all__ = ["VerdictHistory"]

_LOG = logging.getLogger(__name__)
_PAUSE = 0.5  # seconds


class VerdictHistory:
    """Asks for past rounds; a coordinator that is away is waited for as long as for its bulletins."""

    def __init__(self, client: ControlClient, inbox: Inbox, rosters: RosterCache) -> None:
        self._client, self._inbox, self._rosters = client, inbox, rosters

    def since(self, round: int) -> list[tuple[RoundPlan, Verdict]]:
        """Return plan and verdict of the rounds from `round` on, as many as come at once; none if there are none."""
        while True:
            try:
                played = self._client.fetch(RoundsRequest(round), RoundsAnswer).rounds
                find = self._rosters.find
                return [(RoundPlan.decode(one.plan, find), Verdict.decode(one.verdict)) for one in played]
            except (LinkClosed, LinkTimeout) as error:
                self._inbox.require_patience(round)
                if self._inbox.has_end() or self._inbox.closed.wait(_PAUSE):
                    raise
                _LOG.info("the coordinator cannot be asked for round %d: %s", round, error)
