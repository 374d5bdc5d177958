"""Collect a simulated round's contributions: count and fold them as they come from the engine, then cut the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from eris.aggregate.figures import FIGURE_BYTES, NO_FIGURES, SHARD, add
from eris.aggregate.fixed_point import RingScale, decode_buffers, encode_buffers
from eris.aggregate.mean import WeightedMean
from eris.aggregate.rule import Contribution
from eris.compose import Composition
from eris.events import MemberTrained, Sent
from eris.local.spec import Vector
from eris.protocol import steps
from eris.protocol.messages import Published, Withheld
from eris.protocol.recipe import Recipe
from eris.protocol.round_plan import RoundPlan
from eris.protocol.steps import noise_deviations, noise_draw
from eris.simulate.faults import Outages
from eris.simulate.fold import Fold, begin_fold
from eris.simulate.partial_sum import Total
from eris.simulate.traffic import CHECKED, Bytes, RoundBytes, framed, shared_payload_sizes
from eris.simulate.work import Job, Work, code_of
from eris.transforms.packed import NO_SCALES

__all__ = ["Intake", "jobs_of"]


class Intake:
    """Takes a round's contributions one by one, and returns what the aggregators publish.

    `outages` are the round's faults, `jobs` what its members were asked to do.
    """

    def __init__(self, plan: RoundPlan, composition: Composition, outages: Outages, jobs: Sequence[Job]) -> None:
        assert plan.digest  # computed and kept before the first contribution, because every manifest names it
        recipe = composition.recipe
        layout = recipe.layout(plan.round)
        self.plan, self.jobs, self._recipe, self._outages = plan, jobs, recipe, outages
        self._mask = recipe.shared_mask(plan.round)
        members, words = len(plan.participants), recipe.words
        self._fold: Fold = begin_fold(recipe.rule, layout.trainable, self._mask, members, words.values)
        self._buffers: Fold = begin_fold(WeightedMean(), layout.buffers, None, members, words.buffers)
        self._buffer_bytes = words.buffers.itemsize * layout.buffers.sizes + (CHECKED if recipe.unmaskers else 0)
        self._figures_sum = np.zeros(recipe.figure_words(plan.round), np.uint64)  # what members scored
        self._buffer_bytes[SHARD] += FIGURE_BYTES * self._figures_sum.size
        shared = recipe.compressor.shared_support
        self._alike = self._framed(shared_payload_sizes(recipe, plan.round)) if shared else None
        self._steps: dict[int, float] = {}  # of every member whose contribution came, ascending
        self._refused: dict[int, frozenset[int]] = {}  # member → shards without it
        self._all = tuple(range(plan.shards))
        self._losses: list[tuple[float, float]] = []
        self._figures: list[tuple[float, Mapping[str, float]]] = []
        self.not_finite = 0  # members with values that every aggregator refuses
        self.limited = 0  # values of all members that lay beyond the fixed-point limit
        self.bytes = RoundBytes(
            plan, composition.method.server, composition.config.members, FIGURE_BYTES * self._figures_sum.size
        )

    def trained(self, work: Work) -> MemberTrained:
        """Record a member's training."""
        job = work.job
        self._losses.append((float(self.plan.weights[job.member]), work.loss))
        self.limited += work.limited
        if work.metrics:
            self._figures.append((float(self.plan.weights[job.member]), work.metrics))
        return MemberTrained(job.round, job.member, work.samples, work.steps, work.loss, work.seconds, work.limited)

    def take(self, work: Work) -> Sent:
        """Fold one member's contribution on the shards that it reached."""
        member, plan = work.job.member, self.plan
        silent, weight = self._outages.unreached(member, plan.shards), plan.weights[member]
        if work.job.limit and work.not_finite:  # in fixed point a member notices this itself and sends nothing
            silent = self._all
        refused = silent
        if work.not_finite:
            refused = tuple(sorted({*silent, *work.not_finite}))
            self.not_finite += 1
        values, buffers = work.values, work.buffers
        if work.added:  # added up in the worker; the sum comes separately
            values, buffers = np.empty((2, 0), np.float32)
        elif len(refused) < plan.shards:
            ring = encode_buffers(buffers, weight) if work.job.limit else buffers
            self._fold.add(Contribution(member, weight, values, work.support), refused)
            if buffers.size:
                self._buffers.add(Contribution(member, weight, ring), refused)
        if work.figures and SHARD not in refused:
            add(self._figures_sum, np.array(work.figures, np.int64).view(np.uint64))
        if work.job.limit and not work.added:  # from here on, use the values as everybody decodes them
            values, buffers = self._meant(work, weight)
        told = (
            (self._recipe.steps or 1.0) if self._recipe.unmaskers else work.steps
        )  # masked members do not reveal theirs
        self._steps[member] = told
        if refused:
            self._refused[member] = frozenset(refused)
        reached = tuple(shard for shard in self._all if shard not in silent) if silent else self._all
        return Sent(
            round=plan.round,
            member=member,
            reached=reached,
            bytes=self.bytes.sent(member, self._messages(work), silent),
            weight=float(weight),
            steps=told,
            values=values,
            support=self._mask if work.support is None else work.support,
            buffers=buffers,
            limit=work.job.limit,
        )

    def take_sum(self, total: Total) -> None:
        """Fold a worker's sum of contributions that were taken without their values."""
        one = np.float32(1.0)
        self._fold.add(Contribution(0, one, total.values), ())
        if total.buffers.size:
            self._buffers.add(Contribution(0, one, total.buffers), ())

    def _meant(self, work: Work, weight: np.float32) -> tuple[Vector, Vector]:
        """Return the values and buffers that a fixed-point contribution stands for; empty if there was none.

        R and the weights are public, so this is what an aggregator sees.
        """
        if work.not_finite:
            return np.zeros(work.values.size, np.float32), np.zeros(work.buffers.size, np.float32)
        values = code_of(work.job).decode(work.values, NO_SCALES, None)
        return values, decode_buffers(encode_buffers(work.buffers, weight), weight)

    def _messages(self, work: Work) -> Bytes:
        """Return how long a member's messages are on the wire."""
        if work.payload is not None:
            return self._framed(work.payload)
        assert self._alike is not None
        return self._alike

    def _framed(self, payload: tuple[int, ...]) -> Bytes:
        return framed(np.array(payload) + self._buffer_bytes)

    def cut(self) -> list[Published | Withheld]:
        """Cut the folded vector into what each aggregator publishes or withholds; absent ones do neither."""
        plan, recipe, contributors = self.plan, self._recipe, self._contributors()
        shards, mask, values = recipe.layout(plan.round), self._mask, self._fold.result(contributors)
        places = None if mask is None else shards.trainable.grouped(mask)
        parts = shards.trainable.split(values) if places is None else [values[place] for place in places]
        rests = shards.buffers.split(self._buffers.result(contributors))
        scalars: dict[tuple[int, ...], tuple[float, float]] = {}  # most shards have the same contributors

        def folded(shard: int, members: tuple[int, ...]) -> steps.Folded:
            if (known := scalars.get(members)) is None:
                taken = {member: self._steps[member] for member in members}
                known = scalars[members] = steps.side_scalars(recipe, plan, taken)
            return steps.Folded(parts[shard], rests[shard], known, self._figures_sum if shard == SHARD else NO_FIGURES)

        return [
            steps.cut(plan, shard, plan.assignment[shard], members, partial(folded, shard, members), recipe=recipe)
            for shard, members in enumerate(contributors)
            if shard not in self._outages.away
        ]

    def _contributors(self) -> list[tuple[int, ...]]:
        """Return the contributors of each shard, ascending."""
        if not self._refused:
            return [tuple(self._steps)] * self.plan.shards
        without = [(member, self._refused.get(member, frozenset())) for member in self._steps]
        return [tuple(member for member, shards in without if shard not in shards) for shard in self._all]

    @property
    def mean_loss(self) -> float:
        """The members' weighted mean training loss."""
        total = sum(weight for weight, _ in self._losses)
        return sum(weight * loss for weight, loss in self._losses) / total if total else float("nan")

    @property
    def mean_metrics(self) -> dict[str, float]:
        """The weighted means of the metrics of members' training, each over the members that report it."""
        means = {}
        for name in sorted({name for _, figures in self._figures for name in figures}):
            given = [(weight, figures[name]) for weight, figures in self._figures if name in figures]
            means[name] = sum(weight * value for weight, value in given) / sum(weight for weight, _ in given)
        return means


def jobs_of(plan: RoundPlan, outages: Outages, recipe: Recipe, scale: RingScale | None = None) -> list[Job]:
    """Return a round's jobs, each with the shards that will be lost or lack the member if all values are finite.

    `scale` is how the round's values are written in fixed point; None for floats.
    """
    silent = {member: outages.unreached(member, plan.shards) for member in plan.participants}
    counts = np.full(plan.shards, len(plan.participants))
    for shards in filter(None, silent.values()):
        counts[list(shards)] -= 1
    nowhere = {*np.flatnonzero(counts < plan.least_contributors).tolist(), *outages.away}
    if nowhere or any(silent.values()):
        silent = {member: tuple(sorted({*shards, *nowhere})) for member, shards in silent.items()}
    limit, weights, among = 0.0 if scale is None else scale.limit, plan.weights, len(plan.roster)
    noise, draw = noise_deviations(recipe, plan, scale), noise_draw(recipe, plan)
    return [
        Job(
            plan.round,
            member,
            missing,
            limit=limit,
            weight=float(weights[member]),
            among=among,
            noise=noise.get(member, 0.0),
            draw=draw,
        )
        for member, missing in silent.items()
    ]
