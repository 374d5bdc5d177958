"""How much of one member's update the best placed observer sees in one round.

Counted is the share of the vector's coordinates whose value the observer can tell for that member: what it is sent as
an aggregator or server, and what published means give away. It is a count of coordinates, not a measure of what can be
inferred from them, and masks that move from round to round uncover more over time.

>>> from eris.planner.fleet import Fleet
>>> from eris.planner.scenario import scenario
>>> ten = Fleet.uniform(10, rate=20e6)
>>> exposure("fedavg", scenario(n=10_000, fleet=ten)).share, exposure("eris", scenario(n=10_000, fleet=ten)).share
(1.0, 0.1)
>>> round(exposure("eris+dsc", scenario(n=100_000, fleet=ten, keep=0.01, masks="public")).share, 6)
0.009222
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from eris.errors import ConfigError
from eris.planner.model_size import VALUE_BYTES
from eris.planner.scenario import Scenario
from eris.planner.traffic import METHODS, payload

__all__ = ["Exposure", "exposure"]


@dataclass(frozen=True, slots=True)
class Exposure:
    """The largest share of a member's update that an observer sees in a round, and who that is."""

    share: float
    observer: str
    broadcast: float = 0.0  # the part of it that comes from what is published to everybody
    note: str = ""


def exposure(method: str, scenario: Scenario, *, coalition: int = 1) -> Exposure:
    """Return the exposure to one observer, or to a coalition of this many peers that pool what they see."""
    if coalition < 1:
        raise ConfigError(f"a coalition of {coalition}", fix="use 1 or more")
    if method in ("eris", "eris+dsc"):
        return _of_shards(method, scenario, coalition)
    settings = scenario.baselines
    if method == "shatter":
        return _of_chunks(scenario, coalition)
    if method == "ako":
        parts = settings.ako_partitions
        return Exposure(1 / parts, "every member", note=f"another part each round: everything after {parts} rounds")
    if method == "qdpsgd":
        return Exposure(1.0, "every neighbour", note="the whole model, quantised")
    central = {"fedavg": 1.0, "priprune": 1 - settings.prune, "soteriafl": settings.soteria_keep}
    if method not in central:
        raise ConfigError(f"no method is named {method!r}", fix=f"use one of {', '.join(METHODS)}")
    return Exposure(central[method], "the server")


def _of_shards(method: str, scenario: Scenario, coalition: int) -> Exposure:
    """Add up the largest shards of the coalition, then what the published means give away.

    With replicas a peer is sent two shards. Peers that share none see most together; where sizes differ that is an
    upper bound, because the largest shards may be the same ones.
    """
    sent, held = payload(method, scenario).up, np.zeros(scenario.members)
    for peers in scenario.observers:
        np.add.at(held, peers, sent)
    size = VALUE_BYTES * scenario.model.values
    everything = float(sent.sum() / size)
    seen = min(everything, float(np.sort(held)[::-1][:coalition].sum() / size))
    observer = "an aggregator" if coalition == 1 else f"{coalition} aggregators together"
    others = len(scenario.participants) - coalition
    if others <= 1:
        note = f"{len(scenario.participants)} contributors: the published mean less the coalition's own is the update"
        return Exposure(everything, observer, everything - seen, note)
    if method == "eris" or scenario.masks == "shared" or scenario.keep == 1:
        return Exposure(seen, observer)
    alone = (1 - scenario.keep) ** others  # nobody else kept the coordinate, so its mean is this member's value
    published = (everything - seen) * alone
    if scenario.masks == "public":
        return Exposure(
            seen + published, observer, published, "coordinates kept by one member alone are published as its own"
        )
    note = f"{published:.2%} more is published as values of one member, but without its name (secret masks)"
    return Exposure(seen, observer, note=note)


def _of_chunks(scenario: Scenario, coalition: int) -> Exposure:
    """Estimate the largest number of a member's chunks that reach one observer.

    A chunk goes to r of the other virtual nodes, so an observer that runs l of them gets it with probability q; the
    counts of different observers are taken as independent binomials.
    """
    settings, count = scenario.baselines, len(scenario.participants)
    chunks, degree = settings.shatter_chunks, settings.shatter_degree
    targets, own = count * chunks - 1, min(coalition, count - 1) * chunks
    missed = math.comb(max(targets - own, 0), degree) / math.comb(targets, degree) if degree <= targets else 0.0
    observers = max((count - 1) // coalition, 1)
    at_most, expected = 0.0, 0.0
    for seen in range(chunks):
        at_most += math.comb(chunks, seen) * (1 - missed) ** seen * missed ** (chunks - seen)
        expected += 1 - at_most**observers
    return Exposure(expected / chunks, "a neighbour", note="expected largest; the sender's name is hidden")
