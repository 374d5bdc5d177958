"""Events as JSON lines: `eris join --json` and `eris coordinator --json` print them, `eris up` reads its children's.

A line is one object: "event" (the class in `eris.events`), "peer" (who reports it), then the event's fields. Events
that carry the values of updates are not printed: they stay in the process.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, fields
from functools import partial
from typing import Any

from eris.events import (
    CoordinatorListening,
    Event,
    MemberTrained,
    RoleBytes,
    RoundEnded,
    RoundStarted,
    RoundTraffic,
    RunCourseChanged,
    RunEnded,
    RunStarted,
    VerdictWritten,
)
from eris.plain_json import sayable
from eris.protocol.round_plan import RoundPlan
from eris.protocol.verdict import Verdict
from eris.wire.schema import plain, read_plain

__all__ = ["SPOKEN", "event_line", "read_event_line"]

SPOKEN: tuple[type[Event], ...] = (
    CoordinatorListening,
    RunStarted,
    RoundStarted,
    MemberTrained,
    VerdictWritten,
    RoundEnded,
    RunCourseChanged,
    RunEnded,
)


def event_line(event: Event, peer: str) -> str:
    """Return an event as a line.

    >>> event_line(RunEnded(3, True, "ab", 1.5, "finished"), "amber")
    '{"event": "RunEnded", "peer": "amber", "rounds": 3, "finished": true, "model_digest": "ab", "seconds": 1.5, "how": "finished"}'
    """  # noqa: E501 - a line
    said = {field.name: _plain(getattr(event, field.name)) for field in fields(event) if field.repr}  # others: values
    return json.dumps({"event": type(event).__name__, "peer": peer, **sayable(said)})


def read_event_line(line: str | bytes) -> tuple[str, Event]:
    """Return who reported an event, and the event; any other line raises (KeyError, TypeError, ValueError)."""
    said = json.loads(line)
    kind: Callable[..., Event] = _KINDS[said.pop("event")]
    peer = str(said.pop("peer"))
    return peer, kind(**{key: _READ.get(key, _as_it_is)(value) for key, value in said.items()})


def _plain(value: Any) -> Any:
    if isinstance(value, RoundPlan | Verdict):
        return plain(value)
    return asdict(value) if isinstance(value, RoundTraffic) else value


def _as_it_is(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _a_traffic(said: dict[str, Any]) -> RoundTraffic:
    roles = {role: RoleBytes(**said[role]) for role in ("member", "aggregator")}
    return RoundTraffic(**{**said, **roles, "seconds": math.nan if said["seconds"] is None else said["seconds"]})


_KINDS = {kind.__name__: kind for kind in SPOKEN}
_READ: dict[str, Callable[[Any], Any]] = {
    "plan": partial(read_plain, RoundPlan),
    "verdict": partial(read_plain, Verdict),
    "traffic": _a_traffic,
}
