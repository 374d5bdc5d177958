"""Members by the thousand, of whom few take part in a round, as one array instead of an entry for each.

A plan then lists only the participants and aggregators of its round, plus one entry that stands for all the others.
That entry has their total weight, so everybody on the list has exactly the weight that a full list would give.

>>> crowd = Crowd(np.array([5, 1, 1, 1, 2]))
>>> [(entry.peer, entry.name) for entry in crowd.roster([0, 4])]
[(0, 'member-0'), (4, 'member-4'), (5, '3 others')]
>>> float(crowd.roster([0, 4]).weights[4])
0.20000000298023224
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from eris.protocol.roster import Roster, RosterEntry

__all__ = ["Crowd"]


@dataclass(frozen=True, eq=False)
class Crowd:
    """The weights of all members: whole numbers, whose sums are exact in any order."""

    weights: NDArray[np.int64]

    def __len__(self) -> int:
        return self.weights.size

    def __getitem__(self, member: int) -> RosterEntry:
        return RosterEntry(member, f"member-{member}", float(self.weights[member]))

    @cached_property
    def _total(self) -> int:
        return int(self.weights.sum())

    def roster(self, members: Iterable[int]) -> Roster:
        """Return the roster of these members, ascending, with the entry that stands for the others."""
        listed = [self[member] for member in members]
        others = len(self) - len(listed)
        if not others:
            return Roster(listed)
        weight = self._total - sum(int(entry.weight) for entry in listed)
        return Roster([*listed, RosterEntry(len(self), f"{others} others", float(weight), can_aggregate=False)])
