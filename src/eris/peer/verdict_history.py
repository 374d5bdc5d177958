"""The rounds that have a verdict, read from the coordinator's journal."""

from __future__ import annotations

import logging

from eris.peer.inbox import Inbox
from eris.peer.journal import SealedRound
from eris.peer.rosters import RosterCache
from eris.peer.witness import Witness
from eris.protocol.round_plan import RoundPlan
from eris.protocol.verdict import Verdict
from eris.transport.calls import PlayedRound, RoundsAnswer, RoundsRequest
from eris.transport.control_client import ControlClient
from eris.transport.link import LinkClosed, LinkTimeout

__all__ = ["VerdictHistory"]

_LOG = logging.getLogger(__name__)
_PAUSE = 0.5  # seconds


class VerdictHistory:
    """Asks for past rounds; a coordinator that is away is waited for as long as for its bulletins.

    `inbox` has that patience, `rosters` finds what plans cite, and `witness` checks seals.
    """

    def __init__(self, client: ControlClient, inbox: Inbox, rosters: RosterCache, witness: Witness) -> None:
        self._client, self._inbox, self._rosters, self._witness = client, inbox, rosters, witness

    def since(self, round: int) -> list[tuple[RoundPlan, Verdict]]:
        """Return plan and verdict of the rounds from `round` on, as many as come at once; empty if there are none."""
        while True:
            try:
                return [(one.plan, one.verdict) for one in self.sealed_since(round)]
            except (LinkClosed, LinkTimeout) as error:
                self._inbox.require_patience(round)
                if self._inbox.has_end() or self._inbox.closed.wait(_PAUSE):
                    raise
                _LOG.info("round %d could not be fetched from the coordinator: %s", round, error)

    def sealed_since(self, round: int) -> list[SealedRound]:
        """Return the same with the seals; ask only once."""
        return [self._vouched_for(one) for one in self._client.fetch(RoundsRequest(round), RoundsAnswer).rounds]

    def _vouched_for(self, played: PlayedRound) -> SealedRound:
        """Decode a round; refuse what the coordinator did not sign, whatever it says now."""
        plan, verdict = RoundPlan.decode(played.plan, self._rosters.find), Verdict.decode(played.verdict)
        seals = (*played.seals, None, None)
        plan_seal, verdict_seal = (
            self._witness.vouches_for(plan, seals[0]),
            self._witness.vouches_for(verdict, seals[1]),
        )
        for certified in (plan_seal, verdict_seal):
            self._witness.compare(certified)
        return SealedRound(plan, verdict, plan_seal, verdict_seal)
