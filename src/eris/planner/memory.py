"""Plan the memory that aggregation takes: contributions are staged whole, then folded in ascending order of members.

It counts the staged contributions, including the aggregator's own, and one accumulator. The peer's own model, optimizer
and references come on top, whether it aggregates or not. In fixed point a contribution is freed once it is complete;
what is counted then is the most there can be, all of them on their way at once.

>>> from eris.planner.fleet import Fleet
>>> from eris.planner.scenario import scenario
>>> round = scenario(n=1_000_000, fleet=Fleet.uniform(10, rate=20e6))
>>> aggregator_memory("fedavg", round) / 1e6, aggregator_memory("eris", round) / 1e6
(44.0, 4.4)
"""

from __future__ import annotations

import numpy as np

from eris.errors import ConfigError
from eris.methods import method_by_name
from eris.planner.scenario import Scenario
from eris.planner.traffic import Bytes, payload, phases

__all__ = ["aggregator_memory", "memory_of_aggregators", "require_memory"]


def aggregator_memory(method: str, scenario: Scenario) -> float:
    """Return the most bytes that any one node needs to aggregate."""
    if not (known := method_by_name(method)).server and known.exchange is None:
        return float(memory_of_aggregators(method, scenario).max())
    staged = float(phases(method, scenario)[0].received.max())
    return staged + scenario.model.bytes


def memory_of_aggregators(method: str, scenario: Scenario) -> Bytes:
    """Return what each peer needs for the shards of eris that it aggregates (zero for the others)."""
    sizes = payload(method, scenario)
    need = np.zeros(scenario.members)
    for peers in scenario.observers:
        np.add.at(need, peers, len(scenario.participants) * sizes.up + sizes.down)
    return need


def require_memory(method: str, scenario: Scenario) -> None:
    """Refuse a plan that an aggregator has too little memory for, naming the one that lacks the most."""
    need = memory_of_aggregators(method, scenario)
    lack = need - np.array([peer.memory for peer in scenario.fleet.peers])
    worst = int(np.argmax(lack))
    if lack[worst] > 0:
        peer = scenario.fleet.peers[worst]
        raise ConfigError(
            f"{method} needs {need[worst] / 1e6:,.1f} MB to aggregate {len(scenario.participants)} contributions, "
            f"but the peer offers {peer.memory / 1e6:,.1f} MB",
            fix="use more aggregators, shards by capacity or compression, or let --advise choose",
            peer=peer.name,
        )
