"""How the gradient of one batch is taken: all at once, or in parts.

This is also where a differentially private step belongs, which clips every sample's gradient and adds noise to their
sum: it is one more function of this kind, handed to `TorchTask` as `gradient`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np
import torch

from eris.local.torch_examples import Batch, count_of, mapped
from eris.local.torch_module import FlatModule
from eris.local.torch_objective import Objective
from eris.local.torch_work import LocalWork
from eris.seeds import Seed

__all__ = ["AccumulatedGradient", "BoundedGradient", "LocalGradient", "gradient_of", "mean_gradient"]

LocalGradient = Callable[[FlatModule, Objective, Batch, Seed, int], float]
"""Writes the gradient of a batch into the module's `gradient` and returns the loss.

The seed (of this member and round, private) and the number of the step are for noise of its own.
"""


def mean_gradient(flat: FlatModule, objective: Objective, batch: Batch, seed: Seed, step: int) -> float:
    """Take the gradient of the mean loss over the batch."""
    del seed, step
    return flat.differentiate(objective, *batch)


class AccumulatedGradient:
    """The same gradient from parts of the batch, one after another: the memory of `size` samples is enough."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __call__(self, flat: FlatModule, objective: Objective, batch: Batch, seed: Seed, step: int) -> float:
        """Add up the gradients of the parts, each weighted by its samples."""
        del seed, step
        count, loss = count_of(batch), 0.0
        total = torch.zeros_like(flat.flat_gradient)
        for start in range(0, count, self._size):
            part = slice(start, start + self._size)
            share = (min(start + self._size, count) - start) / count
            inputs, targets = (mapped(each, operator.itemgetter(part)) for each in batch)
            loss += share * flat.differentiate(objective, inputs, targets)
            total += float(np.float32(share)) * flat.flat_gradient
        flat.flat_gradient.copy_(total)
        return loss


class BoundedGradient:
    """A gradient that is cut down to a norm if it is longer; no privacy, only calm steps."""

    def __init__(self, gradient: LocalGradient, bound: float) -> None:
        self._gradient, self._bound = gradient, bound

    def __call__(self, flat: FlatModule, objective: Objective, batch: Batch, seed: Seed, step: int) -> float:
        """Take it and cut it down."""
        loss = self._gradient(flat, objective, batch, seed, step)
        norm = flat.flat_gradient.norm().item()
        if norm > self._bound:
            flat.flat_gradient.mul_(self._bound / norm)
        return loss


def gradient_of(work: LocalWork) -> LocalGradient:
    """Return what `work` asks for."""
    gradient: LocalGradient = mean_gradient if work.micro_batch is None else AccumulatedGradient(work.micro_batch)
    return gradient if work.max_norm is None else BoundedGradient(gradient, work.max_norm)
