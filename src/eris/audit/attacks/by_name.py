"""Membership attacks by name.

========== =============================================================================================
loss       −ℓ of the canary under the model the attacker can build
calibrated how much lower its loss is under that model than under the public one
dot        the canary's gradient along the update's direction
cosine     the cosine of the update and the canary's gradient
regression the canary's weight when the update is written as a sum of all canaries' gradients
adaptive   calibrated, cosine and regression together
whitened   the canary's expected coin in such a regression, with what public samples explain taken off
stacked    the same with all rounds in one regression: stronger on sixty coordinates or fewer in rounds of one step
lira       how far the confidence in the canary is from that under other members' models
rmia       the share of public samples that the canary's likelihood ratio beats
spv        how much training raised a text's likelihood above that of perturbed copies (SPV-MIA)
paper      −ℓ under xᵗ with the visible values applied as sent: scaled, and without s_k; one round alone
========== =============================================================================================

>>> sorted(ATTACKS)
['adaptive', 'calibrated', 'cosine', 'dot', 'lira', 'loss', 'paper', 'regression', 'rmia', 'spv', 'stacked', 'whitened']
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import get_args

import numpy as np

from eris.audit.attack import MembershipAttack, Memory, Need, Observation
from eris.audit.attacks.losses import LikelihoodRatio, RelativeRatio
from eris.audit.attacks.stacked_regression import StackedRegression
from eris.audit.attacks.tuning import Tuning, load_tuning
from eris.audit.attacks.whitened_regression import WhitenedRegression
from eris.audit.canaries import PlantedTask
from eris.audit.scoring import Scores, standardised
from eris.errors import ConfigError
from eris.registry import Registry

__all__ = [
    "ATTACKS",
    "BEST",
    "STRONGEST",
    "TUNING",
    "TUNING_ON_TEXTS",
    "SignalAttack",
    "attack_by_name",
    "attacks_on",
    "best_attack",
    "choice_of",
    "offered",
    "register_attack",
    "require",
]

Signal = Callable[[Observation], Scores]

_SIGNALS: dict[str, Signal] = {
    "loss": lambda seen: -seen.losses,
    "calibrated": lambda seen: seen.probe.losses - seen.losses,
    "dot": lambda seen: seen.along,
    "cosine": lambda seen: seen.cosines,
    "regression": lambda seen: seen.regression,
    "paper": lambda seen: -seen.losses_as_sent,
    "spv": lambda seen: seen.probe.variation - seen.variation,
}
_NEEDS: dict[str, Need] = {"dot": "gradients", "cosine": "gradients", "regression": "gradients", "spv": "copies"}


@dataclass(frozen=True, slots=True)
class SignalAttack:
    """A weighted sum of signals, each standardised over the victim's canaries, added up over rounds if cumulative."""

    name: str
    weights: Mapping[str, float]  # signal → weight
    cumulative: bool = True  # False: every round is scored alone

    @property
    def needs(self) -> frozenset[Need]:
        """What the attack's signals need besides losses."""
        return frozenset(_NEEDS[signal] for signal in self.weights if signal in _NEEDS)

    def score(self, seen: Observation, memory: Memory) -> Scores:
        """Return the weighted sum of the signals, over all rounds so far or for this round alone."""
        parts = [weight * standardised(_SIGNALS[signal](seen)) for signal, weight in self.weights.items()]
        total: Scores = np.sum(parts, axis=0)
        if not self.cumulative:
            return total
        memory["sum"] = memory.get("sum", 0.0) + np.nan_to_num(total)
        return memory["sum"]


_KNOWN: tuple[MembershipAttack, ...] = (
    WhitenedRegression(),
    StackedRegression(),
    LikelihoodRatio(),
    RelativeRatio(),
    SignalAttack("adaptive", {"calibrated": 0.5, "cosine": 0.5, "regression": 2.0}),
    SignalAttack("paper", {"paper": 1.0}, cumulative=False),
    *(SignalAttack(signal, {signal: 1.0}) for signal in _SIGNALS if signal != "paper"),
)
ATTACKS: Registry[MembershipAttack] = Registry(
    "attack",
    "eris.attacks",
    {attack.name: attack for attack in _KNOWN},
    refuses=lambda thing: "" if hasattr(thing, "score") and hasattr(thing, "needs") else "it has no score and needs",
)
BEST = "best"  # stands for the strongest attack that a task allows
TUNING = load_tuning()
TUNING_ON_TEXTS = load_tuning("texts")
STRONGEST = TUNING.best_of([attack.name for attack in _KNOWN])  # on the tuning seeds; figures are taken on others


def register_attack(attack: MembershipAttack) -> None:
    """Register an attack under its name; every audit from then on runs it."""
    ATTACKS[attack.name] = attack


def attack_by_name(name: str, *, losses_only: bool = False) -> MembershipAttack:
    """Return the attack of that name or path `module:name`.

    `best` is the strongest attack on pictures, with `losses_only` the strongest that builds no gradient; for a task
    that is at hand, ask `best_attack`.
    """
    if name != BEST:
        return ATTACKS.find(name)
    light = [attack.name for attack in _KNOWN if not attack.needs & {"gradients", "copies"}]
    return ATTACKS.find(TUNING.best_of(light) if losses_only else STRONGEST)


def offered(planted: PlantedTask) -> frozenset[Need]:
    """Return what a task offers to attacks; with perturbed texts no gradients, as the model is too large for them."""
    perturbed = planted.copies is not None
    found = {
        "gradients": planted.gradients and not perturbed,
        "copies": perturbed,
        "public": planted.public is not None,
    }
    return frozenset(need for need in get_args(Need) if found[need])


def attacks_on(planted: PlantedTask) -> list[MembershipAttack]:
    """Return every registered attack whose needs a task meets."""
    return [attack for attack in ATTACKS.usable().values() if attack.needs <= offered(planted)]


def best_attack(planted: PlantedTask) -> str:
    """Return the name of the strongest attack that a task allows, chosen on the tuning seeds (texts have their own)."""
    return _tuning_of(planted).best_of([attack.name for attack in attacks_on(planted)])


def choice_of(name: str, planted: PlantedTask) -> str:
    """Say in words how `best_attack` came to this attack."""
    tuning = _tuning_of(planted)
    among, known = tuning.compared([attack.name for attack in attacks_on(planted)]), tuning.compared(list(ATTACKS))
    which = ""
    if len(among) < len(known):
        which = " that this audit allows" if "gradients" in offered(planted) else " that build no gradient"
    what = f"the best of {len(among)}{which} on tuning seeds {tuning.among}"
    return f"{name}, {what} (mean AUC there {tuning.mean(name):.2f})"


def _tuning_of(planted: PlantedTask) -> Tuning:
    return TUNING_ON_TEXTS if planted.texts else TUNING


def require(attack: MembershipAttack, available: Collection[Need]) -> None:
    """Refuse an attack that needs what is not available."""
    if missing := sorted(attack.needs - set(available)):
        possible = ", ".join(name for name, other in ATTACKS.usable().items() if other.needs <= set(available))
        raise ConfigError(
            f"attack {attack.name} needs {' and '.join(missing)} of the canaries, which this audit does not record",
            fix=f"use one of {possible}" + (", or give --filler" if missing == ["copies"] else ""),
        )
