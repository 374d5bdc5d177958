"""The aggregating role behind a lock: many threads bring contributions, one of them cuts, and all of them serve."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from eris.errors import Reason, Refused
from eris.events import EventStream, Received
from eris.peer.round_events import received_events
from eris.protocol.aggregator import Aggregator
from eris.protocol.messages import Published, Receipt, Upload, UploadHeader, Withheld
from eris.protocol.recipe import Recipe
from eris.protocol.round_plan import RoundPlan
from eris.protocol.unmasker import Cut, Unmasking
from eris.storage.buffer_pool import BufferPool

__all__ = ["SharedAggregator"]

Outcome = Published | Withheld
Gone = Callable[[], bool]
"""Whether the one on whose behalf a thread waits has gone; asked anew after every `stir`."""


def _never() -> bool:
    return False


def _nothing() -> None: ...


_LONG = 1 << 20  # bytes of a contribution worth waiting for until another is added up
_AT_ONCE = 3  # such contributions received at a time, where each is added up and released
_YIELD = 0.2  # seconds that one more waits at most, so that a slow link holds up nobody


class SharedAggregator:
    """A peer's aggregator, shared by its threads.

    `on_cut` hears how a shard ended and in which round; `told` is called once the coordinator knows it too.
    """

    def __init__(
        self, aggregator: Aggregator, on_cut: Callable[[Outcome, int], None], emit: EventStream | None = None
    ) -> None:
        self._aggregator, self._on_cut, self._emit = aggregator, on_cut, emit or EventStream()
        self._changed, self._stirred = threading.Condition(), _nothing
        self._abstained: dict[int, Withheld] = {}  # shards of a round that we sit out
        self._untold: set[int] = set()  # withheld shards of this round of which the coordinator has not heard yet
        self._closed = False
        self._arriving = threading.BoundedSemaphore(_AT_ONCE)

    def call_when_stirred(self, stirred: Callable[[], None]) -> None:
        """Register a callback, which must not block, for when a round opens or something is cut."""
        self._stirred = stirred

    @property
    def next_due(self) -> float:
        """When to call `tick` again even if nothing arrives."""
        return self._aggregator.next_due

    def knows(self, digest: str, when: tuple[int, int]) -> bool:
        """Whether this peer has opened the plan with this digest, or another one of its (epoch, round) or later."""
        with self._changed:
            return self._closed or self._has(digest) or self._is_past(when)

    @contextmanager
    def in_turn(self, size: int) -> Iterator[None]:
        """Limit how many long contributions arrive at once in fixed point, where keeping only their sum saves memory.

        The others wait where they are, in the sender's socket, and only for a moment.
        """
        turn = self.recipe.encoding is not None and size >= _LONG and self._arriving.acquire(timeout=_YIELD)
        try:
            yield
        finally:
            if turn:
                self._arriving.release()

    @property
    def recipe(self) -> Recipe:
        """The recipe that all peers agree on."""
        return self._aggregator.recipe

    @property
    def pool(self) -> BufferPool:
        """Memory that is reused from round to round."""
        return self._aggregator.pool

    @property
    def plan(self) -> RoundPlan | None:
        """The round that is open here."""
        return self._aggregator.plan

    def begin(self, plan: RoundPlan) -> None:
        """Open a round."""
        with self._changed:
            self._aggregator.begin(plan, time.monotonic())
            self._abstained, self._untold = {}, set()
            self._stir()

    def abstain(self, plan: RoundPlan) -> list[Withheld]:
        """Sit a round out after a restart in the middle of it."""
        with self._changed:
            notices = self._aggregator.abstain(plan)
            self._abstained = {notice.shard: notice for notice in notices}
            self._stir()
        return notices

    def without(self, peers: Iterable[int], *, away: bool = True) -> None:
        """Stop waiting for members that are gone or, without `away`, merely send nothing."""
        with self._changed:
            self._aggregator.without(peers, away=away)
        self.tick()

    def wait_for_plan(self, digest: str, when: tuple[int, int], deadline: float, gone: Gone = _never) -> bool:
        """Wait until `knows(digest, when)`, as members may be quicker than we are; False if that took too long.

        A run that goes back plays a round again, which is not the one that is open here.

        Args:
            digest: of the plan.
            when: its epoch and round.
            deadline: on the monotonic clock.
            gone: whether to stop waiting, because whoever wanted it has gone.
        """
        with self._changed:
            return self._changed.wait_for(
                lambda: self._closed or gone() or self._has(digest) or self._is_past(when), deadline - time.monotonic()
            )

    def room(self, header: UploadHeader, start: int, stop: int, *, sender: int) -> memoryview:
        """Return memory to receive a chunk into: bytes `start` to `stop` of the contribution.

        `sender` is the peer at the other end of the link, which may only contribute for itself.
        """
        with self._changed:
            return self._aggregator.room(header, start, stop, sender=sender)

    def filled(self, header: UploadHeader, start: int, stop: int) -> Receipt | None:
        """Note that bytes `start` to `stop` are there; the thread that brings a shard's last ones cuts it."""
        try:
            with self._changed:
                receipt = self._aggregator.filled(header, start, stop)
        except Refused:
            self.tick()  # it may have been the last one awaited
            raise
        if receipt is not None:
            self.tick()
        return receipt

    def give_up(self, header: UploadHeader) -> None:
        """Drop the bytes of a contribution whose link broke."""
        with self._changed:
            self._aggregator.give_up(header)

    def receive(self, upload: Upload, sender: int) -> Receipt:
        """Take this peer's own contribution."""
        try:
            with self._changed:
                return self._aggregator.receive(upload, sender)
        finally:  # refused or not, it may have been the last one awaited
            self.tick()

    def tick(self) -> None:
        """Cut what is complete or due, wake whoever waits, and hand the outcome on (outside the lock)."""
        with self._changed:
            cuts = len(self._aggregator.cuts())
            outcomes, round = self._aggregator.tick(time.monotonic()), self.plan.round if self.plan else -1
            seen = self._seen(outcomes) if outcomes and self._emit.wants(Received) else []
            self._untold |= {outcome.shard for outcome in outcomes if isinstance(outcome, Withheld)}
            if outcomes or len(self._aggregator.cuts()) != cuts:
                self._stir()
        for outcome in outcomes:
            self._on_cut(outcome, round)
        for event in seen:
            self._emit.aside(event)

    def told(self, outcome: Outcome) -> None:
        """Note that the coordinator has heard how a shard ended, or that it could not be told."""
        if isinstance(outcome, Withheld):
            with self._changed:
                if self._has(outcome.plan):
                    self._untold.discard(outcome.shard)
                self._changed.notify_all()

    def wait_until_told(self, deadline: float) -> None:
        """Wait until the coordinator has heard of every shard that we withheld.

        A report that overtook such a notice could be the last one awaited. The verdict would then lose the shard as
        "not published", and a masked shard would stay with the pair that could not unmask it.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._closed or not self._untold, deadline - time.monotonic())

    def _seen(self, outcomes: list[Outcome]) -> list[Received]:
        """Return what this aggregator has seen of every contributor, published or not."""
        shards = [outcome.shard if isinstance(outcome, Withheld) else outcome.manifest.shard for outcome in outcomes]
        return [event for shard in shards for event in received_events(self._aggregator, shard)]

    def outcome(self, plan: str, shard: int, deadline: float, gone: Gone = _never) -> Outcome:
        """Wait for a shard's outcome; cut it ourselves if it is due and no other thread has.

        Args:
            plan: digest of the plan.
            deadline: on the monotonic clock.
            gone: whether to stop waiting, because the peer that asked has left.
        """
        while True:
            with self._changed:
                if gone():
                    raise Refused(Reason.LATE, "the peer that asked has left", shard=shard)
                if (found := self._found(plan, shard)) is not None:
                    return found
                wait = min(deadline, self._aggregator.next_due) - time.monotonic()
                if wait > 0:
                    self._changed.wait(wait)
            if time.monotonic() >= deadline:
                raise Refused(Reason.LATE, "the shard was not cut in time", shard=shard)
            self.tick()

    def outcome_now(self, plan: str, shard: int) -> Outcome | None:
        """Return a shard's outcome; None if it is not known yet."""
        with self._changed:
            return self._found(plan, shard)

    def _found(self, digest: str, shard: int) -> Outcome | None:
        plan = self._aggregator.plan
        if self._closed or plan is None or not self._has(digest):
            raise Refused(Reason.WRONG_PLAN, "this round is not open here", shard=shard)
        if (found := self._aggregator.outcome(shard) or self._abstained.get(shard)) is not None:
            return found
        if shard not in plan.shards_of(self._aggregator.peer):
            raise Refused(Reason.WRONG_SHARD, "this peer does not own the shard", shard=shard)
        return None

    def cut(self, plan: str, shard: int, deadline: float, gone: Gone = _never) -> Cut | None:
        """Wait for a masked shard to be cut, on behalf of an unmasker; the arguments are those of `outcome`.

        Returns None if the shard is decided without that unmasker, if time is up, or if it has gone.
        """
        while True:
            with self._changed:
                if self._closed or gone() or not self._has(plan):
                    return None
                if self._abstained.get(shard) or self._aggregator.outcome(shard) is not None:
                    return None
                if (found := self._aggregator.cut_of(shard)) is not None:
                    return found
                wait = min(deadline, self._aggregator.cut_at) - time.monotonic()
                if wait > 0:
                    self._changed.wait(wait)
            if time.monotonic() >= deadline:
                return None
            self.tick()

    def take_off(self, answer: Unmasking, sender: int) -> None:
        """Subtract an unmasker's pads from a shard's sum."""
        with self._changed:
            self._aggregator.take_off(answer, sender)
        self.tick()

    def deny(self, shard: int, sender: int) -> None:
        """Record that an unmasker has permanently refused a shard's cut."""
        with self._changed:
            self._aggregator.deny(shard, sender)
        self.tick()

    def stir(self) -> None:
        """Make all waiting threads check again whether those they wait for have gone."""
        with self._changed:
            self._stir()

    def close(self) -> None:
        """Wake all waiting threads and stop making anybody wait."""
        with self._changed:
            self._closed = True
            self._stir()

    def _stir(self) -> None:
        self._changed.notify_all()
        self._stirred()

    def _is_past(self, when: tuple[int, int]) -> bool:
        return self._aggregator.plan is not None and self._aggregator.plan.when >= when

    def _has(self, digest: str) -> bool:
        return self._aggregator.plan is not None and self._aggregator.plan.digest == digest
