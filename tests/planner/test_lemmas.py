"""Lemmas 6 to 8 on quadratics: what is drawn stays below what is promised, and the bounds are not idle."""

from __future__ import annotations

import numpy as np
import pytest

from eris.errors import ConfigError
from eris.planner.convergence import Theorem
from eris.planner.lemmas import contraction, direction, next_potential, references
from eris.transforms.shift import gamma_paper

K, N, KEEP = 8, 40, 10
OMEGA = N / KEEP - 1


def drawn(rng, gradients, references_, noise):
    """Draw one round: noisy gradients, rand-k of what they differ from the references by."""
    noisy = gradients + noise * rng.standard_normal((K, N))
    sent = np.zeros((K, N))
    for k in range(K):
        kept = rng.choice(N, KEEP, replace=False)
        sent[k, kept] = (noisy - references_)[k, kept] * N / KEEP
    return noisy, sent


@pytest.fixture
def setting():
    rng = np.random.default_rng(7)
    centres = rng.standard_normal((K, N))  # f_k = ½‖x − c_k‖², so L = 1 and ∇f_k = x − c_k
    return rng, centres, rng.standard_normal(N), 0.5 * rng.standard_normal((K, N))


def test_direction_and_references(setting):
    rng, centres, x, s = setting
    gradients, gamma, step, noise = x - centres, gamma_paper(OMEGA), 0.02, 0.3
    lengths, errors, moves, noises = [], [], [], []
    for _ in range(3000):
        noisy, sent = drawn(rng, gradients, s, noise)
        v = s.mean(axis=0) + sent.mean(axis=0)
        after, moved = s + gamma * sent, x - step * v
        lengths.append(v @ v)
        errors.append(((moved - centres - after) ** 2).sum(axis=1).mean())
        moves.append(((moved - x) ** 2).sum())
        noises.append(((noisy - gradients) ** 2).sum(axis=1).mean())
    before, mean = ((gradients - s) ** 2).sum(axis=1).mean(), gradients.mean(axis=0)
    promised = direction(omega=OMEGA, members=K, noise=np.mean(noises), reference_error=before, gradient=mean @ mean)
    assert np.mean(lengths) == pytest.approx(promised, rel=0.02)  # rand-k meets Lemma 6 with equality
    bound = references(omega=OMEGA, smoothness=1.0, noise=np.mean(noises), reference_error=before, moved=np.mean(moves))
    assert 0.5 * bound < np.mean(errors) <= bound


def test_potential_falls_as_promised(setting):
    rng, centres, x, s = setting
    noise = 0.2
    theorem = Theorem(smoothness=1, beta=0.05, members=K, omega=OMEGA, gamma2=noise**2 * N)
    step = theorem.largest_step
    assert step is not None
    optimum = centres.mean(axis=0)

    def potential(model, shift):
        gap = 0.5 * ((model - optimum) ** 2).sum()
        return gap + theorem.beta * ((model - centres - shift) ** 2).sum(axis=1).mean()

    after = []
    for _ in range(2000):
        _, sent = drawn(rng, x - centres, s, noise)
        after.append(potential(x - step * (s.mean(axis=0) + sent.mean(axis=0)), s + gamma_paper(OMEGA) * sent))
    gradient = ((x - optimum) ** 2).sum()
    bound = next_potential(theorem, step=step, potential=potential(x, s), gradient=gradient)
    assert np.mean(after) <= bound < potential(x, s) + 3 * theorem.beta * theorem.gamma2


def test_refused():
    theorem = Theorem(smoothness=1, beta=0.1, members=50, omega=19)
    with pytest.raises(ConfigError, match="not allowed"):
        next_potential(theorem, step=1.0, potential=1.0, gradient=1.0)
    with pytest.raises(ConfigError, match="noise is -1"):
        direction(omega=1, members=2, noise=-1.0, reference_error=0.0, gradient=0.0)
    assert contraction(0) == 0.5
