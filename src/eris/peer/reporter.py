"""What a peer tells the coordinator of a round: what it published, withholds and holds, or that it sits it out."""

from __future__ import annotations

import logging
from dataclasses import asdict
from typing import Any

from eris.errors import ErisError, Reason
from eris.peer.inbox import Inbox
from eris.peer.moments import Moments
from eris.protocol.member import Member
from eris.protocol.messages import Published, Withheld
from eris.protocol.round_plan import RoundPlan
from eris.transport.control_client import ControlClient
from eris.transport.link import LinkError, LinkRefused

__all__ = ["Reporter"]

_LOG = logging.getLogger(__name__)
_PAUSES = (0.2, 0.5, 1.0, 2.0)  # a coordinator that is away longer asks again when it is back


class Reporter:
    """Speaks for both roles of a peer; a coordinator that does not hear costs a line in the log, nothing else."""

    def __init__(self, client: ControlClient, member: Member, inbox: Inbox, moments: Moments) -> None:
        self._client, self._member, self._inbox, self._moments = client, member, inbox, moments
        self.state = ""  # what was said of our replica in this round

    def tell(self, outcome: Published | Withheld, round: int) -> None:
        """Say what became of one of our shards; called by whichever thread cut it."""
        self._moments("cut", round=round)
        try:
            if isinstance(outcome, Withheld):
                self._client.report({"withheld": {**asdict(outcome), "reason": outcome.reason.value}})
            else:
                self._client.report({"manifest": outcome.manifest.to_dict()})
                self._moments("manifest", round=round)
        except ErisError as error:
            _LOG.warning("the coordinator did not hear of a shard: %s", error)

    def sit_out(self, plan: RoundPlan) -> None:
        """Say that we send nothing in this round: the aggregators would wait for it in vain."""
        try:
            self._client.report({"idle": plan.digest})
        except ErisError as error:
            _LOG.warning("round %d: nobody heard that this member sends nothing: %s", plan.round, error)

    def report(self, plan: RoundPlan) -> None:
        """Say what we hold, again and again if it does not arrive."""
        report = self._member.report()
        self.state = report.state
        held = {str(shard): digest for shard, digest in report.held.items()}
        document = {"plan": report.plan, "held": held, "complete": report.complete, "state": report.state}
        for pause in _PAUSES:
            try:
                self._send(document)
                return
            except LinkRefused as refused:
                self._inbox.failure = refused
                return
            except ErisError as error:
                _LOG.warning("round %d: the report did not arrive: %s", plan.round, error)
                if not isinstance(error, LinkError) or self._inbox.is_over(plan) or self._inbox.closed.wait(pause):
                    return

    def report_without(self, plan: RoundPlan) -> None:
        """Report again when somebody is gone whose shard we still waited for."""
        owners = [(shard, peer) for shard in range(plan.shards) for peer in plan.aggregators_of(shard)]
        lacking = [(s, peer) for s, peer in owners if peer in self._inbox.gone and not self._member.settled(s)]
        for shard, peer in lacking:
            self._member.withhold(Withheld(plan.digest, shard, peer, Reason.GONE))
        if lacking:
            self.report(plan)

    def _send(self, document: dict[str, Any]) -> None:
        for finding in filter(None, map(self._member.disagreement, range(self._member.recipe.policy.shards))):
            for signed in (finding.first, finding.second):  # the coordinator may lack one of them
                self._client.report({"manifest": signed.to_dict()})
        for shard in self._client.report({"report": document})["wanted"]:
            if (manifest := self._member.manifest(int(shard))) is not None:
                self._client.report({"manifest": manifest.to_dict()})
