"""Plan traffic: how many bytes each node sends and receives in a round, method by method, in closed form.

A round has one to three **phases**: members send, masked sums are unmasked, then (if somebody aggregates) the result
goes out. In a phase every node sends some bytes and receives some; all together send as much as they receive.

>>> from eris.planner.fleet import Fleet
>>> from eris.planner.scenario import scenario
>>> bytes_of = traffic("eris", scenario(n=1_300_000_000, fleet=Fleet.uniform(10, rate=20e6)))
>>> bytes_of.member_upload / 1e9, bytes_of.node_upload / 1e9, bytes_of.network / 1e9
(4.68, 9.36, 93.6)

Sizes are whole coordinates as the transforms keep them: ⌊pn⌋ in all with shared masks, of which a shard has its
expected part, and ⌈p·shard⌉ of every shard with independent ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from eris.aggregate.figures import FIGURE_BYTES, SHARD
from eris.errors import ConfigError
from eris.methods import Method, method_by_name
from eris.methods.masked import unmaskers_of
from eris.planner.model_size import VALUE_BYTES
from eris.planner.scenario import Scenario
from eris.privacy.masking import CHECK_WORDS
from eris.transforms.sparsify import share_of

__all__ = ["Bytes", "Payload", "Phase", "PlannedTraffic", "payload", "phases", "traffic"]

Bytes = NDArray[np.float64]
_CHECKED = 4 * CHECK_WORDS  # bytes of check words after a masked contribution


@dataclass(frozen=True, slots=True)
class Phase:
    """Bytes each node sends and receives at the same time: the peers in order, then the server."""

    sent: Bytes
    received: Bytes
    relayed: float = 0.0  # the part that goes in and out of the relay


@dataclass(frozen=True)
class PlannedTraffic:
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
        """The most that any member sends of its own update."""
        return float(self.phases[0].sent[:-1].max())

    @property
    def member_download(self) -> float:
        """The most that any member receives of the result."""
        return float(self.phases[-1].received[:-1].max())

    @property
    def member_total(self) -> float:
        """The most that any member sends and receives in that role."""
        return float((self.phases[0].sent[:-1] + self.phases[-1].received[:-1]).max())

    @property
    def node_upload(self) -> float:
        """The most that any peer sends in all its roles."""
        return float(self.sent[:-1].max())

    @property
    def node_download(self) -> float:
        """The most that any peer receives in all its roles."""
        return float(self.received[:-1].max())

    @property
    def relayed(self) -> float:
        """Bytes that the relay takes in and gives out again."""
        return sum(phase.relayed for phase in self.phases)

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
    """Return the bytes of one contribution to, and of one publication of, every shard (methods with shards)."""
    known = method_by_name(method)
    words = 2 if unmaskers_of(method, scenario.config) else scenario.buffer_words  # masked ones are fixed point
    buffers = words * scenario.buffer_sizes
    beside = VALUE_BYTES * (buffers + known.facts.vectors * scenario.shard_sizes).astype(np.float64)
    dense = VALUE_BYTES * scenario.shard_sizes + beside
    if known.packing is None:
        return Payload(dense, dense)
    if scenario.config.compression.compressor != "rand_k" or known.facts.upload is None:
        return _of_another_compressor(known, scenario, dense, beside)
    up = VALUE_BYTES * _kept(scenario) + beside
    return Payload(up, dense if scenario.masks == "independent" else VALUE_BYTES * _published(scenario) + beside)


def _of_another_compressor(method: Method, scenario: Scenario, dense: Bytes, beside: Bytes) -> Payload:
    """Spread the method's estimate for a whole update over the shards; the mean comes back whole, or as short.

    `dense` are the bytes of each whole shard, `beside` those that travel uncompressed.
    """
    up = (_upload(method, scenario) - float(beside.sum())) * scenario.shard_sizes / scenario.model.n + beside
    return Payload(up, up if _download(method, scenario) < scenario.model.bytes else dense)


def _download(method: Method, scenario: Scenario) -> float:
    """Return the bytes of what is published, without further vectors."""
    return method.facts.download(scenario.planned) if method.facts.download else float(scenario.planned.bytes)


def _upload(method: Method, scenario: Scenario) -> float:
    """Return the bytes of one whole contribution."""
    round, facts = scenario.planned, method.facts
    return (facts.upload(round) if facts.upload else float(round.bytes)) + facts.vectors * VALUE_BYTES * round.n


def _kept(scenario: Scenario) -> Bytes:
    """Return how many coordinates of each shard a member sends."""
    n, keep, sizes = scenario.model.n, scenario.keep, scenario.shard_sizes
    if scenario.masks == "shared":
        return np.asarray(share_of(keep, n) * sizes / n, np.float64)
    return np.array([share_of(keep, size, round_up=True) for size in sizes.tolist()], np.float64)


def _published(scenario: Scenario) -> Bytes:
    """Return how many coordinates of each shard are published if everybody knows the masks.

    Shared masks keep the same ones for all. Public independent masks keep their union, 1 − (1−p)^K of the shard.
    """
    kept, sizes = _kept(scenario), scenario.shard_sizes.astype(np.float64)
    if scenario.masks == "shared":
        return kept
    share = np.divide(kept, sizes, out=np.zeros_like(kept), where=sizes > 0)
    union: Bytes = sizes * -np.expm1(len(scenario.participants) * np.log1p(-np.minimum(share, 1 - 1e-16)))
    return union


def _eris(method: str, scenario: Scenario) -> tuple[Phase, ...]:
    """Plan eris: each member sends every shard to its one or two aggregators, one publishes it; own shards stay put."""
    sizes, owners = payload(method, scenario), np.array(scenario.aggregators)
    checked = _CHECKED if unmaskers_of(method, scenario.config) else 0
    up, down = _framed(scenario, sizes.up + checked + _scored(scenario)), _framed(scenario, sizes.down)
    joins, listens = scenario.takes_part, scenario.listens
    collect, publish = _silence(scenario), _silence(scenario)
    collect.sent[:-1][joins] = scenario.replicas * up.sum()
    for receivers in scenario.observers:
        np.subtract.at(collect.sent, receivers, up * joins[receivers])
        np.add.at(collect.received, receivers, up * (joins.sum() - joins[receivers]))
    np.add.at(publish.sent, owners, down * (listens.sum() - listens[owners]))
    publish.received[:-1][listens] = down.sum()
    np.subtract.at(publish.received, owners, down * listens[owners])
    away = scenario.fleet.relayed  # links are dialled, and relayed if the peer cannot be dialled
    answers = (
        replace(phase, relayed=float(phase.sent[away].sum())) for phase in _unmasking(method, scenario, sizes.down)
    )
    return (
        replace(collect, relayed=float(collect.received[away].sum())),
        *answers,
        replace(publish, relayed=float(publish.sent[away].sum())),
    )


def _scored(scenario: Scenario) -> Bytes:
    """Return the bytes that members' figures take in the contributions to each shard, if they share any."""
    behind: Bytes = np.zeros(len(scenario.shard_sizes))
    behind[SHARD] = 2 * FIGURE_BYTES * len(scenario.config.shared_figures)
    return behind


def _unmasking(method: str, scenario: Scenario, down: Bytes) -> tuple[Phase, ...]:
    """Plan unmasking: before a masked shard is published, its unmaskers send equally long sums of pads.

    `down` are the bytes of each published shard.
    """
    count, unmask = unmaskers_of(method, scenario.config), _silence(scenario)
    if not count:
        return ()
    sizes = _framed(scenario, down + _CHECKED + _scored(scenario))
    for shard, home in enumerate(scenario.aggregators):
        owners = [int(peers[shard]) for peers in scenario.observers]
        ring = [(home + turn) % scenario.members for turn in range(1, scenario.members)]
        helpers = [peer for peer in ring if peer not in owners][:count]
        unmask.sent[helpers] += sizes[shard] * len(owners)
        unmask.received[owners] += sizes[shard] * len(helpers)
    return (unmask,)


def _framed(scenario: Scenario, payload: Bytes) -> Bytes:
    """Return messages with the headers of their chunks."""
    chunks: Bytes = np.maximum(1.0, np.ceil(payload / scenario.chunk))
    return payload + scenario.header * chunks


def _message(scenario: Scenario, payload: float) -> float:
    return float(_framed(scenario, np.array([payload]))[0])


def _silence(scenario: Scenario) -> Phase:
    return Phase(np.zeros(scenario.members + 1), np.zeros(scenario.members + 1))


def _central(scenario: Scenario, upload: float, download: float) -> tuple[Phase, ...]:
    """Plan a central method: participants send to a server, which sends the result to all who listen."""
    collect, publish = _silence(scenario), _silence(scenario)
    joins, listens = scenario.takes_part, scenario.listens
    up, down = _message(scenario, upload), _message(scenario, download)
    collect.sent[:-1][joins] = up
    collect.received[-1] = up * joins.sum()
    publish.sent[-1] = down * listens.sum()
    publish.received[:-1][listens] = down
    return collect, publish


def _among_equals(scenario: Scenario, each_way: float) -> tuple[Phase, ...]:
    """Plan an exchange among participants, as much up as down."""
    exchange = _silence(scenario)
    exchange.sent[:-1][scenario.takes_part] = exchange.received[:-1][scenario.takes_part] = each_way
    return (exchange,)


def phases(method: str, scenario: Scenario) -> tuple[Phase, ...]:
    """Return the phases of a round of this method."""
    known = method_by_name(method)
    if known.exchange is not None:
        count, size = _messages(known, scenario)
        return _among_equals(scenario, count * _message(scenario, size))
    if known.server:
        beside = known.facts.vectors * VALUE_BYTES * scenario.model.n
        scored = float(_scored(scenario)[SHARD])
        return _central(scenario, _upload(known, scenario) + scored, _download(known, scenario) + beside)
    return _eris(method, scenario)


def _messages(method: Method, scenario: Scenario) -> tuple[float, float]:
    if method.facts.messages is None:
        raise ConfigError(
            f"{method.name} has its own exchange and does not say how large its messages are",
            fix="give the method MethodFacts(messages=…)",
            key="method",
        )
    return method.facts.messages(scenario.planned)


def traffic(method: str, scenario: Scenario) -> PlannedTraffic:
    """Return the bytes of a round of this method."""
    return PlannedTraffic(method, phases(method, scenario))
