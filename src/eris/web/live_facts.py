"""What can be seen of a run in progress: gathered from its events, handed out as changes.

The page and the terminal's table show these facts and no others. Nothing here holds values of a model or an update.

>>> from eris.events import RunCourseChanged, RunStarted
>>> facts = LiveFacts("amber")
>>> facts(RunStarted("demo", "eris", rounds=3, first_round=0, members=5, aggregators=5, n=10, chain="eris"))
>>> facts.changes()["run"]["rounds"], facts.changes()
(3, {})
>>> facts(RunCourseChanged("waiting", "for birch"))
>>> facts.changes()["run"]["why"]
'for birch'
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Any

from eris.config import Config
from eris.events import (
    Event,
    MemberTrained,
    RoundEnded,
    RoundStarted,
    RunCourseChanged,
    RunEnded,
    RunStarted,
    RunState,
    VerdictWritten,
)
from eris.plain_json import sayable
from eris.printable import printable

__all__ = ["LiveFacts", "LogLines", "masking_of"]

_MOST_ROUNDS, _MOST_LOSSES, _MOST_LINES = 2000, 200, 500  # that are kept to be shown
_LONGEST_LINE = 2000  # characters of a log line

Row = dict[str, Any]


class LiveFacts:
    """Listens to one run, or to several side by side; may be told and asked from any thread.

    `run` is its state, in one object; `peers` has a row for each; `rounds`, `losses` and `lines` grow.
    """

    hears = (RunStarted, RoundStarted, MemberTrained, VerdictWritten, RoundEnded, RunCourseChanged, RunEnded)

    def __init__(self, title: str, peers: Iterable[str] = (), **more: Any) -> None:
        """Show a run under a title, with the peers that are known before anybody has joined."""
        self._lock = threading.RLock()
        self._run: Row = {"title": title, "state": RunState.WAITING.value, "why": "", "round": 0, "rounds": 0}
        self._run |= {"committed": 0, "lost": {}, "sent": 0, "received": 0, **more}
        self._peers: dict[str, Row] = {peer: {} for peer in peers}
        self._rounds, self._losses = deque[Row](maxlen=_MOST_ROUNDS), deque[Row](maxlen=_MOST_LOSSES)
        self._lines = deque[Row](maxlen=_MOST_LINES)
        self._grown: dict[str, list[Row]] = {"rounds": [], "losses": [], "lines": []}  # since somebody asked
        self._told_run: Row = {}
        self._told_peers: dict[str, Row] = {}
        self._series, self._lost = "", Counter[str]()

    # ── what is told ─────────────────────────────────────────────────────────────────────────────────────────────

    def __call__(self, event: Event) -> None:
        """Take note of an event."""
        with self._lock:
            match event:
                case RunStarted():
                    self._begin(event)
                case RoundStarted(round=round, participants=who, assignment=assignment):
                    self._run |= {"round": round, "began": time.time(), "participants": len(who)}
                    self._run["aggregators"] = len(set(assignment))
                case MemberTrained(samples=samples, loss=loss, seconds=seconds):
                    self._run |= {"trained": {"samples": samples, "loss": loss, "seconds": seconds}}
                case VerdictWritten():
                    self._note_verdict(event)
                case RoundEnded():
                    self._note_round(event)
                case RunCourseChanged(state=state, why=why):
                    self._run |= {"state": state, "why": why}
                case RunEnded(rounds=rounds, how=how):
                    self._run |= {"state": event.state.value, "why": how, "round": rounds, "ended": time.time()}

    def series(self, name: str) -> None:
        """Assign what follows to another of the runs shown side by side."""
        self._series = name

    def note(self, **facts: Any) -> None:
        """Set facts about the run that no event reports."""
        with self._lock:
            self._run |= facts

    def note_peers(self, rows: Mapping[str, Row]) -> None:
        """Set what is known of peers, by name; what is not mentioned stays."""
        with self._lock:
            for name, row in rows.items():
                self._peers[name] = {**self._peers.get(name, {}), **row}

    def say(self, level: str, text: str, when: float | None = None) -> None:
        """Add a line to the log."""
        at = time.time() if when is None else when
        with self._lock:
            self._grow("lines", {"time": at, "level": level, "text": printable(text)[:_LONGEST_LINE]})

    # ── what is shown ────────────────────────────────────────────────────────────────────────────────────────────

    def whole(self) -> dict[str, Any]:
        """Return everything there is to see."""
        with self._lock:  # rows are replaced, never changed: whoever reports a round need not wait for their writing
            seen: Row = {"run": dict(self._run), "peers": dict(self._peers)}
            seen |= {"rounds": list(self._rounds), "losses": list(self._losses), "lines": list(self._lines)}
        whole: Row = sayable(seen)
        return whole

    def changes(self) -> dict[str, Any]:
        """Return what has changed since the last call."""
        with self._lock:
            changed: dict[str, Any] = {name: rows for name, rows in self._grown.items() if rows}
            self._grown = {name: [] for name in self._grown}
            run = {key: value for key, value in self._run.items() if self._told_run.get(key, ...) != value}
            peers = {name: dict(row) for name, row in self._peers.items() if self._told_peers.get(name) != row}
            self._told_run, self._told_peers = dict(self._run), {**self._told_peers, **peers}
        if run:
            changed["run"] = run
        if peers:
            changed["peers"] = peers
        said: Row = sayable(changed)
        return said

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _begin(self, event: RunStarted) -> None:
        self._run |= {
            "run": event.run, "method": event.method, "rounds": event.rounds, "round": event.first_round,
            "members": event.members, "aggregators": event.aggregators, "parameters": event.n, "chain": event.chain,
            "notes": list(event.notes),
        }  # fmt: skip

    def _note_verdict(self, event: VerdictWritten) -> None:
        plan, verdict = event.plan, event.verdict
        names = {entry.peer: entry.name or str(entry.peer) for entry in plan.roster}
        for entry in verdict.shards:
            if not entry.committed:
                self._lost[entry.lost] += 1
                who = names[entry.aggregator]
                row = {"round": verdict.round, "shard": entry.shard, "aggregator": who, "why": entry.lost}
                self._grow("losses", row)
        late, lost = set(verdict.late), len(verdict.lost_shards)
        self._run["lost"] = dict(self._lost)
        self._run["committed"] += lost < plan.shards
        self._run |= {"round": verdict.round + 1, "shards": plan.shards, "late": len(late)}
        seen = {peer: "late" if peer in late else "in time" for peer in names}
        if self._run.get("kind") == "coordinator":  # which takes no part in the round that it times
            took = {"round": time.time() - self._run["began"]} if "began" in self._run else {}
            self._grow("rounds", {"round": verdict.round, "seconds": took, "lost": lost, "late": len(late)})
            seen = {}
        aggregating = plan.aggregators
        self.note_peers({
            names[entry.peer]: {
                "late": self._peers.get(names[entry.peer], {}).get("late", 0) + (entry.peer in late),
                "aggregates": entry.peer in aggregating,
                "organisation": entry.organisation,
                **({"state": seen[entry.peer]} if seen else {}),  # a coordinator knows better who is here
            }
            for entry in plan.roster
        })  # fmt: skip

    def _note_round(self, event: RoundEnded) -> None:
        traffic, metrics = event.traffic, event.metrics
        up, down = traffic.member.up + traffic.aggregator.up, traffic.member.down + traffic.aggregator.down
        row: Row = {
            "round": event.round, "up": up, "down": down, "seconds": dict(event.seconds), "lost": event.lost_shards,
            **{key: _finite(metrics.get(key)) for key in ("loss", "accuracy", "train_loss", "largest_share")},
        }  # fmt: skip
        if self._series:
            row["series"] = self._series
        self._grow("rounds", row)
        self._run["sent"] += up
        self._run["received"] += down
        self._run["round"] = event.round + 1
        if self._run["state"] == RunState.WAITING:
            self._run |= {"state": RunState.TRAINING.value, "why": ""}
        for key in ("loss", "accuracy", "train_loss", "largest_share"):
            if row[key] is not None:
                self._run[key] = row[key]

    def _grow(self, name: str, row: Row) -> None:
        kept: deque[Row] = getattr(self, f"_{name}")
        kept.append(row)
        self._grown[name].append(row)
        del self._grown[name][: -(kept.maxlen or 0)]  # nobody may be asking


class LogLines(logging.Handler):
    """Hands log records to the facts."""

    def __init__(self, facts: LiveFacts) -> None:
        super().__init__()
        self._facts = facts

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record."""
        self._facts.say(record.levelname.lower(), record.getMessage(), record.created)


def masking_of(config: Config) -> str:
    """Return whether aggregators add up what they cannot read.

    >>> from eris.config import load_config
    >>> masking_of(load_config())
    'off'
    """
    privacy = config.privacy
    return "off" if privacy.masking == "none" else f"on ({privacy.masking}, unmaskers: {privacy.unmaskers})"


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
