"""Theorem 3.1, number by number."""

from __future__ import annotations

import math
from dataclasses import replace

from eris.cli.planning.question import BoundsQuestion, Section
from eris.planner import SgdVariance, Theorem, beta_limit, potential
from eris.planner.lemmas import contraction, direction

__all__ = ["utility_section"]


def _theorem(question: BoundsQuestion) -> tuple[Theorem, SgdVariance]:
    variance = SgdVariance(question.samples, question.batch, question.gradient_norm)
    theorem = Theorem(
        smoothness=question.smoothness,
        beta=question.beta,
        members=question.members,
        omega=question.omega,
        gamma1=question.gamma1,
        gamma2=variance.without_replacement if question.gamma2 is None else question.gamma2,
        gamma3=question.gamma3,
        gamma4=question.gamma4,
        theta=question.theta,
        shared_masks=question.masks == "shared" and question.omega > 0,
    )
    return theorem, variance


def utility_section(question: BoundsQuestion) -> Section:
    """Answer by Theorem 3.1 and its SGD corollary."""
    theorem, variance = _theorem(question)
    section = Section("utility", "Theorem 3.1: steps, utility, rounds")
    assumed = "" if "smoothness" in question.given else "assumed"
    section.add("smoothness", "smoothness L", theorem.smoothness, remark=assumed)
    section.add("gamma", "reference step γ", theorem.reference_step)
    section.add("alpha", "α", theorem.alpha)
    shared = "shared masks: K counts as 1" if theorem.shared_masks else ""
    section.add("first_step", "λ₁ (compression)", theorem.first_step, "first_step", remark=shared)
    low, high = theorem.interval or (None, None)
    section.add("lowest_step", "λ₋ (smoothness)", low, "second_step")
    section.add("highest_step", "λ₊ (smoothness)", high, "second_step")
    section.add("largest_step", "largest λ allowed", theorem.largest_step, remark=_step_remark(theorem))
    section.add("beta_limit", "β below which λ₁ ≤ λ₊", beta_limit(question.members, question.omega), "beta",
                remark="for Γ₁ = Γ₃ = Γ₄ = 0 and independent masks")  # fmt: skip
    if question.gamma2 is None:
        section.add("gamma2_paper", "Γ₂ as printed", variance.paper, "gamma2")
        section.add("gamma2", "Γ₂ without replacement", variance.without_replacement, remark="used below")
        section.add("gamma2_with_replacement", "Γ₂ with replacement", variance.with_replacement)
    else:
        section.add("gamma2", "Γ₂", theorem.gamma2, remark="used below")
    _add_lemmas(section, theorem)
    _add_utility(section, theorem, variance, question)
    return section


def _add_lemmas(section: Section, theorem: Theorem) -> None:
    """Say what one round does: Lemmas 6, 7 and 8."""
    omega, unit = theorem.omega, {"noise": 1.0, "gradient": 0.0}
    noise = direction(omega=omega, members=theorem.members, reference_error=0.0, **unit)
    error = direction(omega=omega, members=theorem.members, noise=0.0, reference_error=1.0, gradient=0.0)
    section.add("lemma6_noise", "Lemma 6: E‖v‖² per noise N", noise, remark="besides ‖∇f‖²")
    section.add("lemma6_references", "Lemma 6: E‖v‖² per reference error S", error)
    section.add("lemma7", "Lemma 7: S shrinks by", contraction(omega), remark="a round in which nothing moves")
    grows = 3 * theorem.beta * theorem.gamma2 / (2 * (1 + omega) * theorem.smoothness)
    section.add("lemma8", "Lemma 8: Φ grows at most by", grows, remark="a round, less λ/2 ‖∇f‖²")


def _step_remark(theorem: Theorem) -> str:
    if theorem.interval is None:
        return "none: 8cαΓ₃L² > 1"
    return "none: λ₁ < λ₋" if theorem.largest_step is None else ""


def _add_utility(section: Section, theorem: Theorem, variance: SgdVariance, question: BoundsQuestion) -> None:
    step = theorem.largest_step if question.step is None else question.step
    start = potential(
        theorem,
        gap=question.gap,
        estimator_error=question.estimator_error,
        reference_error=question.reference_error,
    )
    section.add("potential", "potential Φ₀", start)
    if step is None:
        section.add("utility", "mean ‖∇f‖² ≤", None, "utility", remark="no step is allowed")
        return
    allowed = "" if theorem.allows(step) else "not allowed by the theorem: what follows is no bound"
    section.add("step", "step λ used", step, remark=allowed)
    section.add("residual", "residual (T → ∞)", theorem.residual(step), "residual")
    if question.gamma2 is None:
        printed = replace(theorem, gamma2=variance.paper)
        section.add("residual_paper", "residual with Γ₂ as printed", printed.residual(step), "residual", "gamma2")
    bound = theorem.utility(step, start, question.rounds)
    section.add("utility", f"mean ‖∇f‖² after {question.rounds:,} rounds ≤", bound, "utility")
    needed = theorem.rounds_for(question.target, step, start)
    remark = "never: the target is below the residual" if math.isinf(needed) else ""
    section.add("rounds", f"rounds for {question.target:g}", needed, "rounds", remark=remark)
