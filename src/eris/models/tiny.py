"""A network small enough for a test, with the buffers that make federated averaging awkward."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["TinyBatchNorm"]


class TinyBatchNorm(nn.Module):
    """One convolution with batch normalisation and a linear layer.

    `channels` are the picture's, `width` those of the convolution.
    """

    def __init__(self, *, channels: int = 1, classes: int = 10, width: int = 4) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, width, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.classifier = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        return self.classifier(torch.relu(self.norm(self.conv(x))).mean((2, 3)))  # type: ignore[no-any-return]
