"""What a peer tells the coordinator about a round: what it published, withholds and holds, or that it sits out."""

from __future__ import annotations

import logging
from collections.abc import Collection

from eris.errors import ErisError, Reason
from eris.peer.fault_points import FaultPoints
from eris.peer.inbox import Inbox
from eris.protocol.false_manifest import FalseManifest, LieProof
from eris.protocol.member import Member
from eris.protocol.messages import Idle, Manifest, NewKey, Published, Report, ShownKey, Wanted, Withheld
from eris.protocol.round_plan import RoundPlan
from eris.transport.calls import ProofAnswer, ProofRequest
from eris.transport.control_client import ControlClient
from eris.transport.link import LinkError, LinkRefused

__all__ = ["Reporter"]

_LOG = logging.getLogger(__name__)
_PAUSES = (0.2, 0.5, 1.0, 2.0)  # a coordinator that is away longer asks again when it is back


class Reporter:
    """Speaks for both roles of a peer; a coordinator that cannot hear costs a log line and nothing else."""

    def __init__(self, client: ControlClient, member: Member, inbox: Inbox, fault_points: FaultPoints) -> None:
        self._client, self._member, self._inbox, self._fault_points = client, member, inbox, fault_points

    def tell(self, outcome: Published | Withheld, round: int) -> None:
        """Report how one of our shards ended."""
        try:
            if isinstance(outcome, Withheld):
                self._client.report(outcome)
            else:
                self._client.report(outcome.manifest)
                self._fault_points("manifest", round=round)
        except ErisError as error:
            _LOG.warning("the coordinator could not be told of a shard: %s", error)

    def sit_out(self, plan: RoundPlan) -> None:
        """Report that we send nothing in this round, so that aggregators do not wait in vain."""
        try:
            self._client.report(Idle(plan.digest))
        except ErisError as error:
            _LOG.warning(
                "round %d: the coordinator could not be told that this member sends nothing: %s", plan.round, error
            )

    def report(self, plan: RoundPlan) -> str:
        """Report what we hold, repeatedly if it does not arrive; return the replica digest that was reported."""
        report = self._member.report()
        for pause in _PAUSES:
            if self._arrives(report, plan) or self._inbox.closed.wait(pause):
                break
        return report.state

    def _arrives(self, report: Report, plan: RoundPlan) -> bool:
        """Send a report once; False if another try is worthwhile."""
        try:
            self._send(report)
        except LinkRefused as refused:
            self._inbox.failure = refused
        except ErisError as error:
            _LOG.warning("round %d: the report did not arrive: %s", plan.round, error)
            return not isinstance(error, LinkError) or self._inbox.is_over(plan)
        return True

    def report_without(self, plan: RoundPlan) -> None:
        """Report again when a peer is gone whose shard we were still waiting for."""
        owners = [(shard, peer) for shard in range(plan.shards) for peer in plan.aggregators_of(shard)]
        lacking = [(s, peer) for s, peer in owners if peer in self._inbox.gone and not self._member.accounted_for(s)]
        for shard, peer in lacking:
            self._member.withhold(Withheld(plan.digest, shard, peer, Reason.GONE))
        if lacking:
            self.report(plan)

    def accuse(self, signed: Manifest | FalseManifest) -> None:
        """Show the coordinator an aggregator's manifest that contradicts the plan or its own receipt."""
        try:
            self._client.report(signed)
        except ErisError as error:
            _LOG.info("the coordinator's answer about a false manifest: %s", error)

    def show_key(self, shown: ShownKey) -> bool:
        """Show our next mask key; False if the coordinator did not hear it, or already has it."""
        try:
            self._client.report(NewKey(shown))
        except ErisError as error:
            _LOG.info("the coordinator's answer about this peer's next mask key: %s", error)
            return False
        return True

    def lies_of(self, peers: Collection[int]) -> Collection[LieProof]:
        """Ask why peers are excluded."""
        return self._client.fetch(ProofRequest(tuple(sorted(peers))), ProofAnswer).proofs

    def _send(self, report: Report) -> None:
        for finding in filter(None, map(self._member.disagreement, range(self._member.recipe.policy.shards))):
            for signed in (finding.first, finding.second):  # the coordinator may lack one of them
                self._client.report(signed)
        wanted = self._send_wanted(self._client.report(report.brief))
        if wanted.full:
            self._send_wanted(self._client.report(report.full))

    def _send_wanted(self, wanted: Wanted) -> Wanted:
        """Send the manifests that the coordinator asks for; return what it still wants after that."""
        for manifest in filter(None, map(self._member.manifest, wanted.manifests)):
            wanted = self._client.report(manifest)
        return wanted
