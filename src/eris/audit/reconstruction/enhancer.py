"""The network that makes a picture of what ROG found: twice as fine, and without the traces of the search.

It is trained on pictures that no attack is measured on, and that have been made coarse and noisy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from eris.audit.networks import Weights, load_network

__all__ = ["FACTOR", "Enhancer", "enhancer_for", "enhancer_of", "finer", "load_enhancer", "weights_of"]

FACTOR = 2  # how much finer the picture is than what was searched


class Enhancer(nn.Module):
    """Residual blocks on the coarse picture, then one pixel becomes four; what it adds to plain interpolation."""

    def __init__(self, *, channels: int = 3, width: int = 32, blocks: int = 4) -> None:
        super().__init__()
        self.head = nn.Conv2d(channels, width, 3, padding=1)
        self.blocks = nn.ModuleList(_Block(width) for _ in range(blocks))
        self.spread = nn.Conv2d(width, width * FACTOR**2, 3, padding=1)
        self.tail = nn.Conv2d(width, channels, 3, padding=1)
        for parameter in self.tail.parameters():  # at first it adds nothing
            nn.init.zeros_(parameter)

    def forward(self, coarse: Tensor) -> Tensor:
        """Return pictures twice as fine; their values may leave [0, 1] a little."""
        x = start = self.head(coarse)
        for block in self.blocks:
            x = block(x)
        x = torch.relu(functional.pixel_shuffle(self.spread(x + start), FACTOR))
        sides = [FACTOR * length for length in coarse.shape[-2:]]
        return finer(coarse, sides) + self.tail(x)  # type: ignore[no-any-return]


class _Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Add what two convolutions see."""
        return x + self.second(torch.relu(self.first(x)))  # type: ignore[no-any-return]


def finer(coarse: Tensor, sides: Sequence[int]) -> Tensor:
    """Return pictures interpolated to so many pixels, bicubically."""
    return functional.interpolate(coarse, list(sides), mode="bicubic", align_corners=False)


def enhancer_for(shape: tuple[int, int, int]) -> str | None:
    """Return the name of the enhancer for pictures of this shape, if there is one."""
    return {(3, 32, 32): "rog-cifar10", (1, 28, 28): "rog-mnist"}.get(shape)


def load_enhancer(name: str) -> Enhancer:
    """Return a trained enhancer from the cache."""
    return enhancer_of(load_network(name))


def enhancer_of(weights: Weights) -> Enhancer:
    """Return the enhancer with these weights."""
    channels, width = weights["head.weight"].shape[1], weights["head.weight"].shape[0]
    blocks = sum(key.endswith("first.weight") for key in weights)
    enhancer = Enhancer(channels=channels, width=width, blocks=blocks)
    enhancer.load_state_dict({key: torch.from_numpy(np.array(value)) for key, value in weights.items()})
    return enhancer.eval()


def weights_of(module: nn.Module) -> Weights:
    """Return a module's weights as arrays."""
    return {key: tensor.detach().numpy().astype(np.float32) for key, tensor in module.state_dict().items()}
