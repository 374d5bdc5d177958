"""The coordinator's memory: plans, verdicts, membership and proofs in one SQLite file, in order, durable."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from eris.errors import DiskError
from eris.protocol.journal import Entry, Membership, Rewind
from eris.protocol.messages import Disagreement, Equivocation, Manifest
from eris.protocol.round_plan import RosterEntry, RoundPlan
from eris.protocol.verdict import GENESIS, Verdict

__all__ = ["SqliteJournal"]

_KINDS: dict[type, str] = {
    RoundPlan: "plan",
    Verdict: "verdict",
    Membership: "membership",
    Equivocation: "proof",
    Disagreement: "disagreement",
    Rewind: "rewind",
}


class SqliteJournal:
    """Append only; `append` returns when the entry is on disk."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        with self._explained():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA synchronous=FULL")
            self._database.execute("PRAGMA cache_size=-128")  # KiB: what is only appended to needs no pages at hand
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS entries "
                "(number INTEGER PRIMARY KEY, kind TEXT, round INTEGER, document TEXT)"
            )

    def append(self, entry: Entry, /) -> None:
        """Keep an entry for good."""
        document = entry.to_dict() if isinstance(entry, RoundPlan | Verdict) else asdict(entry)
        row = (_KINDS[type(entry)], getattr(entry, "round", None), json.dumps(document))
        with self._lock, self._explained():
            self._database.execute("INSERT INTO entries (kind, round, document) VALUES (?, ?, ?)", row)

    def __iter__(self) -> Iterator[Entry]:
        """Return all entries in order."""
        with self._lock:
            rows = self._database.execute("SELECT kind, document FROM entries ORDER BY number").fetchall()
        return (_READ[kind](json.loads(document)) for kind, document in rows)

    def since(self, round: int) -> list[tuple[RoundPlan, Verdict]]:
        """Return plan and verdict of every concluded round from `round` on."""
        with self._lock:
            rows = self._database.execute(
                "SELECT kind, document FROM entries "
                "WHERE kind = 'rewind' OR (round >= ? AND kind IN ('plan', 'verdict')) ORDER BY number",
                (round,),
            ).fetchall()
        pairs: list[tuple[RoundPlan, Verdict]] = []
        plan: RoundPlan | None = None
        for kind, document in rows:
            if kind == "plan":
                plan = RoundPlan.from_dict(json.loads(document))
            elif kind == "rewind":
                plan, pairs = None, [pair for pair in pairs if pair[0].round < json.loads(document)["round"]]
            elif plan is not None:
                pairs.append((plan, Verdict.from_dict(json.loads(document))))
        return pairs

    def unknown(self, chains: set[str]) -> set[str]:
        """Return which of these are no verdict that was ever written here, in force or taken back."""
        query = "SELECT document FROM entries WHERE kind = 'verdict' ORDER BY number DESC"
        with self._lock:
            rows = self._database.execute(query).fetchall()
        left = chains - {GENESIS}
        for (document,) in rows:
            if not left:
                break
            left.discard(Verdict.from_dict(json.loads(document)).digest)
        return left

    def roster(self) -> tuple[RosterEntry, ...]:
        """Return who was a member when the last entry was made; nobody before the first plan."""
        query = "SELECT document FROM entries WHERE kind IN ('plan', 'membership') ORDER BY number DESC LIMIT 1"
        with self._lock:
            row = self._database.execute(query).fetchone()
        return tuple(RosterEntry(**entry) for entry in json.loads(row[0])["roster"]) if row else ()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Let a disk that is full, or a file that is no journal, end in a sentence."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise DiskError(
                f"the journal cannot be written: {error}",
                fix="make room there and start the coordinator again: nothing that was announced is lost",
                path=self._path,
            ) from error

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()


def _membership(data: dict[str, Any]) -> Membership:
    return Membership(tuple(RosterEntry(**entry) for entry in data["roster"]), data["reference_epoch"])


def _manifest(data: dict[str, Any]) -> Manifest:
    return Manifest(**{**data, "contributors": tuple(data["contributors"])})


_READ: dict[str, Callable[[dict[str, Any]], Entry]] = {
    "plan": RoundPlan.from_dict,
    "verdict": Verdict.from_dict,
    "membership": _membership,
    "rewind": lambda data: Rewind(**data),
    "proof": lambda data: Equivocation(_manifest(data["first"]), _manifest(data["second"])),
    "disagreement": lambda data: Disagreement(_manifest(data["first"]), _manifest(data["second"])),
}
