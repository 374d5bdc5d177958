"""Known flaws of the statements behind the bounds, number by number, so that no bound is over-read."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FLAWS", "Flaw", "flaws_of"]


@dataclass(frozen=True, slots=True)
class Flaw:
    """One known problem of a statement, and the numbers that it affects."""

    about: tuple[str, ...]
    text: str


FLAWS = (
    Flaw(
        ("second_step",),
        "The paper's second bound on λ contains λ itself. It is solved here as the quadratic it is: λ must lie in "
        "an interval, and there may be none.",
    ),
    Flaw(
        ("first_step",),
        "The proof replaces ‖Σ a_k‖² by Σ ‖a_k‖²: true only if gradient noise and compressors of different "
        "members are independent. With shared masks they are not, and K counts as 1 in λ₁.",
    ),
    Flaw(
        ("first_step", "beta"),
        "β is called a constant but must be chosen, small, for each K and ω. For ω = 8000 the largest λ₁ is of "
        "the order of 10⁻⁶, while the paper trains with 0.01: its runs are outside the theorem.",
    ),
    Flaw(
        ("utility", "rounds"),
        "The statement leaves out an expectation: it bounds E‖∇f‖², the mean over compressor and batch draws, not "
        "a run.",
    ),
    Flaw(
        ("utility", "rounds"),
        "It needs unbiased gradients. Several local steps, momentum kept between rounds and Adam give biased "
        "ones; then the bound does not apply.",
    ),
    Flaw(
        ("utility", "rounds"),
        "Slips in the proof (Lemma 8: 1−ω for 1−θ twice, a missing factor 2, f(x^{t+1}) for f(x^t); a sign in the "
        "final sum) do not change the result: it was checked with them mended.",
    ),
    Flaw(
        ("gamma2",),
        "The printed Γ₂ = (m−b)G²/(mb) is too small for batches without replacement: gradients {+G, −G} with m = "
        "2, b = 1 have variance G², the formula gives G²/2. The worst case is (m−b)G²/((m−1)b).",
    ),
    Flaw(
        ("residual", "eris_rate"),
        "The residual goes to 0 with β → 0 (and λ → 0 with it), so the rate √(1+ω)/(√K m) of the paper's table is "
        "an artefact of holding β fixed.",
    ),
    Flaw(
        ("rate",),
        "Rows with and without differential privacy bound different problems, without constants: rows cannot be "
        "compared.",
    ),
    Flaw(
        ("leakage",),
        "Adding up coordinates, I(D; X₁X₂) ≤ I(D; X₁) + I(D; X₂), is no general fact (X₁ = D⊕N, X₂ = N: both 0, "
        "together all of D). It needs coordinates that are independent given the data, which the paper does not "
        "state.",
    ),
    Flaw(
        ("leakage",),
        "The view holds the shards alone. Everybody also receives the published mean, which depends on all "
        "coordinates: with K = 2, or K−1 colluding members, subtraction gives the whole update whatever A is.",
    ),
    Flaw(
        ("leakage",),
        "The history it conditions on contains the unmasked local models, so the chain rule does not give the "
        "observer's own transcript.",
    ),
    Flaw(
        ("capacity",),
        "With deterministic local work (full batches, the paper's main setting) a coordinate is a function of the "
        "data: C_max = ∞ and the bound says nothing.",
    ),
    Flaw(
        ("capacity",),
        "The paper shows a histogram over the coordinates of one weight vector. What counts is the law of one "
        "coordinate given the data; estimate it from redrawn batches.",
    ),
    Flaw(
        ("leakage",),
        "Measured leakage does not follow 1/A: in the paper's own figure the attack at A = 10 (76.7 %) is above "
        "FedAvg (75.8 %), and from A = 10 to 50 the excess falls 2.1-fold, not 5-fold.",
    ),
)


def flaws_of(*numbers: str) -> list[str]:
    """Return the known flaws that affect these numbers.

    >>> len(flaws_of("gamma2"))
    1
    """
    return [flaw.text for flaw in FLAWS if set(flaw.about) & set(numbers)]
