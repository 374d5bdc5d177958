"""All planned figures of one method's round in one value, for tables and programs."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from eris.methods import method_by_name
from eris.planner.duration import Bottleneck, bottlenecks
from eris.planner.exposure import Exposure, exposure
from eris.planner.memory import aggregator_memory, memory_of_aggregators
from eris.planner.scenario import Scenario
from eris.planner.traffic import traffic

__all__ = ["Cost", "cost", "finite", "sharded"]


@dataclass(frozen=True, slots=True)
class Cost:
    """One method's round: bytes, seconds, memory, exposure. Figures of a member or node are the largest of any."""

    method: str
    keep: float  # share of the values that leave a member
    member_upload: float
    member_download: float
    member_total: float
    node_upload: float
    node_download: float
    network: float
    relayed: float  # what the relay takes in, and gives out again
    seconds: float
    waits_for: tuple[Bottleneck, ...]  # phase by phase
    memory: float
    memory_fits: bool
    exposure: Exposure

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
        return asdict(self)


def cost(method: str, scenario: Scenario) -> Cost:
    """Gather the figures of a method."""
    moved, waits = traffic(method, scenario), bottlenecks(method, scenario)
    return Cost(
        method=method,
        keep=_keep(method, scenario),
        member_upload=moved.member_upload,
        member_download=moved.member_download,
        member_total=moved.member_total,
        node_upload=moved.node_upload,
        node_download=moved.node_download,
        network=moved.network,
        relayed=moved.relayed,
        seconds=sum(wait.seconds for wait in waits),
        waits_for=waits,
        memory=aggregator_memory(method, scenario),
        memory_fits=_fits(method, scenario),
        exposure=exposure(method, scenario),
    )


def _keep(method: str, scenario: Scenario) -> float:
    known = method_by_name(method)
    if known.facts.kept is None:
        return 1.0
    closed = not known.server and known.exchange is None and scenario.config.compression.compressor == "rand_k"
    return scenario.keep if closed else known.facts.kept(scenario.planned)


def sharded(method: str) -> bool:
    """Return whether peers aggregate shards in this method."""
    known = method_by_name(method)
    return not known.server and known.exchange is None


def _fits(method: str, scenario: Scenario) -> bool:
    if not sharded(method):
        return True
    lent = np.array([peer.memory for peer in scenario.fleet.peers])
    return bool((memory_of_aggregators(method, scenario) <= lent).all())


def finite(data: Any) -> Any:
    """Return plain data with None for numbers that JSON does not have (∞, NaN).

    >>> finite({"a": [1.0, math.inf]})
    {'a': [1.0, None]}
    """
    if isinstance(data, dict):
        return {key: finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data
