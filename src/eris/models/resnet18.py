"""ResNet-18 with batch normalisation."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

__all__ = ["ResNet18"]


class _Block(nn.Module):
    """Two 3 × 3 convolutions with batch normalisation; a 1 × 1 one beside them where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class ResNet18(nn.Module):
    """Four stages of two residual blocks; 11,689,512 parameters for 1,000 classes of 224 × 224 pictures.

    The stem ``imagenet`` shrinks the picture by four before the first stage; ``cifar``, a 3 × 3 convolution, does not.

    `channels` are the picture's, `width` those of the first stage.
    """

    def __init__(
        self, *, channels: int = 3, classes: int = 10, stem: Literal["imagenet", "cifar"] = "cifar", width: int = 64
    ) -> None:
        super().__init__()
        self.stem = _stem(stem, channels, width)
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        stages = []
        for stage in range(4):
            stride = 1 if stage == 0 else 2
            first = _Block(widths[stage], widths[stage + 1], stride)
            stages.append(nn.Sequential(first, _Block(widths[stage + 1], widths[stage + 1], 1)))
        self.stages = nn.Sequential(*stages)
        self.classifier = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        return self.classifier(self.stages(self.stem(x)).mean((2, 3)))  # type: ignore[no-any-return]


def _stem(kind: str, channels: int, width: int) -> nn.Sequential:
    if kind == "cifar":
        return nn.Sequential(nn.Conv2d(channels, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
    convolution = nn.Conv2d(channels, width, 7, 2, 3, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
