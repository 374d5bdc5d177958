"""The weighted mean: FedAvg's rule, shard by shard.

v̄ = Σ w_k v_k with the weights of the roster. Missing members lower the sum. The scalar c of the published shard makes
up for that, not this rule, because DSC's reference needs the bare sum.

>>> half = np.float32(0.5)
>>> given = [Contribution(1, half, np.array([4, 6], np.float32)), Contribution(0, half, np.array([2, 2], np.float32))]
>>> out = np.empty(2, np.float32)
>>> WeightedMean().fold(given, out)
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

__all__ = ["WeightedMean", "add_weighted"]


@dataclass(frozen=True)
class WeightedMean:
    """Sum w_k·v_k in ascending member id, from +0: the product is rounded, then the sum."""

    name: ClassVar[str] = "mean"
    coordinate_wise: ClassVar[bool] = True
    linear: ClassVar[bool] = True

    def fold(self, contributions: Sequence[Contribution], out: Vector) -> None:
        """Write Σ w_k v_k into `out`, block by block; where nobody has a value it is 0."""
        terms = [_term(contribution, out.size) for contribution in in_order(contributions, out)]
        scratch = np.empty(min(BLOCK, out.size), np.float32)
        for number, place in enumerate(blocks(out.size)):
            total = out[place]
            total.fill(0)
            product = scratch[: total.size]
            for values, weight, positions, cuts in terms:
                if positions is None:
                    add_weighted(values[place], weight, total, product)
                else:
                    kept = slice(cuts[number], cuts[number + 1])
                    add_weighted(values[kept], weight, total, product, positions[kept] - place.start)


def add_weighted(
    values: Vector, weight: np.float32, total: Vector, product: Vector, positions: Coordinates | None = None
) -> None:
    """Add w·v to a total, in place: the product is rounded (into `product`), then the sum.

    `positions` says which entries of `total` the values belong to; None: all, in order.
    """
    if positions is None:
        np.multiply(values, weight, out=product)
        np.add(total, product, out=total)
    else:
        total[positions] += values * weight


def _term(contribution: Contribution, n: int) -> tuple[Vector, np.float32, Coordinates | None, list[int]]:
    """Return values, weight and positions, and where each block begins in the positions (with the end of the last)."""
    values, positions = contribution.values, contribution.positions
    edges = [] if positions is None else np.searchsorted(positions, [*range(0, n, BLOCK), n]).tolist()
    return values, np.float32(contribution.weight), positions, edges
