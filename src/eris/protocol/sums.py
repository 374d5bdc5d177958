"""Whose sums were unmasked from one state: combined, they must not reveal the values of only a few members.

A round that is lost, or planned again after a rewind, leaves the model where it was. Members then send the same updates
again, and another sum of them may be unmasked. Sums over sets that differ by one member reveal that member. Comparing
two sets at a time is not enough: of {1,2,3,4}, {4,5,6,7} and {1,…,7} every two differ by three members or more, and the
first two less the third are member 4 alone. So what counts is the least number of members in *any* combination of the
sums, each taken any number of times; and, as in a single sum, what these members weigh.

>>> fewest([{1, 2, 3, 4}, {4, 5, 6, 7}, set(range(1, 8))]), fewest([{1, 2, 3, 4}, {1, 2, 3}]), fewest([{1, 2, 3, 4}])
(1, 1, 4)

An unmasker records its answer before giving it. It knows what others answered where the sum was published, and for lost
shards from the verdict: unmaskers report whose pads they gave out, since an aggregator may keep to itself what it
learned from them. So an unmasker also looks for its own answers in every verdict (`left_out`). A round that moves less
than half of the model makes another state but hardly another update: sums from before and after it are counted
together.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np

from eris.protocol.shown import append_first
from eris.protocol.verdict import UnmaskedSum, Verdict

__all__ = ["MOST_SUMS", "SUMS", "Hides", "Sums", "fewest", "shown_by"]

MOST_SUMS = 3  # over the same coordinates from one state, not counting those that follow from others
SUMS = "sums.jsonl"  # in a peer's folder
_ENOUGH = 0.5  # share of all coordinates that must be committed before sums count anew

_Place = tuple[int, int]  # draw of the shard plan, and shard
_Set = tuple[int, ...]
Hides = Callable[[_Set], bool]


def fewest(sets: Sequence[Collection[int]]) -> int:
    """Return the smallest number of members whose values some combination of sums over these sets consists of.

    Members in the same sets cannot be told apart. A combination leaves out the members of at most r − 1 independent
    patterns of membership, r being the number of sums, and with them all that depend on these.
    """
    return min(map(len, shown_by(sets)), default=0)


def shown_by(sets: Sequence[Collection[int]]) -> list[tuple[int, ...]]:
    """Return, for each combination of sums over these sets, whose values it consists of."""
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
    """Return how many of these sums do not follow from the others."""
    members = sorted(set().union(*sets))
    return _rank([tuple(member in each for member in members) for each in sets])


def _rank(patterns: Sequence[tuple[bool, ...]]) -> int:
    return int(np.linalg.matrix_rank(np.array(patterns, float))) if patterns else 0


class Sums:
    """For each state, whose sums are known; kept in a file if there is one.

    A state is named by the chain of verdicts that led to it; states that hardly differ share the name of the first.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._known: dict[str, dict[_Place, set[_Set]]] = defaultdict(lambda: defaultdict(set))
        self._first: dict[str, str] = {}  # chain → chain of the state it is counted with, if not its own
        self._moved: dict[str, dict[_Place, float]] = {}  # such a state → shares of the model committed since
        self._ours: tuple[str, set[tuple[int, _Set]]] = "", set()  # last plan that we answered under, and how
        self._written: dict[tuple[str, int], dict[str, object]] = {}  # (state, shard) → what was written last
        self._told = ""  # the plan under which our answers were reported
        self._reported: tuple[str, tuple[UnmaskedSum, ...]] = "", ()  # under which plan, and what the first report said
        if path is not None and path.exists():
            self._read(path)

    def allows(
        self, chain: str, draw: int, shard: int, contributors: _Set, least: int, hides: Hides | None = None
    ) -> bool:
        """Whether a sum over these members may be unmasked: combined with others it must not show fewer than `least`.

        Args:
            chain: names the state that the updates were trained from.
            draw: the draw of the shard plan in force.
            least: smallest number of members that may be left in a combination.
            hides: says whether a set of members is enough by weight too: many of them may weigh next to nothing.
        """
        known = self._overlapping(chain, draw, shard)
        if contributors in known:
            return True
        sums = [*known, contributors]
        if _independent(sums) > MOST_SUMS:
            return False
        enough = min(least, len(contributors))
        return all(len(group) >= enough and (hides is None or hides(group)) for group in shown_by(sums))

    def note(self, chain: str, draw: int, shard: int, contributors: _Set, *, kept: bool = True, plan: str = "") -> None:
        """Note a sum, durably if `kept`; `plan` is the plan under which we ourselves are about to answer."""
        state = self._state(chain)
        if plan:
            known = self._ours[1] if self._ours[0] == plan else set()
            self._ours = plan, known | {(shard, contributors)}
        line: dict[str, object] = {"state": state, "draw": draw, "shard": shard, "contributors": contributors}
        line |= {"plan": plan} if plan else {}
        if kept and line != self._written.get((state, shard)):
            self._write(line)
            self._written[state, shard] = line
        self._known[state][draw, shard].add(contributors)

    def told(self, plan: str) -> tuple[UnmaskedSum, ...]:
        """Return what we unmasked under a plan, for our report; from then on we unmask nothing under it."""
        self._told = plan  # first: a thread that notes a sum checks this afterwards
        answered = self._ours[1] if self._ours[0] == plan else set()
        told = tuple(UnmaskedSum(shard, members) for shard, members in sorted(answered))
        if self._reported[0] != plan:
            self._reported = plan, told
        return told

    def is_told(self, plan: str) -> bool:
        """Whether our answers under a plan have been reported."""
        return self._told == plan

    def left_out(self, verdict: Verdict) -> tuple[UnmaskedSum, ...]:
        """Return what we reported under a verdict's plan and the verdict says otherwise, or not at all.

        A committed shard must have the contributors whose pads we gave out; of a lost one they must be told. What our
        first report said is in every later one, so whichever of them was heard contains it.
        """
        said = self._reported[1] if self._reported[0] == verdict.plan else ()
        public = set(verdict.unmasked)
        public |= {UnmaskedSum(entry.shard, entry.contributors) for entry in verdict.shards if entry.committed}
        return tuple(told for told in said if told not in public)

    def judged(self, verdict: Verdict, draw: int, share: Callable[[int], float]) -> None:
        """Follow a verdict: note what may be known of lost shards, and how much of the model has moved.

        `share` gives a shard's share of the model.
        """
        if not verdict.lost_shards:
            return
        state = self._state(verdict.previous)
        for told in verdict.unmasked:
            self.note(state, draw, told.shard, told.contributors)
        moved = dict(self._moved.get(state, {}))
        moved |= {(draw, entry.shard): share(entry.shard) for entry in verdict.shards if entry.committed}
        if _part(moved) < _ENOUGH:
            spelled = [[*place, size] for place, size in sorted(moved.items())]
            if self._known.get(state):
                self._write({"state": state, "then": verdict.digest, "moved": spelled})
            self._first[verdict.digest], self._moved[state] = state, moved

    def _state(self, chain: str) -> str:
        return self._first.get(chain, chain)

    def _overlapping(self, chain: str, draw: int, shard: int) -> set[_Set]:
        """Return the sums that may share coordinates with a shard: another draw cuts elsewhere."""
        places = list(self._known.get(self._state(chain), {}).items())  # a copy: another thread may note one
        return set().union(*(set(sets) for (when, which), sets in places if when != draw or which == shard))

    def _write(self, line: dict[str, object]) -> None:
        if self._path is not None:
            append_first(self._path, line, what="unmasked", fix="no pads were given out")

    def _read(self, path: Path) -> None:
        for text in path.read_text(encoding="utf-8").splitlines():
            try:
                line = json.loads(text)
                if (then := line.get("then")) is not None:
                    moved = {(int(draw), int(shard)): float(size) for draw, shard, size in line["moved"]}
                    self._first[str(then)], self._moved[str(line["state"])] = str(line["state"]), moved
                    continue
                place = int(line["draw"]), int(line["shard"])
                members = tuple(map(int, line["contributors"]))
                self._known[str(line["state"])][place].add(members)
                if plan := str(line.get("plan", "")):
                    known = self._ours[1] if self._ours[0] == plan else set()
                    self._ours = plan, known | {(place[1], members)}
            except (ValueError, KeyError, TypeError, AttributeError):
                continue  # torn: the answer was not given


def _part(moved: Mapping[_Place, float]) -> float:
    """Return how much of the model moved at least: shards of one draw do not overlap, those of two may."""
    draws = defaultdict[int, float](float)
    for (draw, _), size in moved.items():
        draws[draw] += size
    return max(draws.values(), default=0.0)
