"""The listening side of a peer: one thread for each link that members have dialled.

A broken or hostile link costs its sender only: it is refused by name, logged once, and closed if it does not speak the
protocol.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import cast

from eris.errors import Reason, Refused
from eris.peer import letters
from eris.peer.account import Account
from eris.peer.desk import Desk
from eris.peer.moments import Moments
from eris.peer.under_way import UnderWay
from eris.protocol.member import Snapshot
from eris.protocol.messages import Published, Receipt, UploadHeader, Withheld
from eris.transport.identity import PeerIdentity, Refusal
from eris.transport.link import Link, LinkClosed, LinkError, LinkTimeout, Traffic
from eris.transport.listener import Listener
from eris.transport.stream_link import StreamLink
from eris.wire import Header, Kind

__all__ = ["Host"]

_LOG = logging.getLogger(__name__)
_LONG = 1 << 20  # bytes of a published shard that are worth letting our own parts go first
_BEHIND = 5.0  # a member may hear of a round a little before we do
_FAREWELL = 5.0  # seconds an older link has to end
_PATIENCE = 3600.0  # between two frames a member may train as long as it likes; a dead one is noticed by the link


class Host:
    """Serves every member that dials in, until closed."""

    def __init__(
        self,
        listener: Listener,
        desk: Desk,
        *,
        peer_of: Callable[[str], int | None],
        find: Callable[[str], Published | None],
        snapshot: Callable[[], Snapshot],
        moments: Moments | None = None,
        under_way: UnderWay | None = None,
    ) -> None:
        self._listener, self._desk = listener, desk
        self._peer_of, self._find, self._snapshot = peer_of, find, snapshot
        self._moments, self._under_way = moments or Moments(), under_way or UnderWay()
        self._links: set[StreamLink] = set()
        self._past: dict[str, Account] = {}
        self._complaints: set[tuple[str, str, str]] = set()
        self._lock = threading.Lock()
        self._left = threading.Condition(self._lock)  # some link has ended
        self._closed = threading.Event()
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, name="eris-host", daemon=True)
        self._accepting.start()

    def close(self) -> None:
        """End the listener and every link."""
        self._closed.set()
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

    def accounts(self) -> list[Account]:
        """Return what went over links that others dialled, for each of them."""
        with self._lock:
            totals = dict(self._past)
            for link in self._links:
                totals[link.peer.name] = totals.get(link.peer.name, Account(link.peer.name)).plus(link)
        return [totals[name] for name in sorted(totals)]

    def carried(self) -> tuple[int, int]:
        """Return the bytes sent and received so far, without asking the kernel."""
        with self._lock:
            counts: list[Traffic | Account] = [*(link.traffic for link in self._links), *self._past.values()]
        return sum(count.sent for count in counts), sum(count.received for count in counts)

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                link = self._listener.accept(seconds=1.0)
            except LinkTimeout:
                continue
            except LinkClosed:
                return
            thread = threading.Thread(target=self._serve, args=(link,), name=f"eris-host {link.peer.name}", daemon=True)
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
                self._past[link.peer.name] = self._past.get(link.peer.name, Account(link.peer.name)).plus(link)
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
            self._desk.stir()
        with self._left:
            self._left.wait_for(lambda: link.closed or self._links.isdisjoint(older), _FAREWELL)

    def _answer(self, link: Link) -> None:
        try:
            frame = letters.receive_header(link, time.monotonic() + _PATIENCE)
        except LinkTimeout as timeout:
            if timeout.between_frames:
                return
            raise
        if frame.kind is Kind.CONTRIBUTION:
            self._take(link, frame)
        elif frame.kind is Kind.FETCH:
            self._serve_question(link, letters.receive_question(link, frame, time.monotonic() + link.limits.idle))
        else:
            raise Refused(Reason.MALFORMED, f"a member does not send {frame.kind.name}", peer=link.peer.name)

    def _complain(self, link: Link, words: str, error: LinkError | Refused) -> None:
        """Log what a peer did wrong: each kind once a round, or whoever repeats it would fill our disk."""
        plan = self._desk.plan
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
        self._desk.wait_for_plan(first.plan.hex(), when, behind, lambda: link.closed)
        header = letters.upload_header(first, self._desk.plan)
        try:
            outcome = self._chunks(link, header, first, deadline)
        except LinkError:
            self._desk.give_up(header)
            raise
        if isinstance(outcome, Refused):
            self._complain(link, "a contribution of %s: %s", outcome)
            letters.refuse(link, outcome, deadline)
        else:
            letters.answer(link, outcome, deadline)

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
            memory = self._desk.room(header, frame.offset, stop, sender=sender)
        except Refused as refusal:
            link.discard(frame.length, deadline=deadline)
            return refusal
        link.receive_into(memory, deadline=deadline)
        try:
            return self._desk.filled(header, frame.offset, stop)
        except Refused as refusal:
            return refusal

    def _next_chunk(self, link: Link, first: Header, last: Header, deadline: float) -> Header:
        frame = letters.receive_header(link, deadline)
        same = (frame.kind, frame.shard, frame.member, frame.plan, frame.total) == (
            first.kind, first.shard, first.member, first.plan, first.total,
        )  # fmt: skip
        if not same or frame.offset != last.offset + last.length:
            raise Refused(Reason.MALFORMED, "chunks of two contributions are mixed", peer=link.peer.name)
        return frame

    def _deadline(self) -> float:
        plan = self._desk.plan
        return time.monotonic() + (plan.deadlines.report if plan is not None else 60.0)

    # ── questions ──

    def _serve_question(self, link: Link, question: dict[str, object]) -> None:
        deadline = self._deadline()
        try:
            if "snapshot" in question:
                letters.send_snapshot(link, self._snapshot(), deadline)
                return
            published = self._published(link, question, deadline)
            if "alone" in question:
                letters.send_manifest(link, published, deadline)
            else:
                if published.values.nbytes >= _LONG:
                    self._under_way.wait()
                letters.send_published(link, published, deadline)
            self._moments("served", round=published.manifest.round, shard=published.manifest.shard)
        except Refused as refusal:
            letters.refuse(link, refusal, deadline)

    def _published(self, link: Link, question: dict[str, object], deadline: float) -> Published:
        if "hash" in question:
            found = self._find(str(question["hash"]))
            if found is None:
                raise Refused(Reason.WRONG_DIGEST, "nothing with this hash is here")
            return found
        plan, numbers = str(question.get("plan")), [question.get(name) for name in ("epoch", "round", "shard")]
        if not all(isinstance(number, int) for number in numbers):
            raise Refused(Reason.MALFORMED, "the question names no shard of a round")
        epoch, round, shard = cast(list[int], numbers)
        self._desk.wait_for_plan(plan, (epoch, round), time.monotonic() + _BEHIND, lambda: link.closed)
        outcome = self._desk.outcome(plan, shard, deadline, lambda: link.closed)
        if isinstance(outcome, Withheld):
            raise Refused(outcome.reason, "the shard is not published in this round", shard=shard)
        return outcome
