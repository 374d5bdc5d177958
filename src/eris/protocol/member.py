"""The member: checks the plan, cuts its update, holds what is published, and moves on the verdict only.

    begin(plan) → start() → [train] → contribute(result) → receive(published)… → report() → conclude(verdict)

A member that lacks a committed shard says so (`Missing`), fetches it by hash from a peer that holds it, and then
concludes. One whose chain of verdicts no longer matches takes a snapshot.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eris.aggregate.fixed_point import RingScale
from eris.errors import Reason, Refused
from eris.local.spec import Vector
from eris.local.task import BlockResult, LocalResult
from eris.privacy.masking import MaskKey
from eris.protocol import steps
from eris.protocol.agreement import Agreement, sits_out
from eris.protocol.false_manifest import FalseManifest, lie_of
from eris.protocol.floor import Floor
from eris.protocol.held_shards import HeldShards
from eris.protocol.messages import (
    Disagreement,
    Equivocation,
    Manifest,
    Published,
    Receipt,
    Report,
    Upload,
    Withheld,
)  # fmt: skip
from eris.protocol.own_update import OwnUpdate
from eris.protocol.pairs import check_pairs, coalitions
from eris.protocol.participation import ALARMS, draw_participants, is_alarm
from eris.protocol.recipe import Recipe
from eris.protocol.replica import Replica, copy_over, initial_state
from eris.protocol.round_plan import RoundPlan
from eris.protocol.shown import Releases, Shown
from eris.protocol.step_guard import StepGuard, length
from eris.protocol.sums import Start, Sums
from eris.protocol.unmasker import KnowsKey, believe_keys, masked
from eris.protocol.verdict import GENESIS, UnmaskedSum, Verdict
from eris.seeds import Seed
from eris.storage.buffer_pool import BufferPool

__all__ = ["NO_REFERENCE", "Member", "Missing", "Snapshot"]

NO_REFERENCE = -1  # the reference epoch of a member whose s_k was lost


@dataclass(frozen=True, slots=True)
class Missing:
    """Committed shards this member must fetch before it can move: shard → digest of the payload."""

    round: int
    hashes: dict[int, str]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a newcomer needs to reach this member's state."""

    round: int  # the next round
    chain: str  # digest of the last verdict
    state: dict[str, Vector] = field(repr=False)


class Member:
    """One peer's training role."""

    def __init__(
        self,
        peer: int,
        recipe: Recipe,
        model: Vector | Iterable[Vector],
        private: Seed,
        *,
        floor: Floor | None = None,
        agreement: Agreement | None = None,
        shown: Shown | None = None,
        verify: steps.Verify = steps.trust_everybody,
        pool: BufferPool | None = None,
        key: MaskKey | None = None,
        knows_key: KnowsKey = believe_keys,
        sums: Sums | None = None,
        guard: StepGuard | None = None,
        releases: Releases | None = None,
    ) -> None:
        """Start before the first round.

        Args:
            model: the common model, whole or in blocks.
            private: this member's private root of randomness.
            floor: this member's own limits; every plan is checked against them.
            agreement: what every plan is held to; None accepts any.
            shown: counts which peer has seen which coordinates of this member's updates.
            verify: checks other peers' signatures.
            pool: memory that is used again from round to round, or lies in files.
            key: this process's mask key, where contributions are masked.
            knows_key: says whether a peer itself signed a mask key; pads under any other key hide nothing.
            sums: hears of every published sum; this peer's unmasker consults it.
            guard: limits how long a mean may be.
            releases: counts the noisy updates that leave this member.
        """
        self._sums = sums
        self.peer, self.recipe, self._agreement, self._key = peer, recipe, agreement, key
        self._knows_key = knows_key
        self.floor, self._seed, self._pool = (
            floor or Floor(),
            private.require_private("a member's root"),
            pool or BufferPool(),
        )
        self._guard = guard or StepGuard("off")
        self.held = HeldShards(peer, recipe, self.floor, self._guard, verify)
        self.shown, self.releases = shown or Shown(recipe), Releases() if releases is None else releases
        self.unsent: tuple[int, ...] = ()  # shards of this round that would have shown some peer too much
        self.replica = Replica.start(recipe, model, pool=self._pool)
        self.private = initial_state(recipe.chain.private_state, recipe.spec.n_trainable, self._pool)
        self.round, self.chain, self.reference_epoch = 0, GENESIS, 0
        self.plan: RoundPlan | None = None
        self._update: OwnUpdate | None = None  # of this round, once it is cut
        self._unreached: set[int] = set()  # aggregators that our part of this round did not reach
        self.last_scale: RingScale | None = None  # how the last round's values were written, in fixed point
        self._standing: tuple[tuple[int, str], str] = ((-1, ""), "")  # for which round and chain, and what it is
        self._alarms: deque[bool] = deque(maxlen=ALARMS)  # whether the last rounds had impossible sums
        self.limited = steps.Limited()  # by the last contribution; told to nobody
        self.untold: tuple[UnmaskedSum, ...] = ()  # what we unmasked and the last verdict, which calls us late, lacks

    # ── the round ────────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, plan: RoundPlan) -> None:
        """Accept a round plan, or refuse it; nothing of this member leaves before that."""
        where: dict[str, Any] = {"peer": self.peer, "round": plan.round}
        self.recipe.spec.require_same(plan.spec, where=f"the plan of round {plan.round}")
        if plan.shards != self.recipe.policy.shards:
            raise Refused(
                Reason.WRONG_PLAN,
                f"the plan has {plan.shards} shards, but the recipe has {self.recipe.policy.shards}",
                **where,
            )
        if plan.draw != self.recipe.policy.draw(plan.round):
            raise Refused(Reason.WRONG_PLAN, f"shard plan number {plan.draw} is not this round's", **where)
        if (plan.round, plan.chain) != (self.round, self.chain):
            raise Refused(
                Reason.WRONG_CHAIN,
                f"the plan does not follow this member's state, which is before round {self.round}",
                fix="take a snapshot",
                **where,
            )
        if bool(plan.witnesses) != (self.recipe.policy.replicas > 1):
            raise Refused(Reason.WRONG_PLAN, "the plan does not have the replicas that the recipe asks for", **where)
        check_pairs(plan, self.recipe)
        if self._agreement is not None:
            self._agreement.check(plan, self.recipe)
        self.floor.check(plan, self.recipe, self.peer)
        self._require_alarms(plan)
        self._enter_reference_epoch(plan)
        if self._key is not None:
            self._key.follow(plan.keys.get(self.peer))
        self.plan, self._update, self._unreached = plan, None, set()
        self.held.begin()

    def _require_alarms(self, plan: RoundPlan) -> None:
        """Refuse a plan in which a third of the draw sits out, unless as far as we know there was reason to."""
        if self.recipe.encoding is None:
            return
        drawn = draw_participants(sorted(plan.weights), plan.participation, self.recipe.public, plan.round)
        known = len(self._alarms) == ALARMS or self.round < ALARMS
        if known and sits_out(plan.participants, drawn) and not (self._alarms and all(self._alarms)):
            raise Refused(
                Reason.WRONG_PLAN,
                "a third of the participants sits out although there were no impossible sums",
                fix="the coordinator is not honest",
                peer=self.peer,
                round=plan.round,
                field="participants",
            )

    def _enter_reference_epoch(self, plan: RoundPlan) -> None:
        """Set s_k := s in the round in which all members do so; a member that missed that round has no reference."""
        if plan.reference_epoch == self.reference_epoch:
            return
        if plan.reference_begins == plan.round:
            self.recipe.chain.new_epoch(self.private, self.replica.public)
            self.reference_epoch = plan.reference_epoch
        else:
            self.forget_reference()

    def start(self) -> Vector:
        """Return the model to train from, as the member's own copy."""
        model = self._pool.vector(self.replica.model.size)
        copy_over(self.look(), model)
        return model

    def look(self) -> Vector:
        """Return the same model for a task that only reads it; it is copied only where the recipe changes it."""
        return steps.starting_model(self.recipe, self.replica.model, self.private, self._pool)

    def drift(self) -> Vector | None:
        """Return what this member adds to each local gradient in this round; None if nothing."""
        return self.recipe.chain.drift(self.private, self.replica.public)

    def contribute(
        self, result: LocalResult | BlockResult, scores: Mapping[str, tuple[float, float]] | None = None
    ) -> list[Upload]:
        """Transform an update and cut it into uploads, one for each shard that may be sent to its aggregator.

        `scores` holds (sum, count) of this member's evaluation of the round's model, where members share that.
        """
        plan = self._open_plan()
        if self.lost_reference:
            raise Refused(
                Reason.WRONG_EPOCH,
                "this member has no valid reference",
                fix="tell the coordinator that it returned without one: a reference epoch begins with the next plan",
                peer=self.peer,
                round=plan.round,
            )
        self._require_own_key(plan)
        states, own = (self.private, self.replica.public), self._seed.child("round", plan.round)
        outgoing, buffers = steps.contribute(self.recipe, plan.round, self.peer, result, *states, own, self._pool)
        self._update = update = OwnUpdate(
            self.recipe, plan, self.peer, outgoing, self.replica.scale_in(plan), self._pool
        )
        parts, rest = update.cut(buffers, own)
        self.limited = update.limited
        if self._guard.learns and self.recipe.encoding is None:
            self._guard.note_own(math.hypot(*(length(part.values()) for part in parts)))
        if self.recipe.adds_noise:
            self.releases.note(plan.round, update.kept.packed.symbols)
        self.unsent = self._too_much(plan)
        plain = update.uploads(parts, rest, result.steps, scores, without=self.unsent)
        if self._key is None or not self.recipe.unmaskers:
            return plain
        return [masked(upload, plan, self._key) for upload in plain]

    def _require_own_key(self, plan: RoundPlan) -> None:
        """Refuse to send under a plan that shows a different mask key for us: it predates a restart, or is forged."""
        if not self.recipe.unmaskers:
            return
        if self._key is None or plan.keys.get(self.peer) != self._key.public:
            raise Refused(
                Reason.WRONG_PLAN,
                "the plan shows a mask key that is not this member's current one"
                if self._key
                else "this member has no mask key",
                fix="nothing to do: this member sits the round out, and the next plan has its key",
                peer=self.peer,
                round=plan.round,
            )
        for unmasker in sorted(set(plan.unmaskers)):
            if not self._knows_key(unmasker, plan.keys.get(unmasker, b"")):
                raise Refused(
                    Reason.BAD_SIGNATURE,
                    f"peer {unmasker} has not signed the mask key that the plan shows for it",
                    fix="nothing was sent: the address book has not arrived yet, or the coordinator is not honest",
                    peer=self.peer,
                    round=plan.round,
                )

    def _too_much(self, plan: RoundPlan) -> tuple[int, ...]:
        """Record what this update will show to whom; return the shards that must not be sent.

        The floor has been checked within this one plan. All plans of a run, or all from one state, are held together to
        the same limits, whoever aggregates what in them (`Shown`).
        """
        limits = self.floor.limits(plan, self.recipe, self.peer)
        if not limits:
            return ()
        wanted = {group: shards for group, shards in coalitions(plan).items() if self.peer not in group}
        state = self.standing() if self.shown.by_state else ""
        allowed = self.shown.allow(state, plan.draw, wanted, limits)
        refused = {shard for group, shards in wanted.items() for shard in shards if (shard, group) not in allowed}
        return tuple(sorted(refused))

    def standing(self) -> str:
        """Return the digest of the state this member trains from, worked out once a round."""
        if self._standing[0] != (self.round, self.chain):
            self._standing = (self.round, self.chain), self.replica.digest()
        return self._standing[1]

    def uncovered(self, uploads: Sequence[Upload]) -> list[Upload]:
        """Return this round's contributions without their pads, for observers within this member."""
        if not self.recipe.unmaskers or self._update is None:
            return list(uploads)
        self._open_plan()
        return self._update.uncovered(uploads)

    def receive(self, published: Published, *, committed: bool = False) -> Equivocation | None:
        """Hold a published shard aside; refuse one the plan does not ask for, or that is too long and not committed."""
        plan, manifest = self._open_plan(), published.manifest
        known = manifest.shard in self.held.published
        proof = self.held.receive(plan, published, committed=committed)
        if not known and self._sums is not None and self.recipe.unmaskers:
            self._sums.note(Start.of(plan), manifest.contributors, manifest.shard)
        return proof

    def broken(self, manifest: Manifest, receipt: Receipt | None) -> FalseManifest | None:
        """Return proof if an aggregator left out our contribution after giving us this signed receipt."""
        if receipt is None or not receipt.signature or receipt.member != self.peer:
            return None
        if not lie_of(self._open_plan(), manifest, receipt):
            return None
        signed = self.held.verify(receipt.aggregator, receipt.signed_bytes, receipt.signature)
        return FalseManifest(manifest, receipt) if signed else None

    def second(self, manifest: Manifest) -> None:
        """Take the manifest of a shard's second aggregator; comparing it does not need the values."""
        self.held.second(self._open_plan(), manifest)

    def disagreement(self, shard: int) -> Disagreement | None:
        """Return the finding if the two aggregators of a shard disagree."""
        return self.held.disagreement(shard)

    def accounted_for(self, shard: int) -> bool:
        """Whether nothing more is expected of a shard in this round."""
        return self.held.accounted_for(self._open_plan(), shard)

    def withhold(self, notice: Withheld) -> None:
        """Note that a shard will not come in this round."""
        if self.plan is not None and notice.plan == self.plan.digest:
            self.held.withhold(notice.shard)

    def out_of_reach(self, aggregators: Iterable[int]) -> None:
        """Note which aggregators our part of this round did not reach; only the report says so."""
        self._unreached = set(aggregators) & self._open_plan().aggregators - {self.peer}

    def report(self) -> Report:
        """Report which published shards this member holds."""
        plan = self._open_plan()
        state = self.replica.digest() if plan.checkpoint or plan.attest else ""
        complete = all(map(self.accounted_for, range(plan.shards)))
        unmasked: tuple[UnmaskedSum, ...] = ()
        if self._sums is not None:
            self._sums.keep()  # a plan may be taken back without a verdict: what was published counts even so
            unmasked = self._sums.told(plan.digest)
        held, unreached = self.held.vouched_for(plan), tuple(sorted(self._unreached))
        return Report(plan.digest, self.peer, held, complete, state, unreached, unmasked)

    def manifest(self, shard: int) -> Manifest | None:
        """Return the manifest of a held shard (the coordinator may ask for it)."""
        return self.held.manifest(shard)

    def conclude(self, verdict: Verdict) -> Missing | None:
        """Follow the verdict; if a committed shard is not here, change nothing and return what is missing."""
        plan = self._open_plan()
        if verdict.plan != plan.digest or verdict.previous != self.chain:
            raise Refused(Reason.WRONG_CHAIN, "the verdict is about another plan", peer=self.peer, round=verdict.round)
        if len(verdict.shards) != plan.shards:
            raise Refused(
                Reason.MALFORMED,
                f"the verdict has {len(verdict.shards)} shards, which is not the plan's number",
                peer=self.peer,
                round=plan.round,
            )
        if lacking := self.held.lacking(verdict):
            return Missing(verdict.round, lacking)
        self._require_own_sums(verdict)
        self._judge_sums(verdict)
        self.last_scale = self.replica.scale_in(plan)
        with np.errstate(over="ignore", invalid="ignore"):  # checked right below
            committed = steps.apply(self.replica, plan, self.held.published, verdict)
        self._require_finite_model(verdict.round)
        self.held.note_step(verdict)
        self._settle(verdict)
        self.shown.committed(
            plan.draw, (e.shard for e in verdict.shards if e.committed and self._moves(verdict, e.shard))
        )
        self.held.conclude(committed)
        self._alarms.append(is_alarm(entry.lost for entry in verdict.shards))
        self.round, self.chain = verdict.round + 1, verdict.digest
        self.plan, self._update = None, None
        return None

    # ── helping others, catching up ──────────────────────────────────────────────────────────────────────────────

    def serve(self, digest: str) -> Published | None:
        """Return a published shard of this or the last round by the hash of its payload."""
        return self.held.find(digest)

    def accept_fetched(self, published: Published, verdict: Verdict) -> None:
        """Take a committed shard from any peer: the manifest that the verdict names proves it, whoever sent it."""
        entry = verdict.shards[published.manifest.shard]
        if published.manifest.digest != entry.manifest:
            raise Refused(
                Reason.WRONG_DIGEST,
                "the shard is not the one that the verdict committed",
                peer=self.peer,
                shard=entry.shard,
            )
        earlier = self.held.published.pop(entry.shard, None)
        try:
            self.receive(published, committed=True)
        except Refused:
            if earlier is not None:
                self.held.published[entry.shard] = earlier
            raise

    def snapshot(self) -> Snapshot:
        """Return a copy of the public state, for a newcomer. Private references are not part of it."""
        copies = {name: self._pool.vector(value.size) for name, value in self.replica.state().items()}
        for name, value in self.replica.state().items():
            copy_over(value, copies[name])
        return Snapshot(self.round, self.chain, copies)

    def restore(self, snapshot: Snapshot, *, missed: Sequence[Verdict] = ()) -> None:
        """Move to the snapshot's state; private state stays, settled by the verdicts `missed` in between."""
        for verdict in missed:
            self._require_own_sums(verdict)
            self._settle(verdict)
            self._judge_sums(verdict)
        self.replica.load(snapshot.state)
        self._alarms.clear()
        self.shown.jumped()
        self.round, self.chain = snapshot.round, snapshot.chain
        self.plan, self._update = None, None
        self.held.conclude(())

    def begin_anew(self, state: Mapping[str, Vector]) -> None:
        """Move to before the first round with no private state: no reference, nothing withheld."""
        self.restore(Snapshot(0, GENESIS, dict(state)))
        self.private = initial_state(self.recipe.chain.private_state, self.recipe.spec.n_trainable, self._pool)
        self.forget_reference()

    def forget_reference(self) -> None:
        """Give up s_k because it is lost or outdated; it follows, and contributes again in the next epoch."""
        self.reference_epoch = NO_REFERENCE

    def disown(self) -> None:
        """Give up this round's update, because an aggregator holds a different one of ours from before a restart."""
        self._update = None

    @property
    def lost_reference(self) -> bool:
        """Whether the coordinator must be told that this member has no valid reference."""
        return self.recipe.keeps_references and self.reference_epoch == NO_REFERENCE

    def _settle(self, verdict: Verdict) -> None:
        """Advance the reference by what was committed of ours; without a record of sending it, we have none."""
        missing = verdict.missing(self.peer)
        if self._update is not None and self.plan is not None and verdict.plan == self.plan.digest:
            steps.settle(self.recipe, verdict.round, self._update.kept, self.private, missing)
        elif len(missing) < len(verdict.shards):
            self.forget_reference()

    def _require_own_sums(self, verdict: Verdict) -> None:
        """Refuse a verdict that heard our report but hides or changes whose pads we gave out.

        The next unmasker knows of a sum that its aggregator kept to itself from the verdict alone. If the verdict calls
        us late, our report may really have been lost: then `untold` says what is missing, and nobody is accused.
        """
        self.untold = self._sums.left_out(verdict) if self._sums is not None else ()
        if self.untold and self.peer not in verdict.late:
            raise Refused(
                Reason.WRONG_DIGEST,
                "the verdict does not say whose pads this peer reported giving out",
                fix="the coordinator is not honest: with that shard's aggregator it could learn one member's values",
                peer=self.peer,
                round=verdict.round,
                shard=self.untold[0].shard,
            )

    def _judge_sums(self, verdict: Verdict) -> None:
        """Tell our unmasker's record what was summed from which state, as far as the verdict shows."""
        if self._sums is not None and self.recipe.unmaskers:
            layout = self.recipe.layout(verdict.round)
            draw = self.recipe.policy.draw(verdict.round)
            self._sums.judged(
                verdict, draw, lambda shard: self._moves(verdict, shard) * layout.size(shard) / max(layout.n, 1)
            )

    def _moves(self, verdict: Verdict, shard: int) -> bool:
        """Whether a committed shard changed anything; one that we missed is taken to have, and one without values.

        An aggregator may publish zeros so that a new count begins while members send the same once more.
        """
        here = self.plan is not None and verdict.plan == self.plan.digest
        published = self.held.published.get(shard) if here else None
        return published is None or not published.values.size or bool(published.values.any())

    # ── checks ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _open_plan(self) -> RoundPlan:
        if self.plan is None:
            raise Refused(Reason.WRONG_ROUND, "no round is open", fix="begin(plan) first", peer=self.peer)
        return self.plan

    def _require_finite_model(self, round: int) -> None:
        """Stop rather than train on or hand in a model that is not finite: finite means may still overflow a step."""
        if not self.replica.is_finite:
            raise Refused(
                Reason.NON_FINITE,
                "the model is not finite after this step",
                fix="look for a diverging loss or too long a server step; continue from an earlier checkpoint",
                peer=self.peer,
                round=round,
            )
