"""One member's update in one round: cutting it for its aggregators, and what is kept of it until the verdict."""

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
    """Cuts a transformed update; `kept` is what settles the reference, `limited` what fixed point cut off."""

    def __init__(
        self, recipe: Recipe, plan: RoundPlan, peer: int, outgoing: Outgoing, scale: RingScale | None, pool: BufferPool
    ) -> None:
        """Take over a transformed update.

        Args:
            outgoing: the update as the transforms left it.
            scale: how values are written in this round, in fixed point; None for floats.
            pool: where copies are allocated.
        """
        self._recipe, self._plan, self._peer, self._pool = recipe, plan, peer, pool
        self._layout, self._scale = recipe.layout(plan.round), scale
        self.kept, self.limited = outgoing, steps.Limited()
        self._code: Ring32 | None = None  # the code it was sent in, where what is kept is not in it
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
                self._recipe,
                outgoing,
                buffers,
                code,
                self._pool,
                noise=noise,
                draw=steps.noise_draw(self._recipe, self._plan),
                own=own,
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
        """Return one unmasked message for each shard, except those in `without`.

        Args:
            parts: the values of each shard.
            buffers: the buffers of each shard.
            taken: number of local steps behind the update.
            scores: (sum, count) of this member's evaluation of the round's model, where members share that.
            without: shards that must not be sent.
        """
        plan = self._plan
        header = (plan.run, plan.epoch, plan.round, plan.digest, plan.chain, self._peer)
        hidden = self._recipe.unmaskers > 0  # then τ_k stays private: only a number that all share is sent, or none
        told = (self._recipe.steps or 1.0) if hidden else taken
        sent = (part for part in parts if part.shard not in without)
        plain = [Upload(*header, part.shard, part, buffers[part.shard], told) for part in sent]
        figures = steps.scored(self._recipe, plan, scores)
        return [replace(each, figures=figures.copy()) if each.shard == SHARD else each for each in plain]

    def uncovered(self, uploads: Sequence[Upload]) -> list[Upload]:
        """Return this round's messages as they were before masking."""
        layout, rest = self._layout, self._layout.buffers.split(self._sent_buffers)
        if self._code is None:
            parts = self.kept.packed.parts(layout.trainable)
        else:
            none = np.empty(0, np.float32)
            parts, *_ = steps.in_fixed_point_as_cut(self._recipe, self.kept.packed, layout, none, self._code)
        return [replace(upload, part=parts[upload.shard], buffers=rest[upload.shard]) for upload in uploads]
