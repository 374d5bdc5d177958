"""Peers are killed or have full disks near the end of a run: all still reach the last verdict and finish.

The moments come from a seed that is printed; ``ERIS_FAULT_SEED=… pytest …`` strikes at the same ones again.
"""

from __future__ import annotations

import os
import random
import secrets
import time
from pathlib import Path

import pytest

from tests.faults.fleet import NAMES, Fleet, fleet
from tests.faults.process import Fault

ROUNDS = 60
LINGER = 120.0  # seconds: far longer than a start takes
EVERYBODY = ("coordinator", *NAMES)
pytestmark = pytest.mark.timeout(900)


def all_finish(made: Fleet) -> None:
    """Start again whoever died, until all have ended; all have one model, and it is that of a replay."""
    made.supervise(seconds=240.0)
    made.check(*NAMES)


@pytest.mark.parametrize("moment", ["plan", "reported", pytest.param("stepped", marks=pytest.mark.slow)])
def test_who_is_killed_in_the_last_round_comes_back_to_its_end(tmp_path: Path, moment: str) -> None:
    """The others have the model, and stay until it has it too."""
    with fleet(tmp_path, "fedavg") as made:
        made.linger = LINGER
        made.start_all(elder=Fault(moment, round=made.config.rounds - 1))
        made.wait_dead("elder")
        made.wait_for("coordinator", "written", count=made.config.rounds)
        time.sleep(3.0)
        assert all(made.alive(name) for name in EVERYBODY if name != "elder")
        made.start("elder")
        all_finish(made)
        assert len(made.events("amber", "start")) == 1


def test_a_disk_that_is_full_in_the_last_round_holds_nobody_up_and_room_is_enough(tmp_path: Path) -> None:
    with fleet(tmp_path, "fedavg") as made:
        made.linger = LINGER
        made.start_all(elder=Fault("plan", "full", round=made.config.rounds - 1))
        made.wait_dead("elder")
        assert not made.events("elder", "end")
        made.start("elder")
        all_finish(made)
        assert len(made.events("amber", "start")) == 1


@pytest.mark.parametrize("kills", [4, pytest.param(50, marks=pytest.mark.slow)])
def test_random_kills_in_the_last_third_of_a_run_keep_nobody_from_finishing(tmp_path: Path, kills: int) -> None:
    seed = int(os.environ.get("ERIS_FAULT_SEED", secrets.randbelow(2**32)))
    print(f"ERIS_FAULT_SEED={seed}")  # noqa: T201 - what a failure is repeated with
    chance, struck, runs = random.Random(seed), 0, 0
    changes = [f"rounds={ROUNDS}", "server.min_contributors=5"]  # nothing goes on without who was struck
    while struck < kills:
        folder, runs = tmp_path / f"run-{runs}", runs + 1
        folder.mkdir()
        with fleet(folder, "fedavg", changes=changes, connect=5.0) as made:
            made.linger = LINGER
            made.start_all()
            made.wait_for("coordinator", "written", count=2 * ROUNDS // 3)
            while struck < kills and not made.over():
                names = chance.sample(EVERYBODY, chance.choice((1, 2)))
                print(f"run {runs}, {2 * ROUNDS // 3} rounds and more: {', '.join(names)}")  # noqa: T201
                made.kill(*names)
                made.start(*names)
                struck += len(names)
                time.sleep(chance.uniform(0.0, 2.0))
            all_finish(made)
