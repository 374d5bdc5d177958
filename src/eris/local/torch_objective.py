"""What is minimised, and how it is scored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["Classification", "Objective", "Score"]


@dataclass(frozen=True, slots=True)
class Score:
    """Sums over one batch: of the loss, of the scored items, and of hits and items for each class."""

    loss: float
    items: int
    hits: Tensor
    totals: Tensor


class Objective(Protocol):
    """A mean loss to differentiate, and sums to report."""

    def loss(self, module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of a batch."""
        ...

    def score(self, module: nn.Module, inputs: Tensor, targets: Tensor) -> Score:
        """Return sums over a batch; called without gradients."""
        ...


class Classification:
    """Cross-entropy of logits (N × classes) with labels (N)."""

    def loss(self, module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy."""
        return functional.cross_entropy(module(inputs), targets)

    def score(self, module: nn.Module, inputs: Tensor, targets: Tensor) -> Score:
        """Return summed cross-entropy and, for each class, how many were right."""
        logits = module(inputs)
        losses = functional.cross_entropy(logits, targets, reduction="none")
        classes = logits.shape[1]
        hits = torch.bincount(targets[logits.argmax(1) == targets], minlength=classes)
        loss = losses.double().sum().item()
        return Score(loss, len(targets), hits, torch.bincount(targets, minlength=classes))
