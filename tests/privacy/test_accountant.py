"""Reference values of methods.md E and J, and the accountants against each other."""

from __future__ import annotations

import builtins
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eris.errors import ConfigError, InputError, MissingExtra
from eris.privacy import Accountant, Epsilon, noise_multiplier
from eris.privacy.privacy_loss import ORDERS, exact_epsilon, rdp_epsilon


def spent(multiplier, rounds, *, delta=1e-5, method="rdp", sample_rate=1.0):
    accountant = Accountant.of(multiplier, rounds, unit="sample", adjacency="add-remove", sample_rate=sample_rate)
    return accountant.epsilon(delta, method).value


@pytest.mark.parametrize(
    ("target", "searched", "exactly"), [(1, 4.0625, 4.0454), (10, 0.5298, 0.5296), (100, 0.0975, 0.09751)]
)
def test_noise_for_one_step(target, searched, exactly):
    assert noise_multiplier(target, 1e-5, 1) == pytest.approx(searched, abs=5e-5)
    assert noise_multiplier(target, 1e-5, 1, tolerance=1e-9) == pytest.approx(exactly, abs=5e-5)


@pytest.mark.parametrize(
    ("multiplier", "rounds", "epsilon"),
    [
        (0.52978515625, 80, 221), (0.52978515625, 140, 354), (0.52978515625, 250, 589),
        (4.0625, 80, 12.1), (4.0625, 140, 17.1), (4.0625, 250, 25.0),
        (1.0, 1, 4.73), (1.0, 140, 124.7), (0.001, 1, 5.5e5),
    ],
)  # fmt: skip
def test_a_budget_per_round_is_not_the_budget_of_the_run(multiplier, rounds, epsilon):
    assert spent(multiplier, rounds) == pytest.approx(epsilon, rel=5e-3)


@pytest.mark.parametrize(
    ("target", "rounds", "multiplier"),
    [(10, 80, 4.737), (10, 140, 6.267), (10, 250, 8.374), (1, 80, 36.19), (1, 140, 47.87), (1, 250, 63.97)],
)
def test_noise_for_a_whole_run(target, rounds, multiplier):
    found = noise_multiplier(target, 1e-5, rounds, tolerance=1e-9)
    assert found == pytest.approx(multiplier, rel=2e-4)
    assert target - 1e-8 <= spent(found, rounds) <= target


def test_orders_begin_with_those_of_opacus():
    accountants = pytest.importorskip("opacus.accountants")
    alphas = accountants.RDPAccountant.DEFAULT_ALPHAS
    assert list(ORDERS[: len(alphas)]) == pytest.approx(alphas)
    assert min(ORDERS[len(alphas) :]) > max(alphas)


@pytest.mark.parametrize(("multiplier", "rounds"), [(0.53, 80), (4.0625, 250), (36.19, 80), (1.0, 1)])
def test_the_closed_form_is_what_opacus_computes(multiplier, rounds):
    pytest.importorskip("opacus")
    assert spent(multiplier, rounds) == pytest.approx(spent(multiplier, rounds, method="opacus-rdp"), rel=1e-9)


@pytest.mark.parametrize(("multiplier", "rounds"), [(1.0, 10), (4.0625, 80), (36.19, 80)])
def test_the_exact_value_is_what_prv_finds(multiplier, rounds):
    pytest.importorskip("opacus")
    exact, prv = (spent(multiplier, rounds, method=method) for method in ("exact", "opacus-prv"))
    assert exact <= prv + 1e-9
    assert prv == pytest.approx(exact, abs=0.03)


def test_sampling_is_accounted_by_opacus():
    pytest.importorskip("opacus")
    rdp, prv = (spent(1.0, 100, method=method, sample_rate=0.01) for method in ("opacus-rdp", "opacus-prv"))
    assert prv < rdp < spent(1.0, 100)
    assert rdp == pytest.approx(1.21, abs=0.01)


@given(st.floats(0.01, 100), st.integers(1, 1000), st.floats(1e-12, 0.1))
def test_exact_is_the_smallest(multiplier, rounds, delta):
    total = rounds / multiplier**2
    exact, rdp = exact_epsilon(total, delta), rdp_epsilon(total, delta)
    assert 0 <= exact <= rdp * (1 + 1e-9) + 1e-9


@given(st.floats(0.1, 50), st.floats(0.01, 20), st.floats(0.01, 20))
def test_more_is_spent_with_every_round(total, more, delta_exponent):
    delta = 10**-delta_exponent
    for loss in (rdp_epsilon, exact_epsilon):
        assert loss(total + more, delta) >= loss(total, delta)
        assert loss(total, delta / 2) >= loss(total, delta)


def test_exact_against_numerical_integration():
    """δ(ε) is the integral of (p − e^ε q)₊ for two Gaussians μ apart."""
    import numpy as np

    shift = 1.5
    epsilon = exact_epsilon(shift**2, 1e-3)
    x = np.linspace(-12, 14, 400_001)
    p, q = (np.exp(-((x - mean) ** 2) / 2) / math.sqrt(2 * math.pi) for mean in (shift, 0))
    delta = float(np.sum(np.maximum(p - math.exp(epsilon) * q, 0)) * (x[1] - x[0]))
    assert delta == pytest.approx(1e-3, rel=1e-4)


def test_rounds_add_up_whatever_their_noise():
    accountant = Accountant("member", "replacement")
    assert accountant.epsilon(1e-5).value == 0
    for _ in range(80):
        accountant.spend(4.0625)
    assert len(accountant.releases) == 1
    assert accountant.epsilon(1e-5).value == spent(4.0625, 80)
    accountant.spend(1.0, rounds=2)
    together = accountant.epsilon(1e-5)
    assert together.rounds == 82
    assert together.value > spent(4.0625, 80) + 1
    assert together.value == pytest.approx(rdp_epsilon(80 / 4.0625**2 + 2, 1e-5))
    assert Accountant.from_dict(accountant.to_dict()).epsilon(1e-5) == together


def test_an_epsilon_says_everything():
    epsilon = Epsilon(1.234, 1e-6, "member", "replacement", 1, "exact")
    assert str(epsilon) == "ε = 1.23 at δ = 1e-06 for one member (replacement), 1 round, accountant exact"


@pytest.mark.parametrize(
    "make",
    [
        lambda: spent(0.0, 1),
        lambda: spent(math.nan, 1),
        lambda: spent(1.0, -1),
        lambda: spent(1.0, 1, delta=0.0),
        lambda: spent(1.0, 1, delta=1.0),
        lambda: spent(1.0, 1, sample_rate=0.0, method="opacus-rdp"),
        lambda: noise_multiplier(0, 1e-5, 1),
        lambda: noise_multiplier(1, 1e-5, 0),
        lambda: noise_multiplier(1e-9, 1e-5, 10**6),
    ],
)
def test_impossible_numbers(make):
    with pytest.raises(InputError):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: spent(1.0, 1, method="moments"),
        lambda: spent(1.0, 1, sample_rate=0.5),
        lambda: Accountant("person", "replacement"),
        lambda: Accountant("member", "swap"),
        lambda: Accountant.of(1.0, 1, unit="member", adjacency="replacement", sample_rate=0.5).epsilon(
            1e-5, "opacus-rdp"
        ),
    ],
)
def test_impossible_choices(make):
    with pytest.raises(ConfigError):
        make()


def test_without_opacus_the_extra_is_named(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("opacus"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"eris-fl\[dp\]"):
        spent(1.0, 1, method="opacus-prv")
    assert spent(1.0, 1) > 0


@pytest.mark.parametrize(
    ("multiplier", "rounds", "expected"), [(200, 10, 0.051), (1000, 10, 0.009), (4.0625, 80, 12.06)]
)
def test_much_noise_is_charged_for_as_what_it_is(multiplier, rounds, expected):
    """The best order grows with σ: orders up to 63 alone would say 0.111 for the first."""
    spent = Accountant.of(multiplier, rounds, unit="sample", adjacency="zero-out")
    assert spent.epsilon(1e-5).value == pytest.approx(expected, abs=0.0005 if expected < 1 else 0.01)
    assert spent.epsilon(1e-5, "exact").value <= spent.epsilon(1e-5).value < 1.4 * spent.epsilon(1e-5, "exact").value
