"""Who is there, by the calls it waits in: they overlap, break, and end before anybody looks."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from eris.config import load_config
from eris.coordinate.attendance import Attendance, Present
from eris.coordinate.run import CoordinatorRun
from eris.errors import Reason, Refused
from eris.peer.federation_file import FederationFile
from eris.peer.journal import SqliteJournal
from eris.protocol.messages import ShownKey
from eris.protocol.roster import RosterEntry
from eris.transport.control_server import ControlServer
from eris.transport.identity import PeerIdentity

AMBER = PeerIdentity("amber", fingerprint="ab")
PATIENCE, LATER = 40.0, 60.0


class NoCredentials:
    """Of a CA that has revoked nobody."""

    class revocations:
        number = 0

    def refresh(self) -> bool:
        return False

    def sign(self, purpose: str, message: bytes) -> bytes:
        del purpose, message
        return b""


@pytest.fixture
def attendance() -> Attendance:
    made: Any = Attendance(NoCredentials(), patience=PATIENCE)  # type: ignore[arg-type]
    enter(made)
    return made


def enter(attendance: Attendance) -> Present:
    present = Present(RosterEntry(0, "amber", 1.0, "ab"), None, b"", request=None)  # type: ignore[arg-type]
    attendance.enter(present)
    return present


def silent(attendance: Attendance, after: float = LATER) -> bool:
    now = time.monotonic
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: now() + after)
        return bool(list(attendance.silent()))


def test_a_mask_key_is_newer_than_the_last_or_the_same_again(attendance: Attendance) -> None:
    """A peer shows its next key until a plan has it, and may sign it anew each time."""
    attendance.present[0].mask_key = ShownKey("ab" * 32, 7, "01")
    attendance.show_key(0, ShownKey("cd" * 32, 8, "02"))
    edition = attendance.edition
    attendance.show_key(0, ShownKey("cd" * 32, 8, "03"))
    assert attendance.edition == edition
    for other in (ShownKey("ef" * 32, 8, "04"), ShownKey("ab" * 32, 7, "01")):
        with pytest.raises(Refused) as refused:
            attendance.show_key(0, other)
        assert refused.value.reason is Reason.DUPLICATE
    assert attendance.present[0].mask_key == ShownKey("cd" * 32, 8, "02")


def test_who_waits_is_there_and_who_stopped_asking_is_not(attendance: Attendance) -> None:
    attendance.heard(AMBER, waits=True)
    assert not silent(attendance)
    attendance.heard(AMBER, waits=False)
    assert silent(attendance)


def test_who_asks_late_is_there_for_as_long_as_the_federation_gives_itself_to_reach_somebody(
    attendance: Attendance,
) -> None:
    for waits in (True, False):
        attendance.heard(AMBER, waits=waits)
    assert not silent(attendance, PATIENCE - 1.0)
    assert silent(attendance, PATIENCE + 1.0)


def test_the_setting_of_the_federation_is_what_counts(tmp_path: Path) -> None:
    config = load_config(changes=["data.name=synthetic-quadratic", "members=1", "aggregators=1", "method=eris"])
    table = {"name": "grove", "coordinator": "127.0.0.1:1", "peers": ["amber"], "connect": 17.0}
    journal = SqliteJournal(tmp_path / "journal")
    made = CoordinatorRun(FederationFile(table, config), NoCredentials(), journal)  # type: ignore[arg-type]
    journal.close()
    enter(made.attendance)
    assert not silent(made.attendance, 16.0)
    assert silent(made.attendance, 18.0)


def test_the_end_of_a_call_that_is_noticed_late_does_not_hide_the_next_one(attendance: Attendance) -> None:
    for waits in (True, True, False):
        attendance.heard(AMBER, waits=waits)
    assert not silent(attendance)


def test_a_connection_that_broke_counts_if_no_other_call_waits(attendance: Attendance) -> None:
    attendance.heard(AMBER, waits=True)
    attendance.heard(AMBER, waits=True)
    attendance.lost(AMBER)
    assert not silent(attendance)
    attendance.lost(AMBER)
    assert silent(attendance)


def test_a_call_goes_on_when_its_peer_joins_again(attendance: Attendance) -> None:
    attendance.heard(AMBER, waits=True)
    enter(attendance)  # its reference was lost, say; the call for news is still open
    assert not silent(attendance)
    attendance.heard(AMBER, waits=False)
    assert silent(attendance)


def test_a_call_that_ended_before_it_was_watched_is_a_lost_one() -> None:
    """gRPC calls nobody back for a call that is over."""
    told: list[str] = []

    class Service:
        def heard(self, caller: PeerIdentity, *, waits: bool) -> None:
            told.append(f"heard {waits}")

        def lost(self, caller: PeerIdentity) -> None:
            told.append("lost")

    class Over:
        def add_callback(self, ended: object) -> bool:
            return False

    server: Any = object.__new__(ControlServer)
    server._service = Service()
    server._watch(AMBER, Over(), None)
    assert told == ["heard True", "lost"]
