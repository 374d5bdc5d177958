"""The mean that a round's committed shards form together, computed one stretch of the vector at a time.

Every peer forms it. Doing so all at once would take a vector of zeros, a pass to fill it and two more to use it; a
stretch is filled, corrected and applied while it lies in the cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.aggregate.fixed_point import RingScale
from eris.local.spec import Vector
from eris.protocol.messages import Published
from eris.protocol.recipe import Recipe
from eris.shards.plan import ShardPlan
from eris.transforms import MeanStretch

__all__ = ["RoundMean"]


class RoundMean:
    """v̄ of the committed `shards`, with the scalars c and τ_eff of each; where a shard was lost, v̄ is zero.

    In fixed point, shards hold whole numbers, which `scale` (None for floats) turns into values, stretch by stretch.
    """

    def __init__(self, shards: Sequence[Published], round: int, recipe: Recipe, scale: RingScale | None = None) -> None:
        self.round, self._plan, self._scale = round, recipe.layout(round).trainable, scale
        self._values = {published.manifest.shard: published.values for published in shards}
        self._c = _PerShard(self._plan, {p.manifest.shard: p.manifest.c for p in shards})
        self._steps = _PerShard(self._plan, {p.manifest.shard: p.manifest.steps for p in shards})
        self._kept = recipe.on_shared_mask(round, self._values)
        self.contributors = max((len(p.manifest.contributors) for p in shards), default=0)
        self.lost = tuple(shard for shard in range(self._plan.shards) if shard not in self._values)

    def stretch(self, place: slice, out: Vector) -> MeanStretch:
        """Return the mean on a stretch, its values written to `out`; support positions count from its start."""
        c, steps = self._c.on(place), self._steps.on(place)
        if self._kept is None:
            self._reassemble(place, out.view(self._plain))
            self._decode(out)
            return MeanStretch(out, c, steps, lost=self.lost, round=self.round, whole=self._plan.n)
        mask, values = self._kept
        first, last = np.searchsorted(mask, [place.start, place.stop])
        support = mask[first:last] - place.start
        out.fill(0)
        out.view(self._plain)[support] = values[first:last]
        self._decode(out)
        return MeanStretch(out, c, steps, support, self.lost, self.round, self._plan.n)

    @property
    def _plain(self) -> type[np.float32] | type[np.uint32]:
        """The number type of published values."""
        return np.float32 if self._scale is None else np.uint32

    def _decode(self, stretch: Vector) -> None:
        if self._scale is not None:
            self._scale.decode_sum(stretch.view(np.uint32), out=stretch)

    def _reassemble(self, place: slice, out: NDArray[Any]) -> None:
        if not self.lost and out.size == self._plan.n:
            self._plan.reassemble([self._values[shard] for shard in range(self._plan.shards)], out=out)
            return
        if self.lost:
            out.fill(0)
        for shard, values in self._values.items():
            self._plan.scatter_stretch(values, shard, place, out)


class _PerShard:
    """A number per shard: a scalar while all agree (the usual case), otherwise a vector over the coordinates."""

    def __init__(self, plan: ShardPlan, numbers: Mapping[int, float]) -> None:
        self._plan, self._all = plan, np.ones(plan.shards, np.float32)
        self._all[list(numbers)] = list(numbers.values())
        distinct = {np.float32(number) for number in numbers.values()} or {np.float32(1.0)}
        self._one = distinct.pop() if len(distinct) == 1 else None

    def on(self, place: slice) -> np.float32 | Vector:
        """Return the number, or one for each coordinate of the stretch."""
        if self._one is not None:
            return self._one
        owners = self._plan.owners_of(np.arange(place.start, place.stop, dtype=np.int64))
        return self._all[owners]
