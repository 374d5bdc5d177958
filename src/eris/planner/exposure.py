"""Plan exposure: how much of one member's update the best placed observer sees in one round.

It is the share of coordinates whose value the observer knows for that member: what it receives as an aggregator or
server, and what published means give away. It counts coordinates; it does not measure what can be inferred from them,
and masks that change from round to round reveal more over time.

>>> from eris.planner.fleet import Fleet
>>> from eris.planner.scenario import scenario
>>> ten = Fleet.uniform(10, rate=20e6)
>>> exposure("fedavg", scenario(n=10_000, fleet=ten)).share, exposure("eris", scenario(n=10_000, fleet=ten)).share
(1.0, 0.1)
>>> round(exposure("eris+dsc", scenario(n=100_000, fleet=ten, keep=0.01, masks="public")).share, 6)
0.009222
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eris.errors import ConfigError
from eris.methods import Method, method_by_name
from eris.methods.masked import unmaskers_of
from eris.planner.model_size import VALUE_BYTES
from eris.planner.scenario import Scenario
from eris.planner.traffic import payload

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
        raise ConfigError(f"the coalition has {coalition} peers", fix="use 1 or more")
    known, round = method_by_name(method), scenario.planned
    if known.trusted:
        return Exposure(0.0, "nobody")
    if known.exchange is None:
        if not known.server:
            return _of_shards(known, scenario, coalition)
        return Exposure(known.facts.kept(round) if known.facts.kept else 1.0, "the server")
    if known.facts.sight is None:
        return Exposure(1.0, "every neighbour", note="the method does not say what its messages reveal")
    seen = known.facts.sight(round, coalition)
    return Exposure(seen.share, seen.observer, note=seen.note)


def _of_shards(method: Method, scenario: Scenario, coalition: int) -> Exposure:
    """Add up the largest shards of the coalition, then what the published means give away.

    With replicas a peer receives two shards. Peers that share none see the most together; if sizes differ, that is an
    upper bound, because the largest shards may be the same ones.
    """
    masked = unmaskers_of(method.name, scenario.config)
    sent, held = payload(method.name, scenario).up, np.zeros(scenario.members)
    for peers in scenario.observers:
        np.add.at(held, peers, sent)
    size = VALUE_BYTES * (scenario.model.values + method.facts.vectors * scenario.model.n)
    everything = float(sent.sum() / size)
    if masked:
        return _of_masked(scenario, masked, coalition, held / size, everything)
    seen = min(everything, float(np.sort(held)[::-1][:coalition].sum() / size))
    observer = "an aggregator" if coalition == 1 else f"{coalition} aggregators together"
    others = len(scenario.participants) - coalition
    if others <= 1:
        note = f"{len(scenario.participants)} contributors: the published mean less the coalition's own is the update"
        return Exposure(everything, observer, everything - seen, note)
    if method.packing is None or scenario.masks == "shared" or scenario.keep == 1:
        return Exposure(seen, observer)
    alone = (1 - scenario.keep) ** others  # nobody else kept the coordinate, so its mean is this member's value
    published = (everything - seen) * alone
    note = "coordinates kept by one member alone are published as its own"
    if scenario.masks == "independent":  # counted as the ledger of a run counts them
        note += ", without its name (secret masks)"
    return Exposure(seen + published, observer, published, note)


def _of_masked(scenario: Scenario, unmaskers: int, coalition: int, held: NDArray[np.float64], whole: float) -> Exposure:
    """Count what a coalition sees if it needs an aggregator and all unmaskers of a shard to see anything.

    The first m + 1 neighbours in the ring see one aggregator's shards, each further one those of one more; if shards
    share unmaskers, the coalition sees no more than its largest aggregators hold.

    `unmaskers` is m, of each shard; `held` is what each aggregator holds and `whole` the update, both in values.
    """
    seeing = coalition - unmaskers
    seen = min(whole, float(np.sort(held)[::-1][: max(seeing, 0)].sum()))
    observer = "an aggregator" if coalition == 1 else f"{coalition} aggregators together"
    others = len(scenario.participants) - coalition
    if others <= 1:
        note = f"{len(scenario.participants)} contributors: the published mean less the coalition's own is the update"
        return Exposure(whole, observer, whole - seen, note)
    with_it = "its unmasker" if unmaskers == 1 else f"its {unmaskers} unmaskers"
    note = f"masked: only an aggregator together with {with_it} sees single values" if seen == 0 else ""
    return Exposure(seen, observer, note=note)
