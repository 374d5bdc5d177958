"""LiRA and RMIA, which use losses alone: they build no gradient, so they work for models too large for gradients.

Their reference models cost no training here. Whoever sees a shard of one member sees it of the others too, and the
models built from those were not trained on the victim's canaries: up to four of them are used in every round. The cost
is losses: those of the canaries (for RMIA also of 64 public samples) under six models, for each place.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eris.audit.attack import Memory, Need, Observation
from eris.audit.scoring import Scores

__all__ = ["LikelihoodRatio", "RelativeRatio"]

_TINY = 1e-12


@dataclass(frozen=True, slots=True)
class LikelihoodRatio:
    """LiRA without models trained on the canary: how far the confidence in it is from that under reference models.

    Confidence is log(p / (1 − p)), which is nearly Gaussian. All canaries of a round share one standard deviation, as
    there are too few references to estimate one for each.
    """

    name: str = "lira"
    cumulative: bool = True

    @property
    def needs(self) -> frozenset[Need]:
        """What the attack needs besides losses; without other members' models it would be `calibrated`."""
        return frozenset({"public"})

    def score(self, seen: Observation, memory: Memory) -> Scores:
        """Add a round's deviations and return the sum over the rounds so far."""
        outside = np.stack([_confidence(seen.probe.losses_at(model)) for model in seen.references])
        middle, inside = outside.mean(axis=0), _confidence(seen.losses)
        spread = (outside - middle).std() if len(outside) > 1 else (inside - middle).std()
        memory["sum"] = memory.get("sum", 0.0) + (inside - middle) / (spread + _TINY)
        return memory["sum"]


@dataclass(frozen=True, slots=True)
class RelativeRatio:
    """RMIA: the share of public samples whose likelihood ratio a canary's beats, summed over rounds.

    The ratio of a sample is its probability under the member's model divided by its mean probability under the
    references and the public model.
    """

    name: str = "rmia"
    cumulative: bool = True

    @property
    def needs(self) -> frozenset[Need]:
        """What the attack needs besides losses."""
        return frozenset({"public"})

    def score(self, seen: Observation, memory: Memory) -> Scores:
        """Add a round's shares and return the sum over the rounds so far."""
        canaries, public = (
            np.exp(-asked(seen.member_model))
            / (np.mean([np.exp(-asked(model)) for model in (seen.probe.model, *seen.references)], axis=0) + _TINY)
            for asked in (seen.probe.losses_at, seen.public_samples.losses_at)
        )
        below = np.searchsorted(np.sort(public), canaries, side="right")
        memory["sum"] = memory.get("sum", 0.0) + below / len(public)
        return memory["sum"]


def _confidence(losses: Scores) -> Scores:
    """Return log(p / (1 − p)) of p = exp(−loss), kept finite."""
    losses = np.maximum(losses, 1e-7)
    return np.asarray(-losses - np.log(-np.expm1(-losses)))
