"""LeNet-5."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["LeNet5"]


class LeNet5(nn.Module):
    """Two convolutions with average pooling, three linear layers, ReLU; 61,706 parameters for 28 × 28 grey digits.

    Pictures have `channels` × `size` × `size` values.
    """

    def __init__(self, *, channels: int = 1, classes: int = 10, size: int = 28) -> None:
        super().__init__()
        side = (size // 2 - 4) // 2
        self.conv1 = nn.Conv2d(channels, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * side * side, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        x = functional.avg_pool2d(torch.relu(self.conv1(x)), 2)
        x = functional.avg_pool2d(torch.relu(self.conv2(x)), 2)
        x = torch.relu(self.fc1(x.flatten(1)))
        x = torch.relu(self.fc2(x))
        return self.fc3(x)  # type: ignore[no-any-return]
