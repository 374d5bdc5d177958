"""How the attacks did on the tuning seeds, on which the best one was chosen and no figure is reported.

tuning.json holds the mean AUC of every registered attack on every view: of the small preset, which
`benchmarks/attackers.py tune` measures, and of small language models on synthetic texts (`benchmarks/attackers.py
texts`), since attacks are not equally strong on pictures and on texts.
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
    """The seeds on which attacks were compared, every seed ever used to choose anything, and how each attack did."""

    command: str  # that wrote it
    seeds: tuple[int, ...]  # on which the attacks were compared
    chosen_on: tuple[int, ...]  # these and all others on which anything was chosen
    auc: dict[str, dict[str, float]] = field(repr=False)  # view → attack → mean over the seeds
    setting: str = "the small preset"  # what was trained

    @property
    def among(self) -> str:
        """The seeds and the setting, in words."""
        return f"{min(self.seeds)} to {max(self.seeds)} of {self.setting}"

    def mean(self, attack: str) -> float:
        """Return an attack's mean AUC over the views."""
        return statistics.fmean(view[attack] for view in self.auc.values())

    def best_of(self, attacks: Collection[str]) -> str:
        """Return the attack with the highest mean AUC, among those that were compared on every view."""
        return max(self.compared(attacks), key=self.mean)

    def compared(self, attacks: Collection[str]) -> list[str]:
        """Return those of the attacks that were compared on every view."""
        return [attack for attack in attacks if all(attack in view for view in self.auc.values())]

    def other_seeds(self, first: int, count: int) -> range:
        """Return `count` consecutive seeds from `first` on, or from above every seed that anything was chosen on."""
        first = max(first, max(self.chosen_on) + 1)
        return range(first, first + count)


def load_tuning(part: str = "") -> Tuning:
    """Load the tuning.json of this package, or the part of it that is about something else: `texts`."""
    found = json.loads(Path(__file__).with_name("tuning.json").read_text(encoding="utf-8"))
    chosen = found[part] if part else found
    more = {"setting": chosen["setting"]} if "setting" in chosen else {}
    return Tuning(chosen["command"], tuple(chosen["seeds"]), tuple(found["chosen_on"]), chosen["auc"], **more)
