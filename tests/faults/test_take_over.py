"""The coordinator is killed at a named moment, its disk is never seen again, and a standby takes over from the peers.

Nobody restarts a peer. All finish with one model, which a replay of the verdicts comes to as well.
"""

from __future__ import annotations

import json
import shutil
from itertools import product
from pathlib import Path

import pytest

from eris.peer.allegiance import PROMISE
from eris.peer.kept_log import KEPT, KeptLog
from eris.protocol.round_plan import RoundPlan
from eris.protocol.take_over import term_of
from eris.protocol.verdict import Verdict
from tests.faults.fleet import METHODS, NAMES, Fleet, fleet, lost, missing
from tests.faults.process import Fault

pytestmark = pytest.mark.timeout(240)
slow = pytest.mark.slow
STANDBY, ROUND = "reserve", 2
QUICK = {"standbys": (STANDBY,), "connect": 3.0}


def terms(pairs: list[tuple[RoundPlan, Verdict]]) -> list[int]:
    return [term_of(plan.epoch) for plan, _ in pairs]


def check_kept(made: Fleet, *alive: str) -> None:
    """Check that each peer's own log is the run, to the last verdict, under the last mandate."""
    pairs = made.pairs(alive[0])
    for name in alive:
        log = KeptLog(made.folder / "peers" / name / KEPT)
        assert [played.verdict for played in log.since(0)] == [verdict for _, verdict in pairs]
        last = log.journal.mandates()[-1]
        promise = json.loads((made.folder / "peers" / name / PROMISE).read_text())
        assert promise["term"] == promise["adopted"] == last.term == max(terms(pairs))
        log.close()


@pytest.mark.parametrize(
    ("method", "moment", "nth"),
    [
        ("fedavg", "written", 1),  # a verdict that nobody heard of
        *(
            pytest.param(method, moment, nth, marks=slow)
            for method, (moment, nth) in product(METHODS, [("planned", 1), ("noted", 1), ("noted", 6), ("written", 1)])
            if (method, moment) != ("fedavg", "written")
        ),
        pytest.param("masked", "noted", 6, marks=slow),
        pytest.param("replicas", "planned", 1, marks=slow),
    ],
)
def test_a_coordinator_that_is_lost_with_its_disk_is_taken_over_from(
    tmp_path: Path, method: str, moment: str, nth: int
) -> None:
    with fleet(tmp_path, method, **QUICK) as made:
        made.start_all(coordinator=Fault(moment, nth=nth))
        made.wait_dead("coordinator")
        shutil.rmtree(tmp_path / "state")
        made.start(STANDBY)
        pairs = made.check(*NAMES)
        assert made.wait_for(STANDBY, "end")["how"] == "finished"
        check_kept(made, *NAMES)
    assert terms(pairs) == [0] * ROUND + [1] * (made.config.rounds - ROUND)
    assert not lost(pairs)
    assert all(not missing(pairs, peer) for peer in range(len(NAMES)))


@slow
@pytest.mark.parametrize("method", METHODS)
def test_a_verdict_that_some_peers_have_followed_is_kept_by_who_takes_over(tmp_path: Path, method: str) -> None:
    """The third peer that steps kills the coordinator: all votes are counted, and the verdict goes on."""
    with fleet(tmp_path, method, **QUICK) as made:
        made.start_all(**{name: Fault("stepped", "half") for name in NAMES})
        made.wait_dead("coordinator")
        shutil.rmtree(tmp_path / "state")
        made.start(STANDBY)
        pairs = made.check(*NAMES)
        check_kept(made, *NAMES)
    assert terms(pairs)[: ROUND + 1] == [0] * (ROUND + 1)
    assert terms(pairs)[-1] == 1
    assert not lost(pairs)


@slow
@pytest.mark.parametrize("moment", ["planned", "written"])
def test_a_take_over_in_the_last_round_ends_the_run_once(tmp_path: Path, moment: str) -> None:
    with fleet(tmp_path, "fedadam-dsc", **QUICK) as made:
        made.start_all(coordinator=Fault(moment, round=5))
        made.wait_dead("coordinator")
        shutil.rmtree(tmp_path / "state")
        made.start(STANDBY)
        pairs = made.check(*NAMES)
    assert terms(pairs) == [0] * 5 + [1]


@slow
def test_whoever_took_over_may_be_lost_as_well_and_the_first_takes_it_back(tmp_path: Path) -> None:
    """reserve is killed in turn; spare takes over in term 2, from peers alone."""
    with fleet(tmp_path, "fedadam-dsc", standbys=(STANDBY, "spare"), connect=3.0) as made:
        made.start_all(coordinator=Fault("planned", round=1))
        made.wait_dead("coordinator")
        made.start(STANDBY, fault=Fault("noted", round=3, nth=3))
        made.wait_dead(STANDBY, seconds=90.0)
        shutil.rmtree(tmp_path / "state")
        shutil.rmtree(tmp_path / f"state-{STANDBY}")
        made.start("spare")
        pairs = made.check(*NAMES)
        check_kept(made, *NAMES)
    assert sorted(set(terms(pairs))) == [*terms(pairs)[:1], 1, 2]


@slow
def test_whoever_took_over_goes_on_in_its_term_when_it_is_started_again(tmp_path: Path) -> None:
    with fleet(tmp_path, "fedavg", **QUICK) as made:
        made.start_all(coordinator=Fault("planned", round=1))
        made.wait_dead("coordinator")
        made.start(STANDBY, fault=Fault("written", round=3))
        made.wait_dead(STANDBY, seconds=90.0)
        made.start(STANDBY)
        pairs = made.check(*NAMES)
    assert terms(pairs) == [0] + [1] * 5
    assert not lost(pairs)


@slow
def test_a_peer_that_was_down_during_a_take_over_finds_who_coordinates_now(tmp_path: Path) -> None:
    with fleet(tmp_path, "fedadam-dsc", **QUICK) as made:
        made.linger = 60.0
        made.start_all(coordinator=Fault("noted", round=3, nth=2), elder=Fault("plan", round=2))
        made.wait_dead("elder")
        made.wait_dead("coordinator")
        made.start(STANDBY)
        made.wait_for("amber", "stepped", count=made.config.rounds)
        made.start("elder")
        made.check(*NAMES)
        check_kept(made, *NAMES)


@slow
def test_two_of_five_wait_and_are_not_enough(tmp_path: Path) -> None:
    """Three of five peers die with the coordinator: a standby waits, until one of them is back."""
    with fleet(tmp_path, "fedavg", changes=["server.min_contributors=2"], **QUICK) as made:
        made.start_all(coordinator=Fault("planned", round=3))
        made.wait_dead("coordinator")
        made.kill("cedar", "dogwood", "elder")
        made.start(STANDBY)
        made.wait_for_log(STANDBY, "2 of 3 votes for term 1; no word from cedar, dogwood, elder")
        assert not made.events(STANDBY, "written")
        made.start("cedar")
        pairs = made.check("amber", "birch", "cedar")
    assert terms(pairs)[-1] == 1
