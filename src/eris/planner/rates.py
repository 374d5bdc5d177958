"""The paper's table of asymptotic utility rates, with numbers filled in.

Constants and logarithmic factors are left out of all rows, so only the growth of a row means something, never the ratio
of two rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from eris.errors import ConfigError

__all__ = ["Rate", "rates"]


@dataclass(frozen=True, slots=True)
class Rate:
    """One row: algorithm, its privacy, the rate as a formula, its value without constants."""

    algorithm: str
    privacy: str
    formula: str
    value: float | None  # None: a constant of its own is not known


def rates(
    *, n: int, members: int, samples: int, omega: float, epsilon: float, delta: float, nu: float | None = None
) -> list[Rate]:
    """Return the six rows; `nu` is the error ν̃ of Q-DPSGD-1's quantiser.

    Args:
        n: number of values.
        members: K.
        samples: m, of one member.
        omega: ω of the compressor.
        epsilon: ε of the private methods.
        delta: δ of the private methods.
        nu: the error ν̃ of Q-DPSGD-1's quantiser, if known.
    """
    if not (epsilon > 0 and 0 < delta < 1 and n > 0 and members > 0 and samples > 0 and omega >= 0):
        raise ConfigError("a constant of the table is out of range", fix="use n, K, m, ε > 0, 0 < δ < 1, ω ≥ 0")
    noise = math.sqrt(n * math.log(1 / delta)) / (samples * epsilon)
    tau = (1 + omega) ** 1.5 / math.sqrt(members)
    compressed = math.sqrt((1 + omega) / members)
    gossip = (
        None
        if nu is None
        else (nu**2 / members + 1 / samples) ** (2 / 3)
        * (n * math.log(1 / delta)) ** (1 / 3)
        / (samples * epsilon) ** (2 / 3)
    )
    local, none = "(ε,δ)-LDP", "none"
    return [
        Rate("Distributed DP-SRM", "(ε,δ)-DP", "√(n ln 1/δ) / (K m ε)", noise / members),
        Rate("SDM-DSGD", local, "√(n ln 1/δ) / (√K m ε)", noise / math.sqrt(members)),
        Rate("Q-DPSGD-1", local, "(ν̃²/K + 1/m)^⅔ (n ln 1/δ)^⅓ / (m ε)^⅔", gossip),
        Rate("CDP-SGD", local, "√((1+ω) n ln 1/δ) / (√K m ε)", compressed * noise),
        Rate(
            "SoteriaFL-SGD", local, "CDP-SGD · (1 + √τ), τ = (1+ω)^{3/2}/√K", compressed * noise * (1 + math.sqrt(tau))
        ),
        Rate("ERIS-SGD (+DSC)", none, "√(1+ω) / (√K m)", compressed / samples),
    ]
