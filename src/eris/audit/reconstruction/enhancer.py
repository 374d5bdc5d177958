"""The network that enhances ROG's coarse pictures: twice the resolution, without the artefacts of the search.

It is trained on pictures that no attack is measured on, made coarse and noisy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from eris.audit.networks import Weights, load_network

__all__ = ["FACTOR", "Enhancer", "enhancer_for", "enhancer_of", "finer", "load_enhancer", "weights_of"]

FACTOR = 2  # how much finer the enhanced picture is than the coarse one


class Enhancer(nn.Module):
    """Residual blocks on the coarse picture, then each pixel becomes four; the result is added to an interpolation.

    Args:
        channels: of the pictures.
        width: channels between the first and the last convolution.
        blocks: how many residual blocks there are.
    """

    def __init__(self, *, channels: int = 3, width: int = 32, blocks: int = 4) -> None:
        super().__init__()
        self.head = nn.Conv2d(channels, width, 3, padding=1)
        self.blocks = nn.ModuleList(_Block(width) for _ in range(blocks))
        self.spread = nn.Conv2d(width, width * FACTOR**2, 3, padding=1)
        self.tail = nn.Conv2d(width, channels, 3, padding=1)
        for parameter in self.tail.parameters():  # so that it adds nothing at first
            nn.init.zeros_(parameter)

    def forward(self, coarse: Tensor) -> Tensor:
        """Return pictures of twice the resolution; their values may leave [0, 1] slightly."""
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
        """Add the output of two convolutions to the input."""
        return x + self.second(torch.relu(self.first(x)))  # type: ignore[no-any-return]


def finer(coarse: Tensor, sides: Sequence[int]) -> Tensor:
    """Return pictures interpolated bicubically to height × width `sides`."""
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
