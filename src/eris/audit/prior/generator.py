"""What GGL needs of a generator: a few latents and a class in, a picture out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from eris.audit.networks import Weights, load_network
from eris.audit.prior.digits import DigitGenerator
from eris.audit.prior.faces import Dcgan, Progan
from eris.errors import ConfigError

__all__ = ["Generator", "fitted", "generator_for", "load_generator"]

_GREY = (0.299, 0.587, 0.114)


class Generator(Protocol):
    """Makes pictures in [0, 1] of standard normal latents."""

    @property
    def latents(self) -> int:
        """How many numbers make a picture."""
        ...

    def __call__(self, latents: Tensor, labels: Tensor) -> Tensor:
        """Return a picture for each row of latents and its label."""
        ...


_GENERATORS: dict[str, Callable[[Weights], Generator]] = {
    "ggl-mnist": DigitGenerator,
    "progan-128": Progan,
    "dcgan-64": Dcgan,
}


def generator_for(shape: tuple[int, int, int]) -> str:
    """Return the name of the generator for pictures of this shape."""
    if shape == (1, 28, 28):
        return "ggl-mnist"
    raise ConfigError(f"no generator is known for pictures of {shape}", fix=f"name one of {sorted(_GENERATORS)}")


def load_generator(name: str) -> Generator:
    """Return a generator from the cache."""
    if name not in _GENERATORS:
        raise ConfigError(f"there is no generator {name!r}", fix=f"use one of {sorted(_GENERATORS)}")
    return _GENERATORS[name](load_network(name))


def fitted(pictures: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """Return generated pictures in the form that a network takes: grey or colour, and of its size."""
    channels, *sides = shape
    if channels == 1 and pictures.shape[1] == 3:
        pictures = (pictures * pictures.new_tensor(_GREY).view(1, 3, 1, 1)).sum(1, keepdim=True)
    coloured = pictures.expand(-1, channels, -1, -1)
    if list(coloured.shape[2:]) == sides:
        return coloured
    resized: Tensor = functional.interpolate(coloured, sides, mode="bilinear", align_corners=False, antialias=True)
    return torch.clamp(resized, 0, 1)
