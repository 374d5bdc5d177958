"""T rounds of what a central server would do, one coordinate and one rounded operation after another.

Nothing of eris' aggregation, server steps, transforms or protocol is used: only its seeds (which coordinates a round
keeps is a fact of the wire format) and the owner map of the shard plan (what a lost message takes with it).
All numbers are numpy float32 scalars, so every operation is rounded once and in the order written here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, floor

import numpy as np

from eris.seeds import Seed
from tests.equivalence.case import HYPER, PULL, Case

F = np.float32
Number = np.float32
Vector = np.ndarray


@dataclass
class Outcome:
    """Everything that must agree at the end."""

    model: Vector
    optimizer: dict[str, Vector]
    reference: Vector | None = None  # s
    references: dict[int, Vector] = field(default_factory=dict)  # s_k
    limit: Vector = field(default_factory=lambda: np.empty(0, F))  # R of the next round, in fixed point

    def differences(self, other: Outcome) -> list[str]:
        """Return the names of all vectors that are not equal, value by value."""
        mine, theirs = self._named(), other._named()
        if mine.keys() != theirs.keys():
            return [f"{sorted(mine.keys() ^ theirs.keys())} only on one side"]
        return [name for name in mine if not np.array_equal(mine[name], theirs[name])]

    def _named(self) -> dict[str, Vector]:
        named = {"model": self.model, **{f"optimizer {name}": value for name, value in self.optimizer.items()}}
        if self.reference is not None:
            named["s"] = self.reference
        if self.limit.size:
            named["limit"] = self.limit
        return named | {f"s_{member}": value for member, value in self.references.items()}


def centrally(case: Case, participants: list[tuple[int, ...]]) -> Outcome:
    """Run the whole case as one loop over rounds, coordinates and members."""
    return _Server(case).run(participants)


class _Server:
    def __init__(self, case: Case) -> None:
        self.case = case
        total = math.fsum(case.member_weights)
        self.weight = [F(weight / total) for weight in case.member_weights]
        self.model = [F(value) for value in case.initial]
        self.optimizer = {name: [F(start)] * case.n for name, start in _initial_state(case.optimizer).items()}
        self.s = [F(0)] * case.n
        self.s_k = {k: [F(0)] * case.n for k in range(case.members)}
        self.limit = self.first_limit = self._first_limit()  # R, in fixed point
        self.largest = 0.0  # |u| of the round

    def run(self, participants: list[tuple[int, ...]]) -> Outcome:
        for round, members in enumerate(participants):
            self._round(round, members)
        shifted = self.case.gamma is not None
        return Outcome(
            np.array(self.model, F),
            {name: np.array(values, F) for name, values in self.optimizer.items()},
            np.array(self.s, F) if shifted else None,
            {k: np.array(values, F) for k, values in self.s_k.items()} if shifted else {},
            np.array([] if self.case.encoding is None else [self.limit], F),
        )

    def _round(self, round: int, members: tuple[int, ...]) -> None:
        case, faults = self.case, self.case.faults(round)
        layout = case.policy.layout(round)
        sent = {k: self._update(round, k) for k in members}
        kept, factor = self._kept(round)
        kept_shards = set(range(case.shards)) - faults.shards
        committed = [0, *(sum((k, shard) not in faults.links for k in members) for shard in kept_shards)]
        self.largest = 0.0
        for i in range(case.n + case.buffers):
            trains = i < case.n
            plan, place = (layout.trainable, i) if trains else (layout.buffers, i - case.n)
            shard = int(plan.owners_of(np.array([place]))[0])
            contributors = [k for k in members if (k, shard) not in faults.links]
            if shard in faults.shards or not contributors:
                continue
            given = {k: sent[k][i] for k in contributors}
            if not trains:
                self.model[i] = self.model[i] - self._mean_of_buffers(given) * self._c(contributors)
            elif case.gamma is None:
                values = {k: self._compressed(value, i, kept, factor) for k, value in given.items()}
                c = self._c(contributors) if case.rule == "mean" else F(1)  # a median lacks nothing
                self._step(i, self._corrected(self._combine(values) * c, contributors))
            else:
                self._shifted_step(i, given, contributors, kept, factor)
        if max(committed) and case.encoding is not None and case.encoding.limit is None:
            above = max(16.0, 4 * math.sqrt(max(committed))) * self.largest
            self.limit = 2.0 ** (floor(math.log2(above)) + 1) if above else self.first_limit

    # In fixed point a member limits, weighs and rounds; others know its value only as what the whole number means.

    def _first_limit(self) -> float:
        case = self.case
        if case.encoding is None or case.encoding.limit is not None:
            return 0.0 if case.encoding is None else case.encoding.limit
        kept = {"": case.n, "rand_k": max(1, floor(Fraction(str(case.kept)) * case.n)), "bernoulli": case.kept * case.n}
        return 2.0 ** ceil(math.log2(case.n / kept[case.sparsifier]))

    def _whole(self, k: int, value: Number) -> int:
        inside = F(min(max(float(value), -self.limit), self.limit))
        return round(Fraction(float(inside * self.weight[k])) * Fraction(2) ** 30 / Fraction(self.limit))

    def _meant(self, k: int, value: Number) -> Number:
        if self.case.encoding is None:
            return value
        return F(self._whole(k, value)) * F(self.limit * 2.0**-30) / self.weight[k]

    def _mean_of_buffers(self, given: dict[int, Number]) -> Number:
        if self.case.encoding is None:
            return self._mean(given)
        return F(sum(round(float(self.weight[k]) * float(value) * 2.0**32) for k, value in given.items()) * 2.0**-32)

    def _update(self, round: int, member: int) -> list[Number]:
        drift = self.case.drift(round, member)
        update = [F(d) + PULL * x for d, x in zip(drift, self.model, strict=True)]
        if self.case.optimizer == "fednova":
            steps, n = F(self.case.steps(member)), self.case.n
            update = [value / steps for value in update[:n]] + update[n:]
        return update

    def _shifted_step(
        self, i: int, given: dict[int, Number], contributors: list[int], kept: set[int] | None, factor: Number
    ) -> None:
        gamma = F(self.case.gamma or 0)
        values = {k: self._compressed(g - self.s_k[k][i], i, kept, factor) for k, g in given.items()}
        mean = self._mean(values)
        values = {k: self._meant(k, value) for k, value in values.items()}
        self._step(i, self._corrected(mean * self._c(contributors) + self.s[i], contributors))
        self.s[i] = self.s[i] + gamma * mean
        for k, value in values.items():
            self.s_k[k][i] = self.s_k[k][i] + gamma * value

    def _compressed(self, value: Number, i: int, kept: set[int] | None, factor: Number) -> Number:
        if kept is None:
            return value
        return value * factor if i in kept else F(0)

    def _kept(self, round: int) -> tuple[set[int] | None, Number]:
        """Return which coordinates all members send in a round, and by what they are multiplied."""
        case = self.case
        seed = case.public.child("round", round, "mask")
        if case.sparsifier == "rand_k":
            count = max(1, floor(Fraction(str(case.kept)) * case.n))
            return set(seed.subset(case.n, count).tolist()), F(case.n / count)
        if case.sparsifier == "bernoulli":
            return _heads(seed, case.n, case.kept), F(1 / case.kept)
        return None, F(1)

    def _combine(self, given: dict[int, Number]) -> Number:
        if self.case.rule == "mean":
            return self._mean(given)
        ranked = sorted(given.values(), key=float)
        if self.case.rule == "median":
            low, high = ranked[(len(ranked) - 1) // 2], ranked[len(ranked) // 2]
            return low if len(ranked) % 2 else low * F(0.5) + high * F(0.5)
        drop = int(0.1 * len(ranked))
        rest = ranked[drop : len(ranked) - drop]
        total = rest[0]
        for value in rest[1:]:
            total = total + value
        return total / F(len(rest))

    def _mean(self, given: dict[int, Number]) -> Number:
        if self.case.encoding is not None:
            return F(sum(self._whole(k, value) for k, value in given.items())) * F(self.limit * 2.0**-30)
        total = F(0)
        for k in sorted(given):
            total = total + self.weight[k] * given[k]
        return total

    def _c(self, contributors: list[int]) -> Number:
        if self.case.normalisation == "none":
            return F(1)
        if self.case.normalisation == "participation":
            return F(1 / self.case.participation)
        return F(1 / math.fsum(float(self.weight[k]) for k in contributors))

    def _corrected(self, direction: Number, contributors: list[int]) -> Number:
        if self.case.optimizer != "fednova":
            return direction
        weighted = math.fsum(float(self.weight[k]) * self.case.steps(k) for k in contributors)
        return direction * F(weighted / math.fsum(float(self.weight[k]) for k in contributors))

    def _step(self, i: int, u: Number) -> None:
        name, x, state = self.case.optimizer, self.model, self.optimizer
        self.largest = max(self.largest, abs(float(u)))
        hyper = {key: F(value) for key, value in HYPER[name].items()}
        if name in ("fedavg", "fednova"):
            x[i] = x[i] - u * hyper["lr"]
            return
        if name == "fedavgm":
            state["momentum"][i] = state["momentum"][i] * hyper["beta"] + u
            x[i] = x[i] - state["momentum"][i] * hyper["lr"]
            return
        first = F(1 - HYPER[name]["beta1"])
        state["momentum"][i] = state["momentum"][i] * hyper["beta1"] + u * first
        state["second"][i] = _second(name, state["second"][i], u * u)
        root = np.sqrt(state["second"][i]) + hyper["tau"]
        x[i] = x[i] - state["momentum"][i] / root * hyper["lr"]


def _heads(seed: Seed, n: int, p: float) -> set[int]:
    """Return which of n coins show heads: a byte each, and for those that may be heads a word."""
    limit = ceil(p * 256)
    coins = b"".join(word.to_bytes(8, "little") for word in seed.child("coarse").words(-(-n // 8)).tolist())
    possible = [i for i in range(n) if coins[i] < limit]
    fine = seed.child("fine").uniforms(len(possible)).tolist()
    return {i for i, uniform in zip(possible, fine, strict=True) if uniform < p * 256 / limit}


def _second(name: str, q: Number, square: Number) -> Number:
    if name == "fedadagrad":
        return q + square
    beta, rest = F(HYPER[name]["beta2"]), F(1 - HYPER[name]["beta2"])
    if name == "fedadam":
        return q * beta + square * rest
    if q == square:
        return q
    return q - square * rest if q > square else q + square * rest


def _initial_state(name: str) -> dict[str, float]:
    if name in ("fedavg", "fednova"):
        return {}
    return {"momentum": 0.0} if name == "fedavgm" else {"momentum": 0.0, "second": HYPER[name]["tau"] ** 2}
