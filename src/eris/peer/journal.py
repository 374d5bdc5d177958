"""The coordinator's journal: plans, verdicts, membership and proofs in one SQLite file, in order and durable.

Also decides where a run continues after its coordinator was away: what the members say they have, against the journal.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from eris.errors import DiskError, Reason, Refused
from eris.protocol.false_manifest import FalseManifest
from eris.protocol.journal import Departure, Entry, Membership, Rewind, Stopped
from eris.protocol.messages import Disagreement, Equivocation
from eris.protocol.roster import Roster, RosterEntry, SignedLeave, cited
from eris.protocol.round_plan import RoundPlan
from eris.protocol.seal import CertifiedSeal, EpochBegun, PlanName
from eris.protocol.take_over import Mandate
from eris.protocol.verdict import GENESIS, Verdict
from eris.transport.calls import JoinRequest
from eris.wire.schema import decode, digest_of, encode, plain, read_plain

__all__ = ["Resumption", "SealedRound", "SqliteJournal", "is_older"]

_KINDS: dict[type, str] = {
    RoundPlan: "plan",
    Verdict: "verdict",
    Membership: "membership",
    Equivocation: "proof",
    FalseManifest: "proof",
    Disagreement: "disagreement",
    Rewind: "rewind",
    EpochBegun: "epoch",
    Departure: "departure",
    Stopped: "stop",
    Mandate: "mandate",
}


@dataclass(frozen=True, slots=True)
class SealedRound:
    """A concluded round: plan and verdict, with the seals of whoever coordinated it."""

    plan: RoundPlan
    verdict: Verdict
    plan_seal: CertifiedSeal
    verdict_seal: CertifiedSeal


class SqliteJournal:
    """An append-only journal; `append` returns when the entry is on disk."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        self._known: dict[str, Roster] = {}
        self._epochs: dict[int, PlanName] | None = None  # epoch → the plan it follows
        with self._explained():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA synchronous=FULL")
            self._database.execute("PRAGMA cache_size=-128")  # KiB: what is only appended to needs no cache
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS entries "
                "(number INTEGER PRIMARY KEY, kind TEXT, round INTEGER, document BLOB)"
            )
            self._database.execute("CREATE TABLE IF NOT EXISTS rosters (digest TEXT PRIMARY KEY, document BLOB)")
            self._database.execute("CREATE TABLE IF NOT EXISTS seals (digest TEXT PRIMARY KEY, document TEXT)")

    def append(self, entry: Entry, /) -> None:
        """Keep an entry for good; a roster that plans cite is stored once."""
        with self._lock, self._explained():
            self._database.execute("BEGIN")
            self._insert(entry)
            self._database.execute("COMMIT")
            if isinstance(entry, EpochBegun) and self._epochs is not None:
                self._epochs[entry.epoch] = entry.supersedes

    def append_round(self, played: SealedRound) -> None:
        """Keep a round that somebody else coordinated, with the seals that vouch for it; all of it or nothing."""
        seals = {played.plan.digest: played.plan_seal, played.verdict.digest: played.verdict_seal}
        rows = [(digest, json.dumps(plain(seal))) for digest, seal in seals.items()]
        with self._lock, self._explained():
            self._database.execute("BEGIN")
            self._insert(played.plan)
            self._insert(played.verdict)
            self._database.executemany("INSERT OR IGNORE INTO seals VALUES (?, ?)", rows)
            self._database.execute("COMMIT")

    def _insert(self, entry: Entry) -> None:
        if isinstance(entry, RoundPlan | Membership):
            roster = Roster(entry.roster)
            self._known[roster.digest] = roster
            self._database.execute("INSERT OR IGNORE INTO rosters VALUES (?, ?)", (roster.digest, roster.encoded))
        row = (_KINDS[type(entry)], getattr(entry, "round", None), encode(entry))
        self._database.execute("INSERT INTO entries (kind, round, document) VALUES (?, ?, ?)", row)

    def seal_of(self, digest: str) -> CertifiedSeal | None:
        """Return the seal of a plan or verdict that somebody else coordinated; None for our own, which we sign anew."""
        with self._lock:
            row = self._database.execute("SELECT document FROM seals WHERE digest = ?", (digest,)).fetchone()
        return read_plain(CertifiedSeal, json.loads(row[0])) if row else None

    def mandates(self) -> tuple[Mandate, ...]:
        """Return the mandates in the order in which they were recorded."""
        with self._lock:
            rows = self._database.execute("SELECT document FROM entries WHERE kind = 'mandate' ORDER BY number")
            return tuple(decode(Mandate, document) for (document,) in rows.fetchall())

    def __iter__(self) -> Iterator[Entry]:
        """Return all entries in order."""
        with self._lock:
            rows = self._database.execute("SELECT document FROM entries ORDER BY number").fetchall()
        return (self._read(document) for (document,) in rows)

    def since(self, round: int) -> list[tuple[RoundPlan, Verdict]]:
        """Return plan and verdict of every concluded round from `round` on."""
        with self._lock:
            rows = self._database.execute(
                "SELECT document FROM entries "
                "WHERE kind = 'rewind' OR (round >= ? AND kind IN ('plan', 'verdict')) ORDER BY number",
                (round,),
            ).fetchall()
        pairs: list[tuple[RoundPlan, Verdict]] = []
        plan: RoundPlan | None = None
        for entry in (self._read(document) for (document,) in rows):
            if isinstance(entry, RoundPlan):
                plan = entry
            elif isinstance(entry, Rewind):
                plan, pairs = None, [pair for pair in pairs if pair[0].round < entry.round]
            elif isinstance(entry, Verdict) and plan is not None:
                pairs.append((plan, entry))
        return pairs

    def superseded(self, epoch: int) -> PlanName | None:
        """Return the plan that an epoch follows; None for the first one."""
        with self._lock:
            if self._epochs is None:
                rows = self._database.execute("SELECT document FROM entries WHERE kind = 'epoch' ORDER BY number")
                begun = [decode(EpochBegun, document) for (document,) in rows.fetchall()]
                self._epochs = {entry.epoch: entry.supersedes for entry in begun}
            return self._epochs.get(epoch)

    def find_plan(self, digest: str) -> RoundPlan:
        """Return a plan, in force or taken back."""
        with self._lock:
            rows = self._database.execute("SELECT document FROM entries WHERE kind = 'plan'").fetchall()
        found = next((document for (document,) in rows if digest_of(document) == digest), None)
        if found is None:
            raise Refused(Reason.WRONG_DIGEST, f"no plan {digest[:12]}… was ever written here")
        return RoundPlan.decode(found, self.find_roster)

    def leaves(self, peers: Collection[int]) -> tuple[SignedLeave, ...]:
        """Return these members' signed leaves, the latest of each."""
        with self._lock:
            rows = self._database.execute("SELECT document FROM entries WHERE kind = 'departure' ORDER BY number")
            left = [decode(Departure, document) for (document,) in rows.fetchall()]
        return tuple({entry.peer: entry.leave for entry in left if entry.peer in peers}.values())

    def unknown(self, chains: set[str]) -> set[str]:
        """Return which of these were never written here as a verdict, in force or taken back."""
        query = "SELECT document FROM entries WHERE kind = 'verdict' ORDER BY number DESC"
        with self._lock:
            rows = self._database.execute(query).fetchall()
        left = chains - {GENESIS}
        for (document,) in rows:
            if not left:
                break
            left.discard(digest_of(document))
        return left

    def roster(self) -> tuple[RosterEntry, ...]:
        """Return the members as of the last entry; nobody before the first plan."""
        query = "SELECT document FROM entries WHERE kind IN ('plan', 'membership') ORDER BY number DESC LIMIT 1"
        with self._lock:
            row = self._database.execute(query).fetchone()
        entry = self._read(row[0]) if row else None
        return entry.roster if isinstance(entry, RoundPlan | Membership) else ()

    def find_roster(self, digest: str) -> Roster:
        """Return a roster that a plan or a change cites."""
        with self._lock:
            if digest not in self._known:
                row = self._database.execute("SELECT document FROM rosters WHERE digest = ?", (digest,)).fetchone()
                if row is None:
                    raise Refused(Reason.WRONG_DIGEST, f"no roster {digest[:12]}… was ever agreed here")
                self._known[digest] = Roster.decode(row[0])
            return self._known[digest]

    def _read(self, document: bytes | str) -> Entry:
        data = document.encode() if isinstance(document, str) else document  # version 1 wrote text
        entry: Entry = decode(Entry, data, roster=cited(self.find_roster))
        return entry

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn a full disk, or a file that is not a journal, into a readable error."""
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


class Resumption:
    """Where to resume a run.

    Args:
        requests: peer → how it asked to join, of the members that are back.
        round: the journal's next.
    """

    def __init__(self, journal: SqliteJournal, requests: Mapping[int, JoinRequest], round: int) -> None:
        self._journal, self._requests, self._round = journal, requests, round

    def goes_back_to(self, quorum: int) -> int | None:
        """Return the newest durable round, if all were down or nobody has what came after it; otherwise None.

        If only the very beginning is durable (one came late and has kept nothing yet), it is the newest round that a
        quorum has: the others take a snapshot of it. A member that is a round ahead because it kept more goes back with
        the others, or they would lose what they have of their own.
        """
        requests = self._requests.values()
        if any(self._knows(request) for request in requests if not request.fresh):
            return None
        rounds = Counter(r for request in requests for r in {0, *request.checkpoints} if r <= self._round)
        target = max(round for round, count in rounds.items() if count == len(requests))
        if target == 0:
            target = max((round for round, count in rounds.items() if count >= quorum), default=0)
        if target == self._round and any(self._knows(request) for request in requests):
            return None
        return target

    def aggregator_forgot(self, plan: RoundPlan | None) -> bool:
        """Whether an aggregator of the round in flight was restarted too, while others are still in the round.

        They may hold what it published before; publishing again under the same plan, it would contradict itself.
        """
        inside = {number for number, request in self._requests.items() if request.private_round > self._round}
        return plan is not None and bool(inside) and bool(plan.aggregators & self._requests.keys() - inside)

    def _knows(self, request: JoinRequest) -> bool:
        """Whether a peer is at this round or still in the one before, and on this course, not on one taken back."""
        return request.private_round >= self._round and request.chain in self._last_chains

    @cached_property
    def _last_chains(self) -> set[str]:
        last = {verdict.digest for _, verdict in self._journal.since(max(0, self._round - 2))}
        return last | {GENESIS} if self._round < 2 else last


def is_older(journal: SqliteJournal, requests: Mapping[int, JoinRequest]) -> bool:
    """Return whether most members have followed verdicts that this journal never had: it is an old copy."""
    chains = [request.chain for request in requests.values()]
    unknown = journal.unknown(set(chains))
    return 2 * sum(chain in unknown for chain in chains) > len(chains)
