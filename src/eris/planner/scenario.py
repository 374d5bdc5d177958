"""The scenario: one round to be planned, with its model, fleet, aggregators, participants and compression.

>>> from eris.planner.fleet import Fleet
>>> round = scenario(n=1_650_000, fleet=Fleet.uniform(50, rate=20e6), aggregators=10, keep=0.01)
>>> len(round.participants), len(round.aggregators), round.shard_sizes[:2].tolist()
(50, 10, [165000, 165000])
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from eris.config import Config
from eris.errors import ConfigError
from eris.methods import Planned
from eris.planner.fleet import Fleet
from eris.planner.model_size import ModelSize
from eris.shards.plan import largest_remainder

__all__ = ["Audience", "Masks", "Scenario", "scenario"]

# shared: all members keep the same coordinates in a round. independent: under a secret of member and aggregator.
# public: independent, but derivable by everybody (what the paper's text implies).
Masks = Literal["shared", "independent", "public"]
Encoding = Literal["float", "fixed"]
Audience = Literal["all", "participants"]


@dataclass(frozen=True)
class Scenario:
    """Everything that a closed form needs, with peers as numbers in the fleet; make one with `scenario(...)`."""

    model: ModelSize
    fleet: Fleet
    aggregators: tuple[int, ...]  # shard → peer
    shares: tuple[float, ...]  # shard → its share of the model, in any unit
    participants: tuple[int, ...]  # who trains and sends
    audience: tuple[int, ...]  # who receives what is published
    keep: float = 1.0  # share of the coordinates that DSC keeps, p = 1/(1+ω)
    masks: Masks = "shared"
    header: int = 0  # bytes before every chunk of a message
    chunk: float = math.inf  # bytes of payload in a chunk; every message has at least one
    config: Config = field(default_factory=Config)  # the methods' options, and other settings that they depend on
    replicas: int = 1  # 2: every shard goes to two aggregators, the second being that of the next shard
    encoding: Encoding = "float"  # fixed: eris sends integers, and a buffer takes twice the bytes

    def __post_init__(self) -> None:
        if not 1 <= self.replicas <= min(2, len(self.aggregators)):
            raise ConfigError(
                f"{self.replicas} replicas do not work with {len(self.aggregators)} shards",
                fix="use 1, or 2 with two or more shards",
            )
        if len(self.shares) != len(self.aggregators):
            raise ConfigError(
                f"there are {len(self.shares)} shard sizes for {len(self.aggregators)} aggregators",
                fix="give one for each",
            )
        if not 0 < self.keep <= 1:
            raise ConfigError(f"kept share p is {self.keep}", fix="use 0 < p ≤ 1")
        if self.masks not in get_args(Masks):
            raise ConfigError(f"masks are {self.masks!r}", fix=f"use one of {get_args(Masks)}")
        if self.header < 0 or not self.chunk >= 1:
            raise ConfigError(
                f"the header has {self.header} bytes and a chunk {self.chunk}",
                fix="use 0 or more for the header, 1 or more for a chunk",
            )

    @property
    def members(self) -> int:
        """Number of members K."""
        return len(self.fleet)

    @property
    def planned(self) -> Planned:
        """The round as methods see it when they are asked for their facts."""
        compression = self.config.compression.model_copy(update={"keep": self.keep})
        config = self.config.model_copy(update={"compression": compression, "members": self.members})
        return Planned(self.model.n, self.model.buffers, len(self.participants), config)

    @property
    def observers(self) -> tuple[NDArray[np.int64], ...]:
        """Who receives each shard: its aggregator and, with replicas, a second one."""
        return tuple(np.roll(np.array(self.aggregators), -turn) for turn in range(self.replicas))

    @property
    def omega(self) -> float:
        """Variance constant ω of the compressor."""
        return 1 / self.keep - 1

    @cached_property
    def shard_sizes(self) -> NDArray[np.int64]:
        """Trainable coordinates of each shard, as the shard plan cuts them."""
        return largest_remainder(self.model.n, self.shares)

    @cached_property
    def buffer_sizes(self) -> NDArray[np.int64]:
        """Buffer values of each shard."""
        return largest_remainder(self.model.buffers, self.shares)

    @property
    def buffer_words(self) -> int:
        """How many values' worth of bytes a buffer takes on the wire."""
        return 2 if self.encoding == "fixed" else 1

    @cached_property
    def takes_part(self) -> NDArray[np.bool_]:
        """Whether each peer trains in the round."""
        return self._flags(self.participants)

    @cached_property
    def listens(self) -> NDArray[np.bool_]:
        """Whether each peer receives what is published."""
        return self._flags(self.audience)

    def _flags(self, peers: tuple[int, ...]) -> NDArray[np.bool_]:
        flags = np.zeros(self.members, bool)
        flags[list(peers)] = True
        return flags


def scenario(
    *,
    fleet: Fleet,
    n: int | ModelSize,
    aggregators: int | Sequence[int] | None = None,
    shares: Sequence[float] | None = None,
    participants: int | Sequence[int] | None = None,
    audience: Audience = "all",
    keep: float | None = None,
    masks: Masks | None = None,
    header: int = 0,
    chunk: float = math.inf,
    config: Config | None = None,
    replicas: int = 1,
    encoding: Encoding = "float",
) -> Scenario:
    """Describe a round.

    Args:
        fleet: the peers and their rates.
        n: number of trainable values, or a model's size.
        aggregators: how many (the strongest are taken) or which; by default every peer that may aggregate.
        shares: of the model, one for each aggregator; by default equal.
        participants: how many train (aggregators first, then the slowest, for the longest round) or which.
        audience: ``all`` members get the result and keep the same model; with ``participants``, the others fetch a
            snapshot when they return.
        keep: share of the coordinates that compression keeps.
        masks: how kept coordinates are chosen.
        header: bytes that the wire adds to each chunk; the paper counts values alone.
        chunk: payload bytes of a chunk.
        config: options of the methods and of compression.
        replicas: 2 has every shard averaged twice and compared.
        encoding: floats or fixed point.
    """
    owners = _aggregators(fleet, aggregators)
    taking_part = _participants(fleet, owners, participants)
    if audience not in get_args(Audience):
        raise ConfigError(f"audience is {audience!r}", fix=f"use one of {get_args(Audience)}")
    return Scenario(
        model=n if isinstance(n, ModelSize) else ModelSize(n),
        fleet=fleet,
        aggregators=owners,
        shares=tuple(shares) if shares is not None else (1.0,) * len(owners),
        participants=taking_part,
        audience=tuple(range(len(fleet))) if audience == "all" else taking_part,
        keep=keep if keep is not None else config.compression.keep if config else 1.0,
        masks=masks or (config.compression.masks if config else "shared"),
        header=header,
        chunk=chunk,
        config=config or Config(),
        replicas=replicas,
        encoding=encoding,
    )


def _aggregators(fleet: Fleet, wanted: int | Sequence[int] | None) -> tuple[int, ...]:
    if wanted is None:
        return fleet.strongest(max(len(fleet.candidates), 1))
    if isinstance(wanted, int):
        return fleet.strongest(wanted)
    return _known(fleet, wanted, "aggregators")


def _participants(fleet: Fleet, owners: tuple[int, ...], wanted: int | Sequence[int] | None) -> tuple[int, ...]:
    if wanted is None:
        return tuple(range(len(fleet)))
    if not isinstance(wanted, int):
        return tuple(sorted(_known(fleet, wanted, "participants")))
    if not 1 <= wanted <= len(fleet):
        raise ConfigError(f"{wanted} of {len(fleet)} members are to take part", fix=f"use 1 … {len(fleet)}")
    helping = set(owners)
    slowness = {k: 1 / peer.upload + 1 / peer.download for k, peer in enumerate(fleet.peers)}
    order = sorted(range(len(fleet)), key=lambda k: (k not in helping, -slowness[k]))
    return tuple(sorted(order[:wanted]))


def _known(fleet: Fleet, peers: Sequence[int], what: str) -> tuple[int, ...]:
    if not peers or not all(0 <= k < len(fleet) for k in peers):
        raise ConfigError(f"{what} are {list(peers)}", fix=f"use numbers of peers, 0 … {len(fleet) - 1}")
    return tuple(peers)


def participants_of(members: int, participation: float) -> int:
    """Return how many members take part at this share: at least one."""
    if not 0 < participation <= 1:
        raise ConfigError(f"participation is {participation}", fix="use a share above 0 and at most 1")
    return max(1, math.floor(participation * members + 0.5))
