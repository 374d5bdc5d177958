"""Local optimizers on one flat vector.

They follow torch.optim's arithmetic, but act on the flat model in blocks that stay in the cache, and keep what they
remember in plain vectors, so that an engine can store it between rounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from eris.local.spec import Vector
from eris.local.task import Memory
from eris.local.torch_work import LocalWork

__all__ = ["Adam", "LocalOptimizer", "Sgd", "local_optimizer"]

_BLOCK = 1 << 15  # what a step reads and writes of it stays in the cache


class LocalOptimizer(Protocol):
    """Moves a model along a gradient."""

    def init(self, n: int) -> Memory:
        """Return what is remembered before the first step, for n coordinates."""
        ...

    def apply(self, model: Vector, gradient: Vector, memory: Memory) -> None:
        """Move `model` and `memory` in place; `gradient` may be overwritten."""
        ...

    def difference(self, start: Vector, model: Vector, gradient: Vector, memory: Memory, out: Vector) -> None:
        """Take the last step and write start − end to `out`, as `apply` and a subtraction would; `model` may stay."""
        ...

    def effective_steps(self, count: int) -> float:
        """Return how many plain gradient steps `count` steps from a fresh start amount to (FedNova's τ)."""
        ...


class Sgd:
    """x ← x − η m, m ← μ m + g + decay·x; without momentum m is the gradient itself."""

    def __init__(self, lr: float, momentum: float = 0.0, weight_decay: float = 0.0) -> None:
        self.lr, self.momentum, self.weight_decay = np.float32(lr), np.float32(momentum), np.float32(weight_decay)

    def init(self, n: int) -> Memory:
        """Return zero momentum, or nothing."""
        return {"momentum": np.zeros(n, np.float32)} if self.momentum else {}

    def apply(self, model: Vector, gradient: Vector, memory: Memory) -> None:
        """Move in place."""
        for block in _blocks(model.size):
            x = model[block]
            x -= self._step(block, x, gradient, memory)

    def difference(self, start: Vector, model: Vector, gradient: Vector, memory: Memory, out: Vector) -> None:
        """Subtract the end from the start while both lie in the cache; the model is not moved, nobody needs it."""
        for block in _blocks(start.size):
            x = model[block]
            end = self._step(block, x, gradient, memory)
            np.subtract(x, end, out=end)
            np.subtract(start[block], end, out=out[block])

    def _step(self, block: slice, x: Vector, gradient: Vector, memory: Memory) -> Vector:
        """Return η m on a block, in the gradient's memory, which is not needed any more."""
        g = gradient[block]
        m = memory["momentum"][block] if self.momentum else g
        if self.weight_decay:
            g += self.weight_decay * x
        if self.momentum:
            m *= self.momentum
            m += g
        return np.multiply(m, self.lr, out=g)

    def effective_steps(self, count: int) -> float:
        """Return Σ_i (1 − μ^i)/(1 − μ), which is `count` without momentum."""
        mu = float(self.momentum)
        return sum((1 - mu**step) / (1 - mu) for step in range(1, count + 1))


class Adam:
    """Adam; with `decoupled` weight decay, AdamW."""

    def __init__(
        self, lr: float, betas: tuple[float, float], eps: float, weight_decay: float, *, decoupled: bool
    ) -> None:
        self.lr, self.betas, self.eps = lr, betas, np.float32(eps)
        self.weight_decay, self.decoupled = weight_decay, decoupled

    def init(self, n: int) -> Memory:
        """Return zero moments and a step count of zero."""
        return {"first": np.zeros(n, np.float32), "second": np.zeros(n, np.float32), "count": np.zeros(1, np.float32)}

    def apply(self, model: Vector, gradient: Vector, memory: Memory) -> None:
        """Move in place, with bias correction."""
        memory["count"] += np.float32(1)
        count = int(memory["count"][0])
        one, two = self.betas
        step = np.float32(self.lr / (1 - one**count))
        root = np.float32((1 - two**count) ** -0.5)
        for block in _blocks(model.size):
            x, g = model[block], gradient[block]
            self._decay(x, g)
            m, v = memory["first"][block], memory["second"][block]
            m *= np.float32(one)
            m += np.float32(1 - one) * g
            v *= np.float32(two)
            v += np.float32(1 - two) * g * g
            x -= step * m / (np.sqrt(v) * root + self.eps)

    def difference(self, start: Vector, model: Vector, gradient: Vector, memory: Memory, out: Vector) -> None:
        """Move, and subtract the end from the start."""
        self.apply(model, gradient, memory)
        np.subtract(start, model, out=out)

    def effective_steps(self, count: int) -> float:
        """Return `count`: an adaptive step has no plain equivalent."""
        return float(count)

    def _decay(self, x: Vector, g: Vector) -> None:
        if self.weight_decay and self.decoupled:
            x *= np.float32(1 - self.lr * self.weight_decay)
        elif self.weight_decay:
            g += np.float32(self.weight_decay) * x


def local_optimizer(work: LocalWork) -> LocalOptimizer:
    """Return the optimizer that `work` names."""
    if work.optimizer == "sgd":
        return Sgd(work.lr, work.momentum, work.weight_decay)
    return Adam(work.lr, work.betas, work.eps, work.weight_decay, decoupled=work.optimizer == "adamw")


def _blocks(n: int) -> Iterator[slice]:
    return (slice(start, start + _BLOCK) for start in range(0, n, _BLOCK))
