"""Compute the gradient of one batch: all at once, or in parts.

A differentially private step, which clips every sample's gradient and adds noise to their sum, is one more function of
this kind, passed to `TorchTask` as `gradient`.
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

It is called with the module, the objective, the batch, a private seed for this member and round, and the number of the
step; the last two are for noise.
"""


def mean_gradient(flat: FlatModule, objective: Objective, batch: Batch, seed: Seed, step: int) -> float:
    """Compute the gradient of the mean loss over the batch.

    It is written into `flat`, the network; `seed` and `step` are for gradients with noise.
    """
    del seed, step
    return flat.differentiate(objective, *batch)


class AccumulatedGradient:
    """Computes the same gradient from parts of the batch, one after another, in the memory of `size` samples."""

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
    """Scales a gradient down to a norm if it is longer; this keeps steps small and gives no privacy."""

    def __init__(self, gradient: LocalGradient, bound: float) -> None:
        self._gradient, self._bound = gradient, bound

    def __call__(self, flat: FlatModule, objective: Objective, batch: Batch, seed: Seed, step: int) -> float:
        """Compute the gradient and scale it down."""
        loss = self._gradient(flat, objective, batch, seed, step)
        norm = flat.flat_gradient.norm().item()
        if norm > self._bound:
            flat.flat_gradient.mul_(self._bound / norm)
        return loss


def gradient_of(work: LocalWork) -> LocalGradient:
    """Return the gradient function that `work` asks for."""
    gradient: LocalGradient = mean_gradient if work.micro_batch is None else AccumulatedGradient(work.micro_batch)
    return gradient if work.max_norm is None else BoundedGradient(gradient, work.max_norm)
