"""The dialling side of a peer: one lasting link for each aggregator.

A client carries this member's parts to one aggregator, waits for what that publishes, and brings it back. Short parts
leave from the peer's link loop, which also receives the answers; long or masked parts, and dialling, take a thread. It
also fetches snapshots, and shards by hash, from any peer that can be dialled.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
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
from eris.transport.link import LinkClosed, LinkError, LinkLimits, LinkTimeout, LinkTraffic
from eris.transport.link_account import LinkAccount
from eris.transport.link_loop import SHORT, LinkLoop
from eris.transport.route import Proxy, ways_to
from eris.transport.stream_link import StreamLink
from eris.transport.tls_link import Plaintext, Security, dial
from eris.wire import HEADER_BYTES, Header, Kind

__all__ = ["AggregatorClient", "AggregatorClients", "Delivery", "ShardResult", "UnderWay"]

_LOG = logging.getLogger(__name__)
Unmask = Callable[[Cut, float], Unmasking]
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0  # seconds between two attempts to reach a peer
_DIALS = 4  # at a time
_SHORTEST_ANSWERS = 2 * (SHORT + HEADER_BYTES)
_MANY = 16  # results that are worth waking the player for
_MOST_TOLD = 64  # peers to which one peer shows a proof


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a client has to carry in one round."""

    plan: RoundPlan
    uploads: tuple[Upload, ...]  # empty for a member that does not train in this round
    shards: tuple[int, ...]  # whose outcome it brings back
    deadline: float  # on the monotonic clock: nobody waits for it any longer


@dataclass(frozen=True, slots=True)
class ShardResult:
    """The outcome of one shard: what was published, or why nothing was."""

    plan: str  # its digest
    shard: int
    peer: int  # who aggregates it
    published: Published | None = None
    manifest: Manifest | None = None  # alone, from a shard's second aggregator
    reason: Reason | None = None  # given by the aggregator; None if the link failed
    refused_upload: Reason | None = None  # why our part was not accepted
    arrived: bool = False  # our part has its receipt
    receipt: Receipt | None = None  # from this attempt

    @property
    def answered(self) -> bool:
        """Whether the aggregator answered at all; if so it can be reached, however the shard ended."""
        said = (self.published, self.manifest, self.reason, self.refused_upload)
        return self.arrived or any(word is not None for word in said)


@dataclass(slots=True)
class _Errand:
    """A delivery under way."""

    delivery: Delivery
    open_shards: dict[int, None]  # shards whose outcome is not known yet
    arrived: set[int] = field(default_factory=set)  # shards whose part has its receipt
    pause: float = _FIRST_PAUSE  # seconds before the next attempt, more or less
    said: dict[int, Reason | Receipt] = field(default_factory=dict)  # this attempt: the answers to our parts
    parts: deque[Upload] = field(default_factory=deque)  # this attempt: parts without an answer yet
    asked: deque[int] = field(default_factory=deque)  # this attempt: shards asked for

    @property
    def plan(self) -> RoundPlan:
        """The round it belongs to."""
        return self.delivery.plan


class AggregatorClient:
    """Talks to one peer: from the loop's thread, or from one that has been lent the link."""

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
        loop: LinkLoop | None = None,
        dials: DialTurns | None = None,
    ) -> None:
        """Prepare to talk to `peer`; nothing is dialled yet.

        Args:
            book: where the peer can be dialled, and whether it is still on the roster.
            limits: sizes and times of the links.
            deliver: receives every shard's result.
            pool: allocates what is received.
            under_way: told when parts have arrived.
            proxy: the HTTP proxy to dial through, if any.
            compare: shown the seals of peers that refuse us because they have another plan.
            unmask: answers cuts, where this peer is an unmasker.
            loop: where links rest.
            dials: limits how many peers are dialled at a time.
        """
        self._compare, self._unmask = compare, unmask
        self._proxy, self._way = proxy, ""  # the one that led there last
        self.peer, self._book, self._security, self._recipe = peer, book, security, recipe
        self._limits, self._deliver, self._fault_points = limits, deliver, fault_points or FaultPoints()
        self._pool, self._under_way = pool or BufferPool(), under_way or UnderWay()
        self._loop, self._owns_loop = loop or LinkLoop("eris-client"), loop is None
        self._dials = dials or DialTurns(self._loop)
        self._link: StreamLink | None = None
        self._past = LinkAccount(str(peer))
        self._turn = threading.Lock()  # held by whoever uses the link: an errand from start to end, or a fetch
        self._waiting: deque[Delivery] = deque()
        self._errand: _Errand | None = None
        self._alarm, self._closed = math.inf, False

    def go(self, delivery: Delivery) -> None:
        """Start a delivery; its results come through `deliver`."""
        self._waiting.append(delivery)
        self._loop.post(self._set_out)

    def fetch(self, digest: str, round: int, deadline: float) -> Published:
        """Fetch the published shard of a round whose hash is `digest`."""
        with _Borrowed(self) as link:
            framing.ask(link, HashQuestion(digest), deadline)
            return framing.receive_published(link, self._recipe, deadline, round=round, pool=self._pool)

    def snapshot(self, sizes: dict[str, int], deadline: float) -> Snapshot:
        """Fetch the other peer's current state, whose vectors must have these names and `sizes`."""
        with _Borrowed(self) as link:
            framing.ask(link, SnapshotQuestion(), deadline)
            return framing.receive_snapshot(link, sizes, deadline, pool=self._pool)

    def accuse(self, proof: Contradiction, deadline: float) -> None:
        """Show the other peer a proof against the coordinator."""
        with _Borrowed(self) as link:
            framing.ask(link, proof, deadline)
            framing.receive_receipt(link, deadline)

    @property
    def account(self) -> LinkAccount:
        """Totals of this client's links."""
        return self._past.plus(self._link)

    @property
    def carried(self) -> tuple[int, int]:
        """Bytes sent and received so far, without asking the kernel."""
        now = self._link.traffic if self._link is not None else LinkTraffic()
        return self._past.sent + now.sent, self._past.received + now.received

    def close(self) -> None:
        """End errand and link."""
        self._closed = True
        self._waiting.clear()
        link = self._link
        if link is not None:
            link.close()
        self._loop.post(self._drop_unused)
        if self._owns_loop:
            self._loop.close()

    # ── an errand, in the loop ──

    def _set_out(self) -> None:
        """Begin the next delivery, unless the link is in use; whoever uses it calls this afterwards."""
        if not self._waiting or self._closed or not self._turn.acquire(blocking=False):
            return
        delivery = self._waiting.popleft()
        self._errand = _Errand(delivery, dict.fromkeys(delivery.shards))
        self._try()

    def _try(self) -> None:
        """Make one attempt; a broken link is dialled again, and what has already arrived is not sent twice."""
        errand = self._errand
        if errand is None or self._closed:
            self._give_up()
        elif not self._is_short(errand):
            self._hand_over(self._carry_in_thread)
        elif (link := self._kept()) is None:
            self._dials.go(self._dial_in_thread)
        else:
            self._carry_now(link, errand)

    def _carry_now(self, link: StreamLink, errand: _Errand) -> None:
        """Send short parts, and let the loop receive the answers."""
        try:
            link.cork()
            self._send(link, errand)
            if not link.uncork():  # it does not read: a thread waits until it does, and reads the answers
                self._hand_over(self._hear_in_thread)
                return
            self._loop.watch(link, self._listen)
            self._set_alarm(errand.delivery.deadline)
        except Exception as error:  # noqa: BLE001 - sorted out there
            self._fail(error)

    def _listen(self) -> None:
        """Handle the answers that have arrived whole."""
        errand, link = self._errand, self._link
        if errand is None or link is None:
            return
        try:
            ready = link.buffered
            while errand.open_shards:
                whole = self._is_whole(link, errand, ready)
                if whole is None:  # it is long, or nothing that we know
                    self._loop.forget(link)
                    self._hand_over(self._hear_in_thread)
                    return
                if whole:
                    self._hear_next(link, errand)
                    ready = link.buffered
                elif (more := link.pull(_SHORTEST_ANSWERS)) > ready:
                    ready = more
                else:
                    return
            self._loop.forget(link)
            self._end()
        except Exception as error:  # noqa: BLE001 - sorted out there
            self._fail(error)

    def _is_whole(self, link: StreamLink, errand: _Errand, ready: int) -> bool | None:
        """Whether the `ready` bytes hold the next answer whole; None if the loop should not wait for it."""
        if ready < HEADER_BYTES:
            return False
        frame = Header.decode(link.peek(0, HEADER_BYTES))
        first = HEADER_BYTES + frame.length
        if frame.total > SHORT or frame.kind is Kind.CUT:
            return None
        values = not errand.parts and self.peer == errand.plan.assignment[errand.asked[0]]
        if ready < first or frame.kind is not Kind.MANIFEST or not values:
            return ready >= first
        if ready < first + HEADER_BYTES:
            return False
        behind = Header.decode(link.peek(first, first + HEADER_BYTES))
        if behind.total > SHORT or behind.length != behind.total:
            return None
        return ready >= first + HEADER_BYTES + behind.length

    def _set_alarm(self, deadline: float) -> None:
        """Check back at the deadline; one alarm at a time, or many short rounds would leave thousands behind."""
        if deadline < self._alarm:
            self._alarm = deadline
            self._loop.at(deadline, self._ring)

    def _ring(self) -> None:
        self._alarm, errand = math.inf, self._errand
        if errand is None or self._link not in self._loop:
            return
        if time.monotonic() < errand.delivery.deadline:
            self._set_alarm(errand.delivery.deadline)
        else:
            self._fail(LinkTimeout("deadline", "nothing was published in time", peer=self.peer))

    def _fail(self, error: Exception) -> None:
        """Drop the link and try again, unless the next round, or the end of this one, has come."""
        errand, link = self._errand, self._link
        if link is not None:
            self._loop.forget(link)
        self._drop()
        if errand is None:
            return
        self._under_way.arrived(errand.plan.digest, self.peer)
        if isinstance(error, Refused):
            _LOG.warning("round %d: peer %d: %s", errand.plan.round, self.peer, error)
            self._look_at(error)
            self._give_up()
            return
        if isinstance(error, LinkError):
            _LOG.info("round %d: peer %d: %s", errand.plan.round, self.peer, error)
        else:  # a full disk, for one; without its client every round would wait for it
            _LOG.error("round %d: peer %d: the delivery failed", errand.plan.round, self.peer, exc_info=error)
        # Each waits for a time of its own: a thousand that were turned away together would come back together.
        again = time.monotonic() + errand.pause * random.uniform(0.5, 1.5)  # noqa: S311 - no secret
        if self._waiting or self._closed or again >= errand.delivery.deadline:
            self._give_up()  # nobody waits for this any more
        else:
            errand.pause = min(2 * errand.pause, _LONGEST_PAUSE)
            self._loop.at(again, self._try)

    def _give_up(self) -> None:
        errand = self._errand
        for shard in errand.open_shards if errand is not None else ():
            assert errand is not None
            self._deliver(ShardResult(errand.plan.digest, shard, self.peer, arrived=shard in errand.arrived))
        self._end()

    def _end(self) -> None:
        """Finish the errand and free its parts.

        Together they are as long as the update, and the next round needs that memory.
        """
        if self._errand is not None:
            self._errand = None
            self._turn.release()
        self._set_out()

    def _drop_unused(self) -> None:
        """Drop the link if nobody uses it; otherwise its user drops it when done."""
        if self._link is not None:
            self._loop.forget(self._link)
        if self._errand is not None:
            self._give_up()
        if self._turn.acquire(blocking=False):
            self._drop()
            self._turn.release()

    # ── the same in a thread, which may wait ──

    def _hand_over(self, work: Callable[[], None]) -> None:
        try:
            self._loop.hand_over(partial(self._in_thread, work))
        except RuntimeError as error:  # no more threads
            self._fail(error)

    def _in_thread(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - sorted out in the loop
            self._loop.post(partial(self._fail, error))
        else:
            self._loop.post(self._end)

    def _dial_in_thread(self) -> None:
        """Dial, then let the loop carry on."""
        try:
            self._connected()
        except Exception as error:  # noqa: BLE001 - sorted out in the loop
            self._loop.post(partial(self._fail, error))
        else:
            self._loop.post(self._try)

    def _carry_in_thread(self) -> None:
        errand = self._errand
        assert errand is not None
        link = self._connected()
        self._send(link, errand)
        self._hear(link, errand)

    def _hear_in_thread(self) -> None:
        errand, link = self._errand, self._link
        assert errand is not None
        assert link is not None
        link.flush(deadline=errand.delivery.deadline)
        self._hear(link, errand)

    def _hear(self, link: StreamLink, errand: _Errand) -> None:
        while errand.open_shards:
            self._hear_next(link, errand)

    # ── either way ──

    def _is_short(self, errand: _Errand) -> bool:
        """Whether everything is short enough for the loop itself; a cut that arrives is given to a thread."""
        recipe, round = self._recipe, errand.plan.round
        sent = [upload.part.symbols.nbytes for upload in errand.delivery.uploads]
        published = [recipe.words.payload(*recipe.published_sizes(round, shard)) for shard in errand.open_shards]
        return max([*sent, *published], default=0) <= SHORT

    def _send(self, link: StreamLink, errand: _Errand) -> None:
        """Send our parts, and ask for what will be published."""
        delivery = errand.delivery
        errand.said = {}
        errand.parts = deque(upload for upload in delivery.uploads if upload.shard in errand.open_shards)
        errand.asked = deque(errand.open_shards)
        if not errand.parts:
            self._under_way.arrived(delivery.plan.digest, self.peer)
        for upload in errand.parts:
            framing.send_upload(link, upload, self._recipe, delivery.deadline, self._fault_points, more=True)
        # Asked at once, so that the answer leaves the moment it is known, with nothing in between. Not for masked
        # shards, of which we may be asked something ourselves before the next answer.
        at_once = list(errand.asked)[: 1 if delivery.plan.unmaskers else None]
        for shard in at_once:
            self._ask(link, delivery, shard, more=shard != at_once[-1])

    def _hear_next(self, link: StreamLink, errand: _Errand) -> None:
        """Receive the answer to one of our parts, or the outcome of one shard."""
        delivery = errand.delivery
        if errand.parts:
            upload = errand.parts.popleft()
            said = errand.said[upload.shard] = self._hear_receipt(link, upload, delivery.deadline)
            if isinstance(said, Receipt):
                errand.arrived.add(upload.shard)
            if not errand.parts:
                self._under_way.arrived(delivery.plan.digest, self.peer)
            return
        shard, said_to_part = errand.asked[0], errand.said.get(errand.asked[0])
        refused = said_to_part if isinstance(said_to_part, Reason) else None
        result = self._collect(link, delivery, shard, refused, arrived=shard in errand.arrived)
        errand.asked.popleft()
        errand.open_shards.pop(shard)
        self._deliver(replace(result, receipt=said_to_part if isinstance(said_to_part, Receipt) else None))
        if errand.asked and delivery.plan.unmaskers:
            self._ask(link, delivery, errand.asked[0], more=False)

    def _ask(self, link: StreamLink, delivery: Delivery, shard: int, *, more: bool) -> None:
        plan = delivery.plan
        if plan.assignment[shard] == self.peer:
            framing.ask_for_shard(link, plan, shard, delivery.deadline, more=more)
        else:  # a witness: its manifest alone, without values
            question = ManifestQuestion(plan.digest, plan.epoch, plan.round, shard)
            framing.ask(link, question, delivery.deadline, more=more)

    def _hear_receipt(self, link: StreamLink, upload: Upload, deadline: float) -> Reason | Receipt:
        try:
            receipt = framing.receive_receipt(link, deadline, self.peer)
        except Refused as refusal:
            _LOG.warning("round %d: peer %d refused this member's contribution: %s", upload.round, self.peer, refusal)
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
        """Answer a cut with the sum of the pads that we know, or say why not."""
        try:
            if self._unmask is None or cut.aggregator != self.peer:
                raise Refused(Reason.WRONG_SHARD, "this peer is not an unmasker in this round", shard=cut.shard)
            framing.send_unmasking(link, self._unmask(cut, delivery.deadline), delivery.deadline)
        except Refused as refusal:
            _LOG.warning("round %d: peer %d: its cut is refused: %s", delivery.plan.round, self.peer, refusal)
            framing.send_refusal(link, refusal, delivery.deadline)

    def _kept(self) -> StreamLink | None:
        """Return the existing link, if it is still good."""
        link = self._link
        good = link is not None and not link.closed and not link.worn and self._is_welcome(link.peer)
        return link if good else None

    def _connected(self) -> StreamLink:
        if (kept := self._kept()) is not None:
            return kept
        self._drop()
        record = self._book.place(self.peer)
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
                    _LOG.info("peer %d: %s cannot be reached now: %s", self.peer, name, error)
                continue
            self._way = name
            if self._closed:  # while we dialled: `close` did not see this link, and nobody else would end it
                self._drop()
                raise LinkClosed("this side closed the link", clean=False, peer=self.peer)
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


class _Borrowed:
    """A client's link, lent to a thread that has a question; an error makes the link unusable."""

    def __init__(self, client: AggregatorClient) -> None:
        self._client = client

    def __enter__(self) -> StreamLink:
        client = self._client
        client._turn.acquire()
        try:
            return client._connected()
        except BaseException:
            self.__exit__(BaseException)
            raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        client = self._client
        if kind is not None or client._closed:
            client._drop()
        client._turn.release()
        client._loop.post(client._set_out)


class DialTurns:
    """Lets a peer dial a few others at a time, so that a thousand peers do not all dial at once when a round begins.

    This is for errands whose messages are short. A long one has a thread of its own, which dials without waiting.
    """

    def __init__(self, loop: LinkLoop) -> None:
        self._loop, self._under_way = loop, 0
        self._waiting: deque[Callable[[], None]] = deque()

    def go(self, dial: Callable[[], None]) -> None:
        """Dial when it is our turn; called in the loop's thread."""
        self._waiting.append(dial)
        self._next()

    def _next(self) -> None:
        while self._waiting and self._under_way < _DIALS:
            try:
                self._loop.hand_over(partial(self._dial, self._waiting[0]))
            except RuntimeError:  # this machine has no thread left
                self._loop.at(time.monotonic() + _LONGEST_PAUSE, self._next)
                return
            self._under_way += 1
            self._waiting.popleft()

    def _dial(self, dial: Callable[[], None]) -> None:
        try:
            dial()
        finally:
            self._loop.post(self._done)

    def _done(self) -> None:
        self._under_way -= 1
        self._next()


class ShardInbox:
    """Shards that the clients brought, for the thread that plays, which is woken when there is enough to do."""

    def __init__(self) -> None:
        self._waiting: deque[ShardResult] = deque()
        self._changed, self._enough, self._stirred = threading.Condition(), 1, False

    def put(self, result: ShardResult) -> None:
        """Add a result; a long one is processed while others are still arriving."""
        long = result.published is not None and result.published.values.nbytes > SHORT
        with self._changed:
            self._waiting.append(result)
            if long or len(self._waiting) >= self._enough:
                self._stir()

    def stir(self) -> None:
        """Wake the waiting thread."""
        with self._changed:
            self._stir()

    def take(self, wanted: int, seconds: float) -> list[ShardResult]:
        """Wait up to `seconds` until as many results as wanted, or many, are here; return what there is."""
        with self._changed:
            self._enough = min(wanted, _MANY)
            if len(self._waiting) < self._enough:
                self._changed.wait_for(lambda: self._stirred, seconds)
            self._stirred, taken = False, [*self._waiting]
            self._waiting.clear()
            return taken

    def _stir(self) -> None:
        self._stirred = True
        self._changed.notify()


class AggregatorClients:
    """All clients of a peer, created as they are needed; their results are in `results`."""

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
        loop: LinkLoop | None = None,
    ) -> None:
        """Prepare; nothing is dialled yet. The arguments are those of each `AggregatorClient`."""
        self._compare, self._unmask = compare, unmask
        self.book, self._security, self._recipe, self._proxy = book, security, recipe, proxy
        self._limits, self._fault_points, self._pool = limits, fault_points, pool
        self._clients: dict[int, AggregatorClient] = {}
        self.under_way, self._loop = UnderWay(), loop or LinkLoop("eris-clients")
        self._dials = DialTurns(self._loop)
        self.results = ShardInbox()

    def to(self, peer: int) -> AggregatorClient:
        """Return the client for a peer."""
        if peer not in self._clients:
            self._clients[peer] = AggregatorClient(
                peer=peer,
                book=self.book,
                security=self._security,
                recipe=self._recipe,
                limits=self._limits,
                deliver=self.results.put,
                fault_points=self._fault_points,
                pool=self._pool,
                under_way=self.under_way,
                proxy=self._proxy,
                compare=self._compare,
                unmask=self._unmask,
                loop=self._loop,
                dials=self._dials,
            )
        return self._clients[peer]

    def accuse(self, proof: Contradiction, but: int, seconds: float) -> None:
        """Show a proof to peers that can be dialled, 64 at most, all at once; whoever gets it passes it on.

        Args:
            but: our own number.
            seconds: how long to wait for all of them.
        """
        self.close()  # a client may be in the middle of a round that will never end
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
            _LOG.info("the proof could not be sent to peer %d: %s", peer, error)
        finally:
            self._clients[peer].close()

    def accounts(self, names: Sequence[str]) -> list[LinkAccount]:
        """Return the totals of the links this peer dialled, for each aggregator."""
        return [replace(client.account, peer=names[number]) for number, client in sorted(self._clients.items())]

    def carried(self) -> RoleBytes:
        """Return the bytes sent and received so far, without asking the kernel."""
        carried = [client.carried for client in self._clients.values()]
        return RoleBytes(sum(sent for sent, _ in carried), sum(heard for _, heard in carried))

    def close(self) -> None:
        """End all errands and links."""
        for client in self._clients.values():
            client.close()


class UnderWay:
    """Knows which peers still lack our parts of this round: our own contributions go out before what we publish.

    Otherwise an aggregator whose shard is complete early would fill its uplink with nine copies of the mean, while its
    own part for another aggregator, for which everybody waits, gets a tenth of it.
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
        """Note that a peer has its part, or that it cannot be delivered now."""
        with self._changed:
            if plan == self._plan and peer in self._waiting:
                self._waiting.discard(peer)
                self._changed.notify_all()

    def wait(self) -> None:
        """Wait until all have arrived, but no longer than it took so far: somebody may be frozen."""
        with self._changed:
            patience = time.monotonic() - self._began
            self._changed.wait_for(lambda: not self._waiting, timeout=patience)
