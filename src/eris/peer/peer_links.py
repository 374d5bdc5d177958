"""A peer's links to the other peers: those it dials, those it accepts, and the two roles that answer over them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from eris.errors import Reason, Refused
from eris.events import EventStream, RoleBytes
from eris.peer.address_book import AddressBook
from eris.peer.aggregator_client import AggregatorClients
from eris.peer.coordinator_line import CoordinatorLine
from eris.peer.fault_points import FaultPoints
from eris.peer.federation_file import FederationFile
from eris.peer.node_settings import NodeSettings
from eris.peer.reporter import Reporter
from eris.peer.roles import Roles
from eris.peer.shard_server import ShardServer
from eris.peer.shared_aggregator import SharedAggregator
from eris.peer.shared_unmasker import SharedUnmasker
from eris.protocol.member import Snapshot
from eris.protocol.messages import Published, Withheld
from eris.protocol.seal import CertifiedSeal, Contradiction
from eris.transport.credentials import Credentials
from eris.transport.link_loop import LinkLoop

__all__ = ["PeerLinks"]

_PASS_ON = 5.0  # seconds that others have to take a proof


class PeerLinks:
    """Holds everything that talks to other peers.

    `clients` carry our parts to aggregators and `server` answers members; `aggregator` and, with masked shards,
    `unmasker` are this peer's roles, shared by many threads. Idle links rest in one loop.
    """

    def __init__(
        self,
        federation: FederationFile,
        credentials: Credentials,
        settings: NodeSettings,
        roles: Roles,
        book: AddressBook,
        line: CoordinatorLine,
        reporter: Reporter,
        *,
        snapshot: Callable[[], Snapshot],
        emit: EventStream,
        fault_points: FaultPoints,
    ) -> None:
        """Prepare both sides without opening anything.

        Args:
            roles: those of this peer, which answer over the links.
            book: where the others are, and who is welcome.
            reporter: tells the coordinator how our shards ended.
            snapshot: returns this peer's state, for others.
            emit: told what our aggregator received.
        """
        self._federation, self._credentials, self._settings = federation, credentials, settings
        self._book, self._line, self._reporter, self._fault_points = book, line, reporter, fault_points
        self._peer = roles.member.peer
        self.unmasker = SharedUnmasker(roles.unmasker, fault_points) if roles.unmasker is not None else None
        self._loop = LinkLoop(f"eris-links {settings.name}")
        self.aggregator = SharedAggregator(roles.aggregator, self._tell_in_thread, emit)
        self.clients = AggregatorClients(
            book=book,
            security=credentials,
            recipe=roles.member.recipe,
            limits=federation.link_limits,
            fault_points=fault_points,
            pool=roles.pool,
            proxy=settings.proxy,
            compare=self._compare,
            unmask=self.unmasker.unmask if self.unmasker is not None else None,
            loop=self._loop,
        )
        self.server = ShardServer(
            self.aggregator,
            peer_of=book.number,
            find=roles.member.serve,
            snapshot=snapshot,
            fault_points=fault_points,
            under_way=self.clients.under_way,
            sealed=lambda: line.witness.last,
            accuse=self._accuse,
            loop=self._loop,
            behind=federation.settings.connect,
        )

    def open(self) -> int | None:
        """Listen, wait at relays, or both, and return the port; a peer that only dials out does neither."""
        settings, limits = self._settings, self._federation.link_limits
        if not settings.reachable:
            return None
        port = self.server.listen(self._credentials, settings.listen, limits, self._book.roster, self._book.begun)
        if settings.relays:
            self.server.wait_at(
                settings.relays, self._credentials, settings.wait, connect=limits.connect, proxy=settings.proxy
            )
        return port

    def close(self) -> None:
        """Close links and threads, after passing on any proof against the coordinator."""
        self.aggregator.close()
        if self._line.witness.proof is not None:
            self.clients.accuse(self._line.witness.proof, self._peer, _PASS_ON)
        self.clients.close()
        self.server.close()
        self._loop.close()

    def carried(self) -> tuple[RoleBytes, RoleBytes]:
        """Return the bytes over all links so far, as a member and as an aggregator."""
        return self.clients.carried(), RoleBytes(*self.server.carried())

    def without(self, peers: set[int], *, away: bool = True) -> None:
        """Stop waiting in this round for peers that are gone or, without `away`, merely send nothing."""
        if self.unmasker is not None:
            self.unmasker.without(peers, away=away)
        self.aggregator.without(peers, away=away)

    def _tell_in_thread(self, outcome: Published | Withheld, round: int) -> None:
        """Tell the coordinator how a shard ended, so that the thread that cut it can keep serving others."""
        self._fault_points("cut", round=round)
        try:
            self._loop.hand_over(partial(self._tell, outcome, round))
        except RuntimeError:  # this machine has no thread left: others are served later, but the shard is not lost
            self._tell(outcome, round)

    def _tell(self, outcome: Published | Withheld, round: int) -> None:
        try:
            self._reporter.tell(outcome, round)
        finally:
            self.aggregator.told(outcome)

    def _compare(self, seal: CertifiedSeal) -> None:
        """Check the seal of another peer's plan; if the coordinator told us two different things, end the run here."""
        try:
            self._line.witness.compare(seal)
        except Refused as refusal:
            self._give_up(refusal)

    def _accuse(self, proof: Contradiction) -> None:
        """Take a proof against the coordinator from another peer; refuse what proves nothing."""
        try:
            self._line.witness.convict(proof)
        except Refused as refusal:
            if refusal.reason is not Reason.EQUIVOCATION:
                raise
            self._give_up(refusal)

    def _give_up(self, refusal: Refused) -> None:
        """End the run here: nothing this coordinator says or planned is worth waiting for."""
        self._line.inbox.failure = refusal
        self.aggregator.close()
