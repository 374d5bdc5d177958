"""Masked shards among real processes: whoever dies, others end alike, and a replay in plain fixed point comes to it.

The shard of a dead unmasker is lost for the round by name; a member that comes back has another key and sits the round
out. Nobody waits for the round's deadline.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from eris.errors import Reason
from tests.faults.fleet import NAMES, fleet, lost, missing
from tests.faults.process import Fault

ROUND = 2
pytestmark = pytest.mark.timeout(180)
slow = pytest.mark.slow


def others(name: str) -> list[str]:
    return [other for other in NAMES if other != name]


@pytest.mark.parametrize(
    "moment", ["shown", pytest.param("unmasked", marks=slow), pytest.param("reported", marks=slow)]
)
def test_a_killed_unmasker_costs_at_most_what_it_was_to_unmask(tmp_path: Path, moment: str) -> None:
    """dogwood unmasks the shard of cedar, and aggregates none itself."""
    with fleet(tmp_path, "masked") as made:
        made.start_all(dogwood=Fault(moment))
        pairs = made.check(*others("dogwood"))
    gone = NAMES.index("dogwood")
    assert pairs[ROUND][0].unmaskers == (1, 2, gone)
    found = ({}, {ROUND + 1: (2,)}) if moment == "reported" else ({ROUND: (2,)},)  # the next plan may still name it
    assert lost(pairs) in found
    assert {entry.lost for _, verdict in pairs for entry in verdict.shards} <= {"", Reason.UNMASK.value}
    for plan, verdict in pairs[ROUND + 2 :]:
        assert gone not in plan.unmaskers
        assert not verdict.lost_shards


@pytest.mark.parametrize(
    "moment", ["receipt", *(pytest.param(each, marks=slow) for each in ("plan", "chunk", "stepped"))]
)
def test_a_member_that_comes_back_has_another_key_and_sends_nothing_until_a_plan_shows_it(
    tmp_path: Path, moment: str
) -> None:
    # Rounds enough for a peer that takes its time to come back: on a busy machine six were over before it was here.
    with fleet(tmp_path, "masked", changes=["rounds=24"]) as made:
        made.start_all(elder=Fault(moment))
        made.wait_dead("elder")
        made.start("elder")
        pairs = made.check(*NAMES)
    me, keys = NAMES.index("elder"), [plan.mask_keys[NAMES.index("elder")] for plan, _ in pairs]
    assert len(set(keys)) == 2
    assert not lost(pairs)
    assert all(not missing(pairs, NAMES.index(name)) for name in others("elder"))
    assert set(missing(pairs, me)) <= set(range(ROUND, made.config.rounds))


@pytest.mark.parametrize("moment", [pytest.param(each, marks=slow) for each in ("cut", "manifest", "served")])
def test_a_killed_aggregator_costs_at_most_its_shard_and_the_one_it_unmasks(tmp_path: Path, moment: str) -> None:
    with fleet(tmp_path, "masked") as made:
        made.start_all(birch=Fault(moment))
        pairs = made.check(*others("birch"))
    assert lost(pairs).keys() <= {ROUND, ROUND + 1}
    for plan, verdict in pairs[ROUND + 2 :]:
        assert NAMES.index("birch") not in {*plan.assignment, *plan.unmaskers}
        assert not verdict.lost_shards


@slow
def test_a_killed_coordinator_costs_nothing(tmp_path: Path) -> None:
    with fleet(tmp_path, "masked") as made:
        made.start_all(coordinator=Fault("written"))
        made.wait_dead("coordinator")
        made.start("coordinator")
        pairs = made.check(*NAMES)
    assert not lost(pairs)
