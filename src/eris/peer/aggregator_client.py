"""The dialling side of a peer: one thread and one kept link for each aggregator.

A client carries this member's parts to one aggregator, waits for what it publishes, and brings that back. It also
fetches shards by hash and snapshots, from any peer that can be dialled.
"""

from __future__ import annotations

import logging
import queue
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from eris.errors import Reason, Refused
from eris.events import RoleBytes
from eris.peer import framing
from eris.peer.address_book import AddressBook
from eris.peer.fault_points import FaultPoints
from eris.peer.framing import HashQuestion, ManifestQuestion, RefusedUnderPlan, SnapshotQuestion
from eris.protocol.member import Snapshot
from eris.protocol.messages import Manifest, Published, Receipt, Upload
from eris.protocol.recipe import Recipe
from eris.protocol.round_plan import RoundPlan
from eris.protocol.seal import CertifiedSeal, Contradiction
from eris.protocol.unmasker import Cut, Unmasking
from eris.storage.buffer_pool import BufferPool
from eris.transport.identity import PeerIdentity
from eris.transport.link import LinkClosed, LinkError, LinkLimits, LinkTraffic
from eris.transport.link_account import LinkAccount
from eris.transport.route import Proxy, ways_to
from eris.transport.stream_link import StreamLink
from eris.transport.tls_link import Plaintext, Security, dial

__all__ = ["AggregatorClient", "AggregatorClients", "Delivery", "ShardResult", "UnderWay"]

_LOG = logging.getLogger(__name__)
Unmask = Callable[[Cut, float], Unmasking]
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0  # seconds between two tries to reach a peer
_MOST_TOLD = 64  # peers that one peer shows a proof to


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a client does for one round."""

    plan: RoundPlan
    uploads: tuple[Upload, ...]  # empty for a member that does not train in this round
    shards: tuple[int, ...]
    deadline: float


@dataclass(frozen=True, slots=True)
class ShardResult:
    """What came of one shard: published, or the reason why not."""

    plan: str
    shard: int
    peer: int  # who aggregates it
    published: Published | None = None
    manifest: Manifest | None = None  # alone, from the second aggregator of a shard
    reason: Reason | None = None  # the aggregator's word; None if the link failed
    refused_upload: Reason | None = None
    arrived: bool = False  # our part has its receipt
    receipt: Receipt | None = None

    @property
    def answered(self) -> bool:
        """Whether the aggregator said anything at all: then it can be reached, whatever became of the shard."""
        said = (self.published, self.manifest, self.reason, self.refused_upload)
        return self.arrived or any(word is not None for word in said)


class AggregatorClient:
    """Talks to one peer."""

    def __init__(
        self,
        peer: int,
        book: AddressBook,
        security: Security,
        recipe: Recipe,
        limits: LinkLimits,
        deliver: Callable[[ShardResult], None],
        fault_points: FaultPoints | None = None,
        pool: BufferPool | None = None,
        under_way: UnderWay | None = None,
        proxy: Proxy | None = None,
        compare: Callable[[CertifiedSeal], None] = lambda _: None,
        unmask: Unmask | None = None,
    ) -> None:
        """`compare` is shown the seals of those who refuse us because they have another plan."""
        self._compare, self._unmask = compare, unmask
        self._proxy, self._way = proxy, ""  # that led there last
        self.peer, self._book, self._security, self._recipe = peer, book, security, recipe
        self._limits, self._deliver, self._fault_points = limits, deliver, fault_points or FaultPoints()
        self._pool, self._under_way = pool or BufferPool(), under_way or UnderWay()
        self._link: StreamLink | None = None
        self._past = LinkAccount(str(peer))
        self._turn = threading.Lock()
        self._deliveries: queue.Queue[Delivery | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name=f"eris-client {peer}", daemon=True)
        self._thread.start()

    def go(self, delivery: Delivery) -> None:
        """Carry this; results come through `deliver`."""
        self._deliveries.put(delivery)

    def fetch(self, digest: str, round: int, deadline: float) -> Published:
        """Return a published shard of a round by its hash."""
        with self._turn, _Closing(self):
            link = self._connected()
            framing.ask(link, HashQuestion(digest), deadline)
            return framing.receive_published(link, self._recipe, deadline, round=round, pool=self._pool)

    def snapshot(self, sizes: dict[str, int], deadline: float) -> Snapshot:
        """Return where the other peer stands."""
        with self._turn, _Closing(self):
            link = self._connected()
            framing.ask(link, SnapshotQuestion(), deadline)
            return framing.receive_snapshot(link, sizes, deadline, pool=self._pool)

    def accuse(self, proof: Contradiction, deadline: float) -> None:
        """Show the other peer a proof against the coordinator."""
        with self._turn, _Closing(self):
            link = self._connected()
            framing.ask(link, proof, deadline)
            framing.receive_receipt(link, deadline)

    @property
    def account(self) -> LinkAccount:
        """What has gone over this client's links."""
        return self._past.plus(self._link)

    @property
    def carried(self) -> tuple[int, int]:
        """Bytes sent and received so far, without asking the kernel."""
        now = self._link.traffic if self._link is not None else LinkTraffic()
        return self._past.sent + now.sent, self._past.received + now.received

    def close(self) -> None:
        """End thread and link."""
        self._deliveries.put(None)
        link = self._link
        if link is not None:
            link.close()
        self._thread.join(timeout=5.0)

    def _run(self) -> None:
        while (delivery := self._deliveries.get()) is not None:
            open_shards, arrived = dict.fromkeys(delivery.shards), set[int]()
            pause = _FIRST_PAUSE
            while open_shards and not self._try(delivery, open_shards, arrived):
                if not self._deliveries.empty() or time.monotonic() + pause >= delivery.deadline:
                    break  # the next round, or the end of this one, is there: nobody waits for this any more
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            for shard in open_shards:
                self._deliver(ShardResult(delivery.plan.digest, shard, self.peer, arrived=shard in arrived))
            del (
                delivery
            )  # its parts are as long as our update: the next round wants that memory before the next delivery
        with self._turn:
            self._drop()  # it may have been dialled while we were being closed

    def _try(self, delivery: Delivery, open_shards: dict[int, None], arrived: set[int]) -> bool:
        """Go once; a link that breaks is dialled anew, and what has arrived before is not sent twice in vain."""
        try:
            with self._turn, _Closing(self):
                self._carry(delivery, open_shards, arrived)
        except LinkError as error:
            _LOG.info("round %d: peer %d: %s", delivery.plan.round, self.peer, error)
            return False
        except Refused as error:
            _LOG.warning("round %d: peer %d: %s", delivery.plan.round, self.peer, error)
            self._look_at(error)
        except Exception:  # noqa: BLE001 - a full disk, for one; without its thread every round would wait for it
            _LOG.exception("round %d: peer %d: the delivery failed", delivery.plan.round, self.peer)
            return False
        finally:
            self._under_way.arrived(delivery.plan.digest, self.peer)
        return True

    def _carry(self, delivery: Delivery, open_shards: dict[int, None], arrived: set[int]) -> None:
        link = self._connected()
        parts = [upload for upload in delivery.uploads if upload.shard in open_shards]
        shards = list(open_shards)
        for upload in parts:
            framing.send_upload(link, upload, self._recipe, delivery.deadline, self._fault_points, more=True)
        # Asked at once: the answer leaves the moment it is known, with no word between. Not so for masked shards, of
        # which we may be asked something ourselves before the next answer.
        at_once = shards[:1] if delivery.plan.unmaskers else shards
        for shard in at_once:
            self._ask(link, delivery, shard, more=shard != at_once[-1])
        heard = {upload.shard: self._hear_receipt(link, upload, delivery.deadline) for upload in parts}
        refused = {shard: said for shard, said in heard.items() if isinstance(said, Reason)}
        receipts = {shard: said for shard, said in heard.items() if isinstance(said, Receipt)}
        arrived.update(receipts)
        self._under_way.arrived(delivery.plan.digest, self.peer)
        for shard in shards:
            if shard not in at_once:
                self._ask(link, delivery, shard, more=False)
            result = self._collect(link, delivery, shard, refused.get(shard), arrived=shard in arrived)
            open_shards.pop(shard)
            self._deliver(replace(result, receipt=receipts.get(shard)))

    def _ask(self, link: StreamLink, delivery: Delivery, shard: int, *, more: bool) -> None:
        plan = delivery.plan
        if plan.assignment[shard] == self.peer:
            framing.ask_for_shard(link, plan, shard, delivery.deadline, more=more)
        else:  # it only witnesses: its manifest, without values
            question = ManifestQuestion(plan.digest, plan.epoch, plan.round, shard)
            framing.ask(link, question, delivery.deadline, more=more)

    def _hear_receipt(self, link: StreamLink, upload: Upload, deadline: float) -> Reason | Receipt:
        try:
            receipt = framing.receive_receipt(link, deadline, self.peer)
        except Refused as refusal:
            _LOG.warning("round %d: peer %d refused our part: %s", upload.round, self.peer, refusal)
            self._look_at(refusal)
            return refusal.reason
        self._fault_points("receipt", round=upload.round, shard=upload.shard)
        return receipt

    def _collect(
        self, link: StreamLink, delivery: Delivery, shard: int, refused: Reason | None, *, arrived: bool
    ) -> ShardResult:
        place = delivery.plan.digest, shard, self.peer
        result = partial(ShardResult, *place, refused_upload=refused, arrived=arrived)
        deadline, round, on_cut = delivery.deadline, delivery.plan.round, partial(self._answer_cut, link, delivery)
        try:
            if delivery.plan.assignment[shard] != self.peer:
                return result(manifest=framing.receive_manifest(link, deadline, round=round, on_cut=on_cut))
            published = framing.receive_published(
                link, self._recipe, deadline, round=round, pool=self._pool, on_cut=on_cut
            )
        except Refused as refusal:
            if refusal.reason in (Reason.MALFORMED, Reason.WRONG_SIZE, Reason.WRONG_ROUND):
                raise
            self._look_at(refusal)
            return result(reason=refusal.reason)
        return result(published=published)

    def _look_at(self, refusal: Refused) -> None:
        if isinstance(refusal, RefusedUnderPlan):
            self._compare(refusal.seal)

    def _answer_cut(self, link: StreamLink, delivery: Delivery, cut: Cut) -> None:
        """Take off the pads that we know, or say why not."""
        try:
            if self._unmask is None or cut.aggregator != self.peer:
                raise Refused(Reason.WRONG_SHARD, "this peer unmasks nothing", shard=cut.shard)
            framing.send_unmasking(link, self._unmask(cut, delivery.deadline), delivery.deadline)
        except Refused as refusal:
            _LOG.warning("round %d: peer %d: a cut is not answered: %s", delivery.plan.round, self.peer, refusal)
            framing.send_refusal(link, refusal, delivery.deadline)

    def _connected(self) -> StreamLink:
        if self._link is not None and not self._link.worn and self._is_welcome(self._link.peer):
            return self._link
        self._drop()
        record = self._book.record(self.peer)
        if record is None or not record.reachable:
            raise Refused(Reason.NOT_A_MEMBER, "this peer has no address", peer=self.peer)
        fingerprint = self._book.roster().get(record.name)
        ways = ways_to(record.address, record.relays, record.name, self._security, self._proxy)
        failure: LinkError = LinkClosed(
            "there is no way to this peer without certificates", clean=False, peer=self.peer
        )
        for name in sorted(ways, key=lambda way: way != self._way):  # the one that worked, then the others in order
            try:
                self._link = dial(
                    ways[name], self._security, expected=record.name, limits=self._limits, fingerprint=fingerprint
                )
            except LinkError as error:
                failure = error
                if len(ways) > 1:
                    _LOG.info("peer %d: %s leads nowhere now: %s", self.peer, name, error)
                continue
            self._way = name
            return self._link
        raise failure

    def _is_welcome(self, peer: PeerIdentity) -> bool:
        """Whether a peer that was welcome when it was dialled still is."""
        if isinstance(self._security, Plaintext):
            return True
        return self._security.refusal(peer, roster=self._book.roster()) is None

    def _drop(self) -> None:
        link = self._link
        if link is not None:
            link.close()
            self._past, self._link = self._past.plus(link), None


class _Closing:
    """After an error a link is of no more use: the next delivery dials anew."""

    def __init__(self, client: AggregatorClient) -> None:
        self._client = client

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._client._drop()


class AggregatorClients:
    """All clients of a peer, opened as they are needed; what they bring is in `results`."""

    def __init__(
        self,
        book: AddressBook,
        security: Security,
        recipe: Recipe,
        limits: LinkLimits,
        fault_points: FaultPoints,
        pool: BufferPool,
        proxy: Proxy | None = None,
        compare: Callable[[CertifiedSeal], None] = lambda _: None,
        unmask: Unmask | None = None,
    ) -> None:
        self._compare, self._unmask = compare, unmask
        self.book, self._security, self._recipe, self._proxy = book, security, recipe, proxy
        self._limits, self._fault_points, self._pool = limits, fault_points, pool
        self._clients: dict[int, AggregatorClient] = {}
        self.under_way = UnderWay()
        self.results: queue.Queue[ShardResult] = queue.Queue()

    def to(self, peer: int) -> AggregatorClient:
        """Return the client for a peer."""
        if peer not in self._clients:
            self._clients[peer] = AggregatorClient(
                peer,
                self.book,
                self._security,
                self._recipe,
                self._limits,
                self.results.put,
                self._fault_points,
                self._pool,
                self.under_way,
                self._proxy,
                self._compare,
                self._unmask,
            )
        return self._clients[peer]

    def accuse(self, proof: Contradiction, but: int, seconds: float) -> None:
        """Show a proof to all who can be dialled, at once and once; who has it passes it on."""
        self.close()  # a client may be in the middle of a round that nobody will end
        self._clients = {}
        peers = self.book.dialable(but=but)
        chosen = random.sample(peers, min(len(peers), _MOST_TOLD))
        until = time.monotonic() + seconds
        threads = [threading.Thread(target=self._accuse, args=(peer, proof, until), daemon=True) for peer in chosen]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _accuse(self, peer: int, proof: Contradiction, until: float) -> None:
        try:
            self.to(peer).accuse(proof, until)
        except (LinkError, Refused) as error:
            _LOG.info("peer %d was not shown the proof: %s", peer, error)
        finally:
            self._clients[peer].close()

    def accounts(self, names: Sequence[str]) -> list[LinkAccount]:
        """Return what went over links this peer dialled, for each aggregator."""
        return [replace(client.account, peer=names[number]) for number, client in sorted(self._clients.items())]

    def carried(self) -> RoleBytes:
        """Return the bytes sent and received so far, without asking the kernel."""
        carried = [client.carried for client in self._clients.values()]
        return RoleBytes(sum(sent for sent, _ in carried), sum(heard for _, heard in carried))

    def close(self) -> None:
        """End all threads and links."""
        for client in self._clients.values():
            client.close()


class UnderWay:
    """Knows to whom parts of this round have not arrived yet: our own contributions go before what we publish.

    An aggregator whose shard is complete early would otherwise fill its way out with nine copies of the mean, while its
    own part for another aggregator, for whom everybody waits, gets a tenth of it.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._plan, self._waiting, self._began = "", set[int](), 0.0

    def begin(self, plan: str, peers: set[int]) -> None:
        """Note that parts for these peers leave now."""
        with self._changed:
            self._plan, self._waiting, self._began = plan, set(peers), time.monotonic()
            self._changed.notify_all()

    def arrived(self, plan: str, peer: int) -> None:
        """Note that a peer has its part, or that it cannot be brought now."""
        with self._changed:
            if plan == self._plan and peer in self._waiting:
                self._waiting.discard(peer)
                self._changed.notify_all()

    def wait(self) -> None:
        """Wait until all have arrived, but no longer than it took so far: somebody may be frozen."""
        with self._changed:
            patience = time.monotonic() - self._began
            self._changed.wait_for(lambda: not self._waiting, timeout=patience)
