"""The coordinator is killed at a named moment, its disk is never seen again, and a standby takes over from the peers.

Nobody restarts a peer. All finish with one model, which a replay of the verdicts comes to as well.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.faults.fleet import NAMES, fleet, missing
from tests.faults.process import Fault

pytestmark = pytest.mark.timeout(240)
slow = pytest.mark.slow
STANDBY = "reserve"


@pytest.mark.parametrize(
    ("method", "moment", "nth"),
    [
        ("fedavg", "written", 1),
    ],
)
def test_a_coordinator_that_is_lost_with_its_disk_is_taken_over_from(
    tmp_path: Path, method: str, moment: str, nth: int
) -> None:
    with fleet(tmp_path, method, standbys=(STANDBY,), connect=3.0) as made:
        made.start_all(coordinator=Fault(moment, nth=nth))
        made.wait_dead("coordinator")
        shutil.rmtree(tmp_path / "state")
        made.start(STANDBY)
        pairs = made.check(*NAMES)
        assert made.wait_for(STANDBY, "end")["how"] == "finished"
    terms = [plan.epoch >> 20 for plan, _ in pairs]
    assert terms == sorted(terms)
    assert set(terms) == {0, 1}
    assert all(not missing(pairs, peer) for peer in range(len(NAMES)))
