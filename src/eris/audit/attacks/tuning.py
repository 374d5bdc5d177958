"""Which attack was the best where choices were made: seeds that no figure is reported on.

tuning.json has the mean AUC of every registered attack on every view there, as `benchmarks/attackers.py tune` wrote it.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Tuning", "load_tuning"]


@dataclass(frozen=True)
class Tuning:
    """The seeds that attacks were compared on, all seeds that anything was ever chosen on, and how each attack did."""

    command: str
    seeds: tuple[int, ...]
    chosen_on: tuple[int, ...]
    auc: dict[str, dict[str, float]] = field(repr=False)  # view → attack → mean over the seeds

    def mean(self, attack: str) -> float:
        """Return the mean over the views."""
        return statistics.fmean(view[attack] for view in self.auc.values())

    def best_of(self, attacks: Collection[str]) -> str:
        """Return the attack with the highest mean over the views, of those that were compared on all of them."""
        compared = [attack for attack in attacks if all(attack in view for view in self.auc.values())]
        return max(compared, key=self.mean)

    def other_seeds(self, first: int, count: int) -> range:
        """Return seeds from a first one on, but above all that anything was chosen on."""
        first = max(first, max(self.chosen_on) + 1)
        return range(first, first + count)


def load_tuning() -> Tuning:
    """Return what is in the package."""
    found = json.loads(Path(__file__).with_name("tuning.json").read_text(encoding="utf-8"))
    return Tuning(found["command"], tuple(found["seeds"]), tuple(found["chosen_on"]), found["auc"])
