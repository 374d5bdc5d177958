"""The member: checks the plan, cuts its update, holds what is published, and moves on the verdict only.

    begin(plan) → start() → [train] → contribute(result) → receive(published)… → report() → conclude(verdict)

A member that lacks a committed shard says so (`Missing`), fetches it by hash from whoever holds it, and concludes then.
One that lost its place (another chain) takes a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eris.aggregate.shelf import Shelf
from eris.errors import Reason, Refused
from eris.local.mapped import release
from eris.local.spec import Vector
from eris.local.task import BlockResult, LocalResult
from eris.protocol.block_update import BlockUpdate
from eris.protocol.floor import Floor
from eris.protocol.messages import (
    Disagreement,
    Equivocation,
    Manifest,
    Published,
    Report,
    Upload,
    Withheld,
    payload_hash,
)  # fmt: skip
from eris.protocol.recipe import Recipe
from eris.protocol.replica import BufferMean, Replica, copy_over, initial_state
from eris.protocol.round_mean import RoundMean
from eris.protocol.round_plan import RoundPlan
from eris.protocol.verdict import GENESIS, Verdict
from eris.seeds import Seed
from eris.shards.policy import Layout
from eris.step.optimizer import State
from eris.transforms import Accepted, SendContext
from eris.transforms.transform import Outgoing

__all__ = ["NO_REFERENCE", "Member", "Missing", "Snapshot", "Verify", "gather_mean", "trust_everybody"]

NO_REFERENCE = -1  # the reference epoch of a member whose s_k was lost
Verify = Callable[[int, bytes, str], bool]


def trust_everybody(peer: int, message: bytes, signature: str) -> bool:
    """Accept any signature: for simulations, where nobody can pretend to be somebody else."""
    del peer, message, signature
    return True


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
        verify: Verify = trust_everybody,
        shelf: Shelf | None = None,
    ) -> None:
        self.peer, self.recipe = peer, recipe
        self.floor, self._verify, self._seed = floor or Floor(), verify, private.require_private("a member's root")
        self._shelf = shelf or Shelf()
        self.replica = Replica.start(recipe, model, shelf=self._shelf)
        self.private: State = initial_state(recipe.chain.private_state, recipe.spec.n_trainable, self._shelf)
        self.round, self.chain, self.reference_epoch = 0, GENESIS, 0
        self.plan: RoundPlan | None = None
        self._outgoing: Outgoing | None = None
        self._held: dict[int, Published] = {}
        self._seconded: dict[int, Manifest] = {}  # what the second aggregator of a shard says
        self._withheld: set[int] = set()
        self._last_held: dict[str, Published] = {}  # of the last round, by hash, for peers that lack them

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
        self.floor.check(plan, self.recipe, self.peer)
        self._enter_reference_epoch(plan)
        self.plan, self._outgoing = plan, None
        self._held, self._seconded, self._withheld = {}, {}, set()

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
        """Return a copy of the model to begin local training with."""
        model = self._shelf.vector(self.replica.model.size)
        copy_over(self.replica.model, model)
        self.recipe.chain.start(model[: self.recipe.spec.n_trainable], self.private)
        return model

    def look(self) -> Vector:
        """Return the same model for a task that only looks at it: where nothing changes it there is no copy."""
        model = self.start() if self.recipe.chain.changes_start else self.replica.model[:]
        model.flags.writeable = False
        return model

    def contribute(self, result: LocalResult | BlockResult) -> list[Upload]:
        """Transform an update and cut it into one upload for each shard."""
        plan, spec = self._open_plan(), self.recipe.spec
        if self.lost_reference:
            raise Refused(
                Reason.WRONG_EPOCH,
                "this member has no valid reference",
                fix="tell the coordinator that it returned without one: a reference epoch begins with the next plan",
                peer=self.peer,
                round=plan.round,
            )
        layout = self.recipe.layout(plan.round)
        context = SendContext(
            round=plan.round,
            member=self.peer,
            plan=layout.trainable,
            public=self.recipe.round_seed(plan.round),
            private=self._seed.child("round", plan.round),
            tensor_sizes=spec.trainable_sizes,
            steps=result.steps,
        )
        self._outgoing, buffers = self._transformed(result, context)
        parts = self._outgoing.packed.parts(layout.trainable, memory=self._shelf.take)
        rest = layout.buffers.split(buffers)
        header = (plan.run, plan.epoch, plan.round, plan.digest, plan.chain, self.peer)
        return [Upload(*header, part.shard, part, rest[part.shard], result.steps) for part in parts]

    def _transformed(self, result: LocalResult | BlockResult, context: SendContext) -> tuple[Outgoing, Vector]:
        """Run the way out through the chain; return what leaves, and the buffers that pass it by."""
        chain, states, n = self.recipe.chain, (self.private, self.replica.public), self.recipe.spec.n_trainable
        if isinstance(result, LocalResult):
            trainable, buffers = np.split(result.update, [n])
            return chain.outgoing(trainable, *states, context), buffers
        update = BlockUpdate(result.blocks, self.recipe.spec)
        if chain.packs_blocks:
            return chain.outgoing_blocks(update, n, *states, context), update.buffers
        whole = self._shelf.vector(n)
        for place, values in update:
            whole[place] = values
            release(whole[place])
        return chain.outgoing(whole, *states, context), update.buffers

    def receive(self, published: Published) -> Equivocation | None:
        """Hold a published shard aside; refuse what is not what the plan asks for."""
        manifest = published.manifest
        self._check_manifest(manifest, self._open_plan().assignment)
        if (earlier := self._held.get(manifest.shard)) is not None:
            same = earlier.manifest.digest == manifest.digest
            return None if same else Equivocation(earlier.manifest, manifest)
        self._check_payload(published)
        self._held[manifest.shard] = published
        return None

    def second(self, manifest: Manifest) -> None:
        """Take what the second aggregator of a shard says it came to; its values are not needed to compare."""
        self._check_manifest(manifest, self._open_plan().witnesses)
        self._seconded.setdefault(manifest.shard, manifest)

    def disagreement(self, shard: int) -> Disagreement | None:
        """Return the finding, if the two aggregators of a shard do not say the same."""
        first, second = self.manifest(shard), self._seconded.get(shard)
        return Disagreement(first, second) if first and second and not first.agrees(second) else None

    def settled(self, shard: int) -> bool:
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

    def report(self) -> Report:
        """Say which published shards are here."""
        plan = self._open_plan()
        held = {shard: self._held[shard].manifest.digest for shard in sorted(self._held) if self._vouched(shard)}
        state = self.replica.digest() if plan.checkpoint or plan.attest else ""
        return Report(plan.digest, self.peer, held, all(map(self.settled, range(plan.shards))), state)

    def manifest(self, shard: int) -> Manifest | None:
        """Return the manifest of a held shard (the coordinator may ask for it)."""
        return self._held[shard].manifest if shard in self._held else None

    def conclude(self, verdict: Verdict) -> Missing | None:
        """Move on the verdict; if a committed shard is not here, change nothing and say which."""
        plan = self._open_plan()
        if verdict.plan != plan.digest or verdict.previous != self.chain:
            raise Refused(Reason.WRONG_CHAIN, "the verdict is about another plan", peer=self.peer, round=verdict.round)
        committed = [entry for entry in verdict.shards if entry.committed]
        lacking = {e.shard: e.hash for e in committed if self._hash(e.shard) != e.hash}
        if lacking:
            return Missing(verdict.round, lacking)
        layout = self.recipe.layout(plan.round)
        chosen = [self._held[entry.shard] for entry in committed]
        mean, buffers = gather_mean(chosen, plan, self.recipe, layout)
        self.replica.apply(mean, buffers, layout)
        self._settle(verdict)
        self._last_held = {published.manifest.hash: published for published in chosen}
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
        """Take a committed shard from any peer: the verdict's hash proves it, whoever sent it."""
        entry = verdict.shards[published.manifest.shard]
        if payload_hash(published.values, published.buffers) != entry.hash:
            raise Refused(Reason.WRONG_DIGEST, "not what the verdict committed", peer=self.peer, shard=entry.shard)
        self._held.pop(entry.shard, None)
        self.receive(published)

    def snapshot(self) -> Snapshot:
        """Return a copy of the public state, for a newcomer. Private references are not part of it."""
        copies = {name: self._shelf.vector(value.size) for name, value in self.replica.state().items()}
        for name, value in self.replica.state().items():
            copy_over(value, copies[name])
        return Snapshot(self.round, self.chain, copies)

    def restore(self, snapshot: Snapshot, *, missed: Sequence[Verdict] = ()) -> None:
        """Stand where the snapshot stands; private state stays, settled by the verdicts `missed` in between."""
        for verdict in missed:
            self._settle(verdict)
        self.replica.load(snapshot.state)
        self.round, self.chain = snapshot.round, snapshot.chain
        self.plan, self._outgoing, self._held, self._last_held = None, None, {}, {}

    def begin_anew(self, state: Mapping[str, Vector]) -> None:
        """Stand before the first round with nothing of one's own: no reference, nothing that was withheld."""
        self.restore(Snapshot(0, GENESIS, dict(state)))
        self.private = initial_state(self.recipe.chain.private_state, self.recipe.spec.n_trainable, self._shelf)
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
            accepted = Accepted(self.recipe.layout(verdict.round).trainable, missing, verdict.round)
            self.recipe.chain.settle(self._outgoing, self.private, accepted)
        elif len(missing) < len(verdict.shards):
            self.forget_reference()

    # ── checks ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _open_plan(self) -> RoundPlan:
        if self.plan is None:
            raise Refused(Reason.WRONG_ROUND, "no round is open", fix="begin(plan) first", peer=self.peer)
        return self.plan

    def _hash(self, shard: int) -> str:
        return self._held[shard].manifest.hash if shard in self._held else ""

    def _check_manifest(self, manifest: Manifest, owners: tuple[int, ...]) -> None:
        plan = self._open_plan()
        where: dict[str, Any] = {"peer": manifest.aggregator, "round": manifest.round, "shard": manifest.shard}
        if manifest.plan != plan.digest:
            raise Refused(Reason.WRONG_PLAN, "published under another plan", **where)
        if not 0 <= manifest.shard < len(owners) or owners[manifest.shard] != manifest.aggregator:
            raise Refused(Reason.WRONG_SHARD, "this peer does not own the shard", **where)
        if not self._verify(manifest.aggregator, manifest.signed_bytes, manifest.signature):
            raise Refused(Reason.BAD_SIGNATURE, "the manifest is not signed by its aggregator", **where)
        contributors = manifest.contributors
        if list(contributors) != sorted(set(contributors) & set(plan.participants)):
            raise Refused(Reason.MALFORMED, "contributors are not ascending participants", **where)
        if len(contributors) < max(plan.min_contributors, self.floor.min_contributors, 1):
            raise Refused(Reason.TOO_FEW, f"published with {len(contributors)} contributors", **where)
        if manifest.c != float(self.recipe.scale(plan, contributors)):
            raise Refused(Reason.MALFORMED, f"c is {manifest.c}, not what the contributors' weights give", **where)

    def _check_payload(self, published: Published) -> None:
        manifest, plan = published.manifest, self._open_plan()
        where: dict[str, Any] = {"peer": manifest.aggregator, "round": manifest.round, "shard": manifest.shard}
        layout = self.recipe.layout(plan.round)
        kept = self.recipe.published_support(plan.round, manifest.shard)
        expected = int(layout.trainable.sizes[manifest.shard]) if kept is None else kept.size
        buffers = int(layout.buffers.sizes[manifest.shard])
        if published.values.size != expected or published.buffers.size != buffers:
            raise Refused(Reason.WRONG_SIZE, f"{published.values.size} values, expected {expected}", **where)
        if payload_hash(published.values, published.buffers) != manifest.hash:
            raise Refused(Reason.WRONG_DIGEST, "the payload is not what the manifest says", **where)


def gather_mean(
    shards: list[Published], plan: RoundPlan, recipe: Recipe, layout: Layout
) -> tuple[RoundMean, BufferMean]:
    """Reassemble committed shards into the mean of the round; lost ones stay zero."""
    buffers = np.zeros(layout.buffers.n, np.float32)
    for published in shards if buffers.size else ():
        scaled = published.buffers * plan.scale(published.manifest.contributors)
        layout.buffers.scatter(scaled, published.manifest.shard, buffers)
    return RoundMean(shards, plan.round, recipe), BufferMean(buffers)
