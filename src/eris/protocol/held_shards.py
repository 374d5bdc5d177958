"""The published shards a member holds aside until the verdict: only what plan, floor and signatures allow."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from eris.aggregate.figures import SHARD
from eris.aggregate.staging import all_finite
from eris.errors import FloorError, Reason, Refused
from eris.protocol import steps
from eris.protocol.floor import Floor
from eris.protocol.messages import Disagreement, Equivocation, Manifest, Published, payload_hash
from eris.protocol.recipe import Recipe
from eris.protocol.round_plan import RoundPlan
from eris.protocol.step_guard import StepGuard, length
from eris.protocol.verdict import ShardVerdict, Verdict

__all__ = ["HeldShards"]


class HeldShards:
    """Takes and checks the shards published in a round; `published` maps shard → what is held of it."""

    def __init__(self, peer: int, recipe: Recipe, floor: Floor, guard: StepGuard, verify: steps.Verify) -> None:
        """Hold nothing yet.

        Args:
            floor: this member's own limits on contributors and their weights.
            guard: limits how long a mean may be.
            verify: says whether a peer signed a manifest.
        """
        self._peer, self._recipe, self._floor = peer, recipe, floor
        self._guard, self.verify = guard, verify
        self.published: dict[int, Published] = {}
        self._seconded: dict[int, Manifest] = {}  # shard → what its second aggregator says
        self._withheld: set[int] = set()
        self._lengths: dict[int, float] = {}  # shard → length of the mean that is held
        self._allowed_sets: tuple[str, dict[tuple[int, ...], float]] = "", {}  # under a plan: contributors → their c
        self._of_last_round: dict[str, Published] = {}  # by hash, for peers that lack them

    def begin(self) -> None:
        """Start a round, holding nothing."""
        self.published, self._seconded, self._withheld = {}, {}, set()

    def conclude(self, committed: Iterable[Published]) -> None:
        """End the round; committed shards are kept until the next round ends, for peers that lack them."""
        self._of_last_round = {published.manifest.hash: published for published in committed}
        self.published = {}

    # ── what comes ───────────────────────────────────────────────────────────────────────────────────────────────

    def receive(self, plan: RoundPlan, published: Published, *, committed: bool) -> Equivocation | None:
        """Hold a shard; return proof if its aggregator signed another manifest for it before.

        A shard that the plan does not ask for is refused, and so is one that is too long, unless it is `committed`: a
        verdict names it.
        """
        manifest = published.manifest
        self._check_manifest(plan, manifest, plan.assignment)
        if (earlier := self.published.get(manifest.shard)) is not None:
            same = earlier.manifest.digest == manifest.digest
            return None if same else Equivocation(earlier.manifest, manifest)
        self._check_payload(plan, published, committed=committed)
        self.published[manifest.shard] = published
        return None

    def second(self, plan: RoundPlan, manifest: Manifest) -> None:
        """Take the manifest of a shard's second aggregator; comparing it does not need the values."""
        self._check_manifest(plan, manifest, plan.witnesses)
        self._seconded.setdefault(manifest.shard, manifest)

    def withhold(self, shard: int) -> None:
        """Note that a shard will not come in this round."""
        self._withheld.add(shard)

    # ── what is here ─────────────────────────────────────────────────────────────────────────────────────────────

    def manifest(self, shard: int) -> Manifest | None:
        """Return the manifest of a shard that is here."""
        return self.published[shard].manifest if shard in self.published else None

    def disagreement(self, shard: int) -> Disagreement | None:
        """Return the finding if the two aggregators of a shard disagree."""
        first, second = self.manifest(shard), self._seconded.get(shard)
        return Disagreement(first, second) if first and second and not first.agrees(second) else None

    def accounted_for(self, plan: RoundPlan, shard: int) -> bool:
        """Whether nothing more is expected of a shard in this round."""
        compared = not plan.witnesses or shard in self._seconded
        return shard in self._withheld or (shard in self.published and compared)

    def vouched_for(self, plan: RoundPlan) -> dict[int, str]:
        """Return the manifest digests that may be reported: with replicas, only where both aggregators agree."""
        return {
            shard: self.published[shard].manifest.digest
            for shard in sorted(self.published)
            if not plan.witnesses or (shard in self._seconded and self.disagreement(shard) is None)
        }

    def find(self, digest: str) -> Published | None:
        """Return a shard of this or the last round by the hash of its payload."""
        # Other threads call this while this one receives more shards; list() copies in one step.
        current = {published.manifest.hash: published for published in list(self.published.values())}
        return current.get(digest) or self._of_last_round.get(digest)

    # ── the verdict ──────────────────────────────────────────────────────────────────────────────────────────────

    def lacking(self, verdict: Verdict) -> dict[int, str]:
        """Return the committed shards that are not here, by hash; refuse a verdict that contradicts its aggregators."""
        lacking = {e.shard: e.hash for e in verdict.shards if e.committed and not self._holds(e)}
        if not lacking:
            self._require_told_figures(verdict)
        return lacking

    def _holds(self, entry: ShardVerdict) -> bool:
        """Whether the manifest that a verdict names is here; refuse a verdict that contradicts its aggregator.

        References are settled by the contributors a verdict lists: they must be those that the aggregator signed.
        """
        manifest = self.manifest(entry.shard)
        if manifest is None or manifest.digest != entry.manifest:
            return False
        if (manifest.hash, manifest.contributors) != (entry.hash, entry.contributors):
            raise Refused(
                Reason.WRONG_DIGEST,
                "the verdict's hash or contributors differ from the manifest that it names",
                fix="the coordinator is not honest: its signature is on the verdict, the aggregator's on the manifest",
                peer=self._peer,
                shard=entry.shard,
            )
        return True

    def _require_told_figures(self, verdict: Verdict) -> None:
        """Refuse a verdict whose figures differ from those in the manifest it names: they may end a run."""
        said = self.published[SHARD].manifest.figures if verdict.shards[SHARD].committed else ()
        if verdict.figures != said:
            raise Refused(
                Reason.WRONG_DIGEST,
                "the verdict's figures differ from those in the manifest of shard 0",
                fix="the coordinator is not honest: its signature is on the verdict, the aggregator's on the manifest",
                peer=self._peer,
                round=verdict.round,
            )

    def note_step(self, verdict: Verdict) -> None:
        """Tell the guard how long the step just taken was; with lost shards it was not a whole one."""
        if not verdict.lost_shards:
            self._guard.note(math.hypot(*(self._lengths[entry.shard] for entry in verdict.shards)))

    # ── checks ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _check_manifest(self, plan: RoundPlan, manifest: Manifest, owners: tuple[int, ...]) -> None:
        where: dict[str, Any] = {"peer": manifest.aggregator, "round": manifest.round, "shard": manifest.shard}
        if manifest.plan != plan.digest:
            raise Refused(Reason.WRONG_PLAN, "published under another plan", **where)
        if not 0 <= manifest.shard < len(owners) or owners[manifest.shard] != manifest.aggregator:
            raise Refused(Reason.WRONG_SHARD, "this peer does not own the shard", **where)
        if not self.verify(manifest.aggregator, manifest.signed_bytes, manifest.signature):
            raise Refused(Reason.BAD_SIGNATURE, "the manifest is not signed by its aggregator", **where)
        if manifest.c != self._scale_of(plan, manifest.contributors, where):
            raise Refused(Reason.MALFORMED, f"c is {manifest.c}, not what the contributors' weights give", **where)
        if not steps.possible_figures(self._recipe, plan, manifest.shard, manifest.figures, manifest.contributors):
            raise Refused(Reason.OUT_OF_RANGE, "no contributors can have scored such figures", **where)

    def _scale_of(self, plan: RoundPlan, contributors: tuple[int, ...], where: dict[str, Any]) -> float:
        """Return the c of a mean of these members; refuse a set whose mean this plan or our floor does not allow.

        Most shards of a round have the same set, so each set is checked once.
        """
        known, scales = self._allowed_sets
        if known != plan.digest:
            self._allowed_sets = _, scales = plan.digest, {}
        if contributors in scales:
            return scales[contributors]
        if list(contributors) != sorted(set(contributors) & plan.participant_set):
            raise Refused(Reason.MALFORMED, "contributors are not ascending participants", **where)
        if len(contributors) < max(plan.least_contributors, self._floor.min_contributors):
            raise Refused(Reason.TOO_FEW, f"published with {len(contributors)} contributors", **where)
        try:
            self._floor.check_effective(plan, contributors, "the mean", where)
        except FloorError as error:
            raise Refused(Reason.TOO_FEW, error.what, **where) from None
        return scales.setdefault(contributors, float(self._recipe.scale(plan, contributors)))

    def _check_payload(self, plan: RoundPlan, published: Published, *, committed: bool) -> None:
        """Refuse a payload that does not match its manifest, is not a mean, or is too long and not committed."""
        manifest = published.manifest
        where: dict[str, Any] = {"peer": manifest.aggregator, "round": manifest.round, "shard": manifest.shard}
        layout = self._recipe.layout(plan.round)
        kept = self._recipe.published_support(plan.round, manifest.shard)
        expected = int(layout.trainable.sizes[manifest.shard]) if kept is None else kept.size
        buffers = int(layout.buffers.sizes[manifest.shard])
        if published.values.size != expected or published.buffers.size != buffers:
            raise Refused(
                Reason.WRONG_SIZE,
                f"received {published.values.size} values and {published.buffers.size} buffers, but {expected} and "
                f"{buffers} are expected",
                **where,
            )
        noisy = self._recipe.noise is not None
        if not steps.possible(published.values, published.buffers, plan, manifest.contributors, noisy=noisy):
            raise Refused(Reason.OUT_OF_RANGE, "contributors within the limit cannot produce such a sum", **where)
        if payload_hash(published.values, published.buffers) != manifest.hash:
            raise Refused(Reason.WRONG_DIGEST, "the payload does not match the manifest's hash", **where)
        size = self._length(published, where)
        if not all_finite(published.buffers):
            raise Refused(Reason.NON_FINITE, "the published mean is not finite", **where)
        if not committed and size > self._guard.limit:
            what = f"the published mean has the length {size:.3g}, at most {self._guard.limit:.3g} is taken"
            raise Refused(Reason.OUT_OF_RANGE, what, fix="see server.max_step", **where)
        self._lengths[manifest.shard] = size

    def _length(self, published: Published, where: dict[str, Any]) -> float:
        """Return the length of a mean, times its c, or refuse it as not finite; whole numbers have their own limit."""
        if published.values.dtype != np.float32:
            return 0.0
        size = length(published.values)
        if not math.isfinite(size) and not all_finite(published.values):  # the squares may merely have overflowed
            raise Refused(Reason.NON_FINITE, "the published mean is not finite", **where)
        return abs(published.manifest.c) * size
