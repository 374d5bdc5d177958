"""Aggregation of a whole round at once.

Coordinate-wise rules do not see how the vector is cut, so contributions are folded whole, in ascending member id, with
the operations of the rule and in its order: bit for bit what the aggregators would publish, shard by shard. A mean
needs one accumulator however many members there are. Rules that rank members need all contributions at once; those
are staged in a temporary file.
"""

from __future__ import annotations

import tempfile
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from eris.aggregate.mean import Mean
from eris.aggregate.ordered import BLOCK, blocks
from eris.aggregate.rule import Contribution, Rule
from eris.local.spec import Vector
from eris.shards.plan import Coordinates, ShardPlan

__all__ = ["Fold", "MeanFold", "StagedFold", "begin_fold"]


class Fold(Protocol):
    """Takes contributions in ascending member id, gives their combination."""

    def add(
        self, member: int, weight: np.float32, values: Vector, support: Coordinates | None, missing: tuple[int, ...]
    ) -> None:
        """Add one member's values; `missing` shards did not get them. No `support` means the round's shared one."""
        ...

    def result(self, contributors: list[tuple[int, ...]]) -> Vector:
        """Return the combination (on the shared support); `contributors` names them shard by shard."""
        ...


def begin_fold(rule: Rule, plan: ShardPlan, shared: Coordinates | None, members: int) -> Fold:
    """Return a fold for up to `members` contributions over a round's shards and shared support."""
    if isinstance(rule, Mean):
        return MeanFold(plan, shared)
    return StagedFold(rule, plan, members)


class MeanFold:
    """Σ w_k v_k in one accumulator."""

    def __init__(self, plan: ShardPlan, shared: Coordinates | None) -> None:
        self._plan, self._shared = plan, shared
        self._total = np.zeros(plan.n if shared is None else shared.size, np.float32)
        self._scaled = np.empty(min(BLOCK, self._total.size), np.float32)

    def add(
        self, member: int, weight: np.float32, values: Vector, support: Coordinates | None, missing: tuple[int, ...]
    ) -> None:
        """Add w·v: the product is rounded, then the sum."""
        del member
        positions, values = self._accepted(values, support, missing)
        if positions is None:
            for place in blocks(values.size):
                scaled = np.multiply(values[place], weight, out=self._scaled[: place.stop - place.start])
                np.add(self._total[place], scaled, out=self._total[place])
        else:
            self._total[positions] += values * weight

    def result(self, contributors: list[tuple[int, ...]]) -> Vector:
        """Return the sum."""
        del contributors
        return self._total

    def _accepted(
        self, values: Vector, support: Coordinates | None, missing: tuple[int, ...]
    ) -> tuple[Coordinates | None, Vector]:
        """Return where in the accumulator which values go; None: one after the other."""
        if not missing:
            return support, values
        sent = self._shared if support is None else support
        kept = np.flatnonzero(reached(self._plan, sent, missing))
        return (kept if support is None else support[kept]), values[kept]


class StagedFold:
    """All contributions at once, for rules that rank them; they wait in a temporary file, not in memory."""

    def __init__(self, rule: Rule, plan: ShardPlan, members: int) -> None:
        self._rule, self._plan = rule, plan
        self._members: list[tuple[int, np.float32, tuple[int, ...]]] = []
        shape = (max(members, 1), max(plan.n, 1))
        with tempfile.TemporaryFile(prefix="eris-") as file:  # the mapping keeps it
            self._rows = np.memmap(file, np.float32, "w+", shape=shape)

    def add(
        self, member: int, weight: np.float32, values: Vector, support: Coordinates | None, missing: tuple[int, ...]
    ) -> None:
        """Stage one member's values."""
        assert support is None  # sparse messages and ranks are refused when the recipe is made
        self._rows[len(self._members), : self._plan.n] = values
        self._members.append((member, weight, missing))

    def result(self, contributors: list[tuple[int, ...]]) -> Vector:
        """Fold whole vectors where nothing is missing, else shard by shard."""
        out = np.zeros(self._plan.n, np.float32)
        if self._members and not any(missing for _, _, missing in self._members):
            self._rule.fold([self._contribution(row) for row in range(len(self._members))], out)
            return out
        for shard, members in enumerate(contributors):
            if members:
                self._fold_shard(shard, set(members), out)
        return out

    def _contribution(self, row: int, shard: int | None = None) -> Contribution:
        member, weight, _ = self._members[row]
        values = np.asarray(self._rows[row, : self._plan.n])
        return Contribution(member, weight, values if shard is None else self._plan.gather(values, shard))

    def _fold_shard(self, shard: int, members: set[int], out: Vector) -> None:
        chosen = [row for row, (member, _, _) in enumerate(self._members) if member in members]
        part = np.zeros(int(self._plan.sizes[shard]), np.float32)
        self._rule.fold([self._contribution(row, shard) for row in chosen], part)
        self._plan.scatter(part, shard, out)


def reached(plan: ShardPlan, support: Coordinates | None, missing: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return which of the supported coordinates lie in shards that are not missing."""
    table = np.ones(plan.shards, bool)
    table[list(missing)] = False
    owners = plan.owners_of(np.arange(plan.n, dtype=np.int64) if support is None else support)
    return table[owners]
