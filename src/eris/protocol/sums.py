"""Whose sums were unmasked from one state: combined, they must not reveal the values of only a few members.

A round that is lost, or played again after the run went back, begins where it began before. Members then send the same
updates again, and another sum of them may be unmasked. Sums over sets that differ by one member reveal that member.
Comparing two sets at a time is not enough: of {1,2,3,4}, {4,5,6,7} and {1,…,7} every two differ by three members or
more, and the first two less the third are member 4 alone. So what counts is the least number of members in *any*
combination of the sums, each taken any number of times; and, as in a single sum, what these members weigh.

>>> fewest([{1, 2, 3, 4}, {4, 5, 6, 7}, set(range(1, 8))]), fewest([{1, 2, 3, 4}, {1, 2, 3}]), fewest([{1, 2, 3, 4}])
(1, 1, 4)

An unmasker records its answer before giving it. It knows what others answered where the sum was published or committed,
and for lost shards from the verdict: unmaskers report whose pads they gave out, since an aggregator may keep to itself
what it learned from them. So an unmasker also looks for its own answers in every verdict (`left_out`).

Sums are counted by the round in which a *stretch* of rounds began, whatever happened since: a round that moves less
than half of the model makes another state but hardly another update, so the next one belongs to its stretch; and a
round that is played again has another chain of verdicts before it, but the same model, or nearly. A shard whose sum is
all zeros moves nothing, whoever says that it was committed.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np

from eris.protocol.round_plan import RoundPlan
from eris.protocol.shown import append_first
from eris.protocol.verdict import UnmaskedSum, Verdict

__all__ = ["MOST_SUMS", "SUMS", "Hides", "Start", "Sums", "fewest", "shown_by"]

MOST_SUMS = 3  # over the same coordinates from one state, not counting those that follow from others
SUMS = "sums.jsonl"  # in a peer's folder
_ENOUGH = 0.5  # share of all coordinates that must be committed before sums count anew

_Place = tuple[int, int]  # draw of the shard plan, and shard
_Set = tuple[int, ...]
_Places = Mapping[int, int]  # draw → its shards, as bits
_Moved = Mapping[_Place, float]  # what was committed, and its share of the model
Hides = Callable[[_Set], bool]


class Start(NamedTuple):
    """Where the updates of a round began, and which draw of the shard plan cut them."""

    round: int
    chain: str  # digest of the verdict before it
    draw: int = 0

    @classmethod
    def of(cls, plan: RoundPlan) -> Start:
        """Return that of a plan."""
        return cls(plan.round, plan.chain, plan.draw)


def fewest(sets: Sequence[Collection[int]]) -> int:
    """Return the smallest number of members whose values some combination of sums over these sets consists of.

    Members in the same sets cannot be told apart. A combination leaves out the members of at most r − 1 independent
    patterns of membership, r being the number of sums, and with them all that depend on these.
    """
    return min(map(len, shown_by(sets)), default=0)


def shown_by(sets: Sequence[Collection[int]]) -> list[tuple[int, ...]]:
    """Return, for each combination of sums over these sets, whose values it consists of.

    Sums are known modulo 2³², and 2³¹ times a sum tells the lowest bit of everything in it. So patterns are also
    compared modulo 2: members in two of three sets stay in every combination of these sums, but their lowest bits
    vanish from the sum of all three.
    """
    patterns = defaultdict[tuple[bool, ...], list[int]](list)
    for member in sorted(set().union(*sets)):
        patterns[tuple(member in each for each in sets)].append(member)
    found = []
    for size in range(len(sets)):
        for left_out in combinations(patterns, size):
            for rank in (_rank, _rank_of_bits):
                kept = [pattern for pattern in patterns if rank((*left_out, pattern)) > rank(left_out)]
                if kept:
                    found.append(tuple(member for pattern in kept for member in patterns[pattern]))
    return found


def _independent(sets: Sequence[Collection[int]]) -> int:
    """Return how many of these sums do not follow from the others."""
    members = sorted(set().union(*sets))
    return _rank([tuple(member in each for member in members) for each in sets])


def _third(sets: Sequence[Collection[int]]) -> int:
    """Return a third of the largest set."""
    return max(map(len, sets)) // 3


def _rank(patterns: Sequence[tuple[bool, ...]]) -> int:
    return int(np.linalg.matrix_rank(np.array(patterns, float))) if patterns else 0


def _rank_of_bits(patterns: Sequence[tuple[bool, ...]]) -> int:
    """Return the rank modulo 2."""
    basis: list[int] = []
    for pattern in patterns:
        rest = sum(1 << place for place, is_in in enumerate(pattern) if is_in)
        for each in basis:
            rest = min(rest, rest ^ each)
        basis += [rest] if rest else []
    return len(basis)


class Sums:
    """For each stretch of rounds, whose sums are known; kept in a file if there is one."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._lock = threading.Lock()  # unmasking and holding what is published are two threads of a peer
        self._known: dict[int, dict[_Set, _Places]] = defaultdict(dict)  # first round of the stretch → its sums
        self._unkept: dict[int, dict[_Set, _Places]] = defaultdict(dict)  # those that are not in the file yet
        self._course: dict[str, tuple[int, _Moved]] = {}  # chain in a stretch → its first round, what moved since
        self._alike: dict[_Set, _Set] = {}  # each set once, though most rounds have the same
        self._ours: tuple[str, set[tuple[int, _Set]]] = "", set()  # last plan that we answered under, and how
        self._told = ""  # the plan under which our answers were reported
        self._reported: tuple[str, tuple[UnmaskedSum, ...]] = "", ()  # under which plan, and what the first report said
        if path is not None and path.exists():
            self._read(path)

    def allows(self, start: Start, shard: int, contributors: _Set, least: int, hides: Hides | None = None) -> bool:
        """Whether a sum over these members may be unmasked: combined with others it must not show fewer than `least`.

        Args:
            start: where their updates began.
            least: smallest number of members that may be left in a combination; a third of the largest sum in any case,
                since peers may have left since then.
            hides: says whether a set of members is enough by weight too: many of them may weigh next to nothing.
        """
        known = self._overlapping(start, shard)
        if contributors in known:
            return True
        sums = [*known, contributors]
        if _independent(sums) > MOST_SUMS:
            return False
        enough = min(max(least, _third(sums)), len(contributors))
        return all(len(group) >= enough and (hides is None or hides(group)) for group in shown_by(sums))

    def answer(self, start: Start, shard: int, contributors: _Set, plan: str) -> None:
        """Note a sum that we are about to unmask ourselves; it is on the disk when this returns.

        `plan` is the digest of the plan under which we answer.
        """
        with self._lock:
            first, places = self._first(start), {start.draw: 1 << shard}
            self._write({"round": first, "plan": plan, "sums": [_spelled(contributors, places)]})
            _add(self._known[first], self._alike.setdefault(contributors, contributors), places)
            known = self._ours[1] if self._ours[0] == plan else set()
            self._ours = plan, known | {(shard, contributors)}

    def note(self, start: Start, contributors: _Set, *shards: int) -> None:
        """Note a sum that others unmasked; `keep` writes it down."""
        places = {start.draw: sum(1 << shard for shard in shards)}
        with self._lock:
            first, members = self._first(start), self._alike.setdefault(contributors, contributors)
            if _add(self._known[first], members, places):
                _add(self._unkept[first], members, places)

    def keep(self, *, sync: bool = False) -> None:
        """Write down what was noted since; without `sync`, a machine that loses power may forget it."""
        with self._lock:
            unkept, self._unkept = self._unkept, defaultdict(dict)
            for first, sums in unkept.items():
                self._write({"round": first, "sums": [_spelled(*each) for each in sums.items()]}, sync=sync)

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
        if not said:
            return ()
        public = set(verdict.unmasked)
        public |= {UnmaskedSum(entry.shard, entry.contributors) for entry in verdict.shards if entry.committed}
        return tuple(told for told in said if told not in public)

    def judged(self, verdict: Verdict, draw: int, share: Callable[[int], float]) -> None:
        """Follow a verdict: note what is known of its shards, and how much of the model has moved.

        `draw` is the draw of the shard plan in that round; `share` gives a shard's share of the model, 0 for one that
        was committed but moves nothing.
        """
        start = Start(verdict.round, verdict.previous, draw)
        for members, shards in _committed(verdict):
            self.note(start, members, *shards)
        for told in verdict.unmasked:
            self.note(start, told.contributors, told.shard)
        self.keep(sync=bool(verdict.unmasked))
        self._follow(start, verdict, share)

    def _follow(self, start: Start, verdict: Verdict, share: Callable[[int], float]) -> None:
        """Count the next round with this one if the model has hardly moved."""
        first, before = self._course.get(start.chain, (start.round, {}))
        sizes = {(start.draw, entry.shard): share(entry.shard) for entry in verdict.shards if entry.committed}
        moved = {**before, **{place: size for place, size in sizes.items() if size}}
        if _part(moved) < _ENOUGH:
            spelled = [[*place, size] for place, size in sorted(moved.items())]
            if self._known.get(first):
                self._write({"round": first, "then": verdict.digest, "moved": spelled})
            self._course[verdict.digest] = first, moved

    def _first(self, start: Start) -> int:
        """Return the round with which the stretch of a round began."""
        return self._course[start.chain][0] if start.chain in self._course else start.round

    def _overlapping(self, start: Start, shard: int) -> set[_Set]:
        """Return the sums that may share coordinates with a shard: another draw cuts elsewhere."""
        with self._lock:
            known = list(self._known.get(self._first(start), {}).items())
        return {sums for sums, places in known if places.keys() - {start.draw} or places[start.draw] >> shard & 1}

    def _write(self, line: dict[str, object], *, sync: bool = True) -> None:
        if self._path is not None:
            append_first(self._path, line, what="unmasked", fix="no pads were given out", sync=sync)

    def _read(self, path: Path) -> None:
        for text in path.read_text(encoding="utf-8").splitlines():
            try:
                line = json.loads(text)
                first, then, plan = int(line["round"]), line.get("then"), str(line.get("plan", ""))
                if then is not None:
                    moved = {(int(draw), int(shard)): float(size) for draw, shard, size in line["moved"]}
                    self._course[str(then)] = first, moved
                    continue
                for members, places in [_read_sum(each) for each in line["sums"]]:
                    _add(self._known[first], self._alike.setdefault(members, members), places)
                    if plan:
                        known = self._ours[1] if self._ours[0] == plan else set()
                        answered = {(shard, members) for bits in places.values() for shard in _shards(bits)}
                        self._ours = plan, known | answered
            except (ValueError, KeyError, TypeError, AttributeError):
                continue  # torn: the answer was not given


def _add(known: dict[_Set, _Places], members: _Set, places: _Places) -> bool:
    """Add places to those of a sum; whether any of them is new. What others read is replaced, never changed."""
    before = known.get(members, {})
    after = {**before, **{draw: before.get(draw, 0) | bits for draw, bits in places.items()}}
    if after != before:
        known[members] = after
    return after != before


def _committed(verdict: Verdict) -> Iterator[tuple[_Set, list[int]]]:
    """Return each set of contributors once, with the shards committed over it."""
    alike: dict[int, tuple[_Set, list[int]]] = {}  # by identity: a thousand members are not compared for every shard
    for entry in verdict.shards:
        if entry.committed:
            alike.setdefault(id(entry.contributors), (entry.contributors, []))[1].append(entry.shard)
    return iter(alike.values())


def _spelled(members: _Set, places: _Places) -> list[object]:
    return [members, [[draw, f"{bits:x}"] for draw, bits in sorted(places.items())]]


def _read_sum(spelled: Sequence[Sequence[Sequence[object]]]) -> tuple[_Set, _Places]:
    members, places = spelled
    return tuple(int(str(member)) for member in members), {int(str(draw)): int(str(bits), 16) for draw, bits in places}


def _shards(bits: int) -> list[int]:
    return [shard for shard in range(bits.bit_length()) if bits >> shard & 1]


def _part(moved: _Moved) -> float:
    """Return how much of the model moved at least: shards of one draw do not overlap, those of two may."""
    draws = defaultdict[int, float](float)
    for (draw, _), size in moved.items():
        draws[draw] += size
    return max(draws.values(), default=0.0)
