"""The aggregator: stages contributions to its shards, cuts them and publishes. It holds no state between rounds.

Floats are staged until the cut and folded in ascending member id. In fixed point the order does not matter: each
contribution is added up when it is complete, and a shard takes the memory of one of them instead of all.

Where contributions are masked, what is added up cannot be read. At the cut the aggregator states whose contributions it
holds (`cuts`); the shard's unmaskers answer with the sum of their pads (`unmasked`), once, for that very set; only then
is there a sum to look at and to publish.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eris.aggregate.figures import signed
from eris.aggregate.fixed_point import Ring, Ring64, add
from eris.aggregate.mean import WeightedMean
from eris.aggregate.rule import Contribution
from eris.aggregate.staging import DEFAULT_BUDGET, Contents, Staging
from eris.errors import Reason, Refused
from eris.privacy.masking import CHECK_WORDS, Words, sum_checks
from eris.protocol import steps
from eris.protocol.agreement import Agreement
from eris.protocol.messages import Published, Receipt, Upload, UploadHeader, Withheld
from eris.protocol.pairs import check_pairs
from eris.protocol.recipe import Recipe
from eris.protocol.round_plan import RoundPlan
from eris.protocol.step_guard import StepGuard
from eris.protocol.unmasker import Cut, Pads, Unmasking
from eris.storage.buffer_pool import BufferPool
from eris.storage.spill import Bytes
from eris.wire.codec import encode_upload
from eris.wire.expected import Expected
from eris.wire.schema import digest_of

__all__ = ["Aggregator"]

_NO_GOOD = (Reason.OUT_OF_RANGE, Reason.NON_FINITE)


class _Sum(NamedTuple):
    """The sum of the contributions to a shard so far, in fixed point."""

    values: Ring
    buffers: Ring64
    checks: Words  # check words of masked contributions
    figures: Ring64  # what their members scored


@dataclass
class _Shard:
    """One shard of this round: what is staged for it, and what it ended in."""

    number: int
    expected: Expected  # the form of every member's upload; where masks differ, that of a member with the key zero
    staging: Staging  # what has arrived
    total: _Sum | None  # None for floats
    headers: dict[int, UploadHeader] = field(default_factory=dict)  # by member, complete or still arriving
    refused: set[int] = field(default_factory=set)  # whose contribution was whole and no good: no other one will come
    outcome: Published | Withheld | None = None  # None while it is open
    cut: Cut | None = None  # the cut of a masked shard that waits for its pads
    pads: dict[int, str] = field(default_factory=dict)  # unmasker → digest of its answer, whose pads are off already
    denied: bool = False  # an unmasker has said that it will not answer the cut


class Aggregator:
    """One peer's aggregating role: takes plans, bytes and the time, and returns receipts and published shards.

    Bytes arrive in chunks: ask for `room`, fill it, then call `filled`.

    Args:
        sign: signs manifests and, where contributions are masked, receipts and cuts; None leaves them unsigned, where
            nobody can impersonate anybody.
        budget: bytes of contributions kept in memory; above it they are staged in a file.
        pool: memory that is used again from round to round.
        agreement: what every plan is held to; None accepts any plan.
        verify: checks other peers' signatures.
        guard: limits how long a mean may be.
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
        verify: steps.Verify = steps.trust_everybody,
        guard: StepGuard | None = None,
    ) -> None:
        self._guard = guard or StepGuard("off")
        self._agreement, self._verify = agreement, verify
        self.peer, self.recipe, self._sign = peer, recipe, sign
        self._budget, self.pool = budget, pool or BufferPool()
        self.plan: RoundPlan | None = None
        self.refusals: Counter[Reason] = Counter()
        self._code = recipe.code
        self._shards: dict[int, _Shard] = {}
        self._cut_at = self._unmask_by = math.inf
        self._gone: set[int] = set()
        self._expecting: frozenset[int] = frozenset()  # whose contributions are waited for
        self._away: set[int] = set()

    # ── the round ────────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, plan: RoundPlan, now: float) -> None:
        """Open a round: forget the last one and expect uploads for the shards that this plan gives us."""
        self._require_agreed(plan)
        check_pairs(plan, self.recipe)
        self.plan, self._cut_at, self._gone, self._away = plan, now + plan.deadlines.contribute, set(), set()
        self._unmask_by, self._expecting = now + plan.deadlines.unmasked, plan.participant_set
        self._shards = {shard: self._open(shard, plan) for shard in plan.shards_of(self.peer)}

    def abstain(self, plan: RoundPlan) -> list[Withheld]:
        """Sit a round out after a restart in the middle of it.

        We no longer know what we published before the restart; a second manifest, over other contributors, would look
        like foul play.
        """
        self._require_agreed(plan)
        self.plan, self._shards, self._cut_at = plan, {}, math.inf
        return [Withheld(plan.digest, shard, self.peer, Reason.RESTARTED) for shard in plan.shards_of(self.peer)]

    def without(self, peers: Iterable[int], *, away: bool = True) -> None:
        """Stop waiting for these members in this round; what they have already sent still counts.

        With `away` they cannot be reached at all; without it they merely send nothing, and their pads may still be
        waited for.
        """
        self._gone |= set(peers)
        self._expecting -= self._gone
        self._away |= set(peers) if away else set()

    def room(self, header: UploadHeader, start: int, stop: int, *, sender: int) -> memoryview:
        """Return memory to receive bytes [start, stop) of a contribution into, or refuse it with a typed reason.

        `sender` is whoever the link belongs to: a peer contributes only for itself.
        """
        with self._counted():
            shard = self._admit(header, sender)
            if shard.headers.get(header.member, header) != header:
                raise Refused(
                    Reason.CONFLICT, "this contribution's header differs from its first chunk's", **_place(header)
                )
            memory = shard.staging.room(header.member, start, stop, total=header.total)
            shard.headers[header.member] = header
            return memory

    def filled(self, header: UploadHeader, start: int, stop: int) -> Receipt | None:
        """Note that bytes [start, stop) are filled; return a receipt once the contribution is complete and finite."""
        if self.plan is None or header.plan != self.plan.digest:
            with self._counted():
                raise Refused(Reason.LATE, "the round is over", **_place(header))
        staging = self._shards[header.shard].staging
        try:
            with self._counted():
                return self._receipt(header) if staging.filled(header.member, start, stop) else None
        except Refused as refusal:
            if refusal.reason is Reason.DUPLICATE:
                return self._receipt(header)
            if refusal.reason in _NO_GOOD:
                self._shards[header.shard].refused.add(header.member)
            if not staging.has_all({header.member}):
                self._shards[header.shard].headers.pop(header.member, None)
            raise

    def give_up(self, header: UploadHeader) -> None:
        """Drop the bytes of a contribution that will not be completed because its link broke."""
        if self.plan is not None and header.plan == self.plan.digest and header.shard in self._shards:
            shard = self._shards[header.shard]
            shard.staging.forget(header.member)
            if not shard.staging.has_all({header.member}):
                shard.headers.pop(header.member, None)

    def receive(self, upload: Upload, sender: int) -> Receipt:
        """Stage a whole contribution at once, for callers without a socket."""
        header, start = upload.header(), 0
        trainable = self.recipe.layout(upload.round).trainable
        if not 0 <= upload.shard < trainable.shards:
            with self._counted():
                raise Refused(Reason.WRONG_SHARD, "there is no such shard", **_place(header))
        pieces = encode_upload(upload.part, upload.buffers, trainable, upload.checks, upload.figures)
        if len(pieces) == 1 and self._adopt(header, pieces[0], sender):
            return self._receipt(header)
        memory = self.room(header, 0, header.total, sender=sender)
        for piece in pieces:
            memory[start : start + piece.nbytes] = piece
            start += piece.nbytes
        receipt = self.filled(header, 0, header.total)
        assert receipt is not None  # all bytes were there
        return receipt

    def tick(self, now: float) -> list[Published | Withheld]:
        """Cut every shard that is complete or due, and return what must be sent out (each shard once)."""
        plan = self.plan
        if plan is None:
            return []
        due = now >= self._cut_at
        open_shards = [shard for shard in self._shards.values() if shard.outcome is None]
        outcomes = []
        for shard in open_shards:
            expected = self._expecting - shard.refused if shard.refused else self._expecting
            if shard.cut is None and (due or shard.staging.has_all(expected)):
                shard.outcome = self._cut(shard, plan)
            if shard.cut is not None and shard.outcome is None:
                shard.outcome = self._unmasked(shard, plan, now)
            if shard.outcome is not None:
                outcomes.append(shard.outcome)
        return outcomes

    def cut_of(self, shard: int) -> Cut | None:
        """Return the cut to show to a masked shard's unmaskers; None before the shard is cut."""
        return self._shards[shard].cut if shard in self._shards else None

    def cuts(self) -> list[Cut]:
        """Return the cuts of masked shards that wait for their pads."""
        return [each.cut for each in self._shards.values() if each.cut is not None and each.outcome is None]

    def take_off(self, answer: Unmasking, sender: int) -> None:
        """Subtract an unmasker's pads from a shard's sum; the same answer again changes nothing, another is refused.

        Once the last pads are off, `tick` publishes the sum, or withholds it if no members can have it.
        """
        plan = self.plan
        shard = next((each for each in self._shards.values() if each.cut and each.cut.digest == answer.cut), None)
        where: dict[str, Any] = {"peer": sender, "shard": shard.number if shard else -1}
        with self._counted():
            if plan is None or shard is None or shard.total is None:
                raise Refused(Reason.WRONG_PLAN, "the pads are for a cut that was not made here", **where)
            if sender != answer.unmasker or sender not in plan.unmaskers_of(shard.number):
                raise Refused(Reason.WRONG_SHARD, "this peer does not unmask the shard", **where)
            if not self._verify(sender, answer.signed_bytes, answer.signature):
                raise Refused(Reason.BAD_SIGNATURE, "the pads are not signed by their unmasker", **where)
            if answer.pads.sizes != Pads(*shard.total).sizes:
                raise Refused(Reason.WRONG_SIZE, f"the pads have the wrong sizes, {answer.pads.sizes} words", **where)
            given, before = digest_of(answer.signed_bytes), shard.pads.get(sender)
            if before not in (None, given):
                raise Refused(Reason.CONFLICT, "this unmasker sent different pads before", **where)
            if shard.outcome is not None or before is not None:
                return
            shard.pads[sender] = given
        pairs: Iterable[tuple[NDArray[Any], NDArray[Any]]] = zip(shard.total, answer.pads, strict=True)
        for total, pads in pairs:
            np.subtract(total, pads, out=total)

    def deny(self, shard: int, sender: int) -> None:
        """Record that an unmasker has permanently refused a shard's cut, so that it is not waited for."""
        found = self._shards.get(shard)
        if self.plan is not None and found is not None and found.cut and sender in self.plan.unmaskers_of(shard):
            found.denied = True

    def outcome(self, shard: int) -> Published | Withheld | None:
        """Return what was published or withheld for a shard, so that it can be served again."""
        return self._shards[shard].outcome if shard in self._shards else None

    def staged(self, shard: int) -> list[tuple[UploadHeader, Contribution, Contribution]]:
        """Return every complete contribution to a shard as it was decoded: header, values and buffers.

        Empty in fixed point, where only a contribution's share of the sum is kept.
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

    @property
    def next_due(self) -> float:
        """When to call `tick` again even if nothing arrives: to cut shards, or give up on missing pads."""
        return self._unmask_by if self.cuts() else self._cut_at

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _receipt(self, header: UploadHeader) -> Receipt:
        """Return the receipt of a contribution; signed if it is masked, for nothing else is kept of it."""
        receipt = Receipt(header.plan, header.member, header.shard, self.peer)
        if self._sign is None or not self.recipe.unmaskers:
            return receipt
        return replace(receipt, signature=self._sign(receipt.signed_bytes))

    def _require_agreed(self, plan: RoundPlan) -> None:
        if self._agreement is not None:
            self._agreement.check(plan, self.recipe)

    def _adopt(self, header: UploadHeader, payload: memoryview, sender: int) -> bool:
        """Stage a whole contribution without a copy; False if another has begun to arrive, to be compared with it."""
        with self._counted():
            shard = self._admit(header, sender)
            if header.member in shard.headers:
                return False
            shard.headers[header.member] = header
            try:
                shard.staging.adopt(header.member, np.frombuffer(payload, np.uint8))
            except Refused as refusal:
                del shard.headers[header.member]
                if refusal.reason in _NO_GOOD:
                    shard.refused.add(header.member)
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
            mark=self._nonce_of(shard) if self.recipe.unmaskers else None,
            budget=self._budget,
            pool=self.pool,
        )
        return _Shard(shard, expected, staging, total)

    def _nonce_of(self, shard: int) -> Callable[[int], bytes]:
        """Return the function from a member to its nonce, which identifies a masked contribution."""
        return lambda member: self._shards[shard].headers[member].nonce

    def _nothing(self, shard: int, plan: RoundPlan) -> _Sum:
        """Return the sum of no contributions."""
        values = self.pool.take(4 * self._count(shard, plan)).view(np.uint32)
        values.fill(0)
        buffers = np.zeros(int(self.recipe.layout(plan.round).buffers.sizes[shard]), np.uint64)
        figures = np.zeros(self.recipe.figure_words(plan.round, shard), np.uint64)
        return _Sum(values, buffers, np.zeros(self._checks, np.uint32), figures)

    @property
    def _checks(self) -> int:
        """How many check words follow a contribution."""
        return CHECK_WORDS if self.recipe.unmaskers else 0

    def _count(self, shard: int, plan: RoundPlan) -> int:
        """Return how many values a published shard has."""
        support = self.recipe.published_support(plan.round, shard)
        return int(self.recipe.layout(plan.round).trainable.sizes[shard]) if support is None else support.size

    def _expected(self, shard: int, plan: RoundPlan, mask_key: bytes) -> Expected:
        """Return the form an upload must have; coordinates are shared, redrawn from the `mask_key`, or sent."""
        layout, compressor = self.recipe.layout(plan.round), self.recipe.compressor
        buffers, kind = int(layout.buffers.sizes[shard]), self.recipe.words.buffers
        form = Expected(
            layout.trainable,
            shard,
            self._code,
            buffers,
            buffer_type=kind,
            checks=self._checks,
            figures=self.recipe.figure_words(plan.round, shard),
        )
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
        if sender != header.member or header.member not in plan.participant_set:
            raise Refused(Reason.NOT_A_MEMBER, f"peer {sender} may not contribute for {header.member}", **where)
        if header.shard not in self._shards:
            raise Refused(Reason.WRONG_SHARD, f"peer {self.peer} does not own this shard", **where)
        if not steps.counts_as_steps(header.steps):
            raise Refused(Reason.NON_FINITE, f"the number of local steps is {header.steps}", **where)
        shard = self._shards[header.shard]
        if bool(header.nonce) != bool(self.recipe.unmaskers):
            raise Refused(Reason.MALFORMED, "contributions must be masked in every round of a run or in none", **where)
        if header.explicit != (shard.staging.size is None):
            raise Refused(Reason.MALFORMED, "indices may travel only if they cannot be redrawn", **where)
        return shard

    def _read(self, shard: int, member: int, payload: Bytes) -> Contents:
        """Decode a member's complete bytes into values, their positions in the shard, and buffers."""
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
        self._require_short(plan, header, values)
        figures = expected.figure_words(payload)
        self._require_possible(plan, header, figures)
        return Contents(values, positions, buffers, expected.check_words(payload), figures)

    def _require_possible(self, plan: RoundPlan, header: UploadHeader, figures: Ring64) -> None:
        """Refuse figures that no member can have scored, where they can be read."""
        who = header.shard, signed(figures), (header.member,)
        if self.recipe.unmaskers or steps.possible_figures(self.recipe, plan, *who):
            return
        raise Refused(Reason.OUT_OF_RANGE, "no member can have scored these figures", **_place(header))

    def _require_short(self, plan: RoundPlan, header: UploadHeader, values: NDArray[Any]) -> None:
        """Refuse a contribution that by itself makes the mean too long, or that is longer than clipped ones are."""
        if not self.recipe.rule.linear or self._guard.limit == math.inf:
            return
        share = 1.0 if self._guard.clips else float(plan.weights[header.member] * plan.scale(plan.participants))
        if not self._guard.allows(values, share):
            raise Refused(
                Reason.OUT_OF_RANGE,
                f"the contribution is too long: by itself it would take the mean beyond {self._guard.limit:.3g}",
                fix="look for a diverging loss; or set server.max_step",
                **_place(header),
            )

    def _cut(self, shard: _Shard, plan: RoundPlan) -> Published | Withheld | None:
        contributors = shard.staging.cut()
        if self._agreement is not None and not self._agreement.are_enough(plan, contributors):
            return Withheld(plan.digest, shard.number, self.peer, Reason.TOO_FEW, contributors)
        if self.recipe.unmaskers:
            return self._ask_for_pads(shard, plan, contributors)
        fold = partial(self._folded, shard, plan, contributors)
        return self._published(shard, plan, contributors, fold)

    def _ask_for_pads(self, shard: _Shard, plan: RoundPlan, contributors: tuple[int, ...]) -> Withheld | None:
        """State whose contributions the sum holds; withhold the shard at once if no honest unmasker would answer."""
        if len(contributors) < plan.least_contributors:
            return Withheld(plan.digest, shard.number, self.peer, Reason.TOO_FEW, contributors)
        nonces = tuple(shard.headers[member].nonce for member in contributors)
        cut = Cut(plan.digest, shard.number, self.peer, contributors, nonces)
        shard.cut = cut if self._sign is None else replace(cut, signature=self._sign(cut.signed_bytes))
        return None

    def _unmasked(self, shard: _Shard, plan: RoundPlan, now: float) -> Published | Withheld | None:
        """Publish a sum whose pads are off; withhold it if the pads do not come or do not fit it."""
        assert shard.cut is not None
        assert shard.total is not None
        contributors, wanted = shard.cut.contributors, set(plan.unmaskers_of(shard.number))
        lost = Withheld(plan.digest, shard.number, self.peer, Reason.UNMASK, contributors)
        if missing := wanted - shard.pads.keys():
            needed = {*missing, *plan.aggregators_of(shard.number)} - {self.peer}  # both must have cut, to be answered
            return lost if shard.denied or now >= self._unmask_by or needed & self._away else None
        if not sum_checks(shard.total.checks, len(contributors)):  # somebody was not honest
            return replace(lost, reason=Reason.WRONG_PADS)
        fold = partial(self._folded, shard, plan, contributors)
        return self._published(shard, plan, contributors, fold)

    def _published(
        self, shard: _Shard, plan: RoundPlan, contributors: tuple[int, ...], fold: Callable[[], steps.Folded]
    ) -> Published | Withheld:
        who = plan, shard.number, self.peer, contributors
        return steps.cut(*who, fold, self._sign, self._guard.allows, self.recipe)

    def _folded(self, shard: _Shard, plan: RoundPlan, contributors: tuple[int, ...]) -> steps.Folded:
        taken = {member: shard.headers[member].steps for member in contributors}
        scalars = steps.side_scalars(self.recipe, plan, taken)
        if shard.total is not None:
            return steps.Folded(shard.total.values, shard.total.buffers, scalars, shard.total.figures)
        figures = np.zeros(self.recipe.figure_words(plan.round, shard.number), np.uint64)
        for scored in shard.staging.figures() if figures.size else ():
            add(figures, scored)
        return steps.Folded(*self._mean(shard, plan), scalars, figures)

    def _mean(self, shard: _Shard, plan: RoundPlan) -> tuple[NDArray[Any], NDArray[Any]]:
        """Fold the staged contributions into the mean of the values and the mean of the buffers."""
        values = self.pool.vector(self._count(shard.number, plan))
        self.recipe.rule.fold(shard.staging.contributions(plan.weights), values)
        buffers = np.zeros(int(self.recipe.layout(plan.round).buffers.sizes[shard.number]), np.float32)
        WeightedMean().fold(shard.staging.buffers(plan.weights), buffers)  # a plain average, whatever the rule
        return values, buffers


def _add(total: _Sum, member: int, given: Contents) -> None:
    """Add a contribution to a shard's sum; whose it is does not matter."""
    del member
    add(total.values, given.values)
    add(total.buffers, given.buffers)
    add(total.checks, given.checks)
    add(total.figures, given.figures)


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
            raise Refused(reason, f"made for {given!r}, but {expected!r} is expected here", **where)
