"""ResNet-9 at half width, without normalisation layers."""

from __future__ import annotations

from torch import Tensor, nn

__all__ = ["ResNet9"]


def _conv(inputs: int, outputs: int, *, pool: bool = False) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, *([nn.MaxPool2d(2)] if pool else []))


class _Residual(nn.Module):
    """Two convolutions of one width around which the input is carried."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(_conv(width, width), _conv(width, width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)  # type: ignore[no-any-return]


class ResNet9(nn.Module):
    """Eight 3 × 3 convolutions and a linear layer; 1,652,682 parameters for 32 × 32 colour pictures.

    Pictures have `channels` × `size` × `size` values.
    """

    def __init__(self, *, channels: int = 3, classes: int = 10, size: int = 32) -> None:
        super().__init__()
        self.features = nn.Sequential(
            _conv(channels, 32),
            _conv(32, 64, pool=True),
            _Residual(64),
            _conv(64, 128, pool=True),
            _conv(128, 256, pool=True),
            _Residual(256),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Linear(256 * (size // 16) ** 2, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        return self.classifier(self.features(x).flatten(1))  # type: ignore[no-any-return]
