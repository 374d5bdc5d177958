"""Who sends and receives how many bytes in a round, method by method, in closed form.

A round is one or two **phases**: members send, then (where somebody aggregates) the result goes out. In a phase every
node sends some bytes and receives some; what all send is what all receive.

>>> from eris.planner.fleet import Fleet
>>> from eris.planner.scenario import scenario
>>> bytes_of = traffic("eris", scenario(n=1_300_000_000, fleet=Fleet.uniform(10, rate=20e6)))
>>> bytes_of.member_upload / 1e9, bytes_of.node_upload / 1e9, bytes_of.network / 1e9
(4.68, 9.36, 93.6)

Sizes are whole coordinates as the transforms keep them: ⌊pn⌋ in all with shared masks, of which a shard has its
expected part, and ⌈p·shard⌉ of every shard with independent ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eris.errors import ConfigError
from eris.planner.model_size import VALUE_BYTES
from eris.planner.scenario import Scenario
from eris.transforms.sparsify import share_of

__all__ = ["METHODS", "Bytes", "Payload", "Phase", "Traffic", "payload", "phases", "traffic"]

Bytes = NDArray[np.float64]

METHODS = ("fedavg", "priprune", "soteriafl", "ako", "shatter", "qdpsgd", "eris", "eris+dsc")


@dataclass(frozen=True, slots=True)
class Phase:
    """Bytes each node sends and receives at the same time: the peers in order, then the server."""

    sent: Bytes
    received: Bytes


@dataclass(frozen=True)
class Traffic:
    """The bytes of one round. A *member*'s figures count that role alone, a *node*'s its aggregating role as well."""

    method: str
    phases: tuple[Phase, ...]

    @property
    def sent(self) -> Bytes:
        """Bytes each node sends in the round, the server last."""
        return np.asarray(sum(phase.sent for phase in self.phases))

    @property
    def received(self) -> Bytes:
        """Bytes each node receives in the round, the server last."""
        return np.asarray(sum(phase.received for phase in self.phases))

    @property
    def member_upload(self) -> float:
        """Most that a member sends of its own update."""
        return float(self.phases[0].sent[:-1].max())

    @property
    def member_download(self) -> float:
        """Most that a member receives of the result."""
        return float(self.phases[-1].received[:-1].max())

    @property
    def member_total(self) -> float:
        """Most that a member sends and receives in that role."""
        return float((self.phases[0].sent[:-1] + self.phases[-1].received[:-1]).max())

    @property
    def node_upload(self) -> float:
        """Most that a peer sends in all its roles."""
        return float(self.sent[:-1].max())

    @property
    def node_download(self) -> float:
        """Most that a peer receives in all its roles."""
        return float(self.received[:-1].max())

    @property
    def network(self) -> float:
        """Bytes that cross the network, each counted once."""
        return float(self.sent.sum())


@dataclass(frozen=True, slots=True)
class Payload:
    """Values that travel for each shard of eris: from one member up, to one member down. Headers not counted."""

    up: Bytes
    down: Bytes


def payload(method: str, scenario: Scenario) -> Payload:
    """Return the bytes of one contribution to, and of one publication of, every shard (eris and eris+dsc)."""
    dense = VALUE_BYTES * (scenario.shard_sizes + scenario.buffer_sizes).astype(np.float64)
    if method == "eris":
        return Payload(dense, dense)
    up = VALUE_BYTES * (_kept(scenario) + scenario.buffer_sizes)
    return Payload(
        up, dense if scenario.masks == "independent" else VALUE_BYTES * (_published(scenario) + scenario.buffer_sizes)
    )


def _kept(scenario: Scenario) -> Bytes:
    """Return how many coordinates of each shard a member sends."""
    n, keep, sizes = scenario.model.n, scenario.keep, scenario.shard_sizes
    if scenario.masks == "shared":
        return np.asarray(share_of(keep, n) * sizes / n, np.float64)
    return np.array([share_of(keep, size, round_up=True) for size in sizes.tolist()], np.float64)


def _published(scenario: Scenario) -> Bytes:
    """Return how many coordinates of each shard are published where everybody knows the masks.

    Shared masks keep the same ones for all. Public independent masks keep their union, 1 − (1−p)^K of the shard.
    """
    kept, sizes = _kept(scenario), scenario.shard_sizes.astype(np.float64)
    if scenario.masks == "shared":
        return kept
    share = np.divide(kept, sizes, out=np.zeros_like(kept), where=sizes > 0)
    union: Bytes = sizes * -np.expm1(len(scenario.participants) * np.log1p(-np.minimum(share, 1 - 1e-16)))
    return union


def _eris(method: str, scenario: Scenario) -> tuple[Phase, ...]:
    """Every member sends each shard to who aggregates it, once or twice; one publishes it. Own shards stay put."""
    sizes, owners = payload(method, scenario), np.array(scenario.aggregators)
    up, down = _framed(scenario, sizes.up), _framed(scenario, sizes.down)
    joins, listens = scenario.takes_part, scenario.listens
    collect, publish = _silence(scenario), _silence(scenario)
    collect.sent[:-1][joins] = scenario.replicas * up.sum()
    for receivers in scenario.observers:
        np.subtract.at(collect.sent, receivers, up * joins[receivers])
        np.add.at(collect.received, receivers, up * (joins.sum() - joins[receivers]))
    np.add.at(publish.sent, owners, down * (listens.sum() - listens[owners]))
    publish.received[:-1][listens] = down.sum()
    np.subtract.at(publish.received, owners, down * listens[owners])
    return collect, publish


def _framed(scenario: Scenario, payload: Bytes) -> Bytes:
    """Return messages with the headers of their chunks."""
    chunks: Bytes = np.maximum(1.0, np.ceil(payload / scenario.chunk))
    return payload + scenario.header * chunks


def _message(scenario: Scenario, payload: float) -> float:
    return float(_framed(scenario, np.array([payload]))[0])


def _silence(scenario: Scenario) -> Phase:
    return Phase(np.zeros(scenario.members + 1), np.zeros(scenario.members + 1))


def _central(scenario: Scenario, upload: float) -> tuple[Phase, ...]:
    """Participants send to a server, which sends the whole model back to all who listen."""
    collect, publish = _silence(scenario), _silence(scenario)
    joins, listens = scenario.takes_part, scenario.listens
    up, down = _message(scenario, upload), _message(scenario, scenario.model.bytes)
    collect.sent[:-1][joins] = up
    collect.received[-1] = up * joins.sum()
    publish.sent[-1] = down * listens.sum()
    publish.received[:-1][listens] = down
    return collect, publish


def _among_equals(scenario: Scenario, each_way: float) -> tuple[Phase, ...]:
    """Participants exchange with each other, as much up as down."""
    exchange = _silence(scenario)
    exchange.sent[:-1][scenario.takes_part] = exchange.received[:-1][scenario.takes_part] = each_way
    return (exchange,)


def _fedavg(scenario: Scenario) -> tuple[Phase, ...]:
    return _central(scenario, scenario.model.bytes)


def _priprune(scenario: Scenario) -> tuple[Phase, ...]:
    """Withheld positions depend on the data, so they travel: as a bitmap, or as zeros where those are shorter.

    Few values that are left travel with a list of their places instead.
    """
    n, prune = scenario.model.n, scenario.baselines.prune
    kept = n - share_of(prune, n, round_up=True) if prune else n
    positions = min(math.ceil(n / 8), VALUE_BYTES * min(n - kept, kept))
    return _central(scenario, VALUE_BYTES * (kept + scenario.model.buffers) + positions)


def _soteriafl(scenario: Scenario) -> tuple[Phase, ...]:
    kept = share_of(scenario.baselines.soteria_keep, scenario.model.n, round_up=True)
    return _central(scenario, VALUE_BYTES * (kept + scenario.model.buffers))


def _ako(scenario: Scenario) -> tuple[Phase, ...]:
    others, parts = len(scenario.participants) - 1, scenario.baselines.ako_partitions
    return _among_equals(scenario, others * _message(scenario, scenario.model.bytes / parts))


def _shatter(scenario: Scenario) -> tuple[Phase, ...]:
    """Each chunk goes to r virtual nodes; the expected share of neighbours inside the same real node costs nothing."""
    settings, virtual = scenario.baselines, len(scenario.participants) * scenario.baselines.shatter_chunks
    degree = settings.shatter_degree
    if degree >= virtual or degree * virtual % 2:
        raise ConfigError(
            f"no graph of {virtual} virtual nodes has {degree} neighbours at each",
            fix="use a degree below the number of virtual nodes, with an even product of the two",
        )
    inside = (settings.shatter_chunks - 1) / (virtual - 1)
    piece = _message(scenario, scenario.model.bytes / settings.shatter_chunks)
    return _among_equals(scenario, degree * settings.shatter_chunks * piece * (1 - inside))


def _qdpsgd(scenario: Scenario) -> tuple[Phase, ...]:
    degree = scenario.baselines.graph_share * (len(scenario.participants) - 1)
    return _among_equals(scenario, degree * _message(scenario, scenario.baselines.quantised * scenario.model.bytes))


_FORMS: dict[str, Callable[[Scenario], tuple[Phase, ...]]] = {
    "fedavg": _fedavg,
    "fedavg+compression": lambda scenario: _central(scenario, scenario.baselines.compressed * scenario.model.bytes),
    "priprune": _priprune,
    "soteriafl": _soteriafl,
    "ako": _ako,
    "shatter": _shatter,
    "qdpsgd": _qdpsgd,
    "eris": lambda scenario: _eris("eris", scenario),
    "eris+dsc": lambda scenario: _eris("eris+dsc", scenario),
}


def phases(method: str, scenario: Scenario) -> tuple[Phase, ...]:
    """Return the phases of a round of this method."""
    if method not in _FORMS:
        raise ConfigError(f"no method is named {method!r}", fix=f"use one of {', '.join(METHODS)}")
    return _FORMS[method](scenario)


def traffic(method: str, scenario: Scenario) -> Traffic:
    """Return the bytes of a round of this method."""
    return Traffic(method, phases(method, scenario))
