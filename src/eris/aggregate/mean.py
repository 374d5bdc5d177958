"""The weighted mean: what FedAvg does, shard by shard.

v̄ = Σ w_k v_k with the weights of the roster. Members that are missing lower the sum; making up for them is the scalar c
of the published shard, not this rule's work, because DSC's reference needs the sum as it is.

>>> half = np.float32(0.5)
>>> given = [Contribution(1, half, np.array([4, 6], np.float32)), Contribution(0, half, np.array([2, 2], np.float32))]
>>> out = np.empty(2, np.float32)
>>> Mean().fold(given, out)
>>> out.tolist()
[3.0, 4.0]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from eris.aggregate.ordered import BLOCK, blocks, in_order
from eris.aggregate.rule import Contribution
from eris.local.spec import Vector
from eris.shards.plan import Coordinates

__all__ = ["Mean"]


@dataclass(frozen=True)
class Mean:
    """Sum w_k·v_k in ascending member id, from +0: the product is rounded, then the sum."""

    name: ClassVar[str] = "mean"
    coordinate_wise: ClassVar[bool] = True
    linear: ClassVar[bool] = True

    def fold(self, contributions: Sequence[Contribution], out: Vector) -> None:
        """Write Σ w_k v_k into `out`, block by block; where nobody has a value it is 0."""
        ordered = in_order(contributions, out)
        cuts = [_cuts(contribution.positions, out.size) for contribution in ordered]
        product = np.empty(min(BLOCK, out.size), np.float32)
        for number, place in enumerate(blocks(out.size)):
            total = out[place]
            total.fill(0)
            for contribution, cut in zip(ordered, cuts, strict=True):
                if cut is None:
                    _add(contribution, place, product, total)
                else:
                    _scatter_add(contribution, slice(cut[number], cut[number + 1]), place.start, product, total)


def _cuts(positions: Coordinates | None, n: int) -> list[int] | None:
    """Return where each block begins in the list of positions, and where the last one ends."""
    if positions is None:
        return None
    edges = [*range(0, n, BLOCK), n]
    return [int(cut) for cut in np.searchsorted(positions, edges)]


def _add(contribution: Contribution, place: slice, product: Vector, total: Vector) -> None:
    scaled = product[: total.size]
    np.multiply(contribution.values[place], np.float32(contribution.weight), out=scaled)
    np.add(total, scaled, out=total)


def _scatter_add(contribution: Contribution, kept: slice, start: int, product: Vector, total: Vector) -> None:
    assert contribution.positions is not None
    scaled = product[: kept.stop - kept.start]
    np.multiply(contribution.values[kept], np.float32(contribution.weight), out=scaled)
    total[contribution.positions[kept] - start] += scaled
