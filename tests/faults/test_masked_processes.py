"""Masked shards among real processes: whoever dies, the others end with one model, that of a plain fixed-point replay.

The shard of a dead unmasker is lost for the round by name; a member that comes back has another key and sits the round
out. Nobody waits for the round's deadline.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from eris.errors import Reason
from eris.simulate.run import run
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
    ("moment", "first"),
    [("plan", ROUND), *(pytest.param(*each, marks=slow) for each in (("chunk", ROUND), ("stepped", ROUND + 1)))],
)
def test_a_member_that_comes_back_has_another_key_and_sends_nothing_until_a_plan_shows_it(
    tmp_path: Path, moment: str, first: int
) -> None:
    """It misses the round in flight, or, killed between two, the next, whose plan still shows the key that is gone."""
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
    missed = sorted(missing(pairs, me))
    assert missed[:1] == [first]
    assert missed == list(range(first, missed[-1] + 1))
    assert missed[-1] < made.config.rounds - 1  # once a plan shows the new key, it takes part


@slow
def test_a_member_killed_when_all_have_its_part_may_miss_nothing(tmp_path: Path) -> None:
    """The round waits for its report, and the next plan shows the key of its new life."""
    with fleet(tmp_path, "masked", changes=["rounds=24"]) as made:
        made.start_all(elder=Fault("receipt"))
        made.wait_dead("elder")
        made.start("elder")
        pairs = made.check(*NAMES)
    assert len({plan.mask_keys[NAMES.index("elder")] for plan, _ in pairs}) == 2
    assert not lost(pairs)
    assert all(not missing(pairs, NAMES.index(name)) for name in others("elder"))


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
@pytest.mark.parametrize(("moment", "nth"), [("written", 1), ("planned", 1), ("noted", 1), ("noted", 4)])
def test_a_killed_coordinator_costs_nothing(tmp_path: Path, moment: str, nth: int) -> None:
    with fleet(tmp_path, "masked") as made:
        made.start_all(coordinator=Fault(moment, nth=nth))
        made.wait_dead("coordinator")
        made.start("coordinator")
        pairs = made.check(*NAMES)
    assert not lost(pairs)


@slow
@pytest.mark.parametrize("moment", ["shown", "unmasked", "cut"])
def test_with_two_aggregators_a_shard_a_killed_peer_costs_only_shards_that_it_had_a_duty_for(
    tmp_path: Path, moment: str
) -> None:
    """cedar aggregates two shards, each with another peer, and may unmask a third."""
    with fleet(tmp_path, "masked", changes=["shards.replicas=2"]) as made:
        made.start_all(cedar=Fault(moment))
        pairs = made.check(*others("cedar"))
    gone = NAMES.index("cedar")
    known, moved = set[int](), set[int]()  # shards whose sum with cedar's part is known, and what was committed since
    for plan, verdict in pairs:
        mine = {k for k in range(plan.shards) if gone in (*plan.aggregators_of(k), *plan.unmaskers_of(k))}
        assert set(verdict.lost_shards) <= mine | known  # known ones are not summed without cedar, which would show it
        sums = [*verdict.unmasked, *(entry for entry in verdict.shards if entry.committed)]
        known |= {each.shard for each in sums if gone in each.contributors}
        moved |= set(range(plan.shards)) - set(verdict.lost_shards)
        if not verdict.lost_shards or 2 * len(moved) >= plan.shards:
            known, moved = set(), set()
    assert not {ROUND - 2, ROUND - 1} & lost(pairs).keys()
    assert all(gone not in {*plan.aggregators, *plan.unmaskers} for plan, _ in pairs[ROUND + 2 :])


def test_after_the_death_of_all_the_run_goes_on_under_new_keys_and_ends_as_if_nothing_had_happened(
    tmp_path: Path,
) -> None:
    with fleet(tmp_path, "masked", quorum=len(NAMES)) as made:
        made.start_all(coordinator=Fault("written", round=4))
        made.wait_dead("coordinator")
        made.kill(*NAMES)
        made.start_all()
        pairs = made.check(*NAMES)
        assert not lost(pairs)
        assert made.undisturbed() == made.events("amber", "end")[0]["model_digest"]
    keys = [plan.mask_keys for plan, _ in pairs]
    assert not set(keys[0]) & set(keys[-1])


def test_the_bits_are_those_of_plain_fixed_point_whatever_was_lost(tmp_path: Path) -> None:
    """A replay of what the fleet lived through, without masks, comes to the model of every peer."""
    with fleet(tmp_path, "masked") as made:
        made.start_all(dogwood=Fault("shown"))
        pairs = made.check(*others("dogwood"))
        assert lost(pairs)
        plain = made.config.model_copy(
            update={
                "method": ("eris+dsc",),
                "server": made.config.server.model_copy(update={"encoding": "fixed"}),
                "privacy": made.config.privacy.model_copy(update={"masking": "none"}),
            }
        )
        again = run(plain, tmp_path / "plain", replay=tmp_path / "peers" / "amber" / "verdicts.jsonl")
        assert again.summaries[0]["model_digest"] == made.events("amber", "end")[-1]["model_digest"]
