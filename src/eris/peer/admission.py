"""Joining a run, coming back into it, and leaving."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace

from eris.errors import ErisError, Refused
from eris.peer.catch_up import CatchUp
from eris.peer.coordinator_line import CoordinatorLine
from eris.peer.federation_file import FederationFile
from eris.peer.node_settings import NodeSettings, own_address
from eris.peer.peer_links import PeerLinks
from eris.peer.reporter import Reporter
from eris.protocol.member import NO_REFERENCE, Member
from eris.protocol.messages import ShownKey
from eris.protocol.roster import ROSTER_PURPOSE, RosterClaim
from eris.protocol.round_plan import RoundPlan
from eris.transport.calls import PLACE_PURPOSE, JoinRequest
from eris.transport.credentials import Credentials
from eris.transport.link import LinkClosed, LinkTimeout
from eris.transport.route import address_text
from eris.wire.schema import encode

__all__ = ["Admission"]

_LOG = logging.getLogger(__name__)


class Admission:
    """Asks the coordinator to take this peer in, and acts on its answer."""

    def __init__(
        self,
        federation: FederationFile,
        settings: NodeSettings,
        credentials: Credentials,
        line: CoordinatorLine,
        links: PeerLinks,
        member: Member,
        reporter: Reporter,
        catch_up: CatchUp,
        *,
        weight: float,
        initial: str,
        key: ShownKey | None = None,
    ) -> None:
        """Prepare to join.

        Args:
            weight: the weight this peer asks for.
            initial: digest of its x⁰.
            key: its mask key as others see it; None where nothing is masked.
        """
        self.key = key
        self._federation, self._settings, self._member = federation, settings, member
        self._line, self._links, self._client, self._inbox = line, links, line.control, line.inbox
        self._credentials, self._signed = credentials, ("", 0, "")  # key, counter and signature of our entry
        self._place: tuple[object, int, str] = None, 0, ""  # our place, and counter and signature of the claim to it
        self._reporter, self._catch_up, self._weight, self._initial = reporter, catch_up, weight, initial
        self._stopped = threading.Event()
        self.port: int | None = None  # where we listen, if we do
        self.joined, self.ended = False, ""
        self._forgotten = NO_REFERENCE, 0  # the reference epoch we were told to forget, and our round then

    def join_patiently(self) -> None:
        """Join, waiting for a coordinator that is not there yet, but not for one that refuses us."""
        until = time.monotonic() + self._settings.wait
        while not self.joined and not self._stopped.is_set():
            try:
                self.join()
            except (LinkClosed, LinkTimeout) as error:
                if time.monotonic() >= until:
                    raise
                _LOG.info("the coordinator is not there yet: %s", error)
                self._client.close()  # a fresh channel tries at once, an old one waits longer every time
                time.sleep(0.2)

    def join(self) -> None:
        """Join, or state again where we stand: after a restart of the coordinator, or when our reference is lost."""
        own, witness = self._line.allegiance, self._line.witness
        if own is not None and own.waits:
            term = own.promise.term
            raise LinkClosed(f"this peer has voted in term {term} and waits for the result", clean=False)
        self._catch_up.keep_up()
        self._remember_reference()
        answer = self._client.join(self._request(), seconds=self._federation.settings.connect)
        # Without the roster of the round under way we are not in yet: we could not say that we sit it out.
        under_way = RoundPlan.decode(answer.plan, self._line.rosters.find) if answer.plan else None
        witness.learn(answer.certificate)
        follows = under_way is not None and witness.hear(under_way, answer.seal)
        self.joined, self._inbox.heard = True, time.monotonic()
        if not answer.intact:
            self._forgotten = self._member.reference_epoch, self._member.round
            self._member.forget_reference()
        if not answer.dialled and self._settings.reachable:
            ways = [place for place in (self._address(), *self._settings.relays) if place is not None]
            _LOG.warning(
                "this peer gets no shard: %s cannot be dialled, or the peer is not meant to aggregate",
                ", ".join(map(address_text, ways)),
            )
        if under_way is not None and follows:
            self._sit_out(under_way)
        self.ended = answer.ended or self.ended

    def ask_for_reference(self) -> None:
        """Join without a reference, so that the next plan begins an epoch; if unheard, ask again every round."""
        try:
            self.join()
        except (LinkClosed, LinkTimeout) as error:
            _LOG.warning("the coordinator could not be told that this peer has no reference: %s", error)

    def say_where_we_stand(self) -> None:
        """Keep trying to join again until the coordinator has heard us or the run is over."""
        while not self._inbox.has_end():
            try:
                self.join()
                break
            except Refused as refused:  # we were excluded: nobody waits for us, but we may see the end
                _LOG.warning("the coordinator refuses this peer's position: %s", refused)
                break
            except (LinkClosed, LinkTimeout) as error:
                self._inbox.require_patience(self._member.round)
                _LOG.info("the coordinator could not be told this peer's position: %s", error)
                self._inbox.closed.wait(0.5)

    def stop(self) -> None:
        """Stop waiting for the coordinator."""
        self._stopped.set()

    def leave(self) -> None:
        """Leave the run, if we were in it."""
        if not self.joined:
            return
        try:
            self._client.leave(seconds=2.0)
        except ErisError as error:
            _LOG.info("the coordinator could not be told that this peer leaves: %s", error)

    def _remember_reference(self) -> None:
        """Take our reference back if we are where we were told to forget it: the run may have gone back."""
        epoch, round = self._forgotten
        if self._member.lost_reference and not self._plays and self._member.round == round:
            self._member.reference_epoch = epoch

    @property
    def _plays(self) -> bool:
        """Whether we take part in the open round; a round we merely follow changes nothing of our own."""
        return self._member.plan is not None and not self._catch_up.following

    def _claim(self) -> tuple[int, str]:
        """Sign our own roster entry, only once: a later signature would make another entry."""
        key = self._credentials.identity.fingerprint
        if self._signed[0] != key:
            counter = int(time.time())
            own = self._settings.name, self._weight, self._organisation
            claim = RosterClaim(self._federation.digest, *own, counter)
            self._signed = key, counter, self._credentials.sign(ROSTER_PURPOSE, encode(claim)).hex()
        return self._signed[1:]

    def _signed_place(self, request: JoinRequest) -> JoinRequest:
        """Sign where we can be dialled, once for each place."""
        where = self._credentials.identity.fingerprint, request.address, request.relays
        if where != self._place[0]:
            counter = max(int(time.time()), self._place[1] + 1)
            claim = replace(request, place_counter=counter).place(self._settings.name)
            self._place = where, counter, self._credentials.sign(PLACE_PURPOSE, encode(claim)).hex()
        return replace(request, place_counter=self._place[1], place_signature=self._place[2])

    @property
    def _organisation(self) -> str:
        return self._settings.organisation or self._federation.organisations.get(self._member.peer, "")

    def _request(self) -> JoinRequest:
        member, (counter, signature) = self._member, self._claim()
        request = JoinRequest(
            federation=self._federation.digest,
            spec=member.recipe.spec,
            weight=self._weight,
            organisation=self._organisation,
            counter=counter,
            signature=signature,
            address=self._address(),
            initial=self._initial,
            fresh=self._links.aggregator.plan is None,
            chain=member.chain,
            # With a round open we still know what we sent in it, and will settle it by its verdict.
            private_round=member.round + self._plays,
            reference_epoch=member.reference_epoch,
            checkpoints=tuple(self._catch_up.checkpoints.rounds()),
            relays=self._settings.relays,
            heard=self._line.witness.last,
            mask_key=self.key,
        )
        return self._signed_place(request)

    def _sit_out(self, plan: RoundPlan) -> None:
        """Publish nothing in a round that we joined midway: we no longer know what we published before."""
        aggregator, unmasker = self._links.aggregator, self._links.unmasker
        if aggregator.plan is None or plan.when > aggregator.plan.when:
            if unmasker is not None:
                unmasker.abstain(plan)
            for notice in aggregator.abstain(plan):
                self._reporter.tell(notice, plan.round)

    def _address(self) -> tuple[str, int] | None:
        if self.port is None:
            return None
        return self._settings.advertise or own_address(self._client.address), self.port
