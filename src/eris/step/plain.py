"""Server steps without adaptivity: FedAvg, FedAvgM, and FedNova's half that runs at every peer.

The direction u is minus the mean change of the members' weights, so every step is x ← x − η·f(u).

>>> model, direction = np.array([1.0], np.float32), np.array([0.25], np.float32)
>>> FedAvg(lr=2.0).apply(model, direction, {})
>>> model.tolist()
[0.5]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from eris.local.spec import Vector
from eris.step.blockwise import Blockwise, require_between, require_positive
from eris.step.optimizer import State

__all__ = ["FedAvg", "FedAvgM", "FedNova"]


@dataclass(frozen=True)
class FedAvg(Blockwise):
    """x ← x − η u; η = 1 puts the model where the members' mean is."""

    lr: float = 1.0

    name: ClassVar[str] = "fedavg"

    def __post_init__(self) -> None:
        require_positive("lr", self.lr)

    def step(self, model: Vector, direction: Vector, state: State, scratch: tuple[Vector, Vector]) -> None:
        """Move one block."""
        del state
        rate = np.float32(self.lr)
        move = direction if rate == 1 else np.multiply(direction, rate, out=scratch[0])  # × 1 changes no bit
        np.subtract(model, move, out=model)


@dataclass(frozen=True)
class FedNova(FedAvg):
    """FedAvg's step; updates are normalised by their local steps in the transform `normalise_steps`."""

    name: ClassVar[str] = "fednova"


@dataclass(frozen=True)
class FedAvgM(Blockwise):
    """Server momentum: m ← β m + u; x ← x − η m."""

    lr: float = 1.0
    beta: float = 0.9

    name: ClassVar[str] = "fedavgm"
    keeps: ClassVar[tuple[str, ...]] = ("momentum",)

    def __post_init__(self) -> None:
        require_positive("lr", self.lr)
        require_between("beta", self.beta)

    def step(self, model: Vector, direction: Vector, state: State, scratch: tuple[Vector, Vector]) -> None:
        """Move one block."""
        momentum = state["momentum"]
        np.multiply(momentum, np.float32(self.beta), out=momentum)
        np.add(momentum, direction, out=momentum)
        move = np.multiply(momentum, np.float32(self.lr), out=scratch[0])
        np.subtract(model, move, out=model)
