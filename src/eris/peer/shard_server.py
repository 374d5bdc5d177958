"""The listening side of a peer: one thread for each link that members have dialled.

A broken or hostile link costs its sender only: it is refused by name, logged once, and closed if it does not speak the
protocol.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from eris.errors import Reason, Refused
from eris.peer import framing
from eris.peer.aggregator_client import UnderWay
from eris.peer.fault_points import FaultPoints
from eris.peer.framing import HashQuestion, ManifestQuestion, Question, ShardQuestion, SnapshotQuestion
from eris.peer.shared_aggregator import SharedAggregator
from eris.protocol.member import Snapshot
from eris.protocol.messages import Published, Receipt, UploadHeader, Withheld
from eris.protocol.seal import CertifiedSeal, Contradiction
from eris.transport.credentials import Credentials
from eris.transport.identity import PeerIdentity, Refusal
from eris.transport.link import Link, LinkClosed, LinkError, LinkLimits, LinkTimeout, LinkTraffic
from eris.transport.link_account import LinkAccount
from eris.transport.link_listener import LinkListener
from eris.transport.route import Proxy, RelayDoor, address_text
from eris.transport.socket_stream import Address
from eris.transport.stream_link import StreamLink
from eris.transport.tls_link import Roster, Security
from eris.wire import Header, Kind

__all__ = ["ShardServer"]

_LOG = logging.getLogger(__name__)
_LONG = 1 << 20  # bytes of a published shard that are worth letting our own parts go first
_BEHIND = 5.0  # a member may hear of a round a little before we do
_FAREWELL = 5.0  # seconds an older link has to end
_PATIENCE = 3600.0  # between two frames a member may train as long as it likes; a dead one is noticed by the link


class ShardServer:
    """Serves every member that dials in, from `serve` until it is closed; a peer that only dials out never begins."""

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
    ) -> None:
        """`sealed` is the seal of the plan that is in force here; `accuse` takes a proof against the coordinator."""
        self._aggregator, self._sealed, self._accuse = aggregator, sealed, accuse
        self._peer_of, self._find, self._snapshot = peer_of, find, snapshot
        self._fault_points, self._under_way = fault_points or FaultPoints(), under_way or UnderWay()
        self._links: set[StreamLink] = set()
        self._past: dict[str, LinkAccount] = {}
        self._complaints: set[tuple[str, str, str]] = set()
        self._lock = threading.Lock()
        self._left = threading.Condition(self._lock)  # some link has ended
        self._closed = threading.Event()
        self._listener: LinkListener | None = None
        self._doors: list[RelayDoor] = []
        self._threads: list[threading.Thread] = []

    def listen(
        self, security: Security, address: Address | None, limits: LinkLimits, roster: Callable[[], Roster | None]
    ) -> int | None:
        """Serve whoever of the roster dials in at an address, or comes by a relay; return the port if there is one."""
        listener = LinkListener(security, address, limits=limits, roster=roster)
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
        """Wait at relays for whoever asks for us there; the first of them must take us within so many seconds.

        We wait at all of them at once: a relay that dies then costs no more than the links that it carried.
        """
        assert self._listener is not None  # somebody must welcome those who come
        take = self._listener.take
        self._doors += [RelayDoor(relay, credentials, take, connect=connect, proxy=proxy) for relay in relays]
        until = time.monotonic() + seconds
        while not any(door.open.is_set() for door in self._doors):
            if time.monotonic() >= until or self._closed.is_set():
                why = "; ".join(str(door.failure or f"{address_text(door.relay)} is silent") for door in self._doors)
                raise LinkClosed(f"no relay takes this peer: {why}", clean=False, fix="see `eris doctor --relay`")
            time.sleep(0.05)

    def serve(self, listener: LinkListener) -> None:
        """Serve whoever dials in there; the listener is ours to close."""
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
            links = list(self._links)
        for link in links:
            link.close()
        self._accepting.join()
        for thread in self._threads:
            thread.join(timeout=5.0)

    def review(self, refusal_of: Callable[[PeerIdentity], Refusal | None]) -> None:
        """Close the links of peers that were welcome once and are no longer."""
        with self._lock:
            reasons = [(link, refusal_of(link.peer)) for link in self._links]
        for link, reason in reasons:
            if reason is not None:
                _LOG.warning("the link of %s is closed: %s", link.peer.name, reason.value)
                link.close()

    def accounts(self) -> list[LinkAccount]:
        """Return what went over links that others dialled, for each of them."""
        with self._lock:
            totals = dict(self._past)
            for link in self._links:
                totals[link.peer.name] = totals.get(link.peer.name, LinkAccount(link.peer.name)).plus(link)
        return [totals[name] for name in sorted(totals)]

    def carried(self) -> tuple[int, int]:
        """Return the bytes sent and received so far, without asking the kernel."""
        with self._lock:
            counts: list[LinkTraffic | LinkAccount] = [*(link.traffic for link in self._links), *self._past.values()]
        return sum(count.sent for count in counts), sum(count.received for count in counts)

    def _accept(self, listener: LinkListener) -> None:
        while not self._closed.is_set():
            try:
                link = listener.accept(seconds=1.0)
            except LinkTimeout:
                continue
            except LinkClosed:
                return
            thread = threading.Thread(
                target=self._serve, args=(link,), name=f"eris-server {link.peer.name}", daemon=True
            )
            try:
                thread.start()
            except RuntimeError as error:  # no more threads: not the end of those who are served
                link.close()
                _LOG.warning("the link of %s cannot be served: %s", link.peer.name, error)
                continue
            self._threads = [*(served for served in self._threads if served.is_alive()), thread]

    def _serve(self, link: StreamLink) -> None:
        self._replace_older(link)
        try:
            while not self._closed.is_set():
                self._answer(link)
        except LinkClosed:
            pass
        except (LinkError, Refused) as error:
            self._complain(link, "the link of %s ends: %s", error)
        finally:
            link.close()
            with self._lock:
                self._links.discard(link)
                self._past[link.peer.name] = self._past.get(link.peer.name, LinkAccount(link.peer.name)).plus(link)
                self._left.notify_all()

    def _replace_older(self, link: StreamLink) -> None:
        """Let a peer have one link: who dials again has lost the last one, or wants to use up our threads.

        What the older link had brought in part is given up before the new one may bring it again.
        """
        with self._left:
            older = [other for other in self._links if other.peer.name == link.peer.name]
            self._links.add(link)
            for other in older:
                other.close()
            self._left.notify_all()  # one that was itself waiting for an older one need not any more
        if older:
            self._aggregator.stir()
        with self._left:
            self._left.wait_for(lambda: link.closed or self._links.isdisjoint(older), _FAREWELL)

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
        """Log what a peer did wrong: each kind once a round, or whoever repeats it would fill our disk."""
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
        """Receive all chunks of a contribution, wanted or not, then answer once: with a receipt or with the reason."""
        deadline = self._deadline()
        when, behind = (first.epoch, first.round), time.monotonic() + _BEHIND
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
        """Receive one chunk into its place; a receipt if it was the last one, the reason if it is not wanted."""
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
            published = self._published(link, question, deadline)
            if isinstance(question, ManifestQuestion):
                framing.send_manifest(link, published, deadline)
            else:
                if published.values.nbytes >= _LONG:
                    self._under_way.wait()
                framing.send_published(link, published, deadline)
            self._fault_points("served", round=published.manifest.round, shard=published.manifest.shard)
        except Refused as refusal:
            framing.send_refusal(link, refusal, deadline, self._sealed())

    def _published(self, link: Link, question: ShardQuestion | HashQuestion, deadline: float) -> Published:
        if isinstance(question, HashQuestion):
            found = self._find(question.hash)
            if found is None:
                raise Refused(Reason.WRONG_DIGEST, "nothing with this hash is here")
            return found
        plan, shard = question.plan, question.shard
        self._aggregator.wait_for_plan(
            plan, (question.epoch, question.round), time.monotonic() + _BEHIND, lambda: link.closed
        )
        self._have_unmasked(link, plan, shard, deadline)
        outcome = self._aggregator.outcome(plan, shard, deadline, lambda: link.closed)
        if isinstance(outcome, Withheld):
            raise Refused(outcome.reason, "the shard is not published in this round", shard=shard)
        return outcome

    def _have_unmasked(self, link: Link, digest: str, shard: int, deadline: float) -> None:
        """Let whoever asks for a shard take its pads off first, if that is its duty; it waits on this link anyway."""
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
        except Refused as refusal:  # it will not, or not rightly: the shard is lost when its time is up
            if refusal.reason in (Reason.MALFORMED, Reason.WRONG_SIZE):
                raise LinkClosed(f"no pads: {refusal.what}", clean=False, peer=link.peer.name) from refusal
            self._complain(link, "the pads of %s: %s", refusal)
