"""What happens in a run, as typed values: the one stream behind metrics, progress, byte counts, exposure and audits.

A listener is any function that takes an event. Arrays in events may be views of memory that is used again: whoever
keeps one copies it.

>>> from eris.events import MemberTrained
>>> MemberTrained(round=0, member=3, samples=10, steps=1.0, loss=2.3, seconds=0.01).member
3
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from eris.protocol.round_plan import RoundPlan
from eris.protocol.verdict import Verdict

__all__ = [
    "Event",
    "Keeper",
    "Listener",
    "MemberTrained",
    "RoleBytes",
    "RoundEnded",
    "RoundStarted",
    "RunEnded",
    "RunStarted",
    "Sent",
    "ShardPublished",
    "Traffic",
    "VerdictWritten",
]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened."""


Listener = Callable[[Event], None]


@runtime_checkable
class Keeper(Protocol):
    """A listener that must not miss a round: what it knows is part of the run's checkpoints."""

    def __call__(self, event: Event) -> None:
        """Take note of an event."""
        ...

    def memory(self) -> dict[str, NDArray[Any]]:
        """Return what it knows after the rounds that are over."""
        ...

    def remember(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Know again what was put away, and nothing of later rounds."""
        ...


@dataclass(frozen=True, slots=True)
class RunStarted(Event):
    """A run begins, or goes on at `first_round`."""

    run: str
    method: str
    rounds: int
    first_round: int
    members: int
    aggregators: int
    n: int
    chain: str  # the transforms in one line
    notes: tuple[str, ...] = ()  # what a reader of the results must know


@dataclass(frozen=True, slots=True)
class RoundStarted(Event):
    """A round plan is in force."""

    round: int
    participants: tuple[int, ...]
    assignment: tuple[int, ...]  # shard → aggregating peer
    model: NDArray[np.float32] | None = field(default=None, repr=False)  # x^t, which everybody has
    models: NDArray[np.float32] | None = field(default=None, repr=False)  # or each member's own, members × n
    witnesses: tuple[int, ...] = ()  # shard → second aggregating peer, with replicas


@dataclass(frozen=True, slots=True)
class MemberTrained(Event):
    """A member has an update."""

    round: int
    member: int
    samples: int
    steps: float
    loss: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Sent(Event):
    """What one member sent to the aggregators, cut by the round's shard plan.

    `bytes` counts the message for each shard as it is on the wire; 0 where nothing left the member: its own shard, a
    link that failed, an aggregator that is away. `reached` are the shards whose aggregator has the contribution.
    """

    round: int
    member: int
    reached: tuple[int, ...]
    bytes: tuple[int, ...]
    weight: float
    steps: float
    values: NDArray[np.float32] = field(repr=False)  # on `support`
    support: NDArray[np.int64] | None = field(repr=False)  # of the trainable coordinates; None: all
    buffers: NDArray[np.float32] = field(repr=False)


@dataclass(frozen=True, slots=True)
class ShardPublished(Event):
    """An aggregator sent a shard's mean to everybody, or withheld it (`lost` says why)."""

    round: int
    shard: int
    aggregator: int
    contributors: tuple[int, ...]
    bytes: int
    lost: str = ""
    values: NDArray[np.float32] | None = field(default=None, repr=False)  # v̄ on what the shard carries


@dataclass(frozen=True, slots=True)
class VerdictWritten(Event):
    """How the round ended."""

    round: int
    plan: RoundPlan
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class RoleBytes:
    """Bytes that peers sent and received in one role."""

    up: float
    down: float


@dataclass(frozen=True, slots=True)
class Traffic:
    """The bytes of a round: mean of a member, mean of an aggregator, and all together."""

    member: RoleBytes
    aggregator: RoleBytes
    total: int
    seconds: float  # what the virtual clock makes of them
    round_seconds: float  # and of the whole round, local training and waiting included
    aggregator_name: str = "aggregator"  # or "server", which is not a member


@dataclass(frozen=True, slots=True)
class RoundEnded(Event):
    """A round is over and, if it was its turn, evaluated."""

    round: int
    metrics: Mapping[str, Any]
    traffic: Traffic
    seconds: Mapping[str, float]  # by stage
    lost_shards: int = 0


@dataclass(frozen=True, slots=True)
class RunEnded(Event):
    """The run is over: all rounds are done, or it was stopped."""

    rounds: int  # done
    finished: bool
    model_digest: str
    seconds: float
