"""The rules that the coordinator of a run holds its rounds to."""

from __future__ import annotations

from dataclasses import dataclass, field

from eris.errors import ConfigError
from eris.protocol.round_plan import Deadlines, Normalisation

__all__ = ["Rules"]


@dataclass(frozen=True, slots=True)
class Rules:
    """How the coordinator runs rounds: who aggregates, how many must hold a shard, and when to give up on a peer."""

    run: str
    aggregators: tuple[int, ...]  # home of each shard, before rotation and replacement
    participation: float = 1.0  # share of the roster that trains in a round
    normalisation: Normalisation = "contributors"  # how a mean treats missing members
    min_contributors: int = 3  # of a published shard
    quorum: int = 0  # peers that must hold a shard for it to be committed; 0: more than half of the roster
    majority: int = 0  # listed peers that must be here and report, so that no other coordinator has as many; 0: any
    max_share: float | None = 1.0  # largest share of an update that standing in may bring a peer to; None: the usual
    checkpoint_every: int = 0  # rounds; 0: never
    unreached_rounds: int = 0  # in a row, after which an aggregator that few can dial gets no shard; 0: never
    deadlines: Deadlines = field(default_factory=Deadlines)

    def __post_init__(self) -> None:
        if self.min_contributors < 1:
            raise ConfigError(f"min_contributors is {self.min_contributors}", fix="use 1 or more (3 by default)")
