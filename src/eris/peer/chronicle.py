"""The rounds that have a verdict, as the coordinator's journal tells them."""

from __future__ import annotations

import logging

from eris.peer.inbox import Inbox
from eris.protocol.round_plan import RoundPlan
from eris.protocol.verdict import Verdict
from eris.transport.control_client import ControlClient
from eris.transport.link import LinkClosed, LinkTimeout

__all__ = ["Chronicle"]

_LOG = logging.getLogger(__name__)
_PAUSE = 0.5  # seconds


class Chronicle:
    """Asks for past rounds; a coordinator that is away is waited for as long as for its bulletins."""

    def __init__(self, client: ControlClient, inbox: Inbox) -> None:
        self._client, self._inbox = client, inbox

    def since(self, round: int) -> list[tuple[RoundPlan, Verdict]]:
        """Return plan and verdict of the rounds from `round` on, as many as come at once; none if there are none."""
        while True:
            try:
                rounds = self._client.fetch({"since": round})["rounds"]
                return [(RoundPlan.from_dict(pair["plan"]), Verdict.from_dict(pair["verdict"])) for pair in rounds]
            except (LinkClosed, LinkTimeout) as error:
                self._inbox.require_patience(round)
                if self._inbox.has_end() or self._inbox.closed.wait(_PAUSE):
                    raise
                _LOG.info("the coordinator cannot be asked for round %d: %s", round, error)
