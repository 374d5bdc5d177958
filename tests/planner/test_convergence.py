"""Theorem 3.1 and its SGD corollary."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eris.errors import ConfigError
from eris.paper.flaws import FLAWS, flaws_of
from eris.planner import SgdVariance, Theorem, beta_limit, potential, rates

positive = st.floats(1e-4, 1e4)
omegas = st.floats(0, 1e4)


@pytest.mark.parametrize(
    ("beta", "members", "omega", "first", "second"),
    [
        (0.1, 50, 19, 0.03726780, 0.11111111),
        (0.1, 50, 0, 1.88982237, 0.71428571),
        (1, 50, 19, 0.03928371, 0.01234568),
        (1e-3, 50, 170, 0.00100767, 0.59382423),
        (1, 10, 99, 0.00157917, 0.00249377),
    ],
)
def test_reference_values_of_the_steps(beta, members, omega, first, second):
    theorem = Theorem(smoothness=1, beta=beta, members=members, omega=omega)
    assert theorem.first_step == pytest.approx(first, abs=6e-9)
    assert theorem.interval == (0, pytest.approx(second, abs=6e-9))
    assert theorem.largest_step == min(theorem.first_step, theorem.interval[1])


def test_the_second_bound_is_an_interval():
    theorem = Theorem(1, 0.1, 50, 19, gamma1=0.5, gamma3=0.01, gamma4=0.2, theta=0.5)
    assert theorem.alpha == pytest.approx(0.0075)
    assert theorem.first_step == pytest.approx(0.03726159, abs=6e-9)
    assert theorem.interval == (pytest.approx(0.00015020, abs=6e-9), pytest.approx(0.11092388, abs=6e-9))


def test_there_may_be_no_step():
    empty = Theorem(1, 0.1, 50, 19, gamma1=50, gamma3=5, theta=0.1)
    assert 8 * empty.c * empty.alpha * empty.gamma3 > 1
    assert empty.interval is None
    assert empty.largest_step is None
    assert not empty.allows(1e-9)
    apart = Theorem(1, 1e-6, 1, 1e3, gamma1=3e4, gamma3=3.0, theta=0.01)
    assert apart.interval is not None
    assert apart.first_step < apart.interval[0]
    assert apart.largest_step is None


@given(positive, st.floats(1e-3, 1), st.integers(1, 500), omegas, positive, positive, positive, st.floats(0.01, 1))
def test_the_largest_step_satisfies_both_inequalities(smoothness, beta, members, omega, g1, g3, g4, theta):
    theorem = Theorem(smoothness, beta, members, omega, gamma1=g1 / 100, gamma3=g3 / 1e6, gamma4=g4 / 100, theta=theta)
    step = theorem.largest_step
    if step is None:
        return
    assert step <= theorem.first_step
    constant = 2 * theorem.alpha * theorem.gamma3 * smoothness
    assert theorem.c * smoothness * step**2 - step + constant <= 1e-9 * step
    assert theorem.allows(step)
    assert not theorem.allows(step * 1.001)


@given(st.floats(1e-3, 10), st.integers(1, 200), st.floats(0, 1e3))
def test_compression_shortens_the_step_and_members_lengthen_it(beta, members, omega):
    base = Theorem(1, beta, members, omega)
    assert Theorem(1, beta, members, omega + 1).first_step < base.first_step
    assert Theorem(1, beta, members + 1, omega).first_step > base.first_step
    shared = Theorem(1, beta, members, omega, shared_masks=True)
    assert shared.first_step == pytest.approx(Theorem(1, beta, 1, omega).first_step)


@given(st.integers(1, 10_000), omegas)
def test_below_the_limit_of_beta_compression_decides(members, omega):
    limit = beta_limit(members, omega)
    below, above = (Theorem(1, limit * factor, members, omega) for factor in (0.999, 1.001))
    assert below.first_step <= below.interval[1] * (1 + 1e-9)
    assert above.first_step >= above.interval[1] * (1 - 1e-9)
    assert limit * members * (1 + 4 * limit * (1 + omega)) == pytest.approx((1 + omega) ** 2, rel=1e-6)


def test_reference_values_of_the_corollary():
    assert beta_limit(50, 19) == pytest.approx(0.31003952, abs=6e-9)
    variance = SgdVariance(samples=64, batch=16, gradient_norm=1)
    theorem = Theorem(1, 0.1, 50, 19, gamma2=variance.paper)
    step = theorem.first_step
    closed = 3 * math.sqrt(0.1) * (64 - 16) / (64 * 16) * math.sqrt(1 + 4 * 0.1 * 20) / math.sqrt(50)
    assert theorem.residual(step) == pytest.approx(closed)
    assert theorem.residual(step) == pytest.approx(0.01886682, abs=6e-9)
    assert theorem.rounds_for(0.05, step, 5) == pytest.approx(8618.72, abs=0.005)


@given(st.floats(1e-4, 1), st.floats(0.1, 100), st.floats(0, 1), st.floats(1e-4, 10))
def test_rounds_invert_the_bound(step, start, gamma2, room):
    theorem = Theorem(1, 0.1, 50, 19, gamma2=gamma2)
    target = theorem.residual(step) + room
    rounds = theorem.rounds_for(target, step, start)
    assert theorem.residual(step) + 2 * start / (step * rounds) == pytest.approx(target)
    assert theorem.utility(step, start, math.ceil(rounds)) <= target * (1 + 1e-9)
    assert theorem.rounds_for(theorem.residual(step), step, start) == math.inf


def test_the_bound_falls_to_its_residual():
    theorem = Theorem(1, 0.1, 50, 19, gamma2=0.3)
    values = [theorem.utility(0.01, 5, rounds) for rounds in (1, 10, 10**12)]
    assert values == sorted(values, reverse=True)
    assert values[-1] == pytest.approx(theorem.residual(0.01))


def test_the_potential():
    theorem = Theorem(2, 0.1, 50, 19, gamma1=0.5, theta=0.5)
    start = potential(theorem, gap=3, estimator_error=4, reference_error=5)
    assert start == pytest.approx(3 + theorem.alpha * 2 * 4 + 0.1 / 2 * 5)


def batch_variance(gradients, batch):
    """Return the exact variance of a batch mean without replacement, over all batches."""
    mean = sum(gradients) / len(gradients)
    means = [sum(chosen) / batch for chosen in itertools.combinations(gradients, batch)]
    return sum((value - mean) ** 2 for value in means) / len(means)


def test_two_samples_refute_the_printed_variance():
    two = SgdVariance(samples=2, batch=1, gradient_norm=3)
    assert batch_variance([3, -3], 1) == 9 == two.without_replacement
    assert two.paper == 4.5


@given(st.integers(2, 8), st.data())
def test_the_corrected_variance_is_a_bound_and_is_attained(samples, data):
    batch = data.draw(st.integers(1, samples))
    gradients = data.draw(st.lists(st.floats(-1, 1), min_size=samples, max_size=samples))
    bound = SgdVariance(samples, batch, 1.0)
    assert batch_variance(gradients, batch) <= bound.without_replacement + 1e-12
    if samples % 2 == 0:
        worst = [1.0, -1.0] * (samples // 2)
        assert batch_variance(worst, batch) == pytest.approx(bound.without_replacement)
    assert bound.paper <= bound.without_replacement <= bound.with_replacement
    assert SgdVariance(1, 1, 1.0).without_replacement == 0


def test_rates_of_the_table():
    found = {
        rate.algorithm: rate.value
        for rate in rates(n=10_000, members=25, samples=100, omega=3, epsilon=2, delta=math.exp(-4), nu=5)
    }
    noise = 200 / (100 * 2)
    assert found["Distributed DP-SRM"] == pytest.approx(noise / 25)
    assert found["SDM-DSGD"] == pytest.approx(noise / 5)
    assert found["CDP-SGD"] == pytest.approx(2 * noise / 5)
    assert found["SoteriaFL-SGD"] == pytest.approx(2 * noise / 5 * (1 + math.sqrt(8 / 5)))
    assert found["ERIS-SGD (+DSC)"] == pytest.approx(2 / 5 / 100)
    assert found["Q-DPSGD-1"] == pytest.approx((1 + 0.01) ** (2 / 3) * 40_000 ** (1 / 3) / 200 ** (2 / 3))
    unknown = rates(n=1, members=1, samples=1, omega=0, epsilon=1, delta=0.5)
    assert unknown[2].value is None


def test_impossible_constants_are_refused():
    for changes in ({"beta": 0}, {"smoothness": -1}, {"omega": -1}, {"gamma2": math.nan}, {"theta": 2}, {"members": 0}):
        with pytest.raises(ConfigError):
            Theorem(**({"smoothness": 1, "beta": 0.1, "members": 5, "omega": 1} | changes))
    with pytest.raises(ConfigError, match="batch is 5 of 4"):
        SgdVariance(4, 5, 1)
    with pytest.raises(ConfigError, match="gradient norm"):
        SgdVariance(4, 2, -1)
    with pytest.raises(ConfigError, match="rounds is 0"):
        Theorem(1, 1, 1, 1).utility(1, 1, 0)
    with pytest.raises(ConfigError, match="out of range"):
        rates(n=1, members=1, samples=1, omega=0, epsilon=0, delta=0.5)


def test_every_flaw_belongs_to_a_number_that_is_shown():
    shown = {
        "first_step",
        "second_step",
        "beta",
        "gamma2",
        "residual",
        "utility",
        "rounds",
        "rate",
        "eris_rate",
        "leakage",
        "capacity",
    }
    assert {name for flaw in FLAWS for name in flaw.about} == shown
    assert all(flaws_of(name) for name in shown)
    assert flaws_of("γ") == []
