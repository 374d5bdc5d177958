"""The events of a run, as typed values: the one stream behind metrics, progress, byte counts, exposure and audits.

A listener is any function that takes an event. Arrays in events may be views of memory that will be reused, so copy
what you want to keep. A simulated run reports the events of all members; a real peer reports only what it sees itself:
its own training and what it sent, what it received as an aggregator, and what was published and decided.

>>> from eris.events import MemberTrained
>>> MemberTrained(round=0, member=3, samples=10, steps=1.0, loss=2.3, seconds=0.01).member
3
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from eris.protocol.round_plan import RoundPlan
from eris.protocol.verdict import Verdict

__all__ = [
    "NO_PROGRESS",
    "CoordinatorListening",
    "Event",
    "EventStream",
    "Keeper",
    "Listener",
    "MemberTrained",
    "Received",
    "RoleBytes",
    "RoundEnded",
    "RoundStarted",
    "RoundTraffic",
    "RunCourseChanged",
    "RunEnded",
    "RunStarted",
    "RunState",
    "Sent",
    "ShardPublished",
    "VerdictWritten",
    "asks_for_views",
    "hears",
]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened."""


Listener = Callable[[Event], None]
_Hearing = TypeVar("_Hearing", bound=Callable[..., None])


def hears(*kinds: type[Event]) -> Callable[[_Hearing], _Hearing]:
    """Mark a listener as wanting only these events, so that a real peer need not copy values that nobody looks at.

    >>> @hears(MemberTrained)
    ... def say(event: Event) -> None:
    ...     print(event)
    >>> EventStream([say]).wants(Sent)
    False
    """

    def mark(listener: _Hearing) -> _Hearing:
        listener.hears = kinds  # type: ignore[attr-defined]
        return listener

    return mark


class EventStream:
    """Hands each event to the listeners that want it, one event at a time, from whichever thread it comes."""

    def __init__(self, listeners: Iterable[Listener] = ()) -> None:
        self._listeners, self._lock = tuple(listeners), threading.RLock()
        self._failure: Exception | None = None

    def wants(self, kind: type[Event]) -> bool:
        """Return whether any listener wants this kind of event."""
        return any(_is_heard(listener, kind) for listener in self._listeners)

    def __call__(self, event: Event) -> None:
        """Hand out an event; raise what a listener raises now, or raised earlier during `aside`."""
        with self._lock:
            if self._failure is not None:
                raise self._failure
            for listener in self._listeners:
                if _is_heard(listener, type(event)):
                    listener(event)

    def aside(self, event: Event) -> None:
        """Hand out an event from a thread that must not fail: what a listener raises is kept for the next call."""
        with self._lock:
            try:
                self(event)
            except Exception as error:  # noqa: BLE001 - a listener's own
                self._failure = error


def asks_for_views(listeners: Iterable[Listener]) -> bool:
    """Return whether any listener looks at the values that single members sent.

    A listener with `views = False` only needs to know who sent to whom.

    >>> asks_for_views([hears(RoundEnded)(lambda event: None)])
    False
    """
    return any(_is_heard(listener, Sent) and getattr(listener, "views", True) for listener in listeners)


def _is_heard(listener: Listener, kind: type[Event]) -> bool:
    return kind in getattr(listener, "hears", (kind,))


@runtime_checkable
class Keeper(Protocol):
    """A listener that must not miss a round: its state is part of the run's checkpoints."""

    def __call__(self, event: Event) -> None:
        """Record an event."""
        ...

    def memory(self) -> dict[str, NDArray[Any]]:
        """Return its state after the rounds that are over."""
        ...

    def remember(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore a saved state, forgetting any later round."""
        ...


@dataclass(frozen=True, slots=True)
class RunStarted(Event):
    """A run begins, or resumes at `first_round`."""

    run: str
    method: str
    rounds: int
    first_round: int
    members: int
    aggregators: int
    n: int
    chain: str  # the transforms in one line
    notes: tuple[str, ...] = ()  # what readers of the results must know


@dataclass(frozen=True, slots=True)
class RoundStarted(Event):
    """A round plan is in force."""

    round: int
    participants: tuple[int, ...]
    assignment: tuple[int, ...]  # shard → aggregating peer
    model: NDArray[np.float32] | None = field(default=None, repr=False)  # x^t, shared by all
    models: NDArray[np.float32] | None = field(default=None, repr=False)  # or one for each member, members × n
    witnesses: tuple[int, ...] = ()  # shard → second aggregating peer, with replicas
    unmaskers: tuple[int, ...] = ()  # those of shard 0, of shard 1, …: without them an aggregator sees only sums


@dataclass(frozen=True, slots=True)
class MemberTrained(Event):
    """A member has finished training and has an update."""

    round: int
    member: int
    samples: int
    steps: float
    loss: float
    seconds: float
    limited: int = 0  # values beyond the fixed-point limit; for a real peer, known only to itself


@dataclass(frozen=True, slots=True)
class Sent(Event):
    """What one member sent to the aggregators, cut by the round's shard plan.

    `bytes` counts the message for each shard as it is on the wire; 0 where nothing left the member: its own shard, a
    failed link, an absent aggregator. `reached` are the shards whose aggregator has the contribution.
    """

    round: int
    member: int
    reached: tuple[int, ...]
    bytes: tuple[int, ...]
    weight: float
    steps: float
    values: NDArray[np.float32] = field(repr=False)  # on `support`; empty if no listener asks for views
    support: NDArray[np.int64] | None = field(repr=False)  # which trainable coordinates; None: all
    buffers: NDArray[np.float32] = field(repr=False)
    limit: float = 0.0  # the public limit R of the round in fixed point; 0 for floats


@dataclass(frozen=True, slots=True)
class Received(Event):
    """Everything that an aggregator has of one member's contribution to one of its shards.

    A real peer reports it when it cuts the shard (but not in fixed point, where it keeps no contribution).
    `coordinates` index the trainable part, `buffer_coordinates` the buffers. Joined over an observer's shards, these
    events are the `View` that a simulation derives from `Sent`.
    """

    round: int
    shard: int
    aggregator: int
    member: int
    weight: float
    steps: float
    coordinates: NDArray[np.int64] = field(repr=False)
    values: NDArray[np.float32] = field(repr=False)
    buffer_coordinates: NDArray[np.int64] = field(repr=False)
    buffers: NDArray[np.float32] = field(repr=False)


@dataclass(frozen=True, slots=True)
class ShardPublished(Event):
    """An aggregator published a shard's mean, or withheld it (`lost` says why)."""

    round: int
    shard: int
    aggregator: int
    contributors: tuple[int, ...]
    bytes: int
    lost: str = ""
    values: NDArray[np.float32] | None = field(default=None, repr=False)  # v̄ on what the shard carries


@dataclass(frozen=True, slots=True)
class VerdictWritten(Event):
    """The coordinator decided how the round ended."""

    round: int
    plan: RoundPlan
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class RoleBytes:
    """Bytes that peers sent and received in one role."""

    up: float
    down: float


@dataclass(frozen=True, slots=True)
class RoundTraffic:
    """The bytes of a round: the average member's, the average aggregator's, and the total."""

    member: RoleBytes
    aggregator: RoleBytes
    total: int
    seconds: float  # how long they take by the virtual clock; NaN for real peers
    round_seconds: float  # the same for the whole round, including local training and waiting
    aggregator_name: str = "aggregator"  # or "server", if it is not a member


@dataclass(frozen=True, slots=True)
class RoundEnded(Event):
    """A round is over and, if its turn came, evaluated."""

    round: int
    metrics: Mapping[str, Any]
    traffic: RoundTraffic
    seconds: Mapping[str, float]  # by stage
    lost_shards: int = 0


NO_PROGRESS = "the run makes no progress"  # how the reason for such an end begins


class RunState(StrEnum):
    """How a run is going, or how it ended."""

    TRAINING = "training"
    WAITING = "waiting"  # for members: to begin, for enough of them to publish anything, for those that lack the model
    DEGRADED = "degraded"  # rounds are played, but shards are lost in one after another
    FINISHED = "finished"
    STOPPED = "stopped"  # by hand, or by leaving
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RunCourseChanged(Event):
    """The run's state changed."""

    state: str  # a RunState
    why: str = ""


@dataclass(frozen=True, slots=True)
class RunEnded(Event):
    """The run is over: all rounds are done, or it was stopped."""

    rounds: int  # done
    finished: bool
    model_digest: str
    seconds: float
    how: str = ""  # a real peer's: "finished", "left", "stopped by amber", …

    @property
    def state(self) -> RunState:
        """The run's final state."""
        if self.how == "finished" or (self.finished and not self.how):
            return RunState.FINISHED
        by_hand = self.how in ("left", "interrupted") or self.how.startswith("stopped by ")
        return RunState.STOPPED if by_hand else RunState.FAILED


@dataclass(frozen=True, slots=True)
class CoordinatorListening(Event):
    """A coordinator accepts connections."""

    address: str  # host:port
    digest: str  # of FEDERATION.toml
