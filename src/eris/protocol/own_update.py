"""One member's update in one round: how it is cut for its aggregators, and what is kept of it until the verdict."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.aggregate.encoding import Ring32
from eris.aggregate.figures import SHARD
from eris.aggregate.fixed_point import RingScale
from eris.local.spec import Vector
from eris.protocol import steps
from eris.protocol.messages import Upload
from eris.protocol.recipe import Recipe
from eris.protocol.round_plan import RoundPlan
from eris.seeds import Seed
from eris.storage.buffer_pool import BufferPool
from eris.transforms.packed import Part
from eris.transforms.transform import Outgoing

__all__ = ["OwnUpdate"]


class OwnUpdate:
    """Cuts a transformed update; `kept` is what the reference is settled by, `limited` what fixed point cut off."""

    def __init__(
        self, recipe: Recipe, plan: RoundPlan, peer: int, outgoing: Outgoing, scale: RingScale | None, pool: BufferPool
    ) -> None:
        """`scale` is how values are written in this round, if in fixed point; copies come from `pool`."""
        self._recipe, self._plan, self._peer, self._pool = recipe, plan, peer, pool
        self._layout, self._scale = recipe.layout(plan.round), scale
        self.kept, self.limited = outgoing, steps.Limited()
        self._code: Ring32 | None = None  # that it was sent in, if what is kept of it is not
        self._sent_buffers: NDArray[Any] = np.empty(0, np.uint64)

    def cut(self, buffers: Vector, own: Seed) -> tuple[list[Part], list[NDArray[Any]]]:
        """Return parts and buffers for each shard; `own` is this member's private seed of the round."""
        layout, outgoing = self._layout, self.kept
        if self._scale is None:
            return outgoing.packed.parts(layout.trainable, memory=self._pool.take), [*layout.buffers.split(buffers)]
        code = Ring32(self._scale.limit, self._plan.weights[self._peer])
        noise = steps.noise_deviations(self._recipe, self._plan, self._scale).get(self._peer, 0.0)
        if noise or self._recipe.adds_noise or self._recipe.chain.settles or outgoing.packed.support is not None:
            self.kept, ring, self.limited = steps.in_fixed_point(
                self._recipe, outgoing, buffers, code, self._pool, noise=noise, own=own
            )
            parts = self.kept.packed.parts(layout.trainable, memory=self._pool.take)
        else:
            self._code = code  # what is kept is the update as it was
            parts, ring, self.limited = steps.in_fixed_point_as_cut(
                self._recipe, outgoing.packed, layout, buffers, code, self._pool
            )
        self._sent_buffers = ring
        return parts, [*layout.buffers.split(ring)]

    def uploads(
        self,
        parts: Sequence[Part],
        buffers: Sequence[NDArray[Any]],
        taken: float,
        scores: Mapping[str, tuple[float, float]] | None,
        *,
        without: Collection[int],
    ) -> list[Upload]:
        """Return a message for each shard, but those of `without`; none is masked yet.

        `taken` is how many local steps the update took, `scores` what this member made of the round's model.
        """
        plan = self._plan
        header = (plan.run, plan.epoch, plan.round, plan.digest, plan.chain, self._peer)
        hidden = self._recipe.unmaskers > 0  # then τ_k is nobody's business: what all take alike is told, or nothing
        told = (self._recipe.steps or 1.0) if hidden else taken
        sent = (part for part in parts if part.shard not in without)
        plain = [Upload(*header, part.shard, part, buffers[part.shard], told) for part in sent]
        figures = steps.scored(self._recipe, plan, scores)
        return [replace(each, figures=figures.copy()) if each.shard == SHARD else each for each in plain]

    def uncovered(self, uploads: Sequence[Upload]) -> list[Upload]:
        """Return messages of this round as they were before they were masked."""
        layout, rest = self._layout, self._layout.buffers.split(self._sent_buffers)
        if self._code is None:
            parts = self.kept.packed.parts(layout.trainable)
        else:
            none = np.empty(0, np.float32)
            parts, *_ = steps.in_fixed_point_as_cut(self._recipe, self.kept.packed, layout, none, self._code)
        return [replace(upload, part=parts[upload.shard], buffers=rest[upload.shard]) for upload in uploads]
