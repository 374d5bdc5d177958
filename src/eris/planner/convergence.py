"""Theorem 3.1 of the paper as a calculator: step sizes, potential, utility bound, rounds for a target.

With α = 3βΓ₁/(2(1+ω)L²θ) and c = 1 + 2αΓ₄ + 4β(1+ω) a step λ is allowed if

    λ ≤ λ₁ = √(βK) / (√c (1+ω) L)       and       c L λ² − λ + 2αΓ₃L ≤ 0.

The paper prints the second condition as a bound on λ that contains λ; solved as the quadratic it is, it gives an
interval [λ₋, λ₊], which is empty if 8cαΓ₃L² > 1. Then

    (1/T) Σ ‖∇f‖² ≤ 2Φ₀/(λT) + 3βΓ₂/((1+ω)Lλ).

>>> bounds = Theorem(smoothness=1, beta=0.1, members=50, omega=19)
>>> round(bounds.first_step, 8), round(bounds.interval[1], 8)
(0.0372678, 0.11111111)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from eris.errors import ConfigError
from eris.transforms.shift import gamma_paper

__all__ = ["SgdVariance", "Theorem", "beta_limit", "potential"]


@dataclass(frozen=True)
class Theorem:
    """The constants of Theorem 3.1; everything else follows. Γ₁ = Γ₃ = Γ₄ = 0 is plain SGD, Γ₂ = 0 full gradients."""

    smoothness: float  # L
    beta: float
    members: int  # K
    omega: float
    gamma1: float = 0.0
    gamma2: float = 0.0
    gamma3: float = 0.0
    gamma4: float = 0.0
    theta: float = 1.0
    shared_masks: bool = False  # errors are then not independent: K counts as 1 in the first bound

    def __post_init__(self) -> None:
        for name in ("smoothness", "beta", "theta", "members"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} is {getattr(self, name)}", fix="use a value above zero")
        for name in ("omega", "gamma1", "gamma2", "gamma3", "gamma4"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise ConfigError(f"{name} is {getattr(self, name)}", fix="use a finite value ≥ 0")
        if self.theta > 1:
            raise ConfigError(f"theta is {self.theta}", fix="use 0 < θ ≤ 1")

    @property
    def reference_step(self) -> float:
        """Step γ of the references."""
        return gamma_paper(self.omega)

    @property
    def alpha(self) -> float:
        """Weight α of the estimator's error in the potential."""
        return 3 * self.beta * self.gamma1 / (2 * (1 + self.omega) * self.smoothness**2 * self.theta)

    @property
    def c(self) -> float:
        """Return 1 + 2αΓ₄ + 4β(1+ω)."""
        return 1 + 2 * self.alpha * self.gamma4 + 4 * self.beta * (1 + self.omega)

    @property
    def first_step(self) -> float:
        """λ₁: what compression allows."""
        independent = 1 if self.shared_masks else self.members
        return math.sqrt(self.beta * independent) / (math.sqrt(self.c) * (1 + self.omega) * self.smoothness)

    @cached_property
    def interval(self) -> tuple[float, float] | None:
        """[λ₋, λ₊]: what smoothness and the estimator's memory allow; None if nothing."""
        constant = 2 * self.alpha * self.gamma3 * self.smoothness
        discriminant = 1 - 4 * self.c * self.smoothness * constant
        if discriminant < 0:
            return None
        root = 1 + math.sqrt(discriminant)
        # the smaller root as quotient, not as difference: 1 − √(1−x) loses all digits for small x
        return 2 * constant / root, root / (2 * self.c * self.smoothness)

    @property
    def largest_step(self) -> float | None:
        """The largest step that both bounds allow; None if they exclude each other."""
        if self.interval is None:
            return None
        step = min(self.first_step, self.interval[1])
        return step if step >= self.interval[0] else None

    def allows(self, step: float) -> bool:
        """Return whether a step satisfies both bounds."""
        if self.interval is None or not step > 0:
            return False
        slack = 1 + 1e-12
        return step <= self.first_step * slack and self.interval[0] <= step * slack <= self.interval[1] * slack**2

    def residual(self, step: float) -> float:
        """Return what remains of the bound for T → ∞: 3βΓ₂/((1+ω)Lλ)."""
        return 3 * self.beta * self.gamma2 / ((1 + self.omega) * self.smoothness * step)

    def utility(self, step: float, potential: float, rounds: int) -> float:
        """Return the bound on the mean squared gradient norm after T rounds.

        `step` is λ, `potential` Φ₀, `rounds` T.
        """
        if rounds < 1:
            raise ConfigError(f"rounds is {rounds}", fix="use 1 or more")
        return 2 * potential / (step * rounds) + self.residual(step)

    def rounds_for(self, target: float, step: float, potential: float) -> float:
        """Return how many rounds the bound needs to fall to `target`; ∞ if it never does.

        `step` is λ, `potential` Φ₀.
        """
        room = target - self.residual(step)
        return 2 * potential / (step * room) if room > 0 else math.inf


def potential(theorem: Theorem, *, gap: float, estimator_error: float = 0.0, reference_error: float = 0.0) -> float:
    """Return Φ₀ = f(x⁰) − f* + αLΔ⁰ + (β/L)·S⁰, S⁰ being the mean over members of ‖∇f_k(x⁰) − s_k⁰‖².

    `gap` is f(x⁰) − f*, `estimator_error` Δ⁰, `reference_error` S⁰.
    """
    return (
        gap + theorem.alpha * theorem.smoothness * estimator_error + theorem.beta / theorem.smoothness * reference_error
    )


@dataclass(frozen=True, slots=True)
class SgdVariance:
    """Γ₂ of mini-batches: b of m samples whose gradients have norms up to G.

    The paper's (and SoteriaFL's) formula is too small without replacement: gradients {+G, −G}, m = 2, b = 1 have
    variance G², the formula gives half of it.

    >>> two = SgdVariance(samples=2, batch=1, gradient_norm=1)
    >>> two.paper, two.without_replacement, two.with_replacement
    (0.5, 1.0, 1.0)
    """

    samples: int  # m
    batch: int  # b
    gradient_norm: float  # G

    def __post_init__(self) -> None:
        if not 1 <= self.batch <= self.samples:
            raise ConfigError(f"batch is {self.batch} of {self.samples} samples", fix="use a batch of 1 … all samples")
        if not (math.isfinite(self.gradient_norm) and self.gradient_norm >= 0):
            raise ConfigError(f"gradient norm is {self.gradient_norm}", fix="use a finite G ≥ 0")

    @property
    def paper(self) -> float:
        """(m−b)G²/(mb), as printed."""
        return (self.samples - self.batch) * self.gradient_norm**2 / (self.samples * self.batch)

    @property
    def without_replacement(self) -> float:
        """(m−b)G²/((m−1)b), the worst case of a batch of distinct samples."""
        if self.samples == 1:
            return 0.0
        return (self.samples - self.batch) * self.gradient_norm**2 / ((self.samples - 1) * self.batch)

    @property
    def with_replacement(self) -> float:
        """G²/b, the worst case of independent draws."""
        return self.gradient_norm**2 / self.batch


def beta_limit(members: int, omega: float) -> float:
    """Return the largest β for which λ₁ ≤ λ₂ in the SGD corollary: βK(1+4β(1+ω)) ≤ (1+ω)².

    >>> round(beta_limit(50, 19), 8)
    0.31003952
    """
    cube = 16 * members * (1 + omega) ** 3
    # (−K + √(K² + cube)) / (8K(1+ω)), as quotient: no digits are lost for large K
    return cube / (members + math.sqrt(members**2 + cube)) / (8 * members * (1 + omega))
