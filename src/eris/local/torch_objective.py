"""What is minimised, and how it is scored."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["Classification", "Objective", "Score"]


@dataclass(frozen=True, slots=True)
class Score:
    """Sums over one batch: of the loss over its items (samples, or tokens), and of hits and items for each class."""

    loss: float
    items: int
    hits: Tensor
    totals: Tensor
    samples: int = 0
    sums: dict[str, float] = field(default_factory=dict)  # of further metrics over the samples

    def __add__(self, other: Score) -> Score:
        return Score(
            self.loss + other.loss,
            self.items + other.items,
            self.hits + other.hits,
            self.totals + other.totals,
            self.samples + other.samples,
            {name: value + other.sums[name] for name, value in self.sums.items()},
        )

    def means(self) -> dict[str, float]:
        """Return loss and accuracy by item, further metrics by sample."""
        means = {"loss": self.loss / self.items, "accuracy": self.hits.sum().item() / self.items}
        return means | {name: value / self.samples for name, value in self.sums.items()}

    def by_class(self) -> dict[str, float]:
        """Return the accuracy of each class that occurs."""
        pairs = zip(self.hits.tolist(), self.totals.tolist(), strict=True)
        return {f"accuracy/{label}": hit / total for label, (hit, total) in enumerate(pairs) if total}


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

    def losses(self, module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the cross-entropy of each sample."""
        return functional.cross_entropy(module(inputs), targets, reduction="none")

    def score(self, module: nn.Module, inputs: Tensor, targets: Tensor) -> Score:
        """Return summed cross-entropy and, for each class, how many were right."""
        logits = module(inputs)
        losses = functional.cross_entropy(logits, targets, reduction="none")
        classes = logits.shape[1]
        hits = torch.bincount(targets[logits.argmax(1) == targets], minlength=classes)
        loss = losses.double().sum().item()
        return Score(loss, len(targets), hits, torch.bincount(targets, minlength=classes), len(targets))
