"""What happens in a run, as typed values: the one stream behind metrics, progress, byte counts, exposure and audits.

A listener is any function that takes an event. Arrays in events may be views of memory that is used again: whoever
keeps one copies it. A simulated run tells of all its members; a real peer of what it sees itself: its own training and
what it sent, what it received as an aggregator, what was published and decided.

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
    """Mark a listener that wants these events only: a real peer then makes no copies of values for nobody.

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
    """Hands events to every listener that hears them, one at a time, whichever thread they come from."""

    def __init__(self, listeners: Iterable[Listener] = ()) -> None:
        self._listeners, self._lock = tuple(listeners), threading.RLock()
        self._failure: Exception | None = None

    def wants(self, kind: type[Event]) -> bool:
        """Whether anybody hears this kind of event."""
        return any(_is_heard(listener, kind) for listener in self._listeners)

    def __call__(self, event: Event) -> None:
        """Tell of an event; what a listener raises, its caller gets (and what one raised aside before)."""
        with self._lock:
            if self._failure is not None:
                raise self._failure
            for listener in self._listeners:
                if _is_heard(listener, type(event)):
                    listener(event)

    def aside(self, event: Event) -> None:
        """Tell of an event from a thread that must go on: what a listener raises waits for the next caller."""
        with self._lock:
            try:
                self(event)
            except Exception as error:  # noqa: BLE001 - a listener's own
                self._failure = error


def asks_for_views(listeners: Iterable[Listener]) -> bool:
    """Whether anybody looks at the values that single members sent; one with `views = False` needs only who and whom.

    >>> asks_for_views([hears(RoundEnded)(lambda event: None)])
    False
    """
    return any(_is_heard(listener, Sent) and getattr(listener, "views", True) for listener in listeners)


def _is_heard(listener: Listener, kind: type[Event]) -> bool:
    return kind in getattr(listener, "hears", (kind,))


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
    unmaskers: tuple[int, ...] = ()  # of shard 0, of shard 1, …: without whom an aggregator sees only sums


@dataclass(frozen=True, slots=True)
class MemberTrained(Event):
    """A member has an update."""

    round: int
    member: int
    samples: int
    steps: float
    loss: float
    seconds: float
    limited: int = 0  # values that lay outside the limit of fixed point; only the member itself knows of a real one's


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
    values: NDArray[np.float32] = field(repr=False)  # on `support`; none where nobody asks for views
    support: NDArray[np.int64] | None = field(repr=False)  # of the trainable coordinates; None: all
    buffers: NDArray[np.float32] = field(repr=False)
    limit: float = 0.0  # R of the round in fixed point, which everybody knows; 0 for floats


@dataclass(frozen=True, slots=True)
class Received(Event):
    """What an aggregator has of one member's contribution to one of its shards: all of it, and nothing else.

    A real peer tells of it when it cuts the shard (but not in fixed point, where it keeps no contribution).
    `coordinates` are of the trainable part, `buffer_coordinates` of the buffers; put together over an observer's shards
    it is the `View` that a simulation derives from `Sent`.
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
class RoundTraffic:
    """The bytes of a round: mean of a member, mean of an aggregator, and all together."""

    member: RoleBytes
    aggregator: RoleBytes
    total: int
    seconds: float  # what the virtual clock makes of them; NaN where there is a real one
    round_seconds: float  # and of the whole round, local training and waiting included
    aggregator_name: str = "aggregator"  # or "server", which is not a member


@dataclass(frozen=True, slots=True)
class RoundEnded(Event):
    """A round is over and, if it was its turn, evaluated."""

    round: int
    metrics: Mapping[str, Any]
    traffic: RoundTraffic
    seconds: Mapping[str, float]  # by stage
    lost_shards: int = 0


NO_PROGRESS = "the run makes no progress"  # how the reason of such an end begins


class RunState(StrEnum):
    """How a run goes, or how it went."""

    TRAINING = "training"
    WAITING = (
        "waiting"  # for members: before it begins, for a round that could publish nothing, for who lacks the model
    )
    DEGRADED = "degraded"  # rounds are played, and shards are lost in round after round
    FINISHED = "finished"
    STOPPED = "stopped"  # by hand, or by leaving
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RunCourseChanged(Event):
    """The run goes another way than before."""

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
        """What that is in a word."""
        if self.how == "finished" or (self.finished and not self.how):
            return RunState.FINISHED
        by_hand = self.how in ("left", "interrupted") or self.how.startswith("stopped by ")
        return RunState.STOPPED if by_hand else RunState.FAILED


@dataclass(frozen=True, slots=True)
class CoordinatorListening(Event):
    """A coordinator can be dialled."""

    address: str  # host:port
    digest: str  # of FEDERATION.toml
