"""Records and rosters are told once, then differences; what is told is checked."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eris.coordinate.attendance import Attendance, Present
from eris.errors import Reason, Refused
from eris.peer.address_book import AddressBook
from eris.peer.journal import SqliteJournal
from eris.peer.rosters import RosterCache
from eris.protocol.journal import Membership
from eris.protocol.roster import Roster, RosterEntry
from eris.transport import control_server
from eris.transport.calls import BookAnswer, BookRequest, RosterAnswer, RosterRequest
from eris.transport.identity import PeerIdentity
from eris.wire.schema import decode

ADDRESS = ("127.0.0.1", 7443)


class Trusting:
    """Vouches for every certificate but these."""

    def __init__(self) -> None:
        self.bad: set[bytes] = set()

    def vouches_for(self, certificate: bytes, name: str) -> bool:
        return certificate not in self.bad

    def identify(self, certificate: bytes) -> PeerIdentity:
        return PeerIdentity("", fingerprint=certificate.hex())


def enter(attendance: Attendance, peer: int, certificate: bytes = b"c", port: int = 7443) -> None:
    request: Any = SimpleNamespace(place_counter=0, place_signature="")
    entry = RosterEntry(peer, f"peer-{peer}", 1.0)
    attendance.enter(Present(entry, ("127.0.0.1", port), certificate, request))


class Coordinator:
    """An attendance behind a call, and what was asked of it."""

    def __init__(self, board: str = "first") -> None:
        self.attendance, self.board = Attendance(None, patience=1.0), board  # type: ignore[arg-type]
        self.told: list[int] = []

    def __call__(self, request: BookRequest) -> BookAnswer:
        answer = self.attendance.book(self.board, request.edition if request.board == self.board else 0)
        self.told.append(len(answer.records))
        return answer


def test_only_what_is_new_is_told_again() -> None:
    coordinator, book = Coordinator(), AddressBook(Trusting(), peers=[f"peer-{n}" for n in range(999)])  # type: ignore[arg-type]
    for peer in range(4):
        enter(coordinator.attendance, peer)
    book.learn(coordinator)
    book.learn(coordinator)
    enter(coordinator.attendance, 2)  # again, as it was
    book.learn(coordinator)
    enter(coordinator.attendance, 1, port=9000)
    enter(coordinator.attendance, 3, certificate=b"renewed")
    coordinator.attendance.leave(0)
    book.learn(coordinator)
    assert coordinator.told == [4, 0, 0, 2]
    assert book.record(0) is None
    assert book.record(1).address == ("127.0.0.1", 9000)  # type: ignore[union-attr]
    assert book.record(3).certificate == b"renewed"  # type: ignore[union-attr]
    coordinator.board = "second"  # started anew: its editions mean nothing
    book.learn(coordinator)
    assert coordinator.told[-1] == 3


def test_the_encoded_book_is_the_book_of_now() -> None:
    attendance = Attendance(None, patience=1.0)  # type: ignore[arg-type]
    for peer in range(3):
        enter(attendance, peer)
    first = attendance.encoded_book("first", 0)
    assert attendance.encoded_book("first", 0) is first  # asked for by everybody, written once
    assert decode(BookAnswer, first) == attendance.book("first", 0)
    assert decode(BookAnswer, attendance.encoded_book("first", 2)) == attendance.book("first", 2)
    changes = [
        lambda: attendance.leave(1),
        lambda: enter(attendance, 2, port=9000),
        lambda: attendance.heard(PeerIdentity("peer-0", certificate=b"renewed"), waits=True),
    ]
    for change in changes:
        before = attendance.encoded_book("first", 0)
        change()
        assert attendance.encoded_book("first", 0) != before
        assert decode(BookAnswer, attendance.encoded_book("first", 0)) == attendance.book("first", 0)
    assert attendance.find(PeerIdentity("peer-1")) is None  # it left
    assert attendance.find(PeerIdentity("peer-2")) is attendance.present[2]


def test_a_long_book_comes_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator, book = Coordinator(), AddressBook(Trusting(), peers=[f"peer-{n}" for n in range(999)])  # type: ignore[arg-type]
    for peer in range(300):
        enter(coordinator.attendance, peer, certificate=bytes(700))
    monkeypatch.setattr(control_server, "_PAGE", 50_000)
    book.learn(coordinator)
    assert len(coordinator.told) > 5
    assert sum(coordinator.told) == 300
    assert sorted(book.dialable(but=7)) == [peer for peer in range(300) if peer != 7]


def test_a_record_that_nobody_vouches_for_is_asked_for_again() -> None:
    coordinator, trusting = Coordinator(), Trusting()
    book = AddressBook(trusting, peers=[f"peer-{n}" for n in range(999)])  # type: ignore[arg-type]
    enter(coordinator.attendance, 0, certificate=b"good")
    enter(coordinator.attendance, 1, certificate=b"not yet")
    trusting.bad = {b"not yet"}
    book.learn(coordinator)
    assert book.record(1) is None
    trusting.bad = set()
    book.learn(coordinator)
    assert book.record(1) is not None


def roster(*peers: int, weight: float = 1.0) -> Roster:
    return Roster(RosterEntry(peer, f"peer-{peer}", weight, f"{peer:064x}") for peer in peers)


class Rosters:
    """Answers as a coordinator does that knows these, and counts."""

    def __init__(self, *known: Roster) -> None:
        self.known = {one.digest: one for one in known}
        self.answers: list[RosterAnswer] = []

    def fetch(self, request: RosterRequest, answer: type) -> RosterAnswer:
        assert answer is RosterAnswer
        found, base = self.known[request.digest], self.known.get(request.base)
        self.answers.append(RosterAnswer(base.change_to(found), b"") if base else RosterAnswer(None, found.encoded))
        return self.answers[-1]


def test_a_roster_is_fetched_once_then_its_differences() -> None:
    first, second = roster(*range(100)), roster(*range(1, 101))
    client = Rosters(first, second)
    cache = RosterCache(client)  # type: ignore[arg-type]
    assert cache.find(first.digest) == first
    assert cache.find(first.digest) is cache.find(first.digest)
    assert cache.find(second.digest) == second
    assert [answer.change is None for answer in client.answers] == [True, False]
    assert client.answers[1].change is not None
    assert [entry.peer for entry in client.answers[1].change.entries] == [100]


def test_another_roster_than_the_plan_cites_is_refused() -> None:
    good, other = roster(0, 1), roster(0, 1, weight=2.0)
    client = Rosters(good)
    client.known[other.digest] = good
    with pytest.raises(Refused, match="a roster that its plan does not cite"):
        RosterCache(client).find(other.digest)  # type: ignore[arg-type]


def test_the_journal_keeps_a_roster_once_and_knows_those_of_before(tmp_path: Path) -> None:
    first, second = roster(0, 1, 2), roster(0, 2)
    journal = SqliteJournal(tmp_path / "journal.sqlite")
    for epoch, one in enumerate((first, second, first, first)):
        journal.append(Membership(one, epoch))
    assert journal._database.execute("SELECT count(*) FROM rosters").fetchone() == (2,)
    journal.close()
    again = SqliteJournal(tmp_path / "journal.sqlite")
    assert [entry.roster for entry in again] == [first, second, first, first]
    assert again.roster() == first
    assert again.find_roster(second.digest) == second
    with pytest.raises(Refused, match="was ever agreed"):
        again.find_roster("ff" * 32)
    again.close()


def test_a_journal_of_the_first_version_is_told_so_by_name(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "journal.sqlite")
    row = ("rewind", 3, '{"round": 3}')
    journal._database.execute("INSERT INTO entries (kind, round, document) VALUES (?, ?, ?)", row)
    with pytest.raises(Refused, match="wire version 1 met version 3") as caught:
        list(journal)
    assert caught.value.reason is Reason.WRONG_VERSION
    journal.close()
