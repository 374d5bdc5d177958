"""What a member has let go over all its runs: never counted too low, and never forgotten without a word."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eris.errors import ConfigError, FloorError
from eris.events import RoundStarted
from eris.peer.budget import MemberBudget, RunBudget, RunSpent, TotalSpent, budget_folder
from eris.privacy import Accountant
from eris.privacy.ring_noise import RingNoise
from tests.peer.town import settings

RUN = RunSpent("grove", rounds=20, sent=10, largest_share=0.25, multiplier=4.0)


def test_a_run_that_was_killed_counts_with_all_its_rounds(tmp_path: Path) -> None:
    budget = MemberBudget(tmp_path, "amber")
    budget.write("a", replace(RUN, closed=False))
    assert budget.total().rounds == 20
    budget.write("a", RUN)
    assert budget.total().rounds == 10


def test_a_round_that_was_played_again_counts_again() -> None:
    assert replace(RUN, sent=25, closed=False).counts == 25


@pytest.mark.parametrize("limited", [False, True])
def test_rounds_that_are_played_again_are_left_before_they_exceed_the_limit(tmp_path: Path, limited: bool) -> None:
    """Beforehand five rounds were counted; a coordinator that has one played again and again would get more."""
    noise = RingNoise(4.0, 1.0, shares=True)
    config = settings("members=9", "rounds=5", "method=eris+ldp", "privacy.masking=pairs", "privacy.noise=shares")
    federation = SimpleNamespace(config=config, name="grove", digest="ab" * 32)
    node: Any = SimpleNamespace(
        number=2, federation=federation, composition=SimpleNamespace(noise=noise), reproducible=False
    )
    most = noise.spent(6, config.privacy.delta).value + 0.01 if limited else 0.0
    budget = RunBudget(MemberBudget(tmp_path, "amber"), node, most=most)
    begun = RoundStarted(3, (0, 1, 2), (0,), np.zeros(1, np.float32))
    for _ in range(6):
        budget(begun)
    if not limited:
        budget(begun)
        return
    with pytest.raises(FloorError, match="the limit is"):
        budget(begun)


@given(st.lists(st.tuples(st.floats(0.5, 20.0), st.integers(1, 50)), min_size=1, max_size=6))
def test_runs_compose_as_rounds_do(runs: list[tuple[float, int]]) -> None:
    total = TotalSpent(tuple(replace(RUN, multiplier=noise, rounds=sent, sent=sent) for noise, sent in runs))
    accountant = Accountant("member", "replacement")
    for noise, sent in runs:
        accountant.spend(noise, rounds=sent)
    (spent,) = total.epsilons
    assert spent.value == pytest.approx(accountant.epsilon(1e-5).value)
    alone = [TotalSpent((run,)).epsilons[0].value for run in total.runs]
    assert max(alone) - 1e-9 <= spent.value <= math.fsum(alone) + 1e-9


def test_units_are_kept_apart_and_a_run_without_noise_has_no_bound() -> None:
    sample = replace(RUN, unit="sample", adjacency="zero-out", steps=5)
    total = TotalSpent((RUN, sample, replace(RUN, multiplier=0.0)))
    assert [(each.unit, each.adjacency, each.rounds) for each in total.epsilons] == [
        ("member", "replacement", 10),
        ("sample", "zero-out", 10),
    ]
    assert total.without_noise == 1
    assert "1 run without noise that counts: no bound" in str(total)


def test_shares_of_noise_are_worth_less_to_whoever_sees_one(tmp_path: Path) -> None:
    budget = MemberBudget(tmp_path, "amber")
    budget.write("own", RUN)
    assert budget.total().epsilons_alone == ()
    budget.write("shares", replace(RUN, alone=1.5))
    total = budget.total()
    (promised,), (alone,) = total.epsilons, total.epsilons_alone
    accountant = Accountant("member", "replacement")
    accountant.spend(4.0, rounds=10)
    accountant.spend(1.5, rounds=10)
    assert alone.value == pytest.approx(accountant.epsilon(1e-5).value)
    assert alone.value > promised.value
    assert f"to an aggregator with its unmaskers ε = {alone.value:.3g}" in str(total)
    assert total.to_dict()["epsilon_alone"][0]["value"] == alone.value


def test_exposure_adds_up() -> None:
    total = TotalSpent((RUN, replace(RUN, largest_share=0.5, sent=4), replace(RUN, largest_share=1.0, sent=0)))
    assert total.largest_share == 0.5  # nothing was sent in the third
    assert total.updates_shown == pytest.approx(10 * 0.25 + 4 * 0.5)


def test_members_do_not_share_a_budget(tmp_path: Path) -> None:
    MemberBudget(tmp_path, "amber").write("a", RUN)
    assert MemberBudget(tmp_path, "birch").total().runs == ()
    assert (tmp_path / "amber" / "a.json").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", json.dumps({"federation": "x", "rounds": 1, "sent": -1, "largest_share": 0})]
)
def test_a_damaged_file_is_no_reason_to_count_nothing(tmp_path: Path, text: str) -> None:
    budget = MemberBudget(tmp_path, "amber")
    budget.write("a", RUN)
    (budget.path / "a.json").write_text(text)
    with pytest.raises(ConfigError, match="restore the file"):
        budget.total()


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="--budget none keeps none"):
        MemberBudget(tmp_path / "file", "amber").write("a", RUN)


def test_the_folder_is_the_users_own_unless_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ERIS_BUDGET", "/somewhere")
    assert budget_folder() == Path("/somewhere")
    monkeypatch.delenv("ERIS_BUDGET")
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert budget_folder() == Path("/state/eris/budget")
