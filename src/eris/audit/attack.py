"""How scores become one attack: which of them, and whether they are added up over the rounds.

>>> sorted(ATTACKS)
['adaptive', 'calibrated', 'cosine', 'dot', 'loss', 'paper', 'regression', 'spv']
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eris.audit.guesses import Scores
from eris.audit.roc import standardised
from eris.audit.score import SCORES
from eris.errors import ConfigError

__all__ = ["ATTACKS", "Attack", "attack_by_name"]


@dataclass(frozen=True, slots=True)
class Attack:
    """A named combination of scores, fixed before the run."""

    name: str
    parts: Mapping[str, float]  # score → weight
    accumulate: bool = True  # add up the rounds so far

    def check(self, names: Collection[str]) -> None:
        """Refuse where scores of which it is made are not taken."""
        if missing := sorted(set(self.parts) - set(names)):
            possible = ", ".join(name for name, attack in ATTACKS.items() if set(attack.parts) <= set(names))
            raise ConfigError(
                f"attack {self.name} needs scores that are not taken here: {', '.join(missing)}",
                fix=f"use one of {possible}" + (", or give --filler" if missing == ["spv"] else ""),
            )

    def apply(self, scores: Mapping[str, Sequence[Scores]]) -> list[Scores]:
        """Return one score for each member, round, view and canary."""
        members = len(scores[next(iter(self.parts))])
        return [self._of_member({name: scores[name][member] for name in self.parts}) for member in range(members)]

    def _of_member(self, scores: Mapping[str, Scores]) -> Scores:
        total = np.sum([weight * standardised(scores[name]) for name, weight in self.parts.items()], axis=0)
        if not self.accumulate:
            return np.asarray(total)
        # A round that the member missed adds nothing.
        return np.asarray(np.cumsum(np.nan_to_num(total), axis=0))


ATTACKS = {
    "adaptive": Attack("adaptive", {"calibrated": 0.5, "cosine": 0.5, "regression": 2.0}),
    "paper": Attack("paper", {"paper": 1.0}, accumulate=False),
    **{name: Attack(name, {name: 1.0}) for name in SCORES if name != "paper"},
    "spv": Attack("spv", {"spv": 1.0}),
}


def attack_by_name(name: str) -> Attack:
    """Return the attack of that name."""
    if name not in ATTACKS:
        raise ConfigError(f"there is no attack {name!r}", fix=f"use one of {', '.join(sorted(ATTACKS))}")
    return ATTACKS[name]
