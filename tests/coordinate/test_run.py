"""How a run goes on after its coordinator was away: from which round, with whom, under which plan."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eris.coordinate.attendance import Present
from eris.coordinate.run import CoordinatorRun
from eris.coordinate.service import CoordinatorService
from eris.errors import Reason, Refused
from eris.events import VerdictWritten
from eris.local.spec import ModelSpec
from eris.peer.federation_file import FederationFile
from eris.peer.journal import SqliteJournal
from eris.protocol.journal import Rewind
from eris.protocol.messages import Equivocation, Manifest
from eris.protocol.roster import ROSTER_PURPOSE, RosterClaim, RosterEntry
from eris.protocol.round_plan import RoundPlan
from eris.transport.calls import JoinRequest, LeaveRequest, RoundsAnswer, RoundsRequest
from eris.transport.credentials import Credentials
from eris.transport.identity import PeerIdentity
from eris.wire.schema import encode
from tests.coordinate.test_attendance import NoCredentials
from tests.peer.town import NAMES, after_rounds, settings, town

MEMBERS = 3


class Resumed:
    """The coordinator's side of a run of three that was concluded up to a round, with nobody here yet."""

    def __init__(self, folder: Path, concluded: int, *changes: str) -> None:
        config = settings(f"members={MEMBERS}", "rounds=9", *changes)
        table = {"name": "town", "coordinator": "127.0.0.1:1", "peers": NAMES[:MEMBERS], "checkpoint_every": 1}
        self.federation, self.folder = FederationFile(table, config), folder
        self.chains = [""]
        self.run = self._open()
        for number in range(MEMBERS):
            self.enter(number)
        self.run._begin()
        for _ in range(concluded):
            coordinator = self.run.coordinator
            assert coordinator is not None
            verdict = coordinator.decide(time.monotonic() + 1e6)
            assert verdict is not None
            self.chains.append(verdict.digest)
            coordinator.plan(time.monotonic())
        self.journal.close()
        self.run = self._open()

    def _open(self) -> CoordinatorRun:
        self.journal = SqliteJournal(self.folder / "coordinator.sqlite")
        made: Any = CoordinatorRun(self.federation, Keyless(), self.journal)  # type: ignore[arg-type]
        made.spec = ModelSpec.flat(10)
        return made

    def enter(self, number: int, **changes: Any) -> None:
        """Let a peer join; unless told otherwise it stands at the beginning of the run."""
        entry = RosterEntry(number, NAMES[number], 1.0, f"{number}" * 64)
        request = JoinRequest("", ModelSpec.flat(10), 1.0, "", 0, "", ("127.0.0.1", 1), "", False, "0" * 64, 0, 0)
        present = Present(entry, ("127.0.0.1", 1), b"", replace(request, **changes))
        self.run.attendance.enter(present)

    def begin(self) -> RoundPlan:
        """Begin again and return the plan that is announced."""
        self.run._begin()
        assert not self.run.ended
        assert self.run.coordinator is not None
        plan = self.run.coordinator.in_flight
        assert plan is not None
        return plan


class Keyless(NoCredentials):
    """Nobody's certificate has expired either."""

    def identify(self, certificate: bytes) -> None:
        del certificate

    def refusal(self, identity: object) -> None:
        del identity


@pytest.fixture
def run(tmp_path: Path) -> Resumed:
    return Resumed(tmp_path, 4)


def test_the_round_in_flight_goes_on_where_somebody_is_still_in_it(run: Resumed) -> None:
    for number in range(MEMBERS):
        run.enter(number, private_round=5, chain=run.chains[4])
    assert run.begin().when == (0, 4)


def test_the_round_in_flight_goes_on_where_all_stand_before_it(run: Resumed) -> None:
    for number in range(MEMBERS):
        run.enter(number, private_round=4, chain=run.chains[4], checkpoints=(3, 4))
    assert run.begin().when == (0, 4)


def test_who_stands_on_a_course_that_was_taken_back_does_not_know_the_round(run: Resumed) -> None:
    run.journal.append(Rewind(2))
    for number in range(MEMBERS):
        run.enter(number, private_round=4, chain=run.chains[4], checkpoints=(1, 4))
    assert run.begin().round == 1


def test_an_old_copy_of_the_database_is_noticed(run: Resumed) -> None:
    run.enter(0, private_round=4, chain=run.chains[4])
    for number in (1, 2):
        run.enter(number, private_round=9, chain="ab" * 32, checkpoints=(2, 7))
    run.run._begin()
    assert "older than the run" in run.run.ended


@pytest.mark.parametrize("claim", [5, 2**32 - 1])
def test_one_who_only_says_so_does_not_know_the_round(run: Resumed, claim: int) -> None:
    run.enter(0, private_round=claim, chain="ab" * 32, checkpoints=(3,))
    run.enter(1, private_round=3, chain=run.chains[3], checkpoints=(3,))
    run.enter(2, private_round=3, chain=run.chains[3], checkpoints=(3,))
    assert run.begin().round == 3


@pytest.mark.parametrize(("fresh", "round"), [(True, 3), (False, 4)])
def test_one_that_kept_more_goes_back_with_the_others_unless_it_was_there_all_the_time(
    run: Resumed, fresh: bool, round: int
) -> None:
    run.enter(0, fresh=fresh, private_round=4, chain=run.chains[4], checkpoints=(3, 4))
    for number in (1, 2):
        run.enter(number, fresh=True, private_round=3, chain=run.chains[3], checkpoints=(2, 3))
    assert run.begin().round == round


def test_one_that_kept_nothing_yet_does_not_throw_all_back_to_the_beginning(run: Resumed) -> None:
    run.enter(0, private_round=3, chain=run.chains[3], checkpoints=(2, 3))
    run.enter(1, private_round=3, chain=run.chains[3], checkpoints=(2, 3))
    run.enter(2)
    assert run.begin().round == 3


def test_an_aggregator_that_was_restarted_too_publishes_under_another_plan(run: Resumed) -> None:
    """Under the same plan it might contradict what it published before, and be excluded for it."""
    run.enter(0, private_round=5, chain=run.chains[4])
    run.enter(1, private_round=5, chain=run.chains[4])
    run.enter(2, private_round=4, chain=run.chains[4], checkpoints=(4,))
    assert run.begin().when == (1, 4)


def test_one_that_was_excluded_comes_again_and_the_others_go_on(run: Resumed) -> None:
    manifest = Manifest("", 0, 0, 1, (0, 1), 1.0, 1.0, "aa" * 32)
    run.journal.append(Equivocation(manifest, replace(manifest, hash="bb" * 32)))
    for number in range(MEMBERS):
        run.enter(number, private_round=4, chain=run.chains[4])
    run.begin()
    coordinator = run.run.coordinator
    assert coordinator is not None
    assert coordinator.absent == {1}
    with pytest.raises(Refused, match=Reason.EQUIVOCATION.value):
        coordinator.require_honest(1)


def test_after_one_has_left_the_others_begin_again_with_its_shard(tmp_path: Path) -> None:
    run = Resumed(tmp_path, 2)
    for number in range(MEMBERS):
        run.enter(number, private_round=2, chain=run.chains[2])
    run.begin()
    assert run.run.coordinator is not None
    run.run.coordinator.leave(2)
    run.run.coordinator.decide(time.monotonic() + 1e6)
    run.journal.close()
    run.run = run._open()
    for number in range(2):
        run.enter(number, private_round=3)
    plan = run.begin()
    assert [entry.peer for entry in plan.roster] == [0, 1]
    assert len(plan.assignment) == MEMBERS
    assert set(plan.assignment) == {0, 1}


def test_a_round_is_not_drawn_out_for_ever_by_a_slow_clock(run: Resumed) -> None:
    for number in range(MEMBERS):
        run.enter(number, private_round=4, chain=run.chains[4])
    run.begin()
    coordinator = run.run.coordinator
    assert coordinator is not None
    assert coordinator._open is not None
    due, length = coordinator._open.due, run.federation.settings.round
    run.run.forgive(5 * length)  # frozen, and woken up much later
    for _ in range(100):
        run.run.forgive(length / 10)
    assert coordinator._open.due == pytest.approx(due + 5.2 * length)


def test_the_first_gathering_ends_too_and_names_who_did_not_come(tmp_path: Path) -> None:
    with town(tmp_path, settings("members=3")) as place:
        place.coordinator.close()

        node = CoordinatorService(
            place.federation(("127.0.0.1", 1)),
            Credentials(place.credentials["coordinator"]),
            tmp_path / "other",
            listen=("127.0.0.1", 0),
            wait=0.3,
        )
        assert node.overview().waiting == "waiting for amber, birch, cedar"
        assert node.wait(20.0) == "not enough members joined in time: waiting for amber, birch, cedar"
        node.close()


@pytest.mark.parametrize("method", ["eris", "eris+dsc"])
def test_one_that_was_not_there_at_the_beginning_joins_in_a_later_round(tmp_path: Path, method: str) -> None:
    with town(tmp_path, settings("members=3", "rounds=8", method=method), begin_with=2) as place:
        late = place.node("cedar")

        def let_in(event: VerdictWritten) -> None:
            if event.plan.round == 2:
                place.start("cedar", late.run)
                while 2 not in place.coordinator._attendance.present:
                    time.sleep(0.01)

        nodes = [place.node("amber", listeners=after_rounds(let_in)), place.node("birch"), late]
        for node in nodes[:2]:
            place.start(node.settings.name, node.run)
        place.wait("amber", "birch")
        place.wait("cedar")
        pairs = place.coordinator._journal.since(0)
    rosters = [len(plan.roster) for plan, _ in pairs]
    assert rosters[:3] == [2, 2, 2]
    assert rosters[-1] == MEMBERS
    assert len({node.model_digest() for node in nodes}) == 1


def test_a_peer_with_another_model_that_came_first_and_left_is_forgotten(tmp_path: Path) -> None:
    config = settings("members=2")
    with town(tmp_path, config) as place:
        node, digest = place.coordinator, place.federation().digest
        credentials = {name: Credentials(place.credentials[name]) for name in place.names}

        def join(name: str, n: int) -> None:
            claim = encode(RosterClaim(digest, name, 1.0, "", 0))
            signed = credentials[name].sign(ROSTER_PURPOSE, claim).hex()
            request = JoinRequest(digest, ModelSpec.flat(n), 1.0, "", 0, signed, None, "", True, "0" * 64, 0, 0)
            node.join(credentials[name].identity, request)

        join("amber", 7)
        node.leave(credentials["amber"].identity, LeaveRequest())
        join("birch", 10)
        join("amber", 10)
        assert node.coordinator is not None or node.wait(0.0)


def test_what_was_missed_comes_in_pages_that_are_not_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from eris.transport import control_server

    with town(tmp_path, settings("members=2", "rounds=6")) as place:
        for name in place.names:
            place.start(name, place.node(name).run)
        place.wait()

        def rounds() -> int:
            answer = place.coordinator.fetch(PeerIdentity("amber"), RoundsRequest(0))
            assert isinstance(answer, RoundsAnswer)
            return len(answer.rounds)

        assert rounds() == 6
        monkeypatch.setattr(control_server, "_PAGE", 2000)
        assert 1 <= rounds() < 6
        monkeypatch.setattr(control_server, "_PAGE", 10)
        assert rounds() == 1
