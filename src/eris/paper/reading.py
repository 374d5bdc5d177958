"""Readings of the paper's text: its own, which gives its numbers, and the one that makes them meaningful.

| | paper | eris |
|---|---|---|
| ε | of each round alone (δ = 10⁻⁵), noise on the gradients of samples | of the whole run |
| folds | another partition, the same initial model and coins | another partition, initial model and coins |
| canaries | half of them in, exactly | an independent fair coin for each |
| membership | the best round of the mean over views and members | the last round; AUC |

Lost contributions can be compensated for or not (`server.normalisation`); the experiments on failures do both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eris.errors import ConfigError

__all__ = ["ERIS", "PAPER", "READINGS", "Reading", "reading_by_name"]


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading of the paper's text: settings for all cells, and what changes from fold to fold."""

    name: str
    about: str
    settings: tuple[str, ...] = ()
    new_seed: bool = False  # whether each fold has its own initial model and coins
    canaries: str = "fair"

    def of_fold(self, fold: int) -> tuple[str, str]:
        """Return the settings of a fold."""
        return f"data.fold={fold}", f"seed={1 + fold if self.new_seed else 1}"

    def options(self, kind: str) -> dict[str, Any]:
        """Return the options that this reading adds to a kind of measurement."""
        return {"coins": self.canaries} if kind == "training" and self.canaries != "fair" else {}


PAPER = Reading(
    "paper",
    "ε of each round, folds keep the initial model and the coins, canaries split equally",
    ("privacy.accounting=per-round",),
    canaries="equal",
)
ERIS = Reading(
    "eris", "ε of the whole run, folds vary the initial model too, a fair coin for each canary", new_seed=True
)
READINGS = {reading.name: reading for reading in (PAPER, ERIS)}


def reading_by_name(name: str) -> Reading:
    """Return the reading of that name."""
    if name not in READINGS:
        raise ConfigError(f"there is no reading {name!r}", fix=f"use one of {', '.join(READINGS)}")
    return READINGS[name]
