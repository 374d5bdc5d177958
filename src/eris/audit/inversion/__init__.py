"""Attacks that recover a member's samples from what an observer saw of its update.

`Sight` is what was seen, `Inversion` what an attack is, `PublicModel` and `Matching` what a search needs. Everything
that computes needs torch, so only the contract is imported here.
"""

from __future__ import annotations

from eris.audit.inversion.attack import (
    INVERSIONS,
    Inversion,
    Labels,
    Mode,
    Recovered,
    inversion_by_name,
    register_inversion,
)
from eris.audit.inversion.sight import Handling, LocalSteps, Sight

__all__ = [
    "INVERSIONS",
    "Handling",
    "Inversion",
    "Labels",
    "LocalSteps",
    "Mode",
    "Recovered",
    "Sight",
    "inversion_by_name",
    "register_inversion",
]
