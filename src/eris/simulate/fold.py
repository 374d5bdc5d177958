"""Fold a simulated round's contributions as whole vectors, as they come from the engine.

Coordinate-wise rules do not depend on how the vector is cut, so the simulator folds before it cuts, with the same bits
as the aggregators' shards. A mean needs one accumulator however many members there are. Rules that rank members need
all contributions at once; those wait in a temporary file.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from eris.aggregate.fixed_point import add
from eris.aggregate.mean import WeightedMean, add_weighted
from eris.aggregate.ordered import BLOCK, blocks
from eris.aggregate.rule import Contribution, Rule
from eris.local.spec import Vector
from eris.shards.plan import Coordinates, ShardPlan
from eris.storage.mapped import mapped

__all__ = ["Fold", "MeanFold", "RingFold", "StagedFold", "begin_fold"]


class Fold(Protocol):
    """Takes contributions in ascending member id, gives their combination."""

    def add(self, given: Contribution, missing: tuple[int, ...]) -> None:
        """Add one member's values, except on `missing` shards; without positions they are on the shared support."""
        ...

    def result(self, contributors: list[tuple[int, ...]]) -> NDArray[Any]:
        """Return the combination (on the shared support); `contributors` names them shard by shard."""
        ...


def begin_fold(rule: Rule, plan: ShardPlan, shared: Coordinates | None, members: int, word: np.dtype[Any]) -> Fold:
    """Return a fold for up to `members` contributions over a round's shards and shared support.

    Args:
        plan: the round's shards.
        shared: the coordinates that all members send; None: all, or each its own.
        word: the number type of the values; unsigned for whole numbers, which are added up whatever the rule.
    """
    if word.kind == "u":  # whole numbers
        return RingFold(plan, shared, word)
    return MeanFold(plan, shared) if isinstance(rule, WeightedMean) else StagedFold(rule, plan, members)


class MeanFold:
    """Σ w_k v_k in one accumulator."""

    def __init__(self, plan: ShardPlan, shared: Coordinates | None) -> None:
        self._plan, self._shared = plan, shared
        self._total = np.zeros(plan.n if shared is None else shared.size, np.float32)
        self._product = np.empty(min(BLOCK, self._total.size), np.float32)

    def add(self, given: Contribution, missing: tuple[int, ...]) -> None:
        """Add w·v."""
        positions, values = given.positions, given.values
        if missing:
            kept = np.flatnonzero(_reached(self._plan, self._shared if positions is None else positions, missing))
            positions, values = (kept if positions is None else positions[kept]), values[kept]
        if positions is not None:
            add_weighted(values, given.weight, self._total, self._product, positions)
            return
        for place in blocks(values.size):
            add_weighted(values[place], given.weight, self._total[place], self._product[: place.stop - place.start])

    def result(self, contributors: list[tuple[int, ...]]) -> Vector:
        """Return the sum."""
        del contributors
        return self._total


class RingFold:
    """Σ z_k of values already weighted, as integers: the order does not matter."""

    def __init__(self, plan: ShardPlan, shared: Coordinates | None, word: np.dtype[Any]) -> None:
        self._plan, self._shared = plan, shared
        self._total = np.zeros(plan.n if shared is None else shared.size, word)

    def add(self, given: Contribution, missing: tuple[int, ...]) -> None:
        """Add z."""
        if missing:
            kept = np.flatnonzero(_reached(self._plan, self._shared, missing))
            self._total[kept] += given.values[kept]
        else:
            add(self._total, given.values)

    def result(self, contributors: list[tuple[int, ...]]) -> NDArray[Any]:
        """Return the sum."""
        del contributors
        return self._total


class StagedFold:
    """All contributions at once, for rules that rank them; they wait in a temporary file, not in memory."""

    def __init__(self, rule: Rule, plan: ShardPlan, members: int) -> None:
        self._rule, self._plan = rule, plan
        self._given: list[Contribution] = []
        self._complete = True
        room = mapped(4 * max(members * plan.n, 1)).view(np.float32)
        self._rows = room[: members * plan.n].reshape(members, plan.n)

    def add(self, given: Contribution, missing: tuple[int, ...]) -> None:
        """Stage one member's values."""
        assert given.positions is None  # sparse messages and ranks are refused when the recipe is made
        row = self._rows[len(self._given)]
        np.copyto(row, given.values)
        self._given.append(Contribution(given.member, given.weight, row))
        self._complete &= not missing

    def result(self, contributors: list[tuple[int, ...]]) -> Vector:
        """Fold whole vectors where nothing is missing, else shard by shard."""
        out = np.zeros(self._plan.n, np.float32)
        if self._given and self._complete:
            self._rule.fold(self._given, out)
            return out
        for shard, members in enumerate(contributors):
            if members:
                self._plan.scatter(self._folded(shard, set(members)), shard, out)
        return out

    def _folded(self, shard: int, members: set[int]) -> Vector:
        part, plan = np.zeros(int(self._plan.sizes[shard]), np.float32), self._plan
        chosen = [c for c in self._given if c.member in members]
        self._rule.fold([Contribution(c.member, c.weight, plan.gather(c.values, shard)) for c in chosen], part)
        return part


def _reached(plan: ShardPlan, support: Coordinates | None, missing: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return which coordinates of `support` (None: all) lie in shards that are not `missing`."""
    table = np.ones(plan.shards, bool)
    table[list(missing)] = False
    return table[plan.owners_of(np.arange(plan.n, dtype=np.int64) if support is None else support)]
