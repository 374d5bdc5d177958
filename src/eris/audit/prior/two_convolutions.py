"""The network on which ROG was shown: small, with ReLU and pooling, and no bias in its last layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["TwoConvolutions"]


class TwoConvolutions(nn.Module):
    """Two convolutions of 5 × 5 with pooling, two linear layers; 878,528 weights for 32 × 32 colour pictures.

    >>> sum(weight.numel() for weight in TwoConvolutions().parameters())
    878528
    """

    def __init__(self, *, channels: int = 3, classes: int = 10, size: int = 32) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 32, 5)
        self.conv2 = nn.Conv2d(32, 64, 5)
        side = ((size - 4) // 2 - 4) // 2
        self.fc1 = nn.Linear(64 * side * side, 512)
        self.fc2 = nn.Linear(512, classes, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        for convolution in (self.conv1, self.conv2):
            x = functional.max_pool2d(torch.relu(convolution(x)), 2)
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))  # type: ignore[no-any-return]
