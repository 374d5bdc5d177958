"""Real processes killed, frozen or cut off at a named moment: the run goes on, and all that live end alike.

A killed member costs its own contribution, a killed aggregator its shard for one round, a killed coordinator nothing.
Nobody ever waits for the round's deadline, which is longer than any of these tests may take.
"""

from __future__ import annotations

import time
from itertools import product
from pathlib import Path

import pytest

from eris.wire.version import VERSION
from tests.faults.fleet import METHODS, NAMES, fleet, free_port, lost, missing
from tests.faults.process import Fault

MEMBER, AGGREGATOR = "elder", "birch"  # birch owns shard 1
ROUND = 2
pytestmark = pytest.mark.timeout(180)

slow = pytest.mark.slow
MEMBER_MOMENTS = ["plan", "chunk", "receipt", "reported", "stepped"]
AGGREGATOR_MOMENTS = ["plan", "receipt", "cut", "manifest", "served", "stepped"]


def cases(moments: list[str], quick: set[tuple[str, str]]) -> list[object]:
    pairs = [(method, moment) for method in METHODS for moment in moments]
    return [pytest.param(*pair, marks=() if pair in quick else slow) for pair in pairs]


def others(name: str) -> list[str]:
    return [other for other in NAMES if other != name]


@pytest.mark.parametrize(("method", "moment"), cases(MEMBER_MOMENTS, {("fedadam-dsc", "chunk")}))
def test_a_killed_member_costs_its_own_contribution(tmp_path: Path, method: str, moment: str) -> None:
    with fleet(tmp_path, method) as made:
        made.start_all(elder=Fault(moment, nth=3 if moment == "chunk" else 1))
        pairs = made.check(*others(MEMBER))
    assert not lost(pairs)
    assert all(not missing(pairs, NAMES.index(name)) for name in others(MEMBER))
    assert set(missing(pairs, NAMES.index(MEMBER))) <= set(range(ROUND, made.config.rounds))


@pytest.mark.parametrize(("method", "moment"), cases(AGGREGATOR_MOMENTS, {("fedadam-dsc", "cut")}))
def test_a_killed_aggregator_costs_at_most_its_shard_for_one_round(tmp_path: Path, method: str, moment: str) -> None:
    with fleet(tmp_path, method) as made:
        made.start_all(birch=Fault(moment, nth=2 if moment == "served" else 1))
        pairs = made.check(*others(AGGREGATOR))
    assert lost(pairs) in ({}, {ROUND: (1,)}, {ROUND + 1: (1,)})
    for plan, verdict in pairs[ROUND + 2 :]:
        assert NAMES.index(AGGREGATOR) not in plan.assignment
        assert not verdict.lost_shards


@slow
@pytest.mark.parametrize("moment", ["receipt", "cut", "manifest"])
def test_with_replicas_a_killed_aggregator_costs_its_two_shards_and_those_that_only_one_got_its_part_of(
    tmp_path: Path, moment: str
) -> None:
    with fleet(tmp_path, "replicas") as made:
        made.start_all(birch=Fault(moment))
        pairs = made.check(*others(AGGREGATOR))
    assert lost(pairs).keys() <= {ROUND, ROUND + 1}
    for _, verdict in pairs:  # it is a member, too: its own part may have reached one aggregator and not the other
        assert all(entry.lost == "replicas-differ" for entry in verdict.shards[2:] if not entry.committed)
    for plan, verdict in pairs[ROUND + 2 :]:
        assert NAMES.index(AGGREGATOR) not in plan.aggregators
        assert not verdict.lost_shards


@pytest.mark.parametrize(
    ("method", "moment", "nth"),
    [
        ("fedavg", "written", 1),
        *(
            pytest.param(method, moment, nth, marks=slow)
            for method, moment, nth in product(METHODS, ["planned", "noted", "written"], [1, 4])
            if nth == 1 or moment == "noted"  # the fourth word it hears in a round: after manifests, some reports
        ),
    ],
)
def test_a_killed_coordinator_costs_nothing(tmp_path: Path, method: str, moment: str, nth: int) -> None:
    with fleet(tmp_path, method) as made:
        made.start_all(coordinator=Fault(moment, nth=nth))
        made.wait_dead("coordinator")
        made.start("coordinator")
        pairs = made.check(*NAMES)
    assert not lost(pairs)
    assert all(not missing(pairs, peer) for peer in range(len(NAMES)))


@slow
@pytest.mark.parametrize("method", METHODS)
def test_a_coordinator_killed_when_half_of_the_peers_have_stepped_costs_nothing(tmp_path: Path, method: str) -> None:
    with fleet(tmp_path, method) as made:
        made.start_all(**{name: Fault("stepped", "half") for name in NAMES})
        made.wait_dead("coordinator")
        made.start("coordinator")
        pairs = made.check(*NAMES)
    assert not lost(pairs)
    assert all(not missing(pairs, peer) for peer in range(len(NAMES)))


@slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("moment", "nth"), [("written", 1), ("planned", 1), ("noted", 3)])
def test_a_coordinator_that_is_frozen_for_longer_than_a_round_costs_at_most_what_it_had_told_to_some_only(
    tmp_path: Path, method: str, moment: str, nth: int
) -> None:
    with fleet(tmp_path, method, round=10.0) as made:
        made.start_all(coordinator=Fault(moment, "stop", nth=nth))
        made.wait_for("coordinator", "fault")
        time.sleep(14.0)
        made.thaw("coordinator")
        pairs = made.check(*NAMES)
        assert "this process stood still" in made.log("coordinator")
    # Frozen in the middle of announcing a plan: who had heard it cuts without those who hear it when it is over.
    touched = {ROUND} if moment == "planned" else set()
    assert all(missing(pairs, peer).keys() <= touched for peer in range(len(NAMES)))
    assert {entry.lost for _, verdict in pairs for entry in verdict.shards if not entry.committed} <= {"too-few"}


@slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("name", "moment"),
    [*product([MEMBER, AGGREGATOR], ["chunk", "receipt"]), (AGGREGATOR, "cut"), (AGGREGATOR, "served")],
)
def test_a_cut_cable_is_dialled_anew_and_nothing_is_lost(tmp_path: Path, method: str, name: str, moment: str) -> None:
    with fleet(tmp_path, method) as made:
        made.start_all(**{name: Fault(moment, "cut")})
        pairs = made.check(*NAMES)
        assert made.events(name, "fault")
    assert not lost(pairs)
    assert all(not missing(pairs, peer) for peer in range(len(NAMES)))


@slow
@pytest.mark.parametrize("name", [MEMBER, AGGREGATOR])
def test_dropped_traffic_costs_that_round_and_no_more(tmp_path: Path, name: str) -> None:
    """Links at rest lead nowhere from one moment on, as behind a firewall that forgot them: only deadlines can tell."""
    with fleet(tmp_path, "fedadam-dsc", round=8.0) as made:
        made.start_all(**{name: Fault("plan", "drop")})
        dropped = made.wait_for(name, "fault")["time"]
        pairs = made.check(*NAMES)
        (written,) = [line["time"] for line in made.events("coordinator", "written") if line["round"] == ROUND]
        assert written - dropped < 8.0 + 2.0
    assert set(lost(pairs)) <= {ROUND}
    assert all(set(missing(pairs, peer)) <= {ROUND} for peer in range(len(NAMES)))
    assert missing(pairs, NAMES.index(name)) or lost(pairs)  # it was felt


@slow
@pytest.mark.parametrize(
    ("method", "name", "moment"),
    [
        *((method, name, "plan") for method in METHODS for name in (MEMBER, AGGREGATOR)),
        ("fedadam-dsc", MEMBER, "chunk"),
        ("fedadam-dsc", AGGREGATOR, "served"),
    ],
)
def test_a_frozen_peer_is_missed_and_comes_back(tmp_path: Path, method: str, name: str, moment: str) -> None:
    with fleet(tmp_path, method) as made:
        began = time.monotonic()
        made.start_all(**{name: Fault(moment, "stop")})
        made.wait_for(name, "fault")
        made.wait_for("amber", "stepped", count=ROUND + 2)  # the others went on without it
        assert time.monotonic() - began < 45
        made.thaw(name)
        made.check(*others(name))


@pytest.mark.parametrize("method", ["fedadam-dsc", pytest.param("fedavg", marks=slow)])
@pytest.mark.parametrize("name", [MEMBER, pytest.param(AGGREGATOR, marks=slow)])
def test_a_killed_peer_comes_back_with_the_same_name(tmp_path: Path, method: str, name: str) -> None:
    with fleet(tmp_path, method) as made:
        made.start_all(**{name: Fault("receipt"), "amber": Fault("return", name, round=ROUND + 1)})
        made.wait_dead(name)
        made.start(name)
        made.check(*NAMES)


def test_a_peer_of_the_next_version_is_told_so_by_name_and_the_run_goes_on_with_its_older_self(tmp_path: Path) -> None:
    with fleet(tmp_path, "fedadam-dsc") as made:
        made.start_all(**{MEMBER: Fault("receipt"), "amber": Fault("return", MEMBER, round=ROUND + 1)})
        made.wait_dead(MEMBER)
        made.start(MEMBER, newer=True)
        made.wait_dead(MEMBER)
        said = f"a join request of wire version {VERSION + 1} met version {VERSION}"
        assert said in made.log("coordinator")
        assert said in made.log(MEMBER)
        assert f"update the side with version {VERSION}" in made.log(MEMBER)
        made.start(MEMBER)
        made.check(*NAMES)


@slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", [MEMBER, AGGREGATOR])
def test_a_peer_that_is_killed_twice_in_a_row_comes_back(tmp_path: Path, method: str, name: str) -> None:
    with fleet(tmp_path, method) as made:
        made.start_all(**{name: Fault("chunk"), "amber": Fault("return", name, round=ROUND + 1)})
        made.wait_dead(name)
        made.start(name)
        while made.log("coordinator").count(f"{name} has joined") < 2:
            time.sleep(0.02)
        made.kill(name)
        made.start(name)
        began = time.monotonic()
        pairs = made.check(*others(name))
        assert time.monotonic() - began < 40  # nobody looked for it where it was, or waited for what it cannot send
        made.wait_for(name, "end")
    assert all(set(shards) <= {1} for shards in lost(pairs).values())


@slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", [MEMBER, AGGREGATOR])
@pytest.mark.parametrize("moment", ["plan", "chunk", "reported"])
def test_a_peer_that_leaves_in_the_middle_of_a_round_costs_nothing_else(
    tmp_path: Path, method: str, name: str, moment: str
) -> None:
    with fleet(tmp_path, method) as made:
        made.start_all(**{name: Fault(moment, "leave")})
        pairs = made.check(*others(name))
        assert made.wait_for(name, "end")["how"] == "left"
        assert NAMES.index(name) not in {entry.peer for plan, _ in pairs[ROUND + 2 :] for entry in plan.roster}
    assert not lost(pairs)
    assert all(not missing(pairs, NAMES.index(other)) for other in others(name))


@slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("moment", ["plan", "chunk", "reported"])
def test_a_run_that_is_stopped_in_the_middle_of_a_round_goes_on_as_if_it_had_not_been(
    tmp_path: Path, method: str, moment: str
) -> None:
    with fleet(tmp_path, method) as made:
        made.start_all(**{MEMBER: Fault(moment, "end")})
        ends = [made.wait_for(name, "end") for name in ("coordinator", *NAMES)]
        assert {end["how"] for end in ends} == {f"stopped by {MEMBER}"}
        assert len({end["model_digest"] for end in ends[1:]}) == 1
        for name in ("coordinator", *NAMES):
            made.wait_dead(name)
        made.start_all()
        for name in NAMES:
            assert made.wait_for(name, "end", count=2)["how"] == "finished"
        assert not lost(made.pairs("amber"))
        assert {made.events(name, "end")[1]["model_digest"] for name in NAMES} == {made.undisturbed()}


@slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("name", "moment"), [(MEMBER, "checkpoint"), (MEMBER, "half a checkpoint"), (AGGREGATOR, "half a checkpoint")]
)
def test_a_peer_that_dies_in_its_checkpoint_goes_on_from_the_one_before(
    tmp_path: Path, method: str, name: str, moment: str
) -> None:
    with fleet(tmp_path, method) as made:
        made.start_all(**{name: Fault(moment, round=3), "amber": Fault("return", name, round=4)})
        made.wait_dead(name)
        kept = {path.name: path.stat().st_size for path in (tmp_path / "peers" / name / "checkpoint").iterdir()}
        whole = kept.pop("round-000001.safetensors")
        (draft,) = kept  # it has not got its name
        assert draft.startswith(".round-000003")
        assert kept[draft] == pytest.approx(whole if moment == "checkpoint" else whole / 2, abs=64)
        made.start(name)
        pairs = made.check(*NAMES)
        assert not list((tmp_path / "peers" / name / "checkpoint").glob(".*"))
    assert set(lost(pairs)) <= {3}


@slow
@pytest.mark.parametrize("do", ["raise", "nan", "shape", "no samples", "memory"])
def test_a_members_own_mistake_is_shown_there_and_costs_only_its_contribution(tmp_path: Path, do: str) -> None:
    with fleet(tmp_path, "fedadam-dsc") as made:
        made.start_all(**{MEMBER: Fault("train", do)})
        pairs = made.check(*NAMES)
        assert "local training failed" in made.log(MEMBER)
        assert "local training failed" not in "".join(made.log(name) for name in others(MEMBER))
    assert not lost(pairs)
    assert missing(pairs, NAMES.index(MEMBER)) == {ROUND: (0, 1, 2)}


@slow
@pytest.mark.parametrize("do", ["float64", "strided"])
def test_what_can_be_converted_exactly_is(tmp_path: Path, do: str) -> None:
    with fleet(tmp_path, "fedadam-dsc") as made:
        made.start_all(**{MEMBER: Fault("train", do)})
        pairs = made.check(*NAMES)
        assert made.events(MEMBER, "fault")
        assert made.undisturbed() == made.events("amber", "end")[0]["model_digest"]
    assert not missing(pairs, NAMES.index(MEMBER))


@slow
def test_without_a_quorum_the_run_ends_and_says_so(tmp_path: Path) -> None:
    with fleet(tmp_path, "fedavg", round=20.0) as made:  # so long they have to come back
        made.start_all(**{name: Fault("plan") for name in ("cedar", "dogwood", "elder")})
        ends = [made.wait_for(name, "end") for name in ("amber", "birch", "coordinator")]
    assert all("2 of 5 members are present, but the quorum is 3" in end["how"] for end in ends)
    assert all("bring members back" in end["how"] for end in ends)


@slow
def test_nobody_stands_in_beyond_the_largest_share(tmp_path: Path) -> None:
    with fleet(tmp_path, "fedavg", max_share=0.4, aggregators=NAMES[:3]) as made:
        made.start_all(birch=Fault("plan"))
        pairs = made.check(*others("birch"))
        assert lost(pairs) == dict.fromkeys(range(ROUND, made.config.rounds), (1,))
        reason = pairs[-1][1].shards[1].lost
        assert reason == "its aggregator is away, and nobody else may see more than 40% of an update"
        assert reason in made.log("coordinator")


@slow
@pytest.mark.parametrize("method", METHODS)
def test_a_coordinator_that_comes_back_goes_on_without_who_does_not(tmp_path: Path, method: str) -> None:
    with fleet(tmp_path, method) as made:
        made.start_all(**{MEMBER: Fault("receipt", round=1), "coordinator": Fault("written", round=3)})
        made.wait_dead(MEMBER)
        made.wait_dead("coordinator")
        made.start("coordinator")
        pairs = made.check(*others(MEMBER))
    assert not lost(pairs)


@pytest.mark.parametrize(
    ("method", "rounds"),
    [
        ("dsc", 4),
        pytest.param("fedadam-dsc", 4, marks=slow),
        pytest.param("fedavg", 3, marks=slow),
        pytest.param("fedavg", 0, marks=slow),
    ],
)
def test_after_the_death_of_all_the_run_ends_as_if_nothing_had_happened(
    tmp_path: Path, method: str, rounds: int
) -> None:
    with fleet(tmp_path, method, quorum=len(NAMES)) as made:
        made.start_all(coordinator=Fault("written", round=rounds))
        made.wait_dead("coordinator")
        made.kill(*NAMES)
        made.start_all()
        pairs = made.check(*NAMES)
        assert not lost(pairs)
        assert "the run continues from round" in made.log("coordinator")
        assert made.undisturbed() == made.events("amber", "end")[0]["model_digest"]


@slow
@pytest.mark.parametrize("method", METHODS)
def test_the_death_of_all_peers_ends_the_run_by_name_and_who_restarts_them_all_goes_on(
    tmp_path: Path, method: str
) -> None:
    with fleet(tmp_path, method, quorum=len(NAMES), round=20.0) as made:
        made.start_all(**{name: Fault("plan", round=4) for name in NAMES})
        how = made.wait_for("coordinator", "end")["how"]
        assert "0 of 5 members are present, but the quorum is 5" in how
        made.start_all()
        pairs = made.check(*NAMES)
        assert not lost(pairs)
        assert made.undisturbed() == made.events("amber", "end")[0]["model_digest"]


@pytest.mark.parametrize(
    ("method", "round", "pause"),
    [
        ("fedadam-dsc", 4, 0.0),  # before they are missed
        *(
            pytest.param(method, round, pause, marks=slow)
            for method, round, pause in product(METHODS, [0, 3, 4, 5], [0.0, 4.0])
            if (method, round, pause) != ("fedadam-dsc", 4, 0.0)
        ),
    ],
)
def test_a_coordinator_that_outlives_all_peers_goes_back_with_them(
    tmp_path: Path, method: str, round: int, pause: float
) -> None:
    with fleet(tmp_path, method, quorum=len(NAMES)) as made:
        made.start_all(**{name: Fault("plan", round=round) for name in NAMES})
        for name in NAMES:
            made.wait_dead(name)
        time.sleep(pause)
        made.start(*NAMES)
        pairs = made.check(*NAMES)
        assert not lost(pairs)
        assert len(made.events("coordinator", "start")) == 1
        assert made.undisturbed() == made.events("amber", "end")[0]["model_digest"]


@slow
def test_peers_that_come_back_before_they_are_missed_find_their_way(tmp_path: Path) -> None:
    """All of them are started again at once, and whoever ends by name is started again, as by a supervisor."""
    with fleet(tmp_path, "fedavg", quorum=len(NAMES)) as made:
        made.start_all(**{name: Fault("plan", round=4) for name in NAMES})
        for name in NAMES:
            made.wait_dead(name)
        made.supervise()
        pairs = made.check(*NAMES)
        assert not lost(pairs)
        assert made.undisturbed() == made.events("amber", "end")[-1]["model_digest"]


@pytest.mark.parametrize("method", ["fedadam-dsc", pytest.param("fedavg", marks=slow)])
def test_who_kept_more_than_the_others_goes_back_with_them(tmp_path: Path, method: str) -> None:
    with fleet(tmp_path, method, quorum=len(NAMES)) as made:
        made.start_all(**{MEMBER: Fault("checkpoint", round=5), "coordinator": Fault("written", round=5)})
        made.wait_dead(MEMBER)
        made.wait_dead("coordinator")
        made.kill(*others(MEMBER))
        made.start_all()
        pairs = made.check(*NAMES)
        assert not lost(pairs)
        assert "the run continues from round 3" in made.log("coordinator")
        assert "this peer continues from round 3" in made.log("amber")
        assert made.undisturbed() == made.events("amber", "end")[0]["model_digest"]


def test_a_federation_on_ipv6_alone(tmp_path: Path) -> None:
    try:
        free_port("::1")
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    with fleet(tmp_path, "fedavg", "::1") as made:
        made.start_all()
        pairs = made.check(*NAMES)
        assert not lost(pairs)
        assert {plan.assignment for plan, _ in pairs} == {(0, 1, 2)}  # all three were dialled
        assert "127.0.0.1" not in "".join(made.log(name) for name in ("coordinator", *NAMES))
        assert made.undisturbed() == made.events("amber", "end")[0]["model_digest"]
