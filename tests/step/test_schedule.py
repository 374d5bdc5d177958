"""Schedules: the factors they promise, from operations that are the same on every machine."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eris.errors import ConfigError
from eris.step import FedAdam, at_round, schedule_by_name
from eris.step.schedule import SCHEDULES, cosine

WORKING: dict[str, dict[str, float]] = {
    "constant": {}, "inverse_sqrt": {"warmup": 5}, "cosine": {"rounds": 40}, "stepwise": {"every": 7}
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(SCHEDULES))
def test_every_schedule_begins_at_one_and_never_rises(name: str) -> None:
    factors = [schedule_by_name(name, **WORKING[name])(t) for t in range(60)]
    assert factors[0] == 1.0
    assert all(0 < later <= earlier for earlier, later in itertools.pairwise(factors))


@given(rounds=st.integers(1, 500), t=st.integers(0, 600))
def test_cosine_is_a_cosine(rounds: int, t: int) -> None:
    exact = 0.1 + 0.9 * (1 + math.cos(math.pi * min(t / rounds, 1))) / 2
    assert cosine(rounds=rounds, floor=0.1)(t) == pytest.approx(exact, abs=1e-14)


def test_inverse_sqrt_and_steps() -> None:
    assert schedule_by_name("inverse_sqrt", warmup=4)(15) == 0.5
    assert schedule_by_name("stepwise", every=10, factor=0.1)(25) == 0.1 * 0.1


def test_the_rate_of_a_round_replaces_nothing_else() -> None:
    optimizer = FedAdam(lr=0.2, beta2=0.5)
    assert at_round(optimizer, schedule_by_name("stepwise", every=1), 2) == FedAdam(lr=0.05, beta2=0.5)


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("linear", {}),
        ("cosine", {}),
        ("cosine", {"rounds": 0}),
        ("cosine", {"rounds": 10, "floor": 0.0}),
        ("inverse_sqrt", {"warmup": 0}),
        ("stepwise", {"every": 0}),
        ("stepwise", {"every": 1, "factor": 1.5}),
        ("constant", {"rounds": 3}),
        ("stepwise", {"every": 2.5}),
    ],
)
def test_wrong_ones_are_refused(name: str, params: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        schedule_by_name(name, **params)
