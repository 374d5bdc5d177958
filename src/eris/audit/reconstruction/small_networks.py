"""The small networks on which reconstruction was first shown.

Those with sigmoids are smooth, so a search that uses curvature works well; ROG's has ReLU and pooling, and no bias in
its last layer.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["SigmoidLeNet", "SigmoidPerceptron", "TwoConvolutions"]


class SigmoidLeNet(nn.Module):
    """Three convolutions of 12 channels with sigmoids, one linear layer; 13,426 weights for 28 × 28 grey pictures.

    `size` is the side of a picture; weights start uniformly in ± `spread`.

    >>> sum(weight.numel() for weight in SigmoidLeNet().parameters())
    13426
    >>> sum(weight.numel() for weight in SigmoidLeNet(channels=3, size=32).parameters())
    15826
    """

    def __init__(self, *, channels: int = 1, classes: int = 10, size: int = 28, spread: float = 0.5) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 12, 5, padding=2, stride=2)
        self.conv2 = nn.Conv2d(12, 12, 5, padding=2, stride=2)
        self.conv3 = nn.Conv2d(12, 12, 5, padding=2)
        side = (size + 3) // 4  # halved twice, rounded up
        self.fc = nn.Linear(12 * side * side, classes)
        _spread_out(self, spread)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        for convolution in (self.conv1, self.conv2, self.conv3):
            x = torch.sigmoid(convolution(x))
        return self.fc(x.flatten(1))  # type: ignore[no-any-return]


class SigmoidPerceptron(nn.Module):
    """One hidden layer with sigmoids; 2,410 weights for inputs of 64 values and 32 hidden units.

    Weights start uniformly in ± `spread`.

    >>> sum(weight.numel() for weight in SigmoidPerceptron(inputs=64).parameters())
    2410
    """

    def __init__(self, *, inputs: int = 784, hidden: int = 32, classes: int = 10, spread: float = 0.5) -> None:
        super().__init__()
        self.fc1 = nn.Linear(inputs, hidden)
        self.fc2 = nn.Linear(hidden, classes)
        _spread_out(self, spread)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        return self.fc2(torch.sigmoid(self.fc1(x.flatten(1))))  # type: ignore[no-any-return]


def _spread_out(module: nn.Module, spread: float) -> None:
    for parameter in module.parameters():
        nn.init.uniform_(parameter, -spread, spread)


class TwoConvolutions(nn.Module):
    """Two convolutions of 5 × 5 with pooling, two linear layers; 878,528 weights for 32 × 32 colour pictures.

    `size` is the side of a picture.

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
