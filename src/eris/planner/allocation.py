"""Shard sizes by capacity: the linear programme that makes a round as short as the fleet allows.

With shares f of the model, contributions of b' bytes, publications of b″ bytes, P participants and R listeners:

    minimise    t₁ + t₂                                        collect, then publish
    such that   (P − [a trains])·b'·f_a      ≤ download_a·t₁   each aggregator takes in its shard
                b'·(1 − f_k)                 ≤ upload_k·t₁     each member sends what it does not keep
                (R − [a listens])·b″·f_a     ≤ upload_a·t₂     each aggregator gives it out
                b″·(1 − f_k)                 ≤ download_k·t₂   each member receives the rest
                Σ over relayed a of the first ≤ relay·t₁, of the third ≤ relay·t₂
                (P·b' + b″)·f_a              ≤ memory_a
                p·(any c of the f together)  ≤ exposure
                f_a                          ≤ largest
                Σ f = 1

Shares in proportion to one rate would be best for one phase alone; the programme weighs both. Of all shares that are as
fast, to a thousandth, it takes the most even ones, because the largest share is what an observer sees.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.errors import ConfigError, MissingExtra
from eris.planner.duration import distribution_time
from eris.planner.model_size import VALUE_BYTES
from eris.planner.scenario import Scenario

__all__ = ["Allocation", "Limit", "allocate"]

_AS_FAST = 1e-3


@dataclass(frozen=True, slots=True)
class Limit:
    """A constraint that holds the round back; `price` says how fast the time falls if it is relaxed."""

    kind: str  # collect, send, publish, receive, relay, memory, exposure, shard
    peer: str
    price: float


@dataclass(frozen=True, slots=True)
class Allocation:
    """The best shares for these aggregators, one each, and what limits them (most expensive first)."""

    aggregators: tuple[int, ...]
    shares: tuple[float, ...]
    seconds: float
    limits: tuple[Limit, ...]


def allocate(
    scenario: Scenario, *, exposure: float | None = None, coalition: int = 1, largest: float = 1.0
) -> Allocation | None:
    """Return the best shares for the scenario's aggregators; None if memory and the given limits allow none.

    `exposure` bounds the share of an update that any `coalition` aggregators see together, `largest` any one shard.
    """
    if scenario.replicas > 1:
        raise ConfigError(
            "advice and shard sizes by capacity work only with one aggregator per shard",
            fix="use one replica, or plan two replicas of even shards",
        )
    owners = scenario.aggregators
    if len(set(owners)) != len(owners):
        raise ConfigError("an aggregator holds two shards", fix="give each peer one share of the model")
    programme = _Programme(scenario)
    programme.add_links()
    programme.add_memory()
    if exposure is not None:
        programme.add_exposure(exposure, coalition)
    if largest < 1:
        programme.add_largest(largest)
    return programme.solve()


class _Programme:
    """Variables: a share for each aggregator, the two phases' times in units of `unit`, then auxiliary ones."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.count = len(scenario.aggregators)
        self.columns = self.count + 2
        model = scenario.model
        buffers = scenario.buffer_words * model.buffers
        kept = scenario.keep * model.n + buffers
        whole = scenario.masks == "independent" and scenario.keep < 1
        self.up, self.down = VALUE_BYTES * kept, VALUE_BYTES * (model.n + buffers if whole else _published(scenario))
        slowest = min(scenario.fleet.uploads[:-1].min(), scenario.fleet.downloads[:-1].min())
        self.unit = float(
            (self.up + self.down) / slowest
        )  # so that fast links make large coefficients, never tiny ones
        self.rows: list[tuple[dict[int, float], float]] = []
        self.labels: list[tuple[str, str]] = []

    def add(self, kind: str, peer: str, row: dict[int, float], bound: float) -> None:
        """Add Σ row·x ≤ bound, scaled so that its largest coefficient is one: prices can then be compared.

        `kind` and `peer` name the constraint where it binds.
        """
        scale = max(abs(value) for value in row.values()) or 1.0
        self.rows.append(({column: value / scale for column, value in row.items()}, bound / scale))
        self.labels.append((kind, peer))

    def add_links(self) -> None:
        """Bound both phases by the links of aggregators and members."""
        at = self.scenario
        joins, listens, place = at.takes_part, at.listens, {peer: a for a, peer in enumerate(at.aggregators)}
        collect, publish = self.count, self.count + 1
        relayed: tuple[dict[int, float], dict[int, float]] = ({}, {})
        for peer, a in place.items():
            link = at.fleet.peers[peer]
            into, out = (joins.sum() - joins[peer]) * self.up, (listens.sum() - listens[peer]) * self.down
            if link.relayed:
                relayed[0][a], relayed[1][a] = into, out
            self.add("collect", link.name, {a: into, collect: -link.download * self.unit}, 0.0)
            self.add("publish", link.name, {a: out, publish: -link.upload * self.unit}, 0.0)
        for peer, link in enumerate(at.fleet.peers):
            own = {place[peer]: -1.0} if peer in place else {}
            if joins[peer]:
                row = {column: value * self.up for column, value in own.items()}
                self.add("send", link.name, row | {collect: -link.upload * self.unit}, -self.up)
            if listens[peer]:
                row = {column: value * self.down for column, value in own.items()}
                self.add("receive", link.name, row | {publish: -link.download * self.unit}, -self.down)

        if (relay := at.fleet.relay) is not None and relayed[0]:
            for row, phase in zip(relayed, (collect, publish), strict=True):
                self.add("relay", relay.name, row | {phase: -min(relay.upload, relay.download) * self.unit}, 0.0)

    def add_memory(self) -> None:
        """Bound each share by the memory its aggregator offers."""
        need = len(self.scenario.participants) * self.up + self.down
        for a, peer in enumerate(self.scenario.aggregators):
            link = self.scenario.fleet.peers[peer]
            if np.isfinite(link.memory):
                self.add("memory", link.name, {a: need}, link.memory)

    def add_exposure(self, limit: float, coalition: int) -> None:
        """Bound the sum of the `coalition` largest shares: c·z + Σ y_a ≤ limit with y_a ≥ f_a − z, y_a ≥ 0."""
        model = self.scenario.model
        kept = (self.scenario.keep * model.n + model.buffers) / model.values
        if coalition == 1:
            for a, peer in enumerate(self.scenario.aggregators):
                self.add("exposure", self.scenario.fleet.peers[peer].name, {a: kept}, limit)
            return
        level, excess = self.columns, self.columns + 1
        self.columns += 1 + self.count
        for a in range(self.count):
            self.add("exposure", "", {a: 1.0, level: -1.0, excess + a: -1.0}, 0.0)
        together = {level: float(coalition)} | {excess + a: 1.0 for a in range(self.count)}
        self.add("exposure", "", {column: kept * value for column, value in together.items()}, limit)

    def add_largest(self, limit: float) -> None:
        """Bound each share."""
        for a, peer in enumerate(self.scenario.aggregators):
            self.add("shard", self.scenario.fleet.peers[peer].name, {a: 1.0}, limit)

    def solve(self) -> Allocation | None:
        """Find the shortest time, then the most even shares that keep to it; None if nothing is possible."""
        times = {self.count: 1.0, self.count + 1: 1.0}
        fastest = self._minimise(times)
        if fastest is None:
            return None
        limits = self._limits(fastest)
        self.add("time", "", times, float(fastest.fun) * (1 + _AS_FAST))
        level = self.columns
        self.columns += 1
        for a in range(self.count):
            self.add("even", "", {a: 1.0, level: -1.0}, 0.0)
        found = self._minimise({level: 1.0}) or fastest
        shares = np.clip(found.x[: self.count], 0, None)
        best = replace(self.scenario, shares=tuple((shares / shares.sum()).tolist()))
        method = "eris+dsc" if best.keep < 1 else "eris"
        return Allocation(best.aggregators, best.shares, distribution_time(method, best), limits)

    def _minimise(self, cost: dict[int, float]) -> Any:
        weights, whole = np.zeros(self.columns), np.zeros((1, self.columns))
        weights[list(cost)] = list(cost.values())
        whole[0, : self.count] = 1.0
        return _linprog(weights, self._matrix(), np.array([bound for _, bound in self.rows]), whole)

    def _matrix(self) -> Any:
        from scipy.sparse import csr_array

        entries = [(r, c, value) for r, (row, _) in enumerate(self.rows) for c, value in row.items()]
        rows, columns, values = zip(*entries, strict=True)
        return csr_array((values, (rows, columns)), shape=(len(self.rows), self.columns))

    def _limits(self, found: Any) -> tuple[Limit, ...]:
        prices: NDArray[np.float64] = -np.asarray(found.ineqlin.marginals)
        dear = [
            int(row) for row in np.argsort(-prices, kind="stable") if prices[row] > 1e-9 * max(prices.max(), 1e-300)
        ]
        return tuple(Limit(*self.labels[row], float(prices[row])) for row in dear)


def _published(scenario: Scenario) -> float:
    """Return how many values one publication of the whole model holds, where its support is known to all."""
    n, keep = scenario.model.n, scenario.keep
    share = keep if scenario.masks == "shared" else 1 - (1 - keep) ** len(scenario.participants)
    return share * n + scenario.buffer_words * scenario.model.buffers


def _linprog(cost: NDArray[np.float64], matrix: Any, bounds: NDArray[np.float64], whole: NDArray[np.float64]) -> Any:
    try:
        from scipy.optimize import linprog
    except ImportError as error:
        raise MissingExtra("scipy", "plan", "shard sizes by capacity") from error
    found = linprog(cost, A_ub=matrix, b_ub=bounds, A_eq=whole, b_eq=[1.0], bounds=(0, None), method="highs")
    if found.status == 2:  # infeasible
        return None
    if not found.success:
        raise ConfigError(f"the linear programme failed: {found.message}", fix="check the rates of the fleet")
    return found
