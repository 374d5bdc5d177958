"""The unmasker: knows every pad of a shard and no value. A fourth role, without I/O like the other three.

    member ──y = z + pad──▶ aggregator p ──Cut──▶ unmasker q ──Unmasking──▶ p:  S = Σ y − Σ pad

p has the sum of what it received and, for one set of contributors, the sum of their pads; so it learns the sum of their
values and nothing else. Everything depends on q giving out only one sum of pads for a (plan, shard): two sets that
differ by one member would reveal that member's values. So q checks who is in a set, and remembers its answers as long
as it lives; after a restart it does not know what it answered, and sits the round out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np

from eris.aggregate.figures import NO_FIGURES
from eris.aggregate.fixed_point import Ring, Ring64
from eris.errors import Reason, Refused
from eris.privacy.masking import (
    CHECK_WORDS,
    LABEL,
    MaskKey,
    PadPurpose,
    Words,
    add_pads,
    check_words,
    fresh_nonce,
    pad_seed,
    spelled,
)
from eris.protocol.agreement import Agreement, effective_contributors
from eris.protocol.messages import Upload, payload_hash
from eris.protocol.pairs import check_pairs
from eris.protocol.recipe import Recipe
from eris.protocol.round_plan import RoundPlan
from eris.protocol.steps import Sign, Verify, trust_everybody
from eris.protocol.sums import Hides, Start, Sums
from eris.storage.buffer_pool import BufferPool
from eris.wire.schema import MOST_PEERS, Digest, Number, Peers, Signature, digest_of, document, encode

__all__ = [
    "FINAL",
    "Cut",
    "KnowsKey",
    "Pads",
    "Unmasker",
    "Unmasking",
    "believe_keys",
    "masked",
    "pad_purpose",
]

_ROUNDING = 1e-9
# Refusals of a cut that no later try under the same plan changes.
FINAL = frozenset({Reason.SUMMED_BEFORE, Reason.TOO_FEW, Reason.CONFLICT, Reason.RESTARTED, Reason.REPLICAS_DIFFER})
Nonces = Annotated[
    tuple[Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)], ...], msgspec.Meta(max_length=MOST_PEERS)
]


@document(21)
@dataclass(frozen=True)
class Cut:
    """An aggregator's signed statement of whose contributions its sum holds, each with the nonce of its pad."""

    plan: Digest
    shard: Number
    aggregator: Number
    contributors: Peers  # ascending
    nonces: Nonces = field(repr=False)  # in the order of the contributors
    signature: Signature = ""

    @cached_property
    def signed_bytes(self) -> bytes:
        """Everything but the signature."""
        return encode(replace(self, signature="")) if self.signature else encode(self)

    @property
    def digest(self) -> str:
        """Digest of what is signed."""
        return digest_of(self.signed_bytes)

    def agrees(self, other: Cut) -> bool:
        """Whether another aggregator of the same shard has the very same contributions."""
        return (self.contributors, self.nonces) == (other.contributors, other.nonces)


class Pads(NamedTuple):
    """The sum of some members' pads, laid out as a shard's values, buffers, check words and figures."""

    values: Ring
    buffers: Ring64
    checks: Words
    figures: Ring64 = NO_FIGURES

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many words each of them has."""
        return tuple(array.size for array in self)

    @classmethod
    def zeros(cls, values: int, buffers: int, figures: int = 0, pool: BufferPool | None = None) -> Pads:
        """Return the sum of nobody's pads, for so many `values`, `buffers` and `figures`."""
        room = (pool or BufferPool()).take(4 * values).view(np.uint32)
        room.fill(0)
        return cls(room, np.zeros(buffers, np.uint64), np.zeros(CHECK_WORDS, np.uint32), np.zeros(figures, np.uint64))


@dataclass(frozen=True)
class Unmasking:
    """An unmasker's answer to a cut: the sum of the pads, signed together with what it is for."""

    cut: str  # the cut's digest
    unmasker: int
    pads: Pads = field(repr=False)
    signature: str = ""

    @cached_property
    def signed_bytes(self) -> bytes:
        """The cut, and a hash of the pads."""
        values, buffers, checks, figures = self.pads
        hashes = (payload_hash(values, buffers), payload_hash(checks, figures))
        return spelled(LABEL + b"-unmasking", *map(bytes.fromhex, (self.cut, *hashes)))


def pad_purpose(
    plan: RoundPlan, shard: int, member: int, unmasker: int, nonce: bytes, sizes: tuple[int, int, int]
) -> PadPurpose:
    """Return what the pad of one contribution is for; its member and its unmasker arrive at the same.

    `nonce` is the contribution's; `sizes` are the numbers of values, buffers and figures under the pad.
    """
    keys = plan.keys
    if member not in keys or unmasker not in keys:
        raise Refused(Reason.WRONG_PLAN, f"peers {member} and {unmasker} have not both shown mask keys", shard=shard)
    return PadPurpose(
        run=plan.run,
        plan=bytes.fromhex(plan.digest),
        shard=shard,
        member=member,
        unmasker=unmasker,
        member_key=keys[member],
        unmasker_key=keys[unmasker],
        code="ring32",
        length=sizes[0] + 2 * (sizes[1] + sizes[2]) + CHECK_WORDS,
        nonce=nonce,
    )


def masked(upload: Upload, plan: RoundPlan, key: MaskKey) -> Upload:
    """Add the pads of all the shard's unmaskers to a contribution, in place, and return it.

    `key` is the contributing member's own, the one that the plan shows for it.
    """
    values, buffers, figures, checks = upload.part.symbols, upload.buffers, upload.figures, check_words()
    sizes = values.size, buffers.size, figures.size
    nonce, place = fresh_nonce(), (plan, upload.shard, upload.member)
    purposes = [pad_purpose(*place, unmasker, nonce, sizes) for unmasker in plan.unmaskers_of(upload.shard)]
    seeds = [pad_seed(key, purpose.unmasker_key, purpose) for purpose in purposes]
    add_pads(seeds, values, buffers, figures, checks)
    return replace(upload, checks=checks, nonce=nonce)


KnowsKey = Callable[[int, bytes], bool]
"""Whether a peer signed this mask key with the key of its certificate."""


def believe_keys(peer: int, key: bytes) -> bool:
    """Accept any key: for where nobody can impersonate anybody."""
    del peer, key
    return True


class Unmasker:
    """One peer's unmasking role: takes plans, cuts and the time, and returns sums of pads.

    Args:
        key: this process's mask key.
        sign: signs answers; None leaves them unsigned.
        verify: checks the signatures of cuts.
        knows_key: says whether a peer itself signed a mask key.
        least_effective: smallest effective number of members in a sum: if one outweighs all others, the sum is nearly
            that member's own update.
        agreement: what every plan is held to; None accepts any. Members and aggregators check it too: q by itself must
            not be shown a plan of which nobody else has heard.
        sums: knows whose updates from a state were summed before.
        stands: refuses a plan that starts from a state other than this peer's, for then it could not judge the sums.
        pool: memory that is used again from round to round.
    """

    def __init__(
        self,
        peer: int,
        recipe: Recipe,
        key: MaskKey,
        *,
        sign: Sign | None = None,
        verify: Verify = trust_everybody,
        knows_key: KnowsKey = believe_keys,
        least_effective: float = 2.0,
        agreement: Agreement | None = None,
        sums: Sums | None = None,
        stands: Callable[[RoundPlan], None] | None = None,
        pool: BufferPool | None = None,
    ) -> None:
        self.peer, self.recipe, self._key, self._knows_key = peer, recipe, key, knows_key
        self._sign, self._verify, self._least_effective = sign, verify, least_effective
        self._pool, self._agreement = pool or BufferPool(), agreement
        self._sums, self._stands = sums or Sums(), stands
        self.plan: RoundPlan | None = None
        self.whole_until = math.inf  # before then only the whole set is unmasked
        self._gone: set[int] = set()
        self._away: set[int] = set()
        self._abstains = False
        self._cuts: dict[int, dict[int, Cut]] = {}  # shard → aggregator → the one cut it may have
        self._answers: dict[int, Pads] = {}

    def begin(self, plan: RoundPlan, now: float) -> None:
        """Open a round; the same plan again changes nothing, and an earlier one is refused."""
        if self.plan is not None and plan.digest == self.plan.digest:
            return
        where: dict[str, Any] = {"peer": self.peer, "round": plan.round}
        if self.plan is not None and plan.when <= self.plan.when:
            raise Refused(Reason.WRONG_ROUND, "a later plan was open here", **where)
        check_pairs(plan, self.recipe)
        if self._agreement is not None:
            self._agreement.check(plan, self.recipe)
        self._key.follow(plan.keys.get(self.peer))
        if plan.keys.get(self.peer) != self._key.public:
            raise Refused(Reason.WRONG_PLAN, "the plan shows a mask key that is not this peer's current one", **where)
        self.plan, self.whole_until = plan, now + plan.deadlines.contribute
        self._abstains, self._cuts, self._answers = False, {}, {}
        self._gone, self._away = set(), set()

    def without(self, peers: Iterable[int], *, away: bool = True) -> None:
        """Accept cuts without these peers in this round: they were unreachable.

        With `away` they cannot be reached at all; without it they merely send nothing, and their own cuts may still
        come.
        """
        self._gone |= set(peers)
        self._away |= set(peers) if away else set()

    def abstain(self, plan: RoundPlan) -> None:
        """Answer nothing in this round, after a restart in the middle of it: we no longer know what we answered.

        A round before the open one stays closed; otherwise its plan, shown again, would begin this one anew.
        """
        if self.plan is not None and plan.when < self.plan.when:
            return
        self.plan, self._abstains, self._cuts, self._answers = plan, True, {}, {}

    def unmask(self, cut: Cut, now: float) -> Unmasking | None:
        """Answer a cut, a repeated one with the same answer; None while it is too early to answer.

        Before the contribution deadline only the whole set is unmasked, less those that nobody can reach, so an
        aggregator cannot choose. Where a shard has two aggregators, both must have cut.
        """
        plan = self._check(cut)
        if now < self.whole_until and not plan.participant_set - self._gone <= set(cut.contributors):
            return None
        cuts = self._cuts.setdefault(cut.shard, {})
        where: dict[str, Any] = {"peer": cut.aggregator, "round": plan.round, "shard": cut.shard}
        earlier = cuts.setdefault(cut.aggregator, cut)
        if not earlier.agrees(cut):
            raise Refused(
                Reason.CONFLICT,
                "this shard was cut with a different set before; only one per round is unmasked",
                **where,
            )
        if missing := set(plan.aggregators_of(cut.shard)) - cuts.keys():
            if missing & self._away:
                raise Refused(Reason.UNMASK, "the shard's other aggregator is unreachable", **where)
            return None
        if not all(cut.agrees(other) for other in cuts.values()):
            raise Refused(Reason.REPLICAS_DIFFER, "the shard's two aggregators cut different sets", **where)
        if cut.shard not in self._answers:
            self._note_sum(cut, plan, where)
            self._answers[cut.shard] = self._summed(cut, plan)
        answer = Unmasking(cut.digest, self.peer, self._answers[cut.shard])
        return answer if self._sign is None else replace(answer, signature=self._sign(answer.signed_bytes))

    def _check(self, cut: Cut) -> RoundPlan:
        plan, contributors = self.plan, cut.contributors
        where: dict[str, Any] = {"peer": cut.aggregator, "shard": cut.shard}
        if plan is None or cut.plan != plan.digest:
            raise Refused(Reason.WRONG_PLAN, "cut under another plan", **where)
        if self._abstains:
            raise Refused(Reason.RESTARTED, "this peer forgot what it unmasked in this round", **where)
        if not 0 <= cut.shard < plan.shards or self.peer not in plan.unmaskers_of(cut.shard):
            raise Refused(Reason.WRONG_SHARD, "another peer unmasks this shard", **where)
        if cut.aggregator not in plan.aggregators_of(cut.shard):
            raise Refused(Reason.WRONG_SHARD, "this peer does not own the shard", **where)
        if not self._verify(cut.aggregator, cut.signed_bytes, cut.signature):
            raise Refused(Reason.BAD_SIGNATURE, "the cut is not signed by its aggregator", **where)
        if list(contributors) != sorted(set(contributors) & plan.participant_set):
            raise Refused(Reason.MALFORMED, "contributors are not ascending participants", **where)
        if len(cut.nonces) != len(contributors):
            raise Refused(
                Reason.MALFORMED, f"the cut has {len(cut.nonces)} nonces for {len(contributors)} members", **where
            )
        strangers = [member for member in contributors if not self._knows_key(member, plan.keys.get(member, b""))]
        if strangers:
            raise Refused(Reason.BAD_SIGNATURE, f"peer {strangers[0]} has not signed its mask key", **where)
        self._check_set(contributors, plan, where)
        return plan

    def _check_set(self, contributors: tuple[int, ...], plan: RoundPlan, where: dict[str, Any]) -> None:
        if len(contributors) < (least := plan.least_contributors):
            raise Refused(Reason.TOO_FEW, f"the sum has {len(contributors)} members, but needs {least}", **where)
        if not self._hides(plan)(contributors):
            number = effective_contributors(plan, contributors)
            what = f"weights as uneven as these hide as little as {number:.2g} equal ones"
            raise Refused(Reason.TOO_FEW, what, fix="use server.weights = 'uniform'", **where)

    def _hides(self, plan: RoundPlan) -> Hides:
        """Return a test of whether members hide one another by weight; those no longer on the roster do not count."""

        def hides(members: tuple[int, ...]) -> bool:
            here = [member for member in members if member in plan.weights]
            return effective_contributors(plan, here) >= self._least_effective - _ROUNDING

        return hides

    def _note_sum(self, cut: Cut, plan: RoundPlan, where: dict[str, Any]) -> None:
        """Record whose sum will be known; refuse one that, combined with earlier ones, would reveal few members."""
        if self._stands is not None:
            self._stands(plan)
        members = cut.contributors
        if not self._sums.allows(Start.of(plan), cut.shard, members, plan.least_apart, self._hides(plan)):
            what = "with what was summed from this state before, it would show few members' values"
            fix = "bring back the members that took part before, or begin a new run"
            raise Refused(Reason.SUMMED_BEFORE, what, fix=fix, **where)
        self._sums.answer(Start.of(plan), cut.shard, members, plan.digest)
        if self._sums.is_told(plan.digest):  # our answers were reported, and this was not among them
            raise Refused(Reason.LATE, "this peer has already reported what it unmasked", **where)

    def _summed(self, cut: Cut, plan: RoundPlan) -> Pads:
        sizes = *self.recipe.published_sizes(plan.round, cut.shard), self.recipe.figure_words(plan.round, cut.shard)
        pads = Pads.zeros(*sizes, pool=self._pool)
        pairs = zip(cut.contributors, cut.nonces, strict=True)
        purposes = [pad_purpose(plan, cut.shard, member, self.peer, nonce, sizes) for member, nonce in pairs]
        seeds = [pad_seed(self._key, purpose.member_key, purpose) for purpose in purposes]
        add_pads(seeds, pads.values, pads.buffers, pads.figures, pads.checks)
        return pads
