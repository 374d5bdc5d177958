"""A run's folder, read while it is written: `eris watch` sees what the run itself would tell.

The folder is that of one run, of several methods side by side, of one peer, or of a whole `eris up`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from eris.config import Config, load_config
from eris.errors import InputError
from eris.events import Event, RoleBytes, RoundEnded, RoundTraffic, RunState, VerdictWritten
from eris.protocol.round_plan import RoundPlan
from eris.protocol.verdict import Verdict
from eris.web.live_facts import LiveFacts
from eris.wire.schema import read_plain

__all__ = ["FolderFollower"]

_MOST_PEERS = 2000  # that have a row of their own
_AT_ONCE = 1 << 24  # bytes of a file that are read in one go


class FolderFollower:
    """Reads what came since it looked last, and tells the facts."""

    def __init__(self, folder: Path) -> None:
        """Find the runs in a folder; one that has none yet is refused."""
        self._runs = [_Run(path, name) for name, path in _runs_in(folder)]
        config, several = self._runs[0].config, len(self._runs) > 1
        self.facts = LiveFacts(str(folder), kind="folder", methods=[run.name for run in self._runs])
        self.facts.note(
            rounds=config.rounds, members=config.members, aggregators=config.aggregators,
            method=", ".join(dict.fromkeys(run.config.methods[0] for run in self._runs)), side_by_side=several,
        )  # fmt: skip
        if not several:
            self._runs[0].name = ""

    def look(self) -> None:
        """Tell what is new."""
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
        """Whether every run has come to its end."""
        return all(run.end() is not None for run in self._runs)

    def _conclude(self, ends: list[dict[str, Any]]) -> None:
        finished = all(end.get("finished") for end in ends)
        states = [end.get("state") or (RunState.FINISHED if end.get("finished") else RunState.STOPPED) for end in ends]
        why = next((str(end["ended"]) for end in ends if end.get("ended") not in (None, "finished")), "")
        state = RunState.FINISHED if finished else next(s for s in states if s != RunState.FINISHED)
        privacy = next((end["privacy"]["text"] for end in ends if end.get("privacy")), None)
        exposure = [end["exposure"].get("union_over_rounds") for end in ends if end.get("exposure")]
        known = [share for share in exposure if share is not None]
        self.facts.note(state=str(state), why=why)
        if privacy:
            self.facts.note(privacy=privacy)
        if known:
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
                plan, verdict = read_plain(RoundPlan, line["plan"]), read_plain(Verdict, line["verdict"])
                yield VerdictWritten(verdict.round, plan, verdict)
        for line in self._lines("metrics.jsonl"):
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
        if path.stat().st_size < self._read[name]:  # gone on with from a checkpoint: those rounds come again
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
            fix="give the folder that `eris run`, `compare`, `join` or `up` named with --out",
            path=folder,
        )
    return found


def _round_ended(line: dict[str, Any]) -> RoundEnded:
    up, down = line.get("bytes_up", {}), line.get("bytes_down", {})
    other = next((role for role in up if role != "member"), "aggregator")
    traffic = RoundTraffic(
        RoleBytes(up.get("member", 0), down.get("member", 0)),
        RoleBytes(up.get(other, 0), down.get(other, 0)),
        total=line.get("bytes_total", 0),
        seconds=math.nan,
        round_seconds=math.nan,
        aggregator_name=other,
    )
    metrics = {key: line.get(key) for key in ("loss", "accuracy", "train_loss", "largest_share")}
    return RoundEnded(int(line["round"]), metrics, traffic, dict(line.get("seconds", {})), line.get("lost_shards", 0))
