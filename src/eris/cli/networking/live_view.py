"""A run in progress: rounds, shards, peers, bytes, time left. Drawn in a terminal; elsewhere, a line per round."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from eris.cli.progress import round_bar
from eris.events import Event, RoundEnded, RunCourseChanged, RunEnded, RunStarted, RunState, VerdictWritten

__all__ = ["SHOWN", "LiveView", "PeerLines"]

SHOWN = (RunStarted, VerdictWritten, RoundEnded, RunCourseChanged, RunEnded)  # what is drawn of a run


class PeerLines:
    """What `eris join` shows: a line per round."""

    hears = SHOWN

    def __init__(self, peer: str, console: Console) -> None:
        self._peer, self._console = peer, console
        self._rounds, self._presence, self._course = 0, "", ""

    def __call__(self, event: Event) -> None:
        """Show an event."""
        match event:
            case RunStarted(rounds=rounds, first_round=first):
                self._rounds = rounds
                again = f", continuing with round {first}" if first else ""
                self._say(f"{self._peer} is here (process {os.getpid()}){again}; waiting for the others")
            case VerdictWritten():
                self._presence = presence_of(event)
            case RunCourseChanged(state=state, why=why) if state != RunState.TRAINING or self._course:
                self._say(why if why.startswith(state) else f"{state}{why and f': {why}'}")
                self._course = state
            case RoundEnded():
                self._say(f"round {event.round + 1}/{self._rounds}  {self._presence}  {facts_of(event)}")

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


class LiveView:
    """What `eris up` shows: a bar for the run, a row for each peer."""

    def __init__(self, processes: Mapping[str, int], rounds: int, console: Console) -> None:
        """Show peers by name, each with the id of its process, over so many `rounds`."""
        self._console, self._peers = console, {name: _Row(pid) for name, pid in processes.items()}
        self._progress = round_bar(console, "round", 16)
        self._bar = self._progress.add_task("round", total=rounds, facts="starting")
        self._rounds = rounds
        self._live = Live(console=console, get_renderable=self._drawn, refresh_per_second=4, transient=True)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def __call__(self, peer: str, event: Event) -> None:
        """Show an event that a peer reported."""
        row = self._peers.get(peer)
        if row is None:
            return
        row.update(event)
        if isinstance(event, RoundEnded) and peer == self._leader:
            done = event.round + 1
            self._progress.update(self._bar, completed=done, facts="  ".join((row.presence, *_quality(event))))
            if not self._console.is_terminal:
                text = f"round {done}/{self._rounds}  {row.presence}  {facts_of(event)}"
                self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def gone(self, peer: str) -> None:
        """Record that a peer's process has ended."""
        if row := self._peers.get(peer):
            row.state = row.state if row.state in ("finished", "interrupted") else "gone"

    @property
    def _leader(self) -> str:
        """The first peer that is still there: its rounds move the bar, and it evaluates."""
        return next((name for name, row in self._peers.items() if row.state != "gone"), "")

    def _drawn(self) -> Group:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for title in ("peer", "process", "state", "round", "sent", "received", "last round", "training loss"):
            table.add_column(title, justify="left" if title in ("peer", "state") else "right", no_wrap=True)
        for name, row in self._peers.items():
            table.add_row(Text(name), *row.cells())
        return Group(self._progress, table)


class _Row:
    """One peer, as far as is known."""

    def __init__(self, pid: int) -> None:
        self.pid, self.state, self.round, self.presence = str(pid), "starting", 0, ""
        self.up = self.down = 0.0
        self.seconds: float | None = None
        self.loss: float | None = None

    def update(self, event: Event) -> None:
        match event:
            case RunStarted():
                self.state = "waiting"
            case VerdictWritten():
                self.presence = presence_of(event)
            case RoundEnded(round=round, metrics=metrics, traffic=traffic, seconds=seconds):
                self.state, self.round = "training", round + 1
                self.up += traffic.member.up + traffic.aggregator.up
                self.down += traffic.member.down + traffic.aggregator.down
                self.seconds, self.loss = seconds["round"], metrics["train_loss"]
            case RunCourseChanged(state=state):
                self.state = state
            case RunEnded(how=how):
                self.state = how

    def cells(self) -> tuple[str, ...]:
        from eris.report.units import format_bytes, format_seconds

        loss = f"{self.loss:.4g}" if self.loss is not None and math.isfinite(self.loss) else ""
        seconds = format_seconds(self.seconds) if self.seconds is not None else ""
        return (self.pid, self.state, str(self.round), format_bytes(self.up), format_bytes(self.down), seconds, loss)


def presence_of(event: VerdictWritten) -> str:
    """Return how many shards a round brought, and how many peers were on time."""
    plan, verdict = event.plan, event.verdict
    shards, peers = plan.shards, len(plan.roster)
    return f"{shards - len(verdict.lost_shards)}/{shards} shards  {peers - len(verdict.late)}/{peers} peers"


def facts_of(event: RoundEnded) -> str:
    """Return a round in one line: bytes, seconds, and the model's score if it was measured."""
    from eris.report.units import format_bytes, format_seconds

    member, aggregator = event.traffic.member, event.traffic.aggregator
    up, down = format_bytes(member.up + aggregator.up), format_bytes(member.down + aggregator.down)
    return "  ".join((f"↑ {up}  ↓ {down}", format_seconds(event.seconds["round"]), *_quality(event)))


def _quality(event: RoundEnded) -> tuple[str, ...]:
    from eris.report.units import format_percent

    if event.metrics.get("accuracy") is not None:
        return (f"accuracy {format_percent(event.metrics['accuracy'])}",)
    return (f"loss {event.metrics['loss']:.4g}",) if event.metrics.get("loss") is not None else ()
