"""Whose sums were unmasked from one state: together they must not show few members' values.

A round that is lost, or planned again after a rewind, leaves the model where it was. Members then send the same updates
once more, and another sum of them may be unmasked. Sums over sets that differ by one member show that member. To take
two sets at a time is not enough: of {1,2,3,4}, {4,5,6,7} and {1,…,7} every two differ by three members or more, and the
first two less the third are member 4 alone. So what counts is the least number of members in *any* combination of the
sums, each taken any number of times; and, as in a single sum, what these members weigh.

>>> fewest([{1, 2, 3, 4}, {4, 5, 6, 7}, set(range(1, 8))]), fewest([{1, 2, 3, 4}, {1, 2, 3}]), fewest([{1, 2, 3, 4}])
(1, 1, 4)

What an unmasker answers is written down before; what others answered it knows where the sum was published, too.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np

from eris.protocol.shown import append_first

__all__ = ["MOST_SUMS", "SUMS", "Hides", "Sums", "fewest", "shown_by"]

MOST_SUMS = 3  # over the same coordinates from one state, not counting those that follow from others
SUMS = "sums.jsonl"  # in a peer's folder

_Place = tuple[int, int]  # draw of the shard plan, and shard
_Set = tuple[int, ...]
Hides = Callable[[_Set], bool]


def fewest(sets: Sequence[Collection[int]]) -> int:
    """Return how few members' values a combination of sums over these sets can be made of.

    Members in the same sets cannot be told apart. A combination leaves out the members of at most r − 1 independent
    patterns of membership, r being the number of sums, and with them all that depend on these.
    """
    return min(map(len, shown_by(sets)), default=0)


def shown_by(sets: Sequence[Collection[int]]) -> list[tuple[int, ...]]:
    """Return whose values each combination of sums over these sets is made of."""
    patterns = defaultdict[tuple[bool, ...], list[int]](list)
    for member in sorted(set().union(*sets)):
        patterns[tuple(member in each for each in sets)].append(member)
    found = []
    for size in range(len(sets)):
        for left_out in combinations(patterns, size):
            kept = [pattern for pattern in patterns if _rank((*left_out, pattern)) > _rank(left_out)]
            if kept:
                found.append(tuple(member for pattern in kept for member in patterns[pattern]))
    return found


def _independent(sets: Sequence[Collection[int]]) -> int:
    """Return how many of some sums do not follow from the others."""
    members = sorted(set().union(*sets))
    return _rank([tuple(member in each for member in members) for each in sets])


def _rank(patterns: Sequence[tuple[bool, ...]]) -> int:
    return int(np.linalg.matrix_rank(np.array(patterns, float))) if patterns else 0


class Sums:
    """For each state's digest, whose sums are known; kept in a file, if there is one."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._known: dict[str, dict[_Place, set[_Set]]] = defaultdict(lambda: defaultdict(set))
        if path is not None and path.exists():
            self._read(path)

    def allows(
        self, state: str, draw: int, shard: int, contributors: _Set, least: int, hides: Hides | None = None
    ) -> bool:
        """Whether a sum over these members may be unmasked, so that no combination is made of fewer than `least`.

        `hides` says whether so many heads are enough by their weights too: many of them may weigh next to nothing.
        """
        known = self._overlapping(state, draw, shard)
        if contributors in known:
            return True
        sums = [*known, contributors]
        if _independent(sums) > MOST_SUMS:
            return False
        enough = min(least, len(contributors))
        return all(len(group) >= enough and (hides is None or hides(group)) for group in shown_by(sums))

    def note(self, state: str, draw: int, shard: int, contributors: _Set, *, ours: bool = True) -> None:
        """Note a sum; if it is `ours` to answer, durably before anything is said."""
        if contributors in self._known[state][draw, shard]:
            return
        if ours:
            self._write({"state": state, "draw": draw, "shard": shard, "contributors": contributors})
        self._known[state][draw, shard].add(contributors)

    def _overlapping(self, state: str, draw: int, shard: int) -> set[_Set]:
        """Return the sums that may share coordinates with a shard: another draw cuts elsewhere."""
        places = list(self._known.get(state, {}).items())  # at once: another thread may note what was published
        return set().union(*(set(sets) for (when, which), sets in places if when != draw or which == shard))

    def _write(self, line: dict[str, object]) -> None:
        if self._path is not None:
            append_first(self._path, line, what="unmasked", fix="no pads were given out")

    def _read(self, path: Path) -> None:
        for text in path.read_text(encoding="utf-8").splitlines():
            try:
                line = json.loads(text)
                place = int(line["draw"]), int(line["shard"])
                self._known[str(line["state"])][place].add(tuple(map(int, line["contributors"])))
            except (ValueError, KeyError, TypeError):
                continue  # torn: nothing was said after it
