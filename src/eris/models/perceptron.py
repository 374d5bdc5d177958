"""Logistic regression and the small multi-layer perceptron."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

__all__ = ["Logistic", "Perceptron"]


class Perceptron(nn.Module):
    """Linear layers with ReLU between them, on flattened inputs.

    There are `inputs` of them; `hidden` lists the widths of the layers between.
    """

    def __init__(self, *, inputs: int = 784, hidden: Sequence[int] = (64,), classes: int = 10) -> None:
        super().__init__()
        widths = [inputs, *hidden, classes]
        self.layers = nn.ModuleList(nn.Linear(wide, narrow) for wide, narrow in pairwise(widths))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        x = x.flatten(1)
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return self.layers[-1](x)  # type: ignore[no-any-return]


class Logistic(Perceptron):
    """One linear layer: a convex problem."""

    def __init__(self, *, inputs: int = 784, classes: int = 10) -> None:
        super().__init__(inputs=inputs, hidden=(), classes=classes)
