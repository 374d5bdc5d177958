"""Every process is killed at moments nobody chose, started again, and killed again: the run ends undisturbed.

The moments come from a seed that is printed; ``ERIS_FAULT_SEED=… pytest …`` strikes at the same ones again.
"""

from __future__ import annotations

import os
import random
import secrets
import time
from pathlib import Path

import pytest

from tests.faults.fleet import NAMES, Fleet, fleet, lost
from tests.faults.process import Fault

ROUNDS = (range(2), range(2, 4), range(4, 6))  # of the three strikes: a round that is over does not come again
MEMBER = {"plan": 1, "chunk": 2, "receipt": 2, "reported": 1, "stepped": 1}  # how often each comes in a round, at least
AGGREGATOR = MEMBER | {"cut": 1, "manifest": 1, "served": 4}
COORDINATOR = {"planned": 1, "noted": 7, "written": 1}
MOMENTS = {"coordinator": COORDINATOR} | {name: AGGREGATOR if name in NAMES[:3] else MEMBER for name in NAMES}
LATER = 0.1  # seconds, at most, between the moment that was drawn and the death of the others

pytestmark = pytest.mark.timeout(180)


@pytest.mark.parametrize("method", ["fedadam-dsc", pytest.param("dsc", marks=pytest.mark.slow)])
def test_whatever_moment_all_die_at_the_run_ends_as_if_nothing_had_happened(tmp_path: Path, method: str) -> None:
    seed = int(os.environ.get("ERIS_FAULT_SEED", secrets.randbelow(2**32)))
    print(f"ERIS_FAULT_SEED={seed}")  # noqa: T201 - what a failure is repeated with
    chance = random.Random(seed)
    with fleet(tmp_path, method, quorum=len(NAMES)) as made:
        for rounds in ROUNDS:
            strike(made, chance, rounds)
        ends = {name: len(made.events(name, "end")) for name in NAMES}  # some may have been through already
        made.start_all()
        for name in NAMES:
            made.wait_for(name, "end", count=ends[name] + 1)
        pairs = made.check(*NAMES)
        assert not lost(pairs)
        assert made.undisturbed() == made.events("amber", "end")[0]["model_digest"]


@pytest.mark.slow
def test_who_died_before_the_last_verdict_ends_with_the_model_of_the_others(tmp_path: Path) -> None:
    with fleet(tmp_path, "fedavg", quorum=len(NAMES)) as made:
        made.start_all(elder=Fault("reported", round=made.config.rounds - 1))
        for name in NAMES[:-1]:
            made.wait_for(name, "end")
        made.wait_dead("elder")
        made.kill("coordinator", *NAMES)
        made.start_all()
        for name in NAMES[:-1]:
            made.wait_for(name, "end", count=2)
        made.check(*NAMES)


def strike(made: Fleet, chance: random.Random, rounds: range) -> None:
    """Start everybody; kill one at a moment of its own, and the others, in any order, at whatever they do then."""
    name = chance.choice(list(MOMENTS))
    moment = chance.choice(list(MOMENTS[name]))
    fault = Fault(moment, round=chance.choice(rounds), nth=chance.randint(1, MOMENTS[name][moment]))
    rest = chance.sample(others := [other for other in MOMENTS if other != name], len(others))
    pause = chance.uniform(0.0, LATER)
    print(f"{name}: {fault}, the others after {pause:.3f} s: {', '.join(rest)}")  # noqa: T201
    made.start_all(**{name: fault})
    made.wait_dead(name)
    time.sleep(pause)  # the outcome may not depend on it
    made.kill(*rest)
