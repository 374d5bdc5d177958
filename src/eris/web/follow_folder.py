"""A run's folder, read while it is written: `eris watch` shows what the run itself would.

The folder is that of one run, of several methods side by side, of one peer, or of a whole `eris up`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from eris.config import Config, load_config
from eris.errors import ErisError, InputError
from eris.events import Event, RoleBytes, RoundEnded, RoundTraffic, RunState, VerdictWritten
from eris.protocol.round_plan import RoundPlan
from eris.protocol.verdict import Verdict
from eris.report.results import number
from eris.web.live_facts import LiveFacts, masking_of
from eris.wire.schema import read_plain

__all__ = ["FolderFollower"]

_MOST_PEERS = 2000  # that have a row of their own
_AT_ONCE = 1 << 24  # bytes of a file that are read in one go


class FolderFollower:
    """Reads what is new since the last look, and updates the facts."""

    def __init__(self, folder: Path) -> None:
        """Find the runs in a folder; one that has none yet is refused."""
        self._runs = [_Run(path, name) for name, path in _runs_in(folder)]
        config, several = self._runs[0].config, len(self._runs) > 1
        self.facts = LiveFacts(str(folder), kind="folder", methods=[run.name for run in self._runs])
        self.facts.note(
            rounds=config.rounds, members=config.members, aggregators=config.aggregators,
            method=", ".join(dict.fromkeys(run.config.methods[0] for run in self._runs)), side_by_side=several,
            masking=masking_of(config),
        )  # fmt: skip
        if not several:
            self._runs[0].name = ""

    def look(self) -> None:
        """Update the facts with what is new."""
        for run in self._runs:
            self.facts.series(run.name)
            for event in run.events():
                self.facts(event)
        ends = [run.end() for run in self._runs]
        done = [run.rounds_done for run in self._runs]
        self.facts.note(round=max(done), committed=max(done))
        if all(end is not None for end in ends):
            self._conclude([end for end in ends if end is not None])

    @property
    def ended(self) -> bool:
        """Whether every run has ended."""
        return all(run.end() is not None for run in self._runs)

    def _conclude(self, ends: list[dict[str, Any]]) -> None:
        states = [
            RunState.FINISHED if end.get("finished") is True else str(end.get("state") or RunState.STOPPED)
            for end in ends
        ]
        state = next((state for state in states if state != RunState.FINISHED), RunState.FINISHED)
        why = next((end["ended"] for end in ends if isinstance(end.get("ended"), str) and end["ended"] != state), "")
        self.facts.note(state=str(state), why=why if state != RunState.FINISHED else "")
        texts = [end["privacy"].get("text") for end in ends if isinstance(end.get("privacy"), dict)]
        if texts:
            self.facts.note(privacy=str(texts[0]))
        unions = [number(end, "exposure.union_over_rounds") for end in ends]
        if known := [union for union in unions if union is not None]:
            self.facts.note(union_over_rounds=max(known))


class _Run:
    """One run's files, each with how far it was read."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name, self.rounds_done = path, name, 0
        self.config: Config = load_config(path / "config.toml")
        self._read = {"metrics.jsonl": 0, "verdicts.jsonl": 0}
        self._end: dict[str, Any] | None = None

    def events(self) -> Iterator[Event]:
        for line in self._lines("verdicts.jsonl"):
            if self.config.members <= _MOST_PEERS:
                with suppress(ErisError, KeyError, TypeError, ValueError):  # a damaged line is not shown
                    plan, verdict = read_plain(RoundPlan, line["plan"]), read_plain(Verdict, line["verdict"])
                    yield VerdictWritten(verdict.round, plan, verdict)
        for line in self._lines("metrics.jsonl"):
            if number(line, "round") is not None:
                self.rounds_done = max(self.rounds_done, int(line["round"]) + 1)
                yield _round_ended(line)

    def end(self) -> dict[str, Any] | None:
        """Return the summary, once there is one; it is written last."""
        if self._end is None:
            try:
                found = json.loads((self.path / "summary.json").read_text(encoding="utf-8"))
            except (OSError, ValueError):
                return None
            self._end = found if isinstance(found, dict) else None
        return self._end

    def _lines(self, name: str) -> Iterator[dict[str, Any]]:
        """Return the whole lines that are new; half a line waits, and a file cut back is read from its start."""
        path = self.path / name
        if not path.exists():
            return
        if path.stat().st_size < self._read[name]:  # resumed from a checkpoint: those rounds come again
            self._read[name] = 0
        with path.open("rb") as file:
            file.seek(self._read[name])
            data = file.read(_AT_ONCE)
        whole = data[: data.rfind(b"\n") + 1]
        self._read[name] += len(whole)
        for line in whole.splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                continue


def _runs_in(folder: Path) -> list[tuple[str, Path]]:
    """Return the runs of a folder by name: its own, each method's, or each peer's."""
    if (folder / "metrics.jsonl").exists():
        return [(folder.name, folder)]
    places = [*folder.glob("*/metrics.jsonl"), *folder.glob("peers/*/metrics.jsonl")]
    found = [(place.parent.name, place.parent) for place in sorted(places) if (place.parent / "config.toml").exists()]
    if not found:
        raise InputError(
            "there is no run in this folder, or it has not begun yet",
            fix="give the folder that `eris run`, `compare`, `join` or `up` writes",
            path=folder,
        )
    return found


def _round_ended(line: dict[str, Any]) -> RoundEnded:
    ups = line.get("bytes_up")
    other = next((role for role in ups if role != "member"), "aggregator") if isinstance(ups, dict) else "aggregator"
    member, aggregator = (
        RoleBytes(number(line, f"bytes_up.{role}") or 0, number(line, f"bytes_down.{role}") or 0)
        for role in ("member", other)
    )
    total, nothing = int(number(line, "bytes_total") or 0), math.nan
    traffic = RoundTraffic(member, aggregator, total, nothing, nothing, other)
    metrics = {key: number(line, key) for key in ("loss", "accuracy", "train_loss", "largest_share")}
    stages = line.get("seconds")
    seconds = {name: float(took) for name, took in stages.items()} if isinstance(stages, dict) else {}
    return RoundEnded(int(line["round"]), metrics, traffic, seconds, int(number(line, "lost_shards") or 0))
