"""The listening side of a peer: serves every link that members have dialled.

Links rest in a loop (`LinkLoop`). Short messages that have arrived whole are served there, and a member that asks for a
shard that is not cut yet waits without a thread; long contributions and shards, pads, snapshots and proofs are moved by
threads. A broken or hostile link costs its sender only: it is refused by name, logged once, and closed if it does not
speak the protocol.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from eris.errors import Reason, Refused
from eris.peer import framing
from eris.peer.aggregator_client import UnderWay
from eris.peer.fault_points import FaultPoints
from eris.peer.framing import HashQuestion, ManifestQuestion, Question, ShardQuestion, SnapshotQuestion
from eris.peer.shared_aggregator import SharedAggregator
from eris.protocol.member import Snapshot
from eris.protocol.messages import Published, Receipt, UploadHeader, Withheld
from eris.protocol.seal import CertifiedSeal, Contradiction
from eris.protocol.unmasker import FINAL
from eris.transport.credentials import Credentials
from eris.transport.identity import PeerIdentity, Refusal
from eris.transport.link import Link, LinkClosed, LinkError, LinkLimits, LinkTimeout, LinkTraffic
from eris.transport.link_account import LinkAccount
from eris.transport.link_listener import LinkListener
from eris.transport.link_loop import SHORT, LinkLoop
from eris.transport.route import Proxy, RelayDoor, address_text
from eris.transport.socket_stream import Address
from eris.transport.stream_link import StreamLink
from eris.transport.tls_link import Roster, Security
from eris.wire import HEADER_BYTES, Header, Kind

__all__ = ["ShardServer"]

_LOG = logging.getLogger(__name__)
_LONG = 1 << 20  # bytes of a published shard for which our own parts should go first
_BEHIND = 5.0  # seconds by which a member may hear of a round before we do
_FAREWELL = 5.0  # seconds an older link has to end
_KEPT_BACK = 0.05  # share of the contribution time for which a receipt waits to leave with an answer
_PATIENCE = 3600.0  # between two frames a member may train as long as it likes; the link notices a dead one


class ShardServer:
    """Serves every member that dials in, from `serve` until `close`; a peer that only dials out never begins."""

    def __init__(
        self,
        aggregator: SharedAggregator,
        *,
        peer_of: Callable[[str], int | None],
        find: Callable[[str], Published | None],
        snapshot: Callable[[], Snapshot],
        fault_points: FaultPoints | None = None,
        under_way: UnderWay | None = None,
        sealed: Callable[[], CertifiedSeal | None] = lambda: None,
        accuse: Callable[[Contradiction], None] = lambda _: None,
        loop: LinkLoop | None = None,
        behind: float | None = None,
    ) -> None:
        """Prepare to serve; nothing is opened yet.

        Args:
            peer_of: returns the number of a peer by name.
            find: returns a published shard by its hash.
            snapshot: returns this peer's state.
            under_way: tells whether our own parts should go out first.
            sealed: returns the seal of the plan in force here.
            accuse: takes a proof against the coordinator.
            loop: where links rest.
            behind: seconds by which a member may hear of a round before we do; None: 5.
        """
        self._patience = behind
        self._aggregator, self._sealed, self._accuse = aggregator, sealed, accuse
        self._peer_of, self._find, self._snapshot = peer_of, find, snapshot
        self._fault_points, self._under_way = fault_points or FaultPoints(), under_way or UnderWay()
        self._links: dict[str, set[StreamLink]] = {}  # by the name of the peer that dialled
        self._past: dict[str, LinkAccount] = {}
        self._complaints: set[tuple[str, str, str]] = set()
        self._lock = threading.Lock()
        self._left = threading.Condition(self._lock)  # notified when a link has ended
        self._closed = threading.Event()
        self._listener: LinkListener | None = None
        self._doors: list[RelayDoor] = []
        self._loop, self._owns_loop = loop or LinkLoop(), loop is None
        # Used only by the loop's own thread:
        self._busy: set[StreamLink] = set()  # lent to a thread
        self._behind: dict[StreamLink, float] = {}  # heard of a round before we did → until when we wait
        self._asking: dict[StreamLink, _Asked] = {}  # questions about shards that are not cut yet
        self._begun: dict[StreamLink, float] = {}  # when an incomplete frame began
        self._kept_back: dict[StreamLink, float] = {}  # receipts held back for the answer → until when
        self._next_look = math.inf
        aggregator.call_when_stirred(self._stirred)

    def listen(
        self,
        security: Security,
        address: Address | None,
        limits: LinkLimits,
        roster: Callable[[], Roster | None],
        begun: threading.Event | None = None,
    ) -> int | None:
        """Serve roster members that dial in at an address or come by a relay; return the port if there is one.

        Args:
            address: None: no port is opened, and all come by a relay.
            limits: sizes and times of the links.
            roster: returns the members that are welcome, with their fingerprints.
            begun: set when there is a roster.
        """
        listener = LinkListener(security, address, limits=limits, roster=roster, begun=begun)
        self.serve(listener)
        return None if address is None else listener.address[1]

    def wait_at(
        self,
        relays: Sequence[Address],
        credentials: Credentials,
        seconds: float,
        *,
        connect: float,
        proxy: Proxy | None,
    ) -> None:
        """Wait at relays for peers that ask for us; one of them must accept us within `seconds`.

        We wait at all of them at once, so that a relay that dies costs no more than the links it carried.

        Args:
            credentials: whose key proves to a relay who we are.
            connect: seconds to reach a relay.
            proxy: the HTTP proxy to go through, if any.
        """
        assert self._listener is not None  # somebody must welcome those who come
        take = self._listener.take
        self._doors += [RelayDoor(relay, credentials, take, connect=connect, proxy=proxy) for relay in relays]
        until = time.monotonic() + seconds
        while not any(door.open.is_set() for door in self._doors):
            if time.monotonic() >= until or self._closed.is_set():
                why = "; ".join(str(door.failure or f"{address_text(door.relay)} is silent") for door in self._doors)
                raise LinkClosed(f"no relay accepts this peer: {why}", clean=False, fix="see `eris doctor --relay`")
            time.sleep(0.05)

    def serve(self, listener: LinkListener) -> None:
        """Serve everybody who dials in there, and take charge of closing the listener."""
        self._listener = listener
        self._accepting = threading.Thread(target=self._accept, args=(listener,), name="eris-server", daemon=True)
        self._accepting.start()

    def close(self) -> None:
        """End the listener and every link."""
        self._closed.set()
        for door in self._doors:
            door.close()
        if self._listener is None:
            return
        self._listener.close()
        with self._lock:
            links = self._every_link()
        for link in links:
            self._let_go(link)
        self._accepting.join()
        with self._left:
            self._left.wait_for(lambda: not self._links, _FAREWELL)
        if self._owns_loop:
            self._loop.close()

    def review(self, refusal_of: Callable[[PeerIdentity], Refusal | None]) -> None:
        """Close the links of peers that are no longer welcome."""
        with self._lock:
            reasons = [(link, refusal_of(link.peer)) for link in self._every_link()]
        for link, reason in reasons:
            if reason is not None:
                _LOG.warning("the link of %s is closed: %s", link.peer.name, reason.value)
                self._let_go(link)

    def accounts(self) -> list[LinkAccount]:
        """Return the totals of the links that others dialled, for each of them."""
        with self._lock:
            totals = dict(self._past)
            for link in self._every_link():
                totals[link.peer.name] = totals.get(link.peer.name, LinkAccount(link.peer.name)).plus(link)
        return [totals[name] for name in sorted(totals)]

    def carried(self) -> tuple[int, int]:
        """Return the bytes sent and received so far, without asking the kernel."""
        with self._lock:
            counts: list[LinkTraffic | LinkAccount] = [
                *(link.traffic for link in self._every_link()),
                *self._past.values(),
            ]
        return sum(count.sent for count in counts), sum(count.received for count in counts)

    def _accept(self, listener: LinkListener) -> None:
        while not self._closed.is_set():
            try:
                link = listener.accept(seconds=_PATIENCE)
            except LinkTimeout:
                continue
            except LinkClosed:
                return
            self._take_in(link)

    def _take_in(self, link: StreamLink) -> None:
        """Allow each peer one link: one that dials again has lost the last link, or wants to use up our threads.

        What the older link had delivered in part is given up before the new one may deliver it again.
        """
        with self._left:
            older = self._links.get(link.peer.name, set())
            self._links[link.peer.name] = older | {link}
            self._left.notify_all()  # a link that was itself waiting for an older one need not any more
        for other in older:
            self._let_go(other)
        if older:
            self._aggregator.stir()
        self._loop.post(partial(self._begin, link, older))

    def _begin(self, link: StreamLink, older: set[StreamLink]) -> None:
        """Start serving a new link, once its peer's older ones have ended."""
        if self._busy.isdisjoint(older):
            self._look(link)
            return
        try:
            self._loop.hand_over(partial(self._take_place, link, older))
        except RuntimeError as error:  # no more threads: those being served go on
            _LOG.warning("the link of %s cannot be served: %s", link.peer.name, error)
            self._end(link)

    def _take_place(self, link: StreamLink, older: set[StreamLink]) -> None:
        with self._left:
            self._left.wait_for(lambda: link.closed or older.isdisjoint(self._links.get(link.peer.name, ())), _FAREWELL)
        self._loop.post(partial(self._look, link))

    def _every_link(self) -> list[StreamLink]:
        return [link for links in self._links.values() for link in links]

    def _let_go(self, link: StreamLink) -> None:
        """Close a link, whoever has it; the loop then removes it."""
        link.close()
        self._loop.post(partial(self._end, link))

    # ── in the loop ──

    def _look(self, link: StreamLink) -> None:
        """Serve the messages that have arrived whole on a link."""
        try:
            while link not in self._busy and link not in self._behind and link not in self._asking:
                if not self._serve_next(link):
                    return
            self._loop.forget(link)  # more that it sends while it waits stays in the socket
        except LinkClosed:
            self._end(link)
        except (LinkError, Refused) as error:
            self._complain(link, "the link of %s ends: %s", error)
            self._end(link)
        except Exception:  # noqa: BLE001 - one link that fails must not end the others
            _LOG.exception("the link of %s failed", link.peer.name)
            self._end(link)

    def _serve_next(self, link: StreamLink) -> bool:
        """Serve the next message or hand it over; False if it has not arrived yet."""
        ready = link.buffered if _holds_frame(link) else link.pull(HEADER_BYTES + SHORT)
        if ready < HEADER_BYTES:
            self._await_rest(link, begun=ready > 0)
            return False
        frame = Header.decode(link.peek(0, HEADER_BYTES))
        if frame.total > SHORT or frame.length != frame.total or frame.kind not in (Kind.CONTRIBUTION, Kind.FETCH):
            self._lend(link, partial(self._answer, link))
        elif ready < HEADER_BYTES + frame.length:
            self._await_rest(link, begun=True)
            return False
        elif self._is_early(frame):
            self._behind.setdefault(link, self._behind_until())
            self._look_again(self._behind[link])
        else:
            self._serve_short(link, frame)
        return True

    def _await_rest(self, link: StreamLink, *, begun: bool) -> None:
        self._loop.watch(link, partial(self._look, link))
        if not begun:
            self._begun.pop(link, None)
            return
        until = self._begun.setdefault(link, time.monotonic() + link.limits.idle)
        if time.monotonic() >= until:
            raise LinkTimeout("idle", f"a frame was not whole after {link.limits.idle:g} s", peer=link.peer.name)
        self._look_again(until)

    def _is_early(self, frame: Header) -> bool:
        if frame.kind is Kind.FETCH and frame.total:  # a question with a document names no round in its header
            return False
        return not self._aggregator.knows(frame.plan.hex(), (frame.epoch, frame.round))

    def _serve_short(self, link: StreamLink, frame: Header) -> None:
        """Serve a message that has arrived whole; what may have to wait is not done in the loop."""
        self._begun.pop(link, None)
        link.receive_header()  # already read, as `frame`
        if frame.kind is Kind.CONTRIBUTION:
            link.cork()
            self._take(link, frame)
            if self._asks_next(link):  # our receipt leaves together with the answer
                self._kept_back[link] = self._keep_back_until()
                self._look_again(self._kept_back[link])
            else:
                self._send_off(link)
            return
        question = framing.receive_question(link, frame, math.inf)
        if isinstance(question, ShardQuestion):
            self._asking[link] = _Asked(question, self._deadline(), self._behind_until())
            self._answer_question(link)
        else:
            self._lend(link, partial(self._serve_question, link, question))

    def _asks_next(self, link: StreamLink) -> bool:
        """Whether the sender of a part has asked for its shard already; no if masked, as that receipt is proof."""
        if self._aggregator.recipe.unmaskers or link.pull(HEADER_BYTES) < HEADER_BYTES:
            return False
        frame = Header.decode(link.peek(0, HEADER_BYTES))
        return frame.kind is Kind.FETCH and not frame.total

    def _keep_back_until(self) -> float:
        plan = self._aggregator.plan
        return time.monotonic() + _KEPT_BACK * (plan.deadlines.contribute if plan is not None else 0.0)

    def _is_unmasker(self, link: StreamLink, question: ShardQuestion) -> bool:
        """Whether the asking peer must unmask before it is answered."""
        plan, sender = self._aggregator.plan, self._peer_of(link.peer.name)
        if plan is None or not plan.unmaskers or not 0 <= question.shard < plan.shards:
            return False
        return sender in plan.unmaskers_of(question.shard)

    def _answer_all(self) -> None:
        """Look again at everyone who waits: a round was opened, something was cut, or time is up."""
        now = time.monotonic()
        early = [link for link, until in self._behind.items() if now >= until or self._knows_plan(link)]
        for link in early:
            if now >= self._behind.pop(link):
                self._lend(link, partial(self._answer, link))  # refused, as the plan is not here
            else:
                self._look(link)
        undecided = set[ShardQuestion]()  # one look for all who ask the same; the first to ask has the first deadline
        for link, asked in [*self._asking.items()]:
            if asked.question in undecided:
                continue
            try:
                self._answer_question(link)
                if link not in self._asking:
                    self._look(link)
                elif not self._aggregator.recipe.unmaskers:  # an unmasker is answered before the others
                    undecided.add(asked.question)
            except LinkError:
                self._end(link)
        for link in [link for link, until in self._begun.items() if now >= until]:
            self._look(link)
        for link in [link for link, until in self._kept_back.items() if now >= until]:
            try:
                self._send_off(link)
            except LinkError:
                self._end(link)

    def _stirred(self) -> None:
        if self._listener is not None:
            self._loop.post(self._answer_all)

    def _knows_plan(self, link: StreamLink) -> bool:
        frame = Header.decode(link.peek(0, HEADER_BYTES))
        return self._aggregator.knows(frame.plan.hex(), (frame.epoch, frame.round))

    def _answer_question(self, link: StreamLink) -> None:
        """Answer a member that asks for a shard, if the outcome is known."""
        question, deadline, behind = self._asking[link]
        known, now = self._aggregator.knows(question.plan, (question.epoch, question.round)), time.monotonic()
        if known and self._is_unmasker(link, question):
            del self._asking[link]
            self._lend(link, partial(self._serve_question, link, question))
            return
        try:
            outcome = self._aggregator.outcome_now(question.plan, question.shard) if known or now >= behind else None
            if outcome is None and now >= deadline:
                raise Refused(Reason.LATE, "the shard was not cut in time", shard=question.shard)
            if outcome is None:
                self._look_again(min(deadline, self._aggregator.next_due if known else behind))
                return
            published = _published(outcome)
        except Refused as refusal:
            del self._asking[link]
            link.cork()
            framing.send_refusal(link, refusal, deadline, self._sealed())
            self._send_off(link)
            return
        del self._asking[link]
        if published.values.nbytes + published.buffers.nbytes > SHORT:
            self._lend(link, partial(self._serve_question, link, question))
            return
        link.cork()
        self._send(link, question, published, deadline)
        self._send_off(link)

    def _send_off(self, link: StreamLink) -> None:
        """Send what was held back; if the other side does not read, a thread waits for it."""
        self._kept_back.pop(link, None)
        if not link.uncork():
            self._lend(link, partial(link.flush, deadline=self._deadline()))

    def _look_again(self, moment: float) -> None:
        if moment < self._next_look:
            self._next_look = moment
            self._loop.at(moment, self._look_now)

    def _look_now(self) -> None:
        self._next_look = math.inf
        self._aggregator.tick()
        self._answer_all()

    def _lend(self, link: StreamLink, work: Callable[[], None]) -> None:
        """Lend a link to a thread for something that may wait."""
        self._loop.forget(link)
        self._begun.pop(link, None)
        self._busy.add(link)
        if self._kept_back.pop(link, None) is not None and not link.uncork():
            work = partial(_after_flush, link, self._deadline(), work)
        try:
            self._loop.hand_over(partial(self._work, link, work))
        except RuntimeError as error:  # no more threads: those being served go on
            self._busy.discard(link)
            link.close()
            _LOG.warning("the link of %s cannot be served: %s", link.peer.name, error)
            raise LinkClosed("no thread is left", clean=False, peer=link.peer.name) from error

    def _work(self, link: StreamLink, work: Callable[[], None]) -> None:
        """Do the work in a thread, then return the link to the loop."""
        try:
            work()
        except LinkClosed:
            link.close()
        except (LinkError, Refused) as error:
            self._complain(link, "the link of %s ends: %s", error)
            link.close()
        except Exception:  # noqa: BLE001 - the link is returned whatever happens
            _LOG.exception("the link of %s failed", link.peer.name)
            link.close()
        self._loop.post(partial(self._take_back, link))

    def _take_back(self, link: StreamLink) -> None:
        self._busy.discard(link)
        if link.closed:
            self._end(link)
        else:
            self._look(link)

    def _end(self, link: StreamLink) -> None:
        """Remove a link, unless a thread still has it."""
        link.close()
        if link in self._busy:
            return
        self._loop.forget(link)
        for waiting in (self._behind, self._asking, self._begun, self._kept_back):
            waiting.pop(link, None)
        with self._lock:
            name = link.peer.name
            if link in self._links.get(name, ()):
                self._links[name] = self._links[name] - {link}
                if not self._links[name]:
                    del self._links[name]
                self._past[name] = self._past.get(name, LinkAccount(name)).plus(link)
            self._left.notify_all()

    # ── in a thread, which may wait ──

    def _answer(self, link: Link) -> None:
        try:
            frame = framing.receive_header(link, time.monotonic() + _PATIENCE)
        except LinkTimeout as timeout:
            if timeout.between_frames:
                return
            raise
        if frame.kind is Kind.CONTRIBUTION:
            self._take(link, frame)
        elif frame.kind is Kind.FETCH:
            self._serve_question(link, framing.receive_question(link, frame, time.monotonic() + link.limits.idle))
        else:
            raise Refused(Reason.MALFORMED, f"a member does not send {frame.kind.name}", peer=link.peer.name)

    def _complain(self, link: Link, words: str, error: LinkError | Refused) -> None:
        """Log what a peer did wrong, each kind once a round: repeating it must not fill our disk.

        `words` has a %s for the peer's name and one for the error.
        """
        plan = self._aggregator.plan
        kind = error.reason.value if isinstance(error, Refused) else type(error).__name__
        complaint = (plan.digest if plan else "", link.peer.name, kind)
        with self._lock:
            self._complaints = {said for said in self._complaints if said[0] == complaint[0]}
            new = complaint not in self._complaints
            self._complaints.add(complaint)
        if new:
            _LOG.warning(words, link.peer.name, error)

    # ── contributions ──

    def _take(self, link: Link, first: Header) -> None:
        """Receive all chunks of a contribution, wanted or not, then answer once: with a receipt or the reason."""
        deadline = self._deadline()
        when, behind = (first.epoch, first.round), self._behind_until()
        self._aggregator.wait_for_plan(first.plan.hex(), when, behind, lambda: link.closed)
        header = framing.upload_header(first, self._aggregator.plan)
        try:
            with self._aggregator.in_turn(first.total):
                outcome = self._chunks(link, header, first, deadline)
        except LinkError:
            self._aggregator.give_up(header)
            raise
        if isinstance(outcome, Refused):
            self._complain(link, "a contribution of %s: %s", outcome)
            framing.send_refusal(link, outcome, deadline, self._sealed())
        else:
            framing.send_receipt(link, outcome, deadline)

    def _chunks(self, link: Link, header: UploadHeader, first: Header, deadline: float) -> Receipt | Refused:
        frame, outcome = first, self._chunk(link, header, first, deadline)
        while frame.offset + frame.length < frame.total:
            frame = self._next_chunk(link, first, frame, deadline)
            if isinstance(outcome, Refused):
                link.discard(frame.length, deadline=deadline)
            else:
                outcome = self._chunk(link, header, frame, deadline)
        return outcome or Refused(Reason.MALFORMED, "the chunks do not make a contribution", peer=link.peer.name)

    def _chunk(self, link: Link, header: UploadHeader, frame: Header, deadline: float) -> Receipt | Refused | None:
        """Receive one chunk into its place; return a receipt after the last one, or the reason if it is not wanted."""
        sender, stop = self._peer_of(link.peer.name), frame.offset + frame.length
        try:
            if sender is None:
                raise Refused(Reason.NOT_A_MEMBER, f"{link.peer.name} is not on the roster")
            memory = self._aggregator.room(header, frame.offset, stop, sender=sender)
        except Refused as refusal:
            link.discard(frame.length, deadline=deadline)
            return refusal
        link.receive_into(memory, deadline=deadline)
        try:
            return self._aggregator.filled(header, frame.offset, stop)
        except Refused as refusal:
            return refusal

    def _next_chunk(self, link: Link, first: Header, last: Header, deadline: float) -> Header:
        frame = framing.receive_header(link, deadline)
        same = (frame.kind, frame.shard, frame.member, frame.plan, frame.total) == (
            first.kind, first.shard, first.member, first.plan, first.total,
        )  # fmt: skip
        if not same or frame.offset != last.offset + last.length:
            raise Refused(Reason.MALFORMED, "chunks of two contributions are mixed", peer=link.peer.name)
        return frame

    def _behind_until(self) -> float:
        return time.monotonic() + (_BEHIND if self._patience is None else self._patience)

    def _deadline(self) -> float:
        plan = self._aggregator.plan
        return time.monotonic() + (plan.deadlines.report if plan is not None else 60.0)

    # ── questions ──

    def _serve_question(self, link: Link, question: Question) -> None:
        deadline = self._deadline()
        try:
            if isinstance(question, Contradiction):
                self._accuse(question)
                framing.send_receipt(link, Receipt("00" * 32, 0, 0, 0), deadline)
                return
            if isinstance(question, SnapshotQuestion):
                framing.send_snapshot(link, self._snapshot(), deadline)
                return
            self._send(link, question, self._published(link, question, deadline), deadline)
        except Refused as refusal:
            framing.send_refusal(link, refusal, deadline, self._sealed())

    def _send(self, link: Link, question: ShardQuestion | HashQuestion, published: Published, deadline: float) -> None:
        if isinstance(question, ManifestQuestion):
            framing.send_manifest(link, published, deadline)
        else:
            if published.values.nbytes >= _LONG:
                self._under_way.wait()
            framing.send_published(link, published, deadline)
        self._fault_points("served", round=published.manifest.round, shard=published.manifest.shard)

    def _published(self, link: Link, question: ShardQuestion | HashQuestion, deadline: float) -> Published:
        if isinstance(question, HashQuestion):
            found = self._find(question.hash)
            if found is None:
                raise Refused(Reason.WRONG_DIGEST, "this peer has no shard with this hash")
            return found
        plan, shard = question.plan, question.shard
        self._aggregator.wait_for_plan(
            plan, (question.epoch, question.round), self._behind_until(), lambda: link.closed
        )
        self._have_unmasked(link, plan, shard, deadline)
        return _published(self._aggregator.outcome(plan, shard, deadline, lambda: link.closed))

    def _have_unmasked(self, link: Link, digest: str, shard: int, deadline: float) -> None:
        """Have the member that asks for a shard take its pads off first, if that is its duty; it waits here anyway."""
        plan, sender = self._aggregator.plan, self._peer_of(link.peer.name)
        if plan is None or sender is None or not 0 <= shard < plan.shards or sender not in plan.unmaskers_of(shard):
            return
        cut = self._aggregator.cut(digest, shard, deadline, lambda: link.closed)
        if cut is None:
            return
        framing.send_cut(link, cut, deadline)
        try:
            shared = self._aggregator
            answer = framing.receive_unmasking(link, shared.recipe, cut, plan.round, deadline, shared.pool)
            self._aggregator.take_off(answer, sender)
        except Refused as refusal:  # it will not, or not correctly: the shard is lost when its time is up, if not now
            if refusal.reason in (Reason.MALFORMED, Reason.WRONG_SIZE):
                raise LinkClosed(f"no pads: {refusal.what}", clean=False, peer=link.peer.name) from refusal
            self._complain(link, "the pads of %s: %s", refusal)
            if refusal.reason in FINAL:
                self._aggregator.deny(shard, sender)


class _Asked(NamedTuple):
    """A question that waits for its answer."""

    question: ShardQuestion
    deadline: float  # when it is refused if nothing is cut
    behind: float  # until when its round may still open here


def _holds_frame(link: StreamLink) -> bool:
    """Whether a whole frame has been read already, so that the socket need not be asked."""
    if link.buffered < HEADER_BYTES:
        return False
    return link.buffered >= HEADER_BYTES + Header.decode(link.peek(0, HEADER_BYTES)).length


def _after_flush(link: StreamLink, deadline: float, work: Callable[[], None]) -> None:
    link.flush(deadline=deadline)
    work()


def _published(outcome: Published | Withheld) -> Published:
    if isinstance(outcome, Withheld):
        raise Refused(outcome.reason, "the shard is not published in this round", shard=outcome.shard)
    return outcome
