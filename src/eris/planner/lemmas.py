"""Lemmas 6, 7 and 8 behind Theorem 3.1 as calculators: what one round does to the direction, references and potential.

With S = (1/K) Σ ‖∇f_k − s_k‖² and N = (1/K) Σ ‖g_k − ∇f_k‖² (independent noise and compressors, γ as in the paper):

    6   E‖v‖²  ≤  (1+ω)/K · N + ω/K · S + ‖∇f‖²
    7   E S'   ≤  (1 − 1/(2(1+ω))) S + N/(1+ω) + 2(1+ω)L² ‖x' − x‖²
    8   E Φ'   ≤  Φ − λ/2 ‖∇f‖² + 3βΓ₂/(2(1+ω)L),  for a step λ that the theorem allows

>>> round(direction(omega=19, members=50, noise=1.0, reference_error=2.0, gradient=0.5), 9)
1.66
>>> round(references(omega=19, smoothness=1.0, noise=1.0, reference_error=2.0, moved=0.01), 9)
2.4
"""

from __future__ import annotations

from eris.errors import ConfigError
from eris.planner.convergence import Theorem

__all__ = ["contraction", "direction", "next_potential", "references"]


def direction(*, omega: float, members: int, noise: float, reference_error: float, gradient: float) -> float:
    """Return Lemma 6's bound on E‖v‖²: `omega` is ω, `noise` N, `reference_error` S, `gradient` ‖∇f‖².

    The printed proof replaces ‖Σ a_k‖² by Σ‖a_k‖², which is right if members' noises are independent.
    """
    _require(omega=omega, noise=noise, reference_error=reference_error, gradient=gradient)
    return (1 + omega) / members * noise + omega / members * reference_error + gradient


def contraction(omega: float) -> float:
    """Return the factor by which Lemma 7 lets S shrink when nothing moves.

    >>> contraction(0), contraction(19)
    (0.5, 0.975)
    """
    _require(omega=omega)
    return 1 - 1 / (2 * (1 + omega))


def references(*, omega: float, smoothness: float, noise: float, reference_error: float, moved: float) -> float:
    """Return Lemma 7's bound on E S after a round in which the model moved by `moved` (a squared norm).

    `omega` is ω, `smoothness` L, `noise` N and `reference_error` S before the round.
    """
    _require(smoothness=smoothness, noise=noise, reference_error=reference_error, moved=moved)
    rest = noise / (1 + omega) + 2 * (1 + omega) * smoothness**2 * moved
    return contraction(omega) * reference_error + rest


def next_potential(theorem: Theorem, *, step: float, potential: float, gradient: float) -> float:
    """Return Lemma 8's bound on E Φ after a round: `step` is λ, `potential` Φ before it, `gradient` ‖∇f‖².

    The printed proof has (1−ω) for (1−θ) and β(1+ω) for 2β(1+ω); with these corrected, the lemma holds.
    """
    if not theorem.allows(step):
        raise ConfigError(f"step {step:g} is not allowed by the theorem", fix="use at most Theorem.largest_step")
    grows = 3 * theorem.beta * theorem.gamma2 / (2 * (1 + theorem.omega) * theorem.smoothness)
    return potential - step / 2 * gradient + grows


def _require(**values: float) -> None:
    for name, value in values.items():
        if not value >= 0:
            raise ConfigError(f"{name} is {value}", fix="use a value ≥ 0")
