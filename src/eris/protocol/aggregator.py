"""The aggregator: stages contributions to its shards, cuts, publishes. It holds no state between rounds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from eris.aggregate.rule import Contribution
from eris.errors import Reason, Refused
from eris.local.spec import Vector
from eris.protocol.messages import Manifest, Published, Receipt, Upload, Withheld, payload_hash
from eris.protocol.recipe import Recipe
from eris.protocol.round_plan import RoundPlan
from eris.shards.plan import Coordinates
from eris.shards.policy import Layout

__all__ = ["Aggregator", "Sign", "no_signature"]

Sign = Callable[[bytes], str]


def no_signature(message: bytes) -> str:
    """Sign nothing: for simulations, where nobody can pretend to be somebody else."""
    del message
    return ""


@dataclass
class _Shard:
    """One shard of this round: what is staged, and what became of it."""

    number: int
    support: Coordinates | None  # the round's shared support inside the shard; None: every coordinate, or none shared
    staged: dict[int, Upload] = field(default_factory=dict)
    outcome: Published | Withheld | None = None


class Aggregator:
    """One peer's aggregating role. Give it plans, uploads and the time; it gives receipts and published shards."""

    def __init__(self, peer: int, recipe: Recipe, *, sign: Sign = no_signature) -> None:
        self.peer, self.recipe, self._sign = peer, recipe, sign
        self.plan: RoundPlan | None = None
        self.refusals: Counter[Reason] = Counter()
        self._shards: dict[int, _Shard] = {}
        self._cut_at = math.inf

    def begin(self, plan: RoundPlan, now: float) -> None:
        """Open a round: forget the last one, expect uploads for the shards this plan gives us."""
        self._shards = {
            shard: _Shard(shard, self.recipe.published_support(plan.round, shard))
            for shard in plan.shards_of(self.peer)
        }
        self.plan, self._cut_at = plan, now + plan.deadlines.contribute

    def abstain(self, plan: RoundPlan) -> list[Withheld]:
        """Sit this round out, after a restart in its middle.

        What was published before is forgotten; a second manifest, over other contributors, would look like foul play.
        """
        self.plan, self._shards, self._cut_at = plan, {}, math.inf
        return [Withheld(plan.digest, shard, self.peer, Reason.RESTARTED) for shard in plan.shards_of(self.peer)]

    def receive(self, upload: Upload, sender: int) -> Receipt:
        """Stage a complete contribution, or refuse it with a typed reason; refusals are counted."""
        try:
            self._admit(upload, sender)
        except Refused as refusal:
            self.refusals[refusal.reason] += 1
            if refusal.reason is not Reason.DUPLICATE:
                raise
        else:
            self._shards[upload.shard].staged[upload.member] = upload
        return Receipt(upload.plan, upload.member, upload.shard, self.peer)

    def tick(self, now: float) -> list[Published | Withheld]:
        """Cut every shard that is complete or due, and return what is to be sent out (each once)."""
        plan = self.plan
        if plan is None:
            return []
        due = now >= self._cut_at
        ready = [s for s in self._shards.values() if s.outcome is None and (due or len(s.staged) == self._expected())]
        for shard in ready:
            shard.outcome = self._cut(shard, plan)
        return [shard.outcome for shard in ready if shard.outcome is not None]

    def outcome(self, shard: int) -> Published | Withheld | None:
        """Return what was published for a shard (to serve it again)."""
        return self._shards[shard].outcome if shard in self._shards else None

    def _expected(self) -> int:
        return len(self.plan.participants) if self.plan else 0

    def _admit(self, upload: Upload, sender: int) -> None:
        where: dict[str, Any] = {"peer": upload.member, "round": upload.round, "shard": upload.shard}
        plan = self.plan
        if plan is None:
            raise Refused(Reason.WRONG_ROUND, "no round is open here", **where)
        _check_header(upload, plan, where)
        if sender != upload.member or upload.member not in plan.participants:
            raise Refused(Reason.NOT_A_MEMBER, f"peer {sender} may not contribute for {upload.member}", **where)
        if upload.shard not in self._shards:
            raise Refused(Reason.WRONG_SHARD, f"peer {self.peer} does not own this shard", **where)
        shard = self._shards[upload.shard]
        if (earlier := shard.staged.get(upload.member)) is not None:
            same = earlier.same_content(upload)
            reason = Reason.DUPLICATE if same else Reason.CONFLICT
            raise Refused(reason, "a contribution is final once it is complete", **where)
        if shard.outcome is not None:
            raise Refused(Reason.LATE, "the shard was cut before this was complete", **where)
        self._check_content(upload, self.recipe.layout(plan.round), where)

    def _check_content(self, upload: Upload, layout: Layout, where: dict[str, Any]) -> None:
        part, compressor = upload.part, self.recipe.compressor
        if part.code.name != compressor.code(self.recipe.spec.trainable_sizes).name:
            raise Refused(Reason.MALFORMED, f"values are coded as {part.code.name}", **where)
        size, buffers = int(layout.trainable.sizes[upload.shard]), int(layout.buffers.sizes[upload.shard])
        kept = self._kept(upload, layout)
        count = size if kept is None else kept.size
        if part.size != size or part.symbols.size != count or upload.buffers.size != buffers:
            raise Refused(
                Reason.WRONG_SIZE,
                f"{part.symbols.size} of {part.size} values and {upload.buffers.size} buffers, expected {count} of "
                f"{size} and {buffers}",
                **where,
            )
        if not (
            _finite(part.values()) and _finite(upload.buffers) and math.isfinite(upload.steps) and upload.steps > 0
        ):
            raise Refused(Reason.NON_FINITE, "a value is not finite", fix="look for a diverging loss", **where)

    def _kept(self, upload: Upload, layout: Layout) -> Coordinates | None:
        """Return the coordinates the values belong to: shared, redrawn from the member's key, or sent along."""
        part, shard = upload.part, self._shards[upload.shard]
        if part.explicit:
            return part.coordinates
        if self.recipe.compressor.shared_support:
            return shard.support
        assert self.plan is not None
        seed = self.recipe.round_seed(self.plan.round)
        return self.recipe.compressor.support(upload.shard, layout.trainable, seed, part.mask_key)

    def _cut(self, shard: _Shard, plan: RoundPlan) -> Published | Withheld:
        contributors = tuple(sorted(shard.staged))
        if len(contributors) < max(plan.min_contributors, 1):
            return Withheld(plan.digest, shard.number, self.peer, Reason.TOO_FEW, contributors)
        layout = self.recipe.layout(plan.round)
        values = self._fold_values(shard, plan, layout)
        buffers = self._fold_buffers(shard, plan, layout)
        manifest = Manifest(
            plan=plan.digest,
            round=plan.round,
            shard=shard.number,
            aggregator=self.peer,
            contributors=contributors,
            c=float(self.recipe.scale(plan, contributors)),
            steps=mean_steps({member: shard.staged[member].steps for member in contributors}, plan),
            hash=payload_hash(values, buffers),
        )
        return Published(replace(manifest, signature=self._sign(manifest.signed_bytes)), values, buffers)

    def _fold_values(self, shard: _Shard, plan: RoundPlan, layout: Layout) -> Vector:
        size = int(layout.trainable.sizes[shard.number])
        values = np.zeros(size if shard.support is None else shard.support.size, np.float32)
        contributions = []
        for member, upload in sorted(shard.staged.items()):
            positions = None
            if not self.recipe.compressor.shared_support and (kept := self._kept(upload, layout)) is not None:
                positions = layout.trainable.positions_of(shard.number, kept)
            contributions.append(Contribution(member, plan.weights[member], upload.part.values(), positions))
        self.recipe.rule.fold(contributions, values)
        return values

    def _fold_buffers(self, shard: _Shard, plan: RoundPlan, layout: Layout) -> Vector:
        from eris.aggregate.mean import Mean  # buffers are plainly averaged, whatever the rule

        buffers = np.zeros(int(layout.buffers.sizes[shard.number]), np.float32)
        Mean().fold([Contribution(m, plan.weights[m], u.buffers) for m, u in sorted(shard.staged.items())], buffers)
        return buffers


def mean_steps(steps: dict[int, float], plan: RoundPlan) -> float:
    """Return the contributors' mean number of local steps, weighted as their updates are (FedNova's τ_eff)."""
    weighted = math.fsum(float(plan.weights[member]) * count for member, count in steps.items())
    return weighted / math.fsum(float(plan.weights[member]) for member in steps)


def _check_header(upload: Upload, plan: RoundPlan, where: dict[str, Any]) -> None:
    for reason, given, expected in (
        (Reason.WRONG_RUN, upload.run, plan.run),
        (Reason.WRONG_EPOCH, upload.epoch, plan.epoch),
        (Reason.WRONG_ROUND, upload.round, plan.round),
        (Reason.WRONG_CHAIN, upload.chain, plan.chain),
        (Reason.WRONG_PLAN, upload.plan, plan.digest),
    ):
        if given != expected:
            raise Refused(reason, f"made for {given!r}, here it is {expected!r}", **where)


def _finite(values: Vector) -> bool:
    # A finite sum of squares proves it in one fast pass; an infinite one may only have overflowed.
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(np.dot(values, values)) or np.isfinite(values).all())
