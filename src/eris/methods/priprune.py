"""PriPrune: the largest values of an update are withheld from the server.

As in the experiments of ERIS' paper they are lost; with pseudo-pruning a member goes on training with them.
"""

from __future__ import annotations

from eris.config import Config
from eris.methods.method import Method
from eris.transforms import Transform, prune

__all__ = ["PRIPRUNE", "PRIPRUNE_PSEUDO"]


def _lost(config: Config) -> Transform:
    return prune(config.baselines.prune)


def _kept(config: Config) -> Transform:
    return prune(config.baselines.prune, keep_withheld=True)


PRIPRUNE = Method("priprune", "one server sees all but the largest values", _lost, server=True)
PRIPRUNE_PSEUDO = Method(
    "priprune-pseudo", "the same, and members train on with what they withhold", _kept, server=True
)
