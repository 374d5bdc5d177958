"""Local optimizers on one flat vector.

They follow torch.optim's arithmetic, but act on the flat model in blocks that stay in the cache, and keep their state
in plain vectors, so that an engine can store it between rounds. On an accelerator torch.optim itself takes the steps,
on the flat tensor, and its state is fetched into the same vectors once a round.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatch
from typing import Any, Protocol

import numpy as np
import torch

from eris.errors import ConfigError
from eris.local.spec import Vector
from eris.local.task import Memory
from eris.local.torch_module import FlatModule
from eris.local.torch_work import LocalWork

__all__ = [
    "Adam",
    "DeviceSteps",
    "HostSteps",
    "LocalOptimizer",
    "PacedSteps",
    "RoundSteps",
    "Sgd",
    "local_optimizer",
    "pace_at",
    "round_steps",
]

_BLOCK = 1 << 15  # values per block: what a step reads and writes stays in the cache


class LocalOptimizer(Protocol):
    """Moves a model along a gradient."""

    lr: Any

    def init(self, n: int) -> Memory:
        """Return the state before the first step, for n coordinates."""
        ...

    def apply(self, model: Vector, gradient: Vector, memory: Memory) -> None:
        """Move `model` and `memory` in place; `gradient` may be overwritten."""
        ...

    def difference(self, start: Vector, model: Vector, gradient: Vector, memory: Memory, out: Vector) -> None:
        """Take the last step and write start − end to `out`; `model` itself need not be moved."""
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
        """Subtract the end from the start while both are in the cache; the model is not moved, as nobody needs it."""
        for block in _blocks(start.size):
            x = model[block]
            end = self._step(block, x, gradient, memory)
            np.subtract(x, end, out=end)
            np.subtract(start[block], end, out=out[block])

    def _step(self, block: slice, x: Vector, gradient: Vector, memory: Memory) -> Vector:
        """Return η m on a block, in the memory of the gradient, which is no longer needed."""
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


class RoundSteps(Protocol):
    """The steps that one member takes in one round, on one network."""

    def apply(self) -> None:
        """Move along the gradient that was computed last."""
        ...

    def finish(self, start: Vector, out: Vector) -> None:
        """Take the last step and write start − end to `out`, trainable values and buffers."""
        ...

    def go_at(self, lr: float) -> None:
        """Take the coming steps at another rate."""
        ...


def round_steps(flat: FlatModule, work: LocalWork, state: Memory, own_state: Memory, count: int = 1) -> RoundSteps:
    """Return what takes `count` steps on this network.

    `state` and, for personal values, `own_state` hold what the optimizer remembers; both are changed in place.

    `flat` is the network, `work` what the settings say about local training.
    """
    paced = work.pace != "constant" or work.warmup or (work.undecayed and work.weight_decay)
    plain = replace(work, weight_decay=0.0) if paced else work
    steps: RoundSteps
    if flat.on_host:
        steps = HostSteps(flat, local_optimizer(plain), state, own_state)
    else:
        steps = DeviceSteps(flat, plain, state, own_state)
    return PacedSteps(steps, flat, work, count) if paced else steps


class PacedSteps:
    """Steps whose rate rises and falls over the round; applies weight decay itself, to the tensors that have it.

    Args:
        steps: takes the steps.
        flat: the network.
        work: rate, pace and weight decay.
        count: how many steps the round has.
    """

    def __init__(self, steps: RoundSteps, flat: FlatModule, work: LocalWork, count: int) -> None:
        if work.weight_decay and work.optimizer != "adamw":
            raise ConfigError(
                f"{work.optimizer} does not combine weight decay with a learning rate that changes over the round",
                fix="use adamw, or no weight decay",
            )
        self._steps, self._flat, self._work = steps, flat, work
        self._count, self._done = count, 0
        places = flat.spec.slices if work.weight_decay else {}
        trained = {name: place for name, place in places.items() if place.start < flat.spec.n_trainable}
        self._decayed = [p for name, p in trained.items() if not any(fnmatch(name, each) for each in work.undecayed)]

    def apply(self) -> None:
        """Move at this step's rate."""
        self._prepare()
        self._steps.apply()

    def finish(self, start: Vector, out: Vector) -> None:
        """Take the last step at its rate."""
        self._prepare()
        self._steps.finish(start, out)

    def go_at(self, lr: float) -> None:
        """Not supported: this object sets the rates itself."""
        raise NotImplementedError

    def _prepare(self) -> None:
        lr = self._work.lr * pace_at(self._work, self._done, self._count)
        self._done += 1
        self._steps.go_at(lr)
        for place in self._decayed:
            self._flat.flat[place].mul_(1 - lr * self._work.weight_decay)


def pace_at(work: LocalWork, step: int, count: int) -> float:
    """Return the factor of `lr` at step number `step` of `count`.

    >>> [pace_at(LocalWork(pace="linear", warmup=2), step, 6) for step in range(6)]
    [0.0, 0.5, 1.0, 0.75, 0.5, 0.25]
    """
    if step < work.warmup:
        return step / work.warmup
    share = (step - work.warmup) / max(1, count - work.warmup)
    if work.pace == "linear":
        return max(0.0, 1.0 - share)
    return 0.5 * (1.0 + math.cos(math.pi * min(1.0, share))) if work.pace == "cosine" else 1.0


class HostSteps:
    """Steps on the processor, on memory that the network and numpy share.

    `state` is what `optimizer` remembers for the shared values of `flat`, `own_state` for personal ones.
    """

    def __init__(self, flat: FlatModule, optimizer: LocalOptimizer, state: Memory, own_state: Memory) -> None:
        self._flat, self._optimizer, self._state, self._own_state = flat, optimizer, state, own_state

    def apply(self) -> None:
        """Move in place."""
        flat = self._flat
        self._optimizer.apply(flat.trainable, flat.gradient, self._state)
        self._apply_own()

    def finish(self, start: Vector, out: Vector) -> None:
        """Take the difference while both ends are in the cache."""
        flat, n = self._flat, self._flat.spec.n_trainable
        self._optimizer.difference(start[:n], flat.trainable, flat.gradient, self._state, out[:n])
        np.subtract(start[n:], flat.vector[n:], out=out[n:])
        self._apply_own()

    def go_at(self, lr: float) -> None:
        """Take the coming steps at another rate."""
        self._optimizer.lr = np.float32(lr) if isinstance(self._optimizer, Sgd) else lr

    def _apply_own(self) -> None:
        if self._flat.n_personal:
            self._optimizer.apply(self._flat.personal, self._flat.personal_gradient, self._own_state)


class DeviceSteps:
    """Steps on the network's device; model and optimizer state are copied there and back once a round.

    `state` is what the optimizer remembers for the shared values of `flat`, `own_state` for personal ones.
    """

    _NAMES = ("momentum_buffer", "momentum"), ("exp_avg", "first"), ("exp_avg_sq", "second"), ("step", "count")

    def __init__(self, flat: FlatModule, work: LocalWork, state: Memory, own_state: Memory) -> None:
        n, n_trainable = flat.spec.n, flat.spec.n_trainable
        shared = flat.flat[:n_trainable], flat.flat_gradient[:n_trainable], state
        own = flat.flat[n:], flat.flat_gradient[n_trainable:], own_state
        self._flat = flat
        self._parts = [part for part in (shared, own) if part[0].numel()]
        for values, gradient, _ in self._parts:
            values.grad = gradient
        self._optimizer = _torch_optimizer(work, [values for values, _, _ in self._parts])
        for values, _, memory in self._parts:
            self._optimizer.state[values] = self._on_device(memory)

    def apply(self) -> None:
        """Move in place."""
        self._optimizer.step()

    def finish(self, start: Vector, out: Vector) -> None:
        """Move, then fetch the model and the optimizer state."""
        self._optimizer.step()
        np.subtract(start, self._flat.read(), out=out)
        for values, _, memory in self._parts:
            kept = self._optimizer.state[values]
            for theirs, ours in self._NAMES:
                if ours in memory:
                    memory[ours][:] = kept[theirs].reshape(-1).cpu().numpy()
            values.grad = None

    def go_at(self, lr: float) -> None:
        """Take the coming steps at another rate."""
        for group in self._optimizer.param_groups:
            group["lr"] = lr

    def _on_device(self, memory: Memory) -> dict[str, torch.Tensor]:
        named = {theirs: torch.tensor(memory[ours]) for theirs, ours in self._NAMES if ours in memory}
        state = {name: value.to(self._flat.device) for name, value in named.items() if name != "step"}
        return state | ({"step": named["step"].reshape(())} if "step" in named else {})


def _torch_optimizer(work: LocalWork, values: list[torch.Tensor]) -> torch.optim.Optimizer:
    if work.optimizer == "sgd":
        return torch.optim.SGD(values, work.lr, momentum=work.momentum, weight_decay=work.weight_decay)
    kind = torch.optim.AdamW if work.optimizer == "adamw" else torch.optim.Adam
    return kind(values, work.lr, betas=work.betas, eps=work.eps, weight_decay=work.weight_decay)


def _blocks(n: int) -> Iterator[slice]:
    return (slice(start, start + _BLOCK) for start in range(0, n, _BLOCK))
