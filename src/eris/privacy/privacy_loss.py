"""The privacy loss of Gaussian noise, in closed form.

T rounds with multipliers σ_t cost as much as one release with inverse variance Σ 1/σ_t², because Gaussians compose to a
Gaussian; both functions take that sum.
"""

from __future__ import annotations

import math

__all__ = ["ORDERS", "exact_epsilon", "rdp_epsilon"]

# The Rényi orders that Opacus tries, 1.1, 1.2, … 10.9, then 12 … 63; and further ones in steps of a twentieth, because
# the best order grows with the noise (about √(2 ln(1/δ) σ²/T)): without them, ε of much noise would come out too large.
ORDERS: tuple[float, ...] = (
    *(1 + tenth / 10 for tenth in range(1, 100)),
    *(float(order) for order in range(12, 64)),
    *(64 * 1.05**step for step in range(260)),
)


def rdp_epsilon(inverse_variance: float, delta: float) -> float:
    """Return min over orders α of T·α/(2σ²) − (ln δ + ln α)/(α−1) + ln((α−1)/α), T/σ² being the inverse variance.

    >>> round(rdp_epsilon(1.0, 1e-5), 2)
    4.73
    """
    return max(0.0, min(_at_order(order, inverse_variance * order / 2, delta) for order in ORDERS))


def _at_order(order: float, divergence: float, delta: float) -> float:
    return divergence - (math.log(delta) + math.log(order)) / (order - 1) + math.log((order - 1) / order)


def exact_epsilon(inverse_variance: float, delta: float) -> float:
    """Return the smallest ε there is.

    With μ² the inverse variance, δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) falls in ε (Balle and Wang 2018); bisection
    finds where it passes δ, and the upper end is returned.

    >>> round(exact_epsilon(1.0, 1e-5), 2)
    4.38
    """
    shift = math.sqrt(inverse_variance)
    if _delta(0.0, shift) <= delta:
        return 0.0
    low, high = 0.0, max(1.0, inverse_variance)
    while _delta(high, shift) > delta:
        high *= 2
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _delta(middle, shift) > delta else (low, middle)
    return high


def _delta(epsilon: float, shift: float) -> float:
    upper = _log_tail(epsilon / shift - shift / 2)
    lower = epsilon + _log_tail(epsilon / shift + shift / 2)
    return math.exp(upper) - math.exp(lower)


def _log_tail(x: float) -> float:
    """Return ln Φ(−x); beyond 25 by its asymptotic series, because erfc runs out of range."""
    if x < 25:
        return math.log(math.erfc(x / math.sqrt(2)) / 2)
    inverse = 1 / (x * x)
    series = 1 - inverse * (1 - 3 * inverse * (1 - 5 * inverse * (1 - 7 * inverse)))
    return -x * x / 2 - math.log(x * math.sqrt(2 * math.pi)) + math.log(series)
