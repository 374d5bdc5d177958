"""PriPrune: the largest values of an update are withheld from the server.

As in the ERIS paper's experiments they are lost; with pseudo-pruning a member keeps training with them.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from eris.config import Config
from eris.methods.method import Method, MethodFacts, MethodOptions, Planned
from eris.transforms import Transform, prune
from eris.transforms.sparsify import share_of

__all__ = ["PRIPRUNE", "PRIPRUNE_PSEUDO"]


class PruneOptions(MethodOptions):
    """How much is withheld."""

    prune: Annotated[float, Field(gt=0, lt=1)] = Field(default=0.01, description="withheld share p")


def _lost(config: Config) -> Transform:
    return prune(PRIPRUNE.settings(config).prune)


def _kept(config: Config) -> Transform:
    return prune(PRIPRUNE_PSEUDO.settings(config).prune, keep_withheld=True)


def _facts(method: str) -> MethodFacts:
    def withheld(round: Planned) -> float:
        return float(PruneOptions.model_validate(round.config.options.get(method, {})).prune)

    def upload(round: Planned) -> float:
        """Withheld positions depend on the data, so they travel: as a bitmap, or as zeros where those are shorter.

        If few values are left, a list of their positions travels instead.
        """
        kept = round.n - share_of(withheld(round), round.n, round_up=True)
        return 4 * (kept + round.buffers) + min(math.ceil(round.n / 8), 4 * min(round.n - kept, kept))

    return MethodFacts(kept=lambda round: 1 - withheld(round), upload=upload)


PRIPRUNE = Method(
    "priprune",
    "one server sees all but the largest values",
    _lost,
    server=True,
    label="PriPrune",
    options=PruneOptions,
    facts=_facts("priprune"),
)
PRIPRUNE_PSEUDO = replace(
    PRIPRUNE,
    name="priprune-pseudo",
    summary="the same, and members train on with what they withhold",
    packing=_kept,
    label="PriPrune, pseudo",
    facts=_facts("priprune-pseudo"),
)
