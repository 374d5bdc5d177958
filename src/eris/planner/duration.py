"""The shortest time in which a round's bytes can be distributed.

In a phase all transfers run at once, each node sending and receiving at the same time, and the phase ends with the node
that needs longest: max over nodes of bytes/rate, which a schedule attains (let every transfer take the whole phase).
A relay is one more such node: it carries everything to and from aggregators that nobody can dial. Phases follow each
other: a shard is published when all contributions are in. Local work, latency and headers (unless given) are not
counted, so a real round takes longer.

>>> from eris.planner.fleet import Fleet
>>> from eris.planner.scenario import scenario
>>> round = scenario(n=1_300_000_000, fleet=Fleet.uniform(10, rate=20e6), keep=0.01)
>>> distribution_time("fedavg", round), distribution_time("eris", round), distribution_time("eris+dsc", round)
(5200.0, 468.0, 4.68)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eris.planner.scenario import Scenario
from eris.planner.traffic import Phase, phases

__all__ = ["Bottleneck", "bottlenecks", "distribution_time"]


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """The link that decides how long a phase takes: the first of `equals` links that need the same time."""

    node: str
    equals: int
    way: str  # "upload" or "download"
    seconds: float


def distribution_time(method: str, scenario: Scenario) -> float:
    """Return the minimum seconds of a round of this method."""
    return sum(bottleneck.seconds for bottleneck in bottlenecks(method, scenario))


def bottlenecks(method: str, scenario: Scenario) -> tuple[Bottleneck, ...]:
    """Return, phase by phase, what the round waits for."""
    return tuple(_slowest(phase, scenario) for phase in phases(method, scenario))


def _slowest(phase: Phase, scenario: Scenario) -> Bottleneck:
    fleet = scenario.fleet
    sending, receiving = phase.sent / fleet.uploads, phase.received / fleet.downloads
    way, seconds = ("upload", sending) if sending.max() > receiving.max() else ("download", receiving)
    if (
        fleet.relay is not None
        and (relayed := phase.relayed / min(fleet.relay.upload, fleet.relay.download)) > seconds.max()
    ):
        way = "upload" if fleet.relay.upload < fleet.relay.download else "download"
        return Bottleneck(fleet.relay.name, 1, way, relayed)
    node = int(np.argmax(seconds))
    equals = int((seconds >= seconds[node] * (1 - 1e-9)).sum())
    return Bottleneck((*fleet.peers, fleet.server)[node].name, equals, way, float(seconds[node]))
