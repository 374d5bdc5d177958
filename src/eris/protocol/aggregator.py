"""The aggregator: stages contributions to its shards, cuts, publishes. It holds no state between rounds.

Floats are staged until the cut and folded in ascending member id. In fixed point the order does not matter: each
contribution is added up when it is complete, and a shard takes the memory of one of them instead of all.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eris.aggregate.fixed_point import Ring, Ring64, add
from eris.aggregate.mean import WeightedMean
from eris.aggregate.rule import Contribution
from eris.aggregate.staging import DEFAULT_BUDGET, Contents, Staging
from eris.errors import Reason, Refused
from eris.protocol import steps
from eris.protocol.agreement import Agreement
from eris.protocol.messages import Published, Receipt, Upload, UploadHeader, Withheld
from eris.protocol.recipe import Recipe
from eris.protocol.round_plan import RoundPlan
from eris.storage.buffer_pool import BufferPool
from eris.storage.spill import Bytes
from eris.wire.codec import encode_upload
from eris.wire.expected import Expected

__all__ = ["Aggregator"]


class _Sum(NamedTuple):
    """The contributions to a shard so far, in fixed point."""

    values: Ring
    buffers: Ring64


@dataclass
class _Shard:
    """One shard of this round: what is staged, and what became of it."""

    number: int
    expected: Expected  # of every member; where masks differ, of one with the key zero
    staging: Staging
    total: _Sum | None  # None for floats
    headers: dict[int, UploadHeader] = field(default_factory=dict)
    outcome: Published | Withheld | None = None


class Aggregator:
    """One peer's aggregating role. Give it plans, bytes and the time; it gives receipts and published shards.

    Bytes arrive in chunks: ask for `room`, fill it, say `filled`. Above `budget` bytes they are staged in a file.
    Without `sign` manifests are not signed: for where nobody can pretend to be somebody else.
    """

    def __init__(
        self,
        peer: int,
        recipe: Recipe,
        *,
        sign: steps.Sign | None = None,
        budget: int = DEFAULT_BUDGET,
        pool: BufferPool | None = None,
        agreement: Agreement | None = None,
    ) -> None:
        self._agreement = agreement
        self.peer, self.recipe, self._sign, self._budget, self._pool = peer, recipe, sign, budget, pool or BufferPool()
        self.plan: RoundPlan | None = None
        self.refusals: Counter[Reason] = Counter()
        self._code = recipe.code
        self._shards: dict[int, _Shard] = {}
        self._cut_at = math.inf
        self._gone: set[int] = set()

    # ── the round ────────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, plan: RoundPlan, now: float) -> None:
        """Open a round: forget the last one, expect uploads for the shards this plan gives us."""
        self._require_agreed(plan)
        self.plan, self._cut_at, self._gone = plan, now + plan.deadlines.contribute, set()
        self._shards = {shard: self._open(shard, plan) for shard in plan.shards_of(self.peer)}

    def abstain(self, plan: RoundPlan) -> list[Withheld]:
        """Sit this round out, after a restart in its middle.

        What was published before is forgotten; a second manifest, over other contributors, would look like foul play.
        """
        self._require_agreed(plan)
        self.plan, self._shards, self._cut_at = plan, {}, math.inf
        return [Withheld(plan.digest, shard, self.peer, Reason.RESTARTED) for shard in plan.shards_of(self.peer)]

    def without(self, peers: Iterable[int]) -> None:
        """Wait no longer in this round for members that cannot be reached; what they sent already counts."""
        self._gone |= set(peers)

    def room(self, header: UploadHeader, start: int, stop: int, *, sender: int) -> memoryview:
        """Return memory to receive bytes [start, stop) of a contribution into, or refuse it with a typed reason."""
        with self._counted():
            shard = self._admit(header, sender)
            if shard.headers.get(header.member, header) != header:
                raise Refused(Reason.CONFLICT, "another header came before", **_place(header))
            memory = shard.staging.room(header.member, start, stop, total=header.total)
            shard.headers[header.member] = header
            return memory

    def filled(self, header: UploadHeader, start: int, stop: int) -> Receipt | None:
        """Note that the memory is filled; return a receipt once the contribution is complete, read and finite."""
        receipt = Receipt(header.plan, header.member, header.shard, self.peer)
        if self.plan is None or header.plan != self.plan.digest:
            with self._counted():
                raise Refused(Reason.LATE, "the round is over", **_place(header))
        staging = self._shards[header.shard].staging
        try:
            with self._counted():
                return receipt if staging.filled(header.member, start, stop) else None
        except Refused as refusal:
            if refusal.reason is Reason.DUPLICATE:
                return receipt
            if header.member not in staging.complete:
                self._shards[header.shard].headers.pop(header.member, None)
            raise

    def give_up(self, header: UploadHeader) -> None:
        """Drop what came of a contribution that will not be completed (its link broke)."""
        if self.plan is not None and header.plan == self.plan.digest and header.shard in self._shards:
            shard = self._shards[header.shard]
            shard.staging.forget(header.member)
            if header.member not in shard.staging.complete:
                shard.headers.pop(header.member, None)

    def receive(self, upload: Upload, sender: int) -> Receipt:
        """Stage a whole contribution at once, where there is no socket to receive from."""
        header, start = upload.header(), 0
        trainable = self.recipe.layout(upload.round).trainable
        if not 0 <= upload.shard < trainable.shards:
            with self._counted():
                raise Refused(Reason.WRONG_SHARD, "there is no such shard", **_place(header))
        pieces = encode_upload(upload.part, upload.buffers, trainable)
        if len(pieces) == 1 and self._adopt(header, pieces[0], sender):
            return Receipt(header.plan, header.member, header.shard, self.peer)
        memory = self.room(header, 0, header.total, sender=sender)
        for piece in pieces:
            memory[start : start + piece.nbytes] = piece
            start += piece.nbytes
        receipt = self.filled(header, 0, header.total)
        assert receipt is not None  # all bytes were there
        return receipt

    def tick(self, now: float) -> list[Published | Withheld]:
        """Cut every shard that is complete or due, and return what is to be sent out (each once)."""
        plan = self.plan
        if plan is None:
            return []
        due, expected = now >= self._cut_at, set(plan.participants) - self._gone
        open_shards = [shard for shard in self._shards.values() if shard.outcome is None]
        outcomes = []
        for shard in open_shards:
            if due or expected <= set(shard.staging.complete):
                shard.outcome = self._cut(shard, plan)
                outcomes.append(shard.outcome)
        return outcomes

    def outcome(self, shard: int) -> Published | Withheld | None:
        """Return what was published for a shard (to serve it again)."""
        return self._shards[shard].outcome if shard in self._shards else None

    def staged(self, shard: int) -> list[tuple[UploadHeader, Contribution, Contribution]]:
        """Return every complete contribution to a shard: its header, its values and its buffers, as they were read.

        In fixed point there are none: nothing is kept of a contribution but what it added to the sum.
        """
        if self.plan is None or shard not in self._shards:
            return []
        weights, opened = self.plan.weights, self._shards[shard]
        pairs = zip(opened.staging.contributions(weights), opened.staging.buffers(weights), strict=True)
        return [(opened.headers[values.member], values, buffers) for values, buffers in pairs]

    @property
    def cut_at(self) -> float:
        """When shards are cut whether complete or not."""
        return self._cut_at

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _require_agreed(self, plan: RoundPlan) -> None:
        if self._agreement is not None:
            self._agreement.check(plan, self.recipe)

    def _adopt(self, header: UploadHeader, payload: memoryview, sender: int) -> bool:
        """Stage a contribution where it lies; False if one has begun to arrive, with which it must be compared."""
        with self._counted():
            shard = self._admit(header, sender)
            if header.member in shard.headers:
                return False
            shard.headers[header.member] = header
            try:
                shard.staging.adopt(header.member, np.frombuffer(payload, np.uint8))
            except Refused:
                del shard.headers[header.member]
                raise
            return True

    @contextmanager
    def _counted(self) -> Iterator[None]:
        try:
            yield
        except Refused as refusal:
            self.refusals[refusal.reason] += 1
            raise

    def _open(self, shard: int, plan: RoundPlan) -> _Shard:
        expected, read = self._expected(shard, plan, bytes(16)), partial(self._read, shard)
        total = None if self.recipe.encoding is None else self._nothing(shard, plan)
        staging = Staging(
            plan.participants,
            size=expected.length,
            limit=expected.longest,
            read=read,
            fold=None if total is None else partial(_add, total),
            budget=self._budget,
            pool=self._pool,
        )
        return _Shard(shard, expected, staging, total)

    def _nothing(self, shard: int, plan: RoundPlan) -> _Sum:
        """Return the sum of no contributions."""
        values = self._pool.take(4 * self._count(shard, plan)).view(np.uint32)
        values.fill(0)
        return _Sum(values, np.zeros(int(self.recipe.layout(plan.round).buffers.sizes[shard]), np.uint64))

    def _count(self, shard: int, plan: RoundPlan) -> int:
        """Return how many values a published shard has."""
        support = self.recipe.published_support(plan.round, shard)
        return int(self.recipe.layout(plan.round).trainable.sizes[shard]) if support is None else support.size

    def _expected(self, shard: int, plan: RoundPlan, mask_key: bytes) -> Expected:
        """Return the form an upload must have; coordinates are shared, or redrawn from the member's secret, or sent."""
        layout, compressor = self.recipe.layout(plan.round), self.recipe.compressor
        buffers, kind = int(layout.buffers.sizes[shard]), self.recipe.words.buffers
        form = Expected(layout.trainable, shard, self._code, buffers, buffer_type=kind)
        if compressor.shared_support:
            return replace(form, coordinates=self.recipe.published_support(plan.round, shard))
        try:
            drawn = compressor.support(shard, layout.trainable, self.recipe.round_seed(plan.round), mask_key)
        except Refused:
            return replace(form, explicit=True)
        return replace(form, coordinates=drawn)

    def _admit(self, header: UploadHeader, sender: int) -> _Shard:
        where, plan = _place(header), self.plan
        if plan is None:
            raise Refused(Reason.WRONG_ROUND, "no round is open here", **where)
        _check_header(header, plan, where)
        if sender != header.member or header.member not in plan.participants:
            raise Refused(Reason.NOT_A_MEMBER, f"peer {sender} may not contribute for {header.member}", **where)
        if header.shard not in self._shards:
            raise Refused(Reason.WRONG_SHARD, f"peer {self.peer} does not own this shard", **where)
        if not steps.counts_as_steps(header.steps):
            raise Refused(Reason.NON_FINITE, f"{header.steps} local steps", **where)
        shard = self._shards[header.shard]
        if header.explicit != (shard.staging.size is None):
            raise Refused(Reason.MALFORMED, "indices travel only where they cannot be redrawn", **where)
        return shard

    def _read(self, shard: int, member: int, payload: Bytes) -> Contents:
        """Turn a member's complete bytes into values, their positions inside the shard, and buffers."""
        plan, header = self.plan, self._shards[shard].headers[member]
        assert plan is not None
        shared, expected = self.recipe.compressor.shared_support, self._shards[shard].expected
        if not shared:
            expected = self._expected(shard, plan, header.mask_key)
        part, buffers = expected.decode(payload, symbols=header.count, mask_key=header.mask_key)
        positions = None
        if not shared and part.coordinates is not None:
            positions = expected.plan.positions_of(shard, part.coordinates)
        values = part.values() if self.recipe.encoding is None else part.symbols
        return Contents(values, positions, buffers)

    def _cut(self, shard: _Shard, plan: RoundPlan) -> Published | Withheld:
        contributors = shard.staging.cut()
        if self._agreement is not None and not self._agreement.are_enough(plan, contributors):
            return Withheld(plan.digest, shard.number, self.peer, Reason.TOO_FEW, contributors)
        fold = partial(self._folded, shard, plan, contributors)
        return steps.cut(plan, shard.number, self.peer, contributors, fold, self._sign)

    def _folded(self, shard: _Shard, plan: RoundPlan, contributors: tuple[int, ...]) -> steps.Folded:
        taken = {member: shard.headers[member].steps for member in contributors}
        values, buffers = shard.total if shard.total is not None else self._mean(shard, plan)
        return steps.Folded(values, buffers, steps.side_scalars(self.recipe, plan, taken))

    def _mean(self, shard: _Shard, plan: RoundPlan) -> tuple[NDArray[Any], NDArray[Any]]:
        """Fold what is staged."""
        values = self._pool.vector(self._count(shard.number, plan))
        self.recipe.rule.fold(shard.staging.contributions(plan.weights), values)
        buffers = np.zeros(int(self.recipe.layout(plan.round).buffers.sizes[shard.number]), np.float32)
        WeightedMean().fold(shard.staging.buffers(plan.weights), buffers)  # plainly averaged, whatever the rule
        return values, buffers


def _add(total: _Sum, member: int, given: Contents) -> None:
    """Add a contribution to a shard's sum."""
    del member
    add(total.values, given.values)
    add(total.buffers, given.buffers)


def _place(header: UploadHeader) -> dict[str, Any]:
    return {"peer": header.member, "round": header.round, "shard": header.shard}


def _check_header(header: UploadHeader, plan: RoundPlan, where: dict[str, Any]) -> None:
    for reason, given, expected in (
        (Reason.WRONG_RUN, header.run, plan.run),
        (Reason.WRONG_EPOCH, header.epoch, plan.epoch),
        (Reason.WRONG_ROUND, header.round, plan.round),
        (Reason.WRONG_CHAIN, header.chain, plan.chain),
        (Reason.WRONG_PLAN, header.plan, plan.digest),
    ):
        if given != expected:
            raise Refused(reason, f"made for {given!r}, here it is {expected!r}", **where)
