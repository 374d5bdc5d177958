"""The member: checks the plan, cuts its update, holds what is published, and moves on the verdict only.

    begin(plan) → start() → [train] → contribute(result) → receive(published)… → report() → conclude(verdict)

A member that lacks a committed shard says so (`Missing`), fetches it by hash from whoever holds it, and concludes then.
One that lost its place (another chain) takes a snapshot.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.aggregate.encoding import Ring32
from eris.aggregate.figures import SHARD
from eris.aggregate.fixed_point import RingScale
from eris.aggregate.staging import all_finite
from eris.errors import FloorError, Reason, Refused
from eris.local.spec import Vector
from eris.local.task import BlockResult, LocalResult
from eris.privacy.masking import MaskKey
from eris.protocol import steps
from eris.protocol.agreement import Agreement, sits_out
from eris.protocol.false_manifest import FalseManifest, lie_of
from eris.protocol.floor import Floor
from eris.protocol.messages import (
    Disagreement,
    Equivocation,
    Manifest,
    Published,
    Receipt,
    Report,
    Upload,
    Withheld,
    payload_hash,
)  # fmt: skip
from eris.protocol.pairs import check_pairs, coalitions
from eris.protocol.participation import ALARMS, draw_participants, is_alarm
from eris.protocol.recipe import Recipe
from eris.protocol.replica import Replica, copy_over, initial_state
from eris.protocol.round_plan import RoundPlan
from eris.protocol.shown import Releases, Shown
from eris.protocol.step_guard import StepGuard, length
from eris.protocol.sums import Sums
from eris.protocol.unmasker import KnowsKey, believe_keys, masked
from eris.protocol.verdict import GENESIS, ShardVerdict, Verdict
from eris.seeds import Seed
from eris.step.optimizer import State
from eris.storage.buffer_pool import BufferPool
from eris.storage.stretch import stretches
from eris.transforms.packed import Part
from eris.transforms.transform import Outgoing

__all__ = ["NO_REFERENCE", "Member", "Missing", "Snapshot"]

NO_REFERENCE = -1  # the reference epoch of a member whose s_k was lost


@dataclass(frozen=True, slots=True)
class Missing:
    """Committed shards this member must fetch before it can move: shard → digest of the payload."""

    round: int
    hashes: dict[int, str]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a newcomer needs to stand where this member stands."""

    round: int  # the next one
    chain: str
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
        """Stand before the first round; `key` is this process's mask key, where contributions are masked.

        `knows_key` says whether a peer itself signed a mask key: pads under any other key hide nothing. `sums`, which
        this peer's unmasker asks, hears of every sum that was published.
        """
        self._sums = sums
        self.peer, self.recipe, self._agreement, self._key = peer, recipe, agreement, key
        self._knows_key = knows_key
        self.floor, self._verify, self._seed = floor or Floor(), verify, private.require_private("a member's root")
        self._pool, self._guard = pool or BufferPool(), guard or StepGuard("off")
        self._lengths: dict[int, float] = {}  # of the means that are held
        self._allowed_sets: tuple[str, dict[tuple[int, ...], float]] = "", {}  # under a plan: contributors → their c
        self.shown, self.releases = shown or Shown(recipe), Releases() if releases is None else releases
        self.unsent: tuple[int, ...] = ()  # shards of this round that would have shown somebody too much
        self.replica = Replica.start(recipe, model, pool=self._pool)
        self.private: State = initial_state(recipe.chain.private_state, recipe.spec.n_trainable, self._pool)
        self.round, self.chain, self.reference_epoch = 0, GENESIS, 0
        self.plan: RoundPlan | None = None
        self._outgoing: Outgoing | None = None
        self._code: Ring32 | None = None  # that it was sent in, if what is kept of it is not
        self._held: dict[int, Published] = {}
        self._seconded: dict[int, Manifest] = {}  # what the second aggregator of a shard says
        self._withheld: set[int] = set()
        self._unreached: set[int] = set()  # aggregators that did not get our part of this round
        self._last_held: dict[str, Published] = {}  # of the last round, by hash, for peers that lack them
        self.last_scale: RingScale | None = None  # how the values of the last round were written, in fixed point
        self._standing: tuple[tuple[int, str], str] = ((-1, ""), "")  # where it was worked out, and what it is
        self._sent_buffers: NDArray[Any] = np.empty(0, np.uint64)
        self._alarms: deque[bool] = deque(maxlen=ALARMS)  # whether the last rounds had impossible sums
        self.limited = steps.Limited()  # by the last contribution in fixed point; told to nobody

    # ── the round ────────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, plan: RoundPlan) -> None:
        """Accept a round plan, or refuse it; nothing of this member has left before this."""
        where: dict[str, Any] = {"peer": self.peer, "round": plan.round}
        self.recipe.spec.require_same(plan.spec, where=f"the plan of round {plan.round}")
        if plan.shards != self.recipe.policy.shards:
            raise Refused(
                Reason.WRONG_PLAN, f"{plan.shards} shards, the recipe has {self.recipe.policy.shards}", **where
            )
        if plan.draw != self.recipe.policy.draw(plan.round):
            raise Refused(Reason.WRONG_PLAN, f"shard plan number {plan.draw} is not this round's", **where)
        if (plan.round, plan.chain) != (self.round, self.chain):
            raise Refused(
                Reason.WRONG_CHAIN, f"this member stands before round {self.round}", fix="take a snapshot", **where
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
        self.plan, self._outgoing = plan, None
        self._held, self._seconded, self._withheld, self._unreached = {}, {}, set(), set()

    def _require_alarms(self, plan: RoundPlan) -> None:
        """Refuse that a third of those who were drawn sits out, unless there was reason to, as far as we know."""
        if self.recipe.encoding is None:
            return
        drawn = draw_participants(sorted(plan.weights), plan.participation, self.recipe.public, plan.round)
        known = len(self._alarms) == ALARMS or self.round < ALARMS
        if known and sits_out(plan.participants, drawn) and not (self._alarms and all(self._alarms)):
            raise Refused(
                Reason.WRONG_PLAN,
                "a third of the participants sits out, and there were no impossible sums",
                fix="the coordinator is not honest",
                peer=self.peer,
                round=plan.round,
                field="participants",
            )

    def _enter_reference_epoch(self, plan: RoundPlan) -> None:
        """Do s_k := s in the round in which all members do it; a member that missed that round has no reference."""
        if plan.reference_epoch == self.reference_epoch:
            return
        if plan.reference_begins == plan.round:
            self.recipe.chain.new_epoch(self.private, self.replica.public)
            self.reference_epoch = plan.reference_epoch
        else:
            self.forget_reference()

    def start(self) -> Vector:
        """Return the model to begin local training with, as the member's own copy."""
        model = self._pool.vector(self.replica.model.size)
        copy_over(self.look(), model)
        return model

    def look(self) -> Vector:
        """Return the same model for a task that only looks at it: where nothing changes it there is no copy."""
        return steps.starting_model(self.recipe, self.replica.model, self.private, self._pool)

    def drift(self) -> Vector | None:
        """Return what this member adds to each of its local gradients in this round, if it does."""
        return self.recipe.chain.drift(self.private, self.replica.public)

    def contribute(
        self, result: LocalResult | BlockResult, scores: Mapping[str, tuple[float, float]] | None = None
    ) -> list[Upload]:
        """Transform an update and cut it into one upload for each shard that may be sent to whoever aggregates it.

        `scores` are sums and counts of what this member made of the round's model, where members share that.
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
        parts, rest = self._cut(plan, outgoing, buffers, own)
        if self.recipe.adds_noise:
            assert self._outgoing is not None
            self.releases.note(plan.round, self._outgoing.packed.symbols)
        self.unsent = self._too_much(plan)
        header = (plan.run, plan.epoch, plan.round, plan.digest, plan.chain, self.peer)
        sent = (part for part in parts if part.shard not in self.unsent)
        hidden = self.recipe.unmaskers > 0  # then τ_k is nobody's business: what all take alike is told, or nothing
        told = (self.recipe.steps or 1.0) if hidden else result.steps
        plain = [Upload(*header, part.shard, part, rest[part.shard], told) for part in sent]
        figures = steps.scored(self.recipe, plan, scores)
        plain = [replace(each, figures=figures.copy()) if each.shard == SHARD else each for each in plain]
        if self._key is None or not self.recipe.unmaskers:
            return plain
        return [masked(upload, plan, self._key) for upload in plain]

    def _cut(
        self, plan: RoundPlan, outgoing: Outgoing, buffers: Vector, own: Seed
    ) -> tuple[list[Part], list[NDArray[Any]]]:
        """Cut what leaves this member into parts and buffers for each shard, in fixed point where that is agreed."""
        layout, self._outgoing, self._code = self.recipe.layout(plan.round), outgoing, None
        if (scale := self.replica.scale_in(plan)) is None:
            return outgoing.packed.parts(layout.trainable, memory=self._pool.take), [*layout.buffers.split(buffers)]
        code = Ring32(scale.limit, plan.weights[self.peer])
        noise = steps.noise_deviations(self.recipe, plan, scale).get(self.peer, 0.0)
        if noise or self.recipe.adds_noise or self.recipe.chain.settles or outgoing.packed.support is not None:
            self._outgoing, ring, self.limited = steps.in_fixed_point(
                self.recipe, outgoing, buffers, code, self._pool, noise=noise, own=own
            )
            parts = self._outgoing.packed.parts(layout.trainable, memory=self._pool.take)
        else:
            self._code = code  # what is kept is the update as it was
            parts, ring, self.limited = steps.in_fixed_point_as_cut(
                self.recipe, outgoing.packed, layout, buffers, code, self._pool
            )
        self._sent_buffers = ring
        return parts, [*layout.buffers.split(ring)]

    def _require_own_key(self, plan: RoundPlan) -> None:
        """Send nothing under a plan that shows another mask key of ours: it is from before a restart, or forged."""
        if not self.recipe.unmaskers:
            return
        if self._key is None or plan.keys.get(self.peer) != self._key.public:
            raise Refused(
                Reason.WRONG_PLAN,
                "the plan shows another mask key of ours" if self._key else "this member has no mask key",
                fix="this round goes on without us; the next plan has our key",
                peer=self.peer,
                round=plan.round,
            )
        for unmasker in sorted(set(plan.unmaskers)):
            if not self._knows_key(unmasker, plan.keys.get(unmasker, b"")):
                raise Refused(
                    Reason.BAD_SIGNATURE,
                    f"peer {unmasker} has not signed the mask key that the plan shows of it",
                    fix="nothing was sent; the coordinator may not be honest, or the address book is not here yet",
                    peer=self.peer,
                    round=plan.round,
                )

    def _too_much(self, plan: RoundPlan) -> tuple[int, ...]:
        """Write down what will be shown to whom of this update; return the shards that must not be.

        Within one plan the floor has been checked. All plans of a run, or all from one state, are held to the same
        limits together, whoever aggregates what in them (`Shown`).
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
        """Return the digest of what this member trains from, worked out once a round."""
        if self._standing[0] != (self.round, self.chain):
            self._standing = (self.round, self.chain), self.replica.digest()
        return self._standing[1]

    def uncovered(self, uploads: Sequence[Upload]) -> list[Upload]:
        """Return this round's contributions without their pads, for whoever listens at this member itself."""
        if not self.recipe.unmaskers or self._outgoing is None:
            return list(uploads)
        layout = self.recipe.layout(self._open_plan().round)
        packed, rest = self._outgoing.packed, layout.buffers.split(self._sent_buffers)
        if self._code is None:
            parts = packed.parts(layout.trainable)
        else:
            parts, *_ = steps.in_fixed_point_as_cut(self.recipe, packed, layout, np.empty(0, np.float32), self._code)
        return [replace(upload, part=parts[upload.shard], buffers=rest[upload.shard]) for upload in uploads]

    def receive(self, published: Published, *, committed: bool = False) -> Equivocation | None:
        """Hold a published shard aside; refuse what the plan does not ask for, or is too long and not committed."""
        manifest = published.manifest
        self._check_manifest(manifest, self._open_plan().assignment)
        if (earlier := self._held.get(manifest.shard)) is not None:
            same = earlier.manifest.digest == manifest.digest
            return None if same else Equivocation(earlier.manifest, manifest)
        self._check_payload(published, committed=committed)
        self._held[manifest.shard] = published
        if self._sums is not None and self.recipe.unmaskers:
            draw = self._open_plan().draw
            self._sums.note(self.standing(), draw, manifest.shard, manifest.contributors, ours=False)
        return None

    def broken(self, manifest: Manifest, receipt: Receipt | None) -> FalseManifest | None:
        """Return the proof, if an aggregator left out our contribution, for which it gave us this signed receipt."""
        if receipt is None or receipt.member != self.peer or not lie_of(self._open_plan(), manifest, receipt):
            return None
        signed = self._verify(receipt.aggregator, receipt.signed_bytes, receipt.signature)
        return FalseManifest(manifest, receipt) if receipt.signature and signed else None

    def second(self, manifest: Manifest) -> None:
        """Take what the second aggregator of a shard says it came to; its values are not needed to compare."""
        self._check_manifest(manifest, self._open_plan().witnesses)
        self._seconded.setdefault(manifest.shard, manifest)

    def disagreement(self, shard: int) -> Disagreement | None:
        """Return the finding, if the two aggregators of a shard do not say the same."""
        first, second = self.manifest(shard), self._seconded.get(shard)
        return Disagreement(first, second) if first and second and not first.agrees(second) else None

    def accounted_for(self, shard: int) -> bool:
        """Whether nothing more is expected of a shard in this round."""
        compared = not self._open_plan().witnesses or shard in self._seconded
        return shard in self._withheld or (shard in self._held and compared)

    def _vouched(self, shard: int) -> bool:
        """Whether a shard that is here may be reported: with replicas, only if both aggregators say the same."""
        if not self._open_plan().witnesses:
            return True
        return shard in self._seconded and self.disagreement(shard) is None

    def withhold(self, notice: Withheld) -> None:
        """Note that a shard will not come in this round."""
        if self.plan is not None and notice.plan == self.plan.digest:
            self._withheld.add(notice.shard)

    def out_of_reach(self, aggregators: Iterable[int]) -> None:
        """Note to whom our part of this round did not get through: it is said in the report, and nowhere else."""
        self._unreached = set(aggregators) & self._open_plan().aggregators - {self.peer}

    def report(self) -> Report:
        """Say which published shards are here."""
        plan = self._open_plan()
        held = {shard: self._held[shard].manifest.digest for shard in sorted(self._held) if self._vouched(shard)}
        state = self.replica.digest() if plan.checkpoint or plan.attest else ""
        complete = all(map(self.accounted_for, range(plan.shards)))
        return Report(plan.digest, self.peer, held, complete, state, tuple(sorted(self._unreached)))

    def manifest(self, shard: int) -> Manifest | None:
        """Return the manifest of a held shard (the coordinator may ask for it)."""
        return self._held[shard].manifest if shard in self._held else None

    def conclude(self, verdict: Verdict) -> Missing | None:
        """Move on the verdict; if a committed shard is not here, change nothing and say which."""
        plan = self._open_plan()
        if verdict.plan != plan.digest or verdict.previous != self.chain:
            raise Refused(Reason.WRONG_CHAIN, "the verdict is about another plan", peer=self.peer, round=verdict.round)
        if len(verdict.shards) != plan.shards:
            raise Refused(
                Reason.MALFORMED, f"a verdict on {len(verdict.shards)} shards", peer=self.peer, round=plan.round
            )
        lacking = {e.shard: e.hash for e in verdict.shards if e.committed and not self._holds(e)}
        if lacking:
            return Missing(verdict.round, lacking)
        self._require_told_figures(verdict)
        self.last_scale = self.replica.scale_in(plan)
        with np.errstate(over="ignore", invalid="ignore"):  # looked for right below
            committed = steps.apply(self.replica, plan, self._held, verdict)
        self._require_finite_model(verdict.round)
        if not verdict.lost_shards:  # else it was not a whole step
            self._guard.note(math.hypot(*(self._lengths[entry.shard] for entry in verdict.shards)))
        self._settle(verdict)
        self.shown.committed(plan.draw, (entry.shard for entry in verdict.shards if entry.committed))
        self._last_held = {published.manifest.hash: published for published in committed}
        self._alarms.append(is_alarm(entry.lost for entry in verdict.shards))
        self.round, self.chain = verdict.round + 1, verdict.digest
        self.plan, self._outgoing, self._held = None, None, {}
        return None

    # ── helping others, catching up ──────────────────────────────────────────────────────────────────────────────

    def serve(self, digest: str) -> Published | None:
        """Return a published shard of this or the last round by the hash of its payload."""
        # Called by other threads while this one takes in more: a list is made in one step.
        current = {published.manifest.hash: published for published in list(self._held.values())}
        return current.get(digest) or self._last_held.get(digest)

    def accept_fetched(self, published: Published, verdict: Verdict) -> None:
        """Take a committed shard from any peer: the manifest that the verdict names proves it, whoever sent it."""
        entry = verdict.shards[published.manifest.shard]
        if published.manifest.digest != entry.manifest:
            raise Refused(Reason.WRONG_DIGEST, "not what the verdict committed", peer=self.peer, shard=entry.shard)
        earlier = self._held.pop(entry.shard, None)
        try:
            self.receive(published, committed=True)
        except Refused:
            if earlier is not None:
                self._held[entry.shard] = earlier
            raise

    def snapshot(self) -> Snapshot:
        """Return a copy of the public state, for a newcomer. Private references are not part of it."""
        copies = {name: self._pool.vector(value.size) for name, value in self.replica.state().items()}
        for name, value in self.replica.state().items():
            copy_over(value, copies[name])
        return Snapshot(self.round, self.chain, copies)

    def restore(self, snapshot: Snapshot, *, missed: Sequence[Verdict] = ()) -> None:
        """Stand where the snapshot stands; private state stays, settled by the verdicts `missed` in between."""
        for verdict in missed:
            self._settle(verdict)
        self.replica.load(snapshot.state)
        self._alarms.clear()
        self.shown.jumped()
        self.round, self.chain = snapshot.round, snapshot.chain
        self.plan, self._outgoing, self._held, self._last_held = None, None, {}, {}

    def begin_anew(self, state: Mapping[str, Vector]) -> None:
        """Stand before the first round with no state: no reference, nothing that was withheld."""
        self.restore(Snapshot(0, GENESIS, dict(state)))
        self.private = initial_state(self.recipe.chain.private_state, self.recipe.spec.n_trainable, self._pool)
        self.forget_reference()

    def forget_reference(self) -> None:
        """Give up s_k, because it is lost or outdated: this member follows, but contributes only in the next epoch."""
        self.reference_epoch = NO_REFERENCE

    def disown(self) -> None:
        """Give up this round's update: an aggregator holds another one of ours, from before a restart."""
        self._outgoing = None

    @property
    def lost_reference(self) -> bool:
        """Whether the coordinator must be told that this member has no valid reference."""
        return self.recipe.keeps_references and self.reference_epoch == NO_REFERENCE

    def _settle(self, verdict: Verdict) -> None:
        """Advance the reference by what was committed of ours; if we do not remember sending it, we have none."""
        missing = verdict.missing(self.peer)
        if self._outgoing is not None and self.plan is not None and verdict.plan == self.plan.digest:
            steps.settle(self.recipe, verdict.round, self._outgoing, self.private, missing)
        elif len(missing) < len(verdict.shards):
            self.forget_reference()

    # ── checks ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _open_plan(self) -> RoundPlan:
        if self.plan is None:
            raise Refused(Reason.WRONG_ROUND, "no round is open", fix="begin(plan) first", peer=self.peer)
        return self.plan

    def _holds(self, entry: ShardVerdict) -> bool:
        """Whether the manifest that a verdict names is here; refuse a verdict that says other than its aggregator did.

        References are settled by the contributors of a verdict: they must be those that the aggregator signed.
        """
        manifest = self.manifest(entry.shard)
        if manifest is None or manifest.digest != entry.manifest:
            return False
        if (manifest.hash, manifest.contributors) != (entry.hash, entry.contributors):
            raise Refused(
                Reason.WRONG_DIGEST,
                "the verdict has another hash, or other contributors, than the manifest that it names",
                fix="the coordinator is not honest: its signature is on the verdict, the aggregator's on the manifest",
                peer=self.peer,
                shard=entry.shard,
            )
        return True

    def _require_told_figures(self, verdict: Verdict) -> None:
        """Refuse a verdict whose figures are not those of the manifest that it names: a run may end by them."""
        said = self._held[SHARD].manifest.figures if verdict.shards[SHARD].committed else ()
        if verdict.figures != said:
            raise Refused(
                Reason.WRONG_DIGEST,
                "the verdict has other figures than the manifest of shard 0",
                fix="the coordinator is not honest: its signature is on the verdict, the aggregator's on the manifest",
                peer=self.peer,
                round=verdict.round,
            )

    def _check_manifest(self, manifest: Manifest, owners: tuple[int, ...]) -> None:
        plan = self._open_plan()
        where: dict[str, Any] = {"peer": manifest.aggregator, "round": manifest.round, "shard": manifest.shard}
        if manifest.plan != plan.digest:
            raise Refused(Reason.WRONG_PLAN, "published under another plan", **where)
        if not 0 <= manifest.shard < len(owners) or owners[manifest.shard] != manifest.aggregator:
            raise Refused(Reason.WRONG_SHARD, "this peer does not own the shard", **where)
        if not self._verify(manifest.aggregator, manifest.signed_bytes, manifest.signature):
            raise Refused(Reason.BAD_SIGNATURE, "the manifest is not signed by its aggregator", **where)
        if manifest.c != self._scale_of(plan, manifest.contributors, where):
            raise Refused(Reason.MALFORMED, f"c is {manifest.c}, not what the contributors' weights give", **where)
        if not steps.possible_figures(self.recipe, plan, manifest.shard, manifest.figures, manifest.contributors):
            raise Refused(Reason.OUT_OF_RANGE, "no contributors can have scored such figures", **where)

    def _scale_of(self, plan: RoundPlan, contributors: tuple[int, ...], where: dict[str, Any]) -> float:
        """Return the c of a mean of these members; refuse a set of which this plan, or our floor, allows no mean.

        Most shards of a round have the same set: it is looked at once.
        """
        known, scales = self._allowed_sets
        if known != plan.digest:
            self._allowed_sets = _, scales = plan.digest, {}
        if contributors in scales:
            return scales[contributors]
        if list(contributors) != sorted(set(contributors) & set(plan.participants)):
            raise Refused(Reason.MALFORMED, "contributors are not ascending participants", **where)
        if len(contributors) < max(plan.least_contributors, self.floor.min_contributors):
            raise Refused(Reason.TOO_FEW, f"published with {len(contributors)} contributors", **where)
        try:
            self.floor.check_effective(plan, contributors, "the mean", where)
        except FloorError as error:
            raise Refused(Reason.TOO_FEW, error.what, **where) from None
        return scales.setdefault(contributors, float(self.recipe.scale(plan, contributors)))

    def _require_finite_model(self, round: int) -> None:
        """End here rather than train on, or hand in, a model that is none: finite means may still overflow a step."""
        if not all(all_finite(self.replica.model[place]) for place in stretches(self.replica.model.size)):
            raise Refused(
                Reason.NON_FINITE,
                "the model is not finite after this step",
                fix="look for a diverging loss or a server step that is too long; go on from an earlier checkpoint",
                peer=self.peer,
                round=round,
            )

    def _check_payload(self, published: Published, *, committed: bool = False) -> None:
        """Refuse a payload that is not what its manifest says, or no mean, or too long and not committed."""
        manifest, plan = published.manifest, self._open_plan()
        where: dict[str, Any] = {"peer": manifest.aggregator, "round": manifest.round, "shard": manifest.shard}
        layout = self.recipe.layout(plan.round)
        kept = self.recipe.published_support(plan.round, manifest.shard)
        expected = int(layout.trainable.sizes[manifest.shard]) if kept is None else kept.size
        buffers = int(layout.buffers.sizes[manifest.shard])
        if published.values.size != expected or published.buffers.size != buffers:
            raise Refused(Reason.WRONG_SIZE, f"{published.values.size} values, expected {expected}", **where)
        noisy = self.recipe.noise is not None
        if not steps.possible(published.values, published.buffers, plan, manifest.contributors, noisy=noisy):
            raise Refused(Reason.OUT_OF_RANGE, "no contributors within the limit have such a sum", **where)
        if payload_hash(published.values, published.buffers) != manifest.hash:
            raise Refused(Reason.WRONG_DIGEST, "the payload is not what the manifest says", **where)
        size = self._length(published, where)
        if not all_finite(published.buffers):
            raise Refused(Reason.NON_FINITE, "the published mean is not finite", **where)
        if not committed and size > self._guard.limit:
            what = f"the published mean has the length {size:.3g}, at most {self._guard.limit:.3g} is taken"
            raise Refused(Reason.OUT_OF_RANGE, what, fix="see server.max_step", **where)
        self._lengths[manifest.shard] = size

    def _length(self, published: Published, where: dict[str, Any]) -> float:
        """Return how long a mean is, times its c; refuse one that is not finite. Whole numbers have their own limit."""
        if published.values.dtype != np.float32:
            return 0.0
        size = length(published.values)
        if not math.isfinite(size) and not all_finite(published.values):  # the squares may merely have overflowed
            raise Refused(Reason.NON_FINITE, "the published mean is not finite", **where)
        return abs(published.manifest.c) * size
