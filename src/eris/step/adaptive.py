"""Adaptive server steps: FedAdagrad, FedAdam, FedYogi (Reddi et al.).

    m ← β₁ m + (1 − β₁) u          q ← each by its own rule          x ← x − η m / (√q + τ)

q starts at τ² and there is no bias correction. Every operation is an elementwise addition, multiplication, division or
square root, each correctly rounded, in a fixed order: the same bits on every machine and for every cut into shards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from eris.local.spec import Vector
from eris.step.blockwise import Blockwise, require_between, require_positive
from eris.step.optimizer import State

__all__ = ["FedAdagrad", "FedAdam", "FedYogi"]


@dataclass(frozen=True)
class _Adaptive(Blockwise):
    """What the three share: momentum, and a step divided by √q + τ."""

    lr: float = 0.1
    beta1: float = 0.9
    tau: float = 1e-3

    keeps: ClassVar[tuple[str, ...]] = ("momentum", "second")

    def __post_init__(self) -> None:
        require_positive("lr", self.lr)
        require_between("beta1", self.beta1)
        require_positive("tau", self.tau)
        require_positive("tau²", self.tau**2)

    def init(self, n: int) -> State:
        """Return m = 0, q = τ²."""
        return {"momentum": np.zeros(n, np.float32), "second": np.full(n, self.tau**2, np.float32)}

    def step(self, model: Vector, direction: Vector, state: State, scratch: tuple[Vector, Vector]) -> None:
        """Move one block."""
        momentum, second, (move, root) = state["momentum"], state["second"], scratch
        np.multiply(momentum, np.float32(self.beta1), out=momentum)
        np.add(momentum, np.multiply(direction, np.float32(1 - self.beta1), out=move), out=momentum)
        self.advance(second, np.multiply(direction, direction, out=move), root)
        np.add(np.sqrt(second, out=root), np.float32(self.tau), out=root)
        np.multiply(np.divide(momentum, root, out=move), np.float32(self.lr), out=move)
        np.subtract(model, move, out=model)

    def advance(self, second: Vector, square: Vector, scratch: Vector) -> None:
        """Advance one block of q in place, given u²; both `square` and `scratch` may be overwritten."""
        raise NotImplementedError


@dataclass(frozen=True)
class FedAdagrad(_Adaptive):
    """q ← q + u²."""

    name: ClassVar[str] = "fedadagrad"

    def advance(self, second: Vector, square: Vector, scratch: Vector) -> None:
        """Add the square."""
        del scratch
        np.add(second, square, out=second)


@dataclass(frozen=True)
class _Forgetting(_Adaptive):
    """An optimizer whose q forgets old squares at the rate β₂."""

    beta2: float = 0.99

    def __post_init__(self) -> None:
        super().__post_init__()
        require_between("beta2", self.beta2)


@dataclass(frozen=True)
class FedAdam(_Forgetting):
    """q ← β₂ q + (1 − β₂) u²."""

    name: ClassVar[str] = "fedadam"

    def advance(self, second: Vector, square: Vector, scratch: Vector) -> None:
        """Move towards the square by a fixed share."""
        del scratch
        np.multiply(second, np.float32(self.beta2), out=second)
        np.add(second, np.multiply(square, np.float32(1 - self.beta2), out=square), out=second)


@dataclass(frozen=True)
class FedYogi(_Forgetting):
    """q ← q − (1 − β₂) u² sign(q − u²): towards the square, by a step that does not depend on how far q is."""

    name: ClassVar[str] = "fedyogi"

    def advance(self, second: Vector, square: Vector, scratch: Vector) -> None:
        """Move towards the square by a share of the square."""
        np.subtract(np.greater(second, square), np.less(second, square), out=scratch, dtype=np.float32)
        np.multiply(square, np.float32(1 - self.beta2), out=square)
        np.subtract(second, np.multiply(square, scratch, out=square), out=second)
