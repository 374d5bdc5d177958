"""A run as it goes on: rounds, shards, peers, bytes, time left. Drawn in a terminal, a line a round elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from eris.peer.federation import Federation

__all__ = ["LiveView", "PeerLines"]

Notice = dict[str, Any]


class PeerLines:
    """What `eris join` shows: a line a round."""

    def __init__(self, federation: Federation, console: Console) -> None:
        self._rounds, self._console = federation.config.rounds, console

    def __call__(self, notice: Notice) -> None:
        """Show a notice."""
        if notice["event"] == "start":
            again = f", going on with round {notice['round']}" if notice["resumed"] else ""
            self._say(f"{notice['peer']} is here (process {notice['pid']}){again}; waiting for the others")
        elif notice["event"] == "round":
            self._say(f"round {notice['round'] + 1}/{self._rounds}  {facts_of(notice)}")

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


class LiveView:
    """What `eris up` shows: a bar for the run, a row for each peer."""

    def __init__(self, peers: tuple[str, ...], rounds: int, console: Console) -> None:
        self._console, self._peers = console, {name: _Row() for name in peers}
        self._progress = Progress(
            TextColumn("round"),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TextColumn("{task.fields[facts]}"),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            console=console,
        )
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

    def __call__(self, notice: Notice) -> None:
        """Take up a notice of a peer."""
        row = self._peers.get(notice.get("peer", ""))
        if row is None:
            return
        row.update(notice)
        if notice["event"] == "round" and notice["peer"] == self._leader:
            done = notice["round"] + 1
            self._progress.update(self._bar, completed=done, facts="  ".join((*_presence(notice), *_quality(notice))))
            if not self._console.is_terminal:
                text = f"round {done}/{self._rounds}  {facts_of(notice)}"
                self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def gone(self, peer: str) -> None:
        """Take note that a peer's process has ended."""
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
    """One peer as far as it has been heard of."""

    def __init__(self) -> None:
        self.pid, self.state, self.round = "", "starting", 0
        self.up = self.down = 0.0
        self.seconds: float | None = None
        self.loss: float | None = None

    def update(self, notice: Notice) -> None:
        if notice["event"] == "start":
            self.pid, self.state = str(notice["pid"]), "waiting"
        elif notice["event"] == "round":
            self.state, self.round = "training", notice["round"] + 1
            self.up += sum(notice["bytes_up"].values())
            self.down += sum(notice["bytes_down"].values())
            self.seconds, self.loss = notice["seconds"]["round"], notice["train_loss"]
        elif notice["event"] == "end":
            self.state = notice["how"]

    def cells(self) -> tuple[str, ...]:
        from eris.report.units import format_bytes, format_seconds

        loss = f"{self.loss:.4g}" if self.loss is not None else ""
        seconds = format_seconds(self.seconds) if self.seconds is not None else ""
        return (self.pid, self.state, str(self.round), format_bytes(self.up), format_bytes(self.down), seconds, loss)


def facts_of(notice: Notice) -> str:
    """Return a round in a line: shards, peers, bytes, seconds, and what the model is worth if that was measured."""
    from eris.report.units import format_bytes, format_seconds

    up, down = sum(notice["bytes_up"].values()), sum(notice["bytes_down"].values())
    moved = (f"↑ {format_bytes(up)}  ↓ {format_bytes(down)}", format_seconds(notice["seconds"]["round"]))
    return "  ".join((*_presence(notice), *moved, *_quality(notice)))


def _presence(notice: Notice) -> tuple[str, str]:
    shards, peers = notice["shards"], notice["peers"]
    return f"{shards - notice['lost_shards']}/{shards} shards", f"{peers - len(notice['late'])}/{peers} peers"


def _quality(notice: Notice) -> tuple[str, ...]:
    from eris.report.units import format_percent

    if notice.get("accuracy") is not None:
        return (f"accuracy {format_percent(notice['accuracy'])}",)
    return (f"loss {notice['loss']:.4g}",) if notice.get("loss") is not None else ()
