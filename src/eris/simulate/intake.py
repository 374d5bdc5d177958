"""What a round takes in: jobs go out, contributions come back, are counted and folded, and are cut into shards."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eris.compose import Composition
from eris.events import MemberTrained, Sent
from eris.protocol.messages import Published, Withheld
from eris.protocol.round_plan import RoundPlan
from eris.simulate.faults import Outages
from eris.simulate.fold import Fold, MeanFold, begin_fold
from eris.simulate.published import Contributors, cut
from eris.simulate.traffic import Bytes, RoundBytes, framed
from eris.simulate.work import Job, Work, shared_payload_sizes

__all__ = ["Intake", "jobs_of"]


class Intake:
    """Takes a round's contributions one by one, and gives what the aggregators publish."""

    def __init__(self, plan: RoundPlan, composition: Composition, outages: Outages, jobs: Sequence[Job]) -> None:
        assert plan.digest  # spelled and kept now, before the first contribution: every manifest names it
        recipe = composition.recipe
        layout = recipe.layout(plan.round)
        self.plan, self.jobs, self._recipe, self._outages = plan, jobs, recipe, outages
        self._mask = recipe.shared_mask(plan.round)
        self._fold: Fold = begin_fold(recipe.rule, layout.trainable, self._mask, len(plan.participants))
        self._buffers = MeanFold(layout.buffers, None)
        self._buffer_bytes = 4 * layout.buffers.sizes
        shared = recipe.compressor.shared_support
        self._alike = self._framed(shared_payload_sizes(recipe, plan.round)) if shared else None
        self._contributors = Contributors()
        self._all = tuple(range(plan.shards))
        self._losses: list[tuple[float, float]] = []
        self.not_finite = 0  # members with values that no aggregator takes
        self.bytes = RoundBytes(plan, composition.method.server)

    def trained(self, work: Work) -> MemberTrained:
        """Note a member's training."""
        job = work.job
        self._losses.append((float(self.plan.weights[job.member]), work.loss))
        return MemberTrained(job.round, job.member, work.samples, work.steps, work.loss, work.seconds)

    def take(self, work: Work) -> Sent:
        """Fold one member's contribution, where it arrived."""
        member, plan = work.job.member, self.plan
        silent = self._outages.unreached(member, plan.shards)
        refused = silent
        if work.not_finite:
            refused = tuple(sorted({*silent, *work.not_finite}))
            self.not_finite += 1
        if len(refused) < plan.shards:
            weight = plan.weights[member]
            self._fold.add(member, weight, work.values, work.support, refused)
            if work.buffers.size:
                self._buffers.add(member, weight, work.buffers, None, refused)
        self._contributors.add(member, work.steps, refused)
        reached = tuple(shard for shard in self._all if shard not in silent) if silent else self._all
        return Sent(
            round=plan.round,
            member=member,
            reached=reached,
            bytes=self.bytes.sent(member, self._messages(work), silent),
            weight=float(plan.weights[member]),
            steps=work.steps,
            values=work.values,
            support=self._mask if work.support is None else work.support,
            buffers=work.buffers,
        )

    def _messages(self, work: Work) -> Bytes:
        """Return how long a member's messages are on the wire."""
        if work.payload is not None:
            return self._framed(work.payload)
        assert self._alike is not None
        return self._alike

    def _framed(self, payload: tuple[int, ...]) -> Bytes:
        return framed(np.array(payload) + self._buffer_bytes)

    def cut(self) -> tuple[list[Published], list[Withheld]]:
        """Return what the aggregators publish and what they withhold."""
        values = self._fold.result(self._contributors.of_shards(self.plan.shards))
        buffers = self._buffers.result([])
        return cut(self.plan, self._recipe, self._contributors, values, buffers, self._outages.away)

    @property
    def mean_loss(self) -> float:
        """The members' weighted mean training loss."""
        total = sum(weight for weight, _ in self._losses)
        return sum(weight * loss for weight, loss in self._losses) / total if total else float("nan")


def jobs_of(plan: RoundPlan, outages: Outages) -> list[Job]:
    """Return a round's jobs, each with the shards that will be lost or come without the member, if all are finite."""
    silent = {member: outages.unreached(member, plan.shards) for member in plan.participants}
    counts = np.full(plan.shards, len(plan.participants))
    for shards in filter(None, silent.values()):
        counts[list(shards)] -= 1
    lost = np.flatnonzero(counts < max(plan.min_contributors, 1)).tolist()
    nowhere = {*lost, *outages.away}
    if nowhere or any(silent.values()):
        silent = {member: tuple(sorted({*shards, *nowhere})) for member, shards in silent.items()}
    return [Job(plan.round, member, missing) for member, missing in silent.items()]
