"""Attacks that recover a member's samples from what an observer saw of its update.

What was seen (`observation`) is collected from a run (`collect`) and set up for attacks (`attack_setup`). All attacks
are in one table (`attack`): searches (`boxed`, `dlg`, `inverting_gradients`, `gauss_newton`), algebra (`rank_one`), and
those that have learned what pictures look like (`rog`, `ggl`). `scores` compares with the originals, and `run` runs the
whole audit. Everything that computes needs torch, so only the contract is imported here.
"""

from __future__ import annotations

from eris.audit.reconstruction.attack import (
    RECONSTRUCTION_ATTACKS,
    Labels,
    Mode,
    ReconstructionAttack,
    Recovered,
    reconstruction_attack,
    register_reconstruction_attack,
)
from eris.audit.reconstruction.observation import Handling, LocalSteps, UpdateObservation

__all__ = [
    "RECONSTRUCTION_ATTACKS",
    "Handling",
    "Labels",
    "LocalSteps",
    "Mode",
    "ReconstructionAttack",
    "Recovered",
    "UpdateObservation",
    "reconstruction_attack",
    "register_reconstruction_attack",
]
