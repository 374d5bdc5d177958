"""The unmasker: it knows every pad of a shard and no value. A role without I/O, beside the other three.

    member ──y = z + pad──▶ aggregator p ──Cut──▶ unmasker q ──Unmasking──▶ p:  S = Σ y − Σ pad

p has the sum of what it received and, for one set of contributors, the sum of their pads; so it learns the sum of their
values and nothing else. All depends on q's giving out one sum of pads for a (plan, shard) and no second: from two sets
that differ by one member, that member's values could be told. Hence q checks who is in a set, and forgets nothing while
it lives; after a restart it does not know what it said, and sits the round out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from eris.aggregate.fixed_point import Ring, Ring64
from eris.errors import Reason, Refused
from eris.privacy.masking import CHECK_WORDS, LABEL, MaskKey, PadPurpose, Words, add_pad, pad_seed, spelled
from eris.protocol.member import Verify, trust_everybody
from eris.protocol.messages import payload_hash
from eris.protocol.recipe import Recipe
from eris.protocol.round_plan import RoundPlan
from eris.protocol.steps import Sign
from eris.wire.schema import digest_of

__all__ = [
    "Cut",
    "Pads",
    "Unmasker",
    "Unmasking",
    "effective_number",
    "least_contributors",
    "pad_purpose",
    "unmasker_of",
]


@dataclass(frozen=True)
class Cut:
    """An aggregator's signed statement of whose contributions its sum holds, each with the nonce of its pad."""

    plan: str
    shard: int
    aggregator: int
    contributors: tuple[int, ...]  # ascending
    nonces: tuple[bytes, ...] = field(repr=False)
    signature: str = ""

    @cached_property
    def signed_bytes(self) -> bytes:
        """Everything but the signature."""
        numbers = (self.shard, self.aggregator, len(self.contributors), *self.contributors)
        fields = (number.to_bytes(8, "little") for number in numbers)
        return spelled(LABEL + b"-cut", bytes.fromhex(self.plan), *fields, *self.nonces)

    @property
    def digest(self) -> str:
        """Digest of what is signed."""
        return digest_of(self.signed_bytes)

    def agrees(self, other: Cut) -> bool:
        """Whether another aggregator of the same shard has the very same contributions."""
        return (self.contributors, self.nonces) == (other.contributors, other.nonces)


class Pads(NamedTuple):
    """The sum of some members' pads, as long as a shard's values, buffers and check words."""

    values: Ring
    buffers: Ring64
    checks: Words


@dataclass(frozen=True)
class Unmasking:
    """What an unmasker answers to a cut: the sum of the pads, signed together with what it is for."""

    cut: str  # digest
    unmasker: int
    pads: Pads = field(repr=False)
    signature: str = ""

    @cached_property
    def signed_bytes(self) -> bytes:
        """What the cut was, and a hash of the pads."""
        values, buffers, checks = self.pads
        hashes = (payload_hash(values, buffers), payload_hash(checks, buffers[:0]))
        return spelled(LABEL + b"-unmasking", *map(bytes.fromhex, (self.cut, *hashes)))


def unmasker_of(plan: RoundPlan, shard: int) -> int:
    """Return q: the next peer after p that may aggregate but not this shard, of another organisation than who does.

    Where nobody is of another organisation, the next peer all the same. Member, p and q each compute it.
    """
    owners, roster = plan.aggregators_of(shard), {entry.peer: entry for entry in plan.roster}
    home = owners[0]
    ring = [p for p in (*(p for p in roster if p > home), *(p for p in roster if p < home)) if p not in owners]
    able = [peer for peer in ring if roster[peer].can_aggregate]
    if not able:
        raise Refused(Reason.WRONG_PLAN, "nobody is left to unmask it", fix="let more peers aggregate", shard=shard)
    theirs = {roster[owner].organisation for owner in owners} - {""}
    return next((peer for peer in able if roster[peer].organisation not in theirs), able[0])


def least_contributors(plan: RoundPlan) -> int:
    """Return how many must be in a masked sum: two thirds of the participants, and `min_contributors`."""
    return max(plan.least_contributors, math.ceil(2 * len(plan.participants) / 3))


def effective_number(weights: list[np.float32]) -> float:
    """Return (Σw)²/Σw²: how many members of equal weight would hide each other as well.

    >>> effective_number([np.float32(0.25)] * 4), round(effective_number([np.float32(0.97), np.float32(0.03)]), 2)
    (4.0, 1.06)
    """
    squares = math.fsum(float(weight) ** 2 for weight in weights)
    return math.fsum(map(float, weights)) ** 2 / squares if squares else 0.0


def pad_purpose(
    plan: RoundPlan, shard: int, member: int, keys: Mapping[int, bytes], nonce: bytes, length: int
) -> PadPurpose:
    """Return what the pad of one contribution is for; member and unmasker come to the same."""
    unmasker = unmasker_of(plan, shard)
    return PadPurpose(
        run=plan.run,
        plan=bytes.fromhex(plan.digest),
        shard=shard,
        member=member,
        unmasker=unmasker,
        member_key=keys[member],
        unmasker_key=keys[unmasker],
        code="ring32",
        length=length,
        nonce=nonce,
    )


class Unmasker:
    """One peer's unmasking role. Give it plans, cuts and the time; it gives sums of pads.

    `keys` of `begin` are the mask keys of all peers. `least_effective` is the floor of the effective number of members
    in a sum: with one that outweighs all others, it would nearly be that one's own update.
    """

    def __init__(
        self,
        peer: int,
        recipe: Recipe,
        key: MaskKey,
        *,
        sign: Sign | None = None,
        verify: Verify = trust_everybody,
        least_effective: float = 2.0,
    ) -> None:
        self.peer, self.recipe, self._key = peer, recipe, key
        self._sign, self._verify, self._least_effective = sign, verify, least_effective
        self.plan: RoundPlan | None = None
        self._keys: Mapping[int, bytes] = {}
        self._whole_until = math.inf
        self._abstains = False
        self._cuts: dict[int, dict[int, Cut]] = {}  # shard → aggregator → the one cut it may have
        self._answers: dict[int, Pads] = {}

    def begin(self, plan: RoundPlan, keys: Mapping[int, bytes], now: float) -> None:
        """Open a round; the same plan again changes nothing, an earlier one is refused."""
        if self.plan is not None and plan.digest == self.plan.digest:
            return
        where: dict[str, Any] = {"peer": self.peer, "round": plan.round}
        if self.plan is not None and plan.when <= self.plan.when:
            raise Refused(Reason.WRONG_ROUND, "a later plan was open here", **where)
        if keys.get(self.peer) != self._key.public:
            raise Refused(Reason.WRONG_PLAN, "the plan shows another mask key of ours", **where)
        self.plan, self._keys, self._whole_until = plan, dict(keys), now + plan.deadlines.contribute
        self._abstains, self._cuts, self._answers = False, {}, {}

    def abstain(self, plan: RoundPlan) -> None:
        """Answer nothing in this round, after a restart in its middle: what was said in it is forgotten."""
        self.plan, self._abstains, self._cuts, self._answers = plan, True, {}, {}

    def unmask(self, cut: Cut, now: float) -> Unmasking | None:
        """Answer a cut, the same one again with the same; None while the shard's other aggregator has not cut yet."""
        plan = self._check(cut, now)
        cuts = self._cuts.setdefault(cut.shard, {})
        where: dict[str, Any] = {"peer": cut.aggregator, "round": plan.round, "shard": cut.shard}
        earlier = cuts.setdefault(cut.aggregator, cut)
        if not earlier.agrees(cut):
            raise Refused(Reason.CONFLICT, "another set was cut before; a second one is never unmasked", **where)
        if len(cuts) < len(plan.aggregators_of(cut.shard)):
            return None
        if not all(cut.agrees(other) for other in cuts.values()):
            raise Refused(Reason.REPLICAS_DIFFER, "the shard's two aggregators cut different sets", **where)
        if cut.shard not in self._answers:
            self._answers[cut.shard] = self._summed(cut, plan)
        answer = Unmasking(cut.digest, self.peer, self._answers[cut.shard])
        return answer if self._sign is None else replace(answer, signature=self._sign(answer.signed_bytes))

    def _check(self, cut: Cut, now: float) -> RoundPlan:
        plan, contributors = self.plan, cut.contributors
        where: dict[str, Any] = {"peer": cut.aggregator, "shard": cut.shard}
        if plan is None or cut.plan != plan.digest:
            raise Refused(Reason.WRONG_PLAN, "cut under another plan", **where)
        if self._abstains:
            raise Refused(Reason.RESTARTED, "this peer forgot what it unmasked in this round", **where)
        if not 0 <= cut.shard < plan.shards or unmasker_of(plan, cut.shard) != self.peer:
            raise Refused(Reason.WRONG_SHARD, "another peer unmasks it", **where)
        if cut.aggregator not in plan.aggregators_of(cut.shard):
            raise Refused(Reason.WRONG_SHARD, "this peer does not own the shard", **where)
        if not self._verify(cut.aggregator, cut.signed_bytes, cut.signature):
            raise Refused(Reason.BAD_SIGNATURE, "the cut is not signed by its aggregator", **where)
        if list(contributors) != sorted(set(contributors) & set(plan.participants)):
            raise Refused(Reason.MALFORMED, "contributors are not ascending participants", **where)
        if len(cut.nonces) != len(contributors):
            raise Refused(Reason.MALFORMED, f"{len(cut.nonces)} nonces of {len(contributors)} members", **where)
        self._check_set(contributors, plan, now, where)
        return plan

    def _check_set(self, contributors: tuple[int, ...], plan: RoundPlan, now: float, where: dict[str, Any]) -> None:
        if now < self._whole_until and contributors != plan.participants:
            raise Refused(Reason.TOO_FEW, "before the deadline only the whole set is unmasked", **where)
        if len(contributors) < (least := least_contributors(plan)):
            raise Refused(Reason.TOO_FEW, f"a sum over {len(contributors)} of {least} members needed", **where)
        number = effective_number([plan.weights[member] for member in contributors])
        if number < self._least_effective:
            what = f"weights as uneven as these hide as little as {number:.2g} equal ones"
            raise Refused(Reason.TOO_FEW, what, fix="use server.weights = 'uniform'", **where)

    def _summed(self, cut: Cut, plan: RoundPlan) -> Pads:
        layout, support = self.recipe.layout(plan.round), self.recipe.published_support(plan.round, cut.shard)
        count = int(layout.trainable.sizes[cut.shard]) if support is None else support.size
        buffers = int(layout.buffers.sizes[cut.shard])
        pads = Pads(np.zeros(count, np.uint32), np.zeros(buffers, np.uint64), np.zeros(CHECK_WORDS, np.uint32))
        length = count + 2 * buffers + CHECK_WORDS
        for member, nonce in zip(cut.contributors, cut.nonces, strict=True):
            purpose = pad_purpose(plan, cut.shard, member, self._keys, nonce, length)
            add_pad(pads.values, pad_seed(self._key, self._keys[member], purpose), pads.buffers, pads.checks)
        return pads
