"""Generators for GGL, which turn a few latents and a class into a picture.

Digits come from the decoder of a variational autoencoder that is trained here in minutes, on digits that no attack is
measured on. The generators of faces were trained by others: ProGAN (128 × 128, on CelebA) and DCGAN (64 × 64, rendered
faces).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from eris.audit.networks import Weights, load_network
from eris.data.columns import find
from eris.errors import ConfigError, DataError

__all__ = [
    "Dcgan",
    "DigitAutoencoder",
    "DigitGenerator",
    "Generator",
    "Progan",
    "fitted",
    "generator_for",
    "load_generator",
    "read_dcgan",
    "read_progan",
]

_GREY = (0.299, 0.587, 0.114)
_LATENTS, _CLASSES = 16, 10  # of the digit generator
_PROGAN_LAYERS = 13
_DCGAN_LAYERS = 5


class Generator(Protocol):
    """Turns standard normal latents into pictures in [0, 1]."""

    @property
    def latents(self) -> int:
        """The number of latents for one picture."""
        ...

    def __call__(self, latents: Tensor, labels: Tensor) -> Tensor:
        """Return a picture for each row of latents and its label."""
        ...


def fitted(pictures: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """Convert generated pictures to the shape that a network takes: grey or colour, and its height and width."""
    channels, *sides = shape
    if channels == 1 and pictures.shape[1] == 3:
        pictures = (pictures * pictures.new_tensor(_GREY).view(1, 3, 1, 1)).sum(1, keepdim=True)
    coloured = pictures.expand(-1, channels, -1, -1)
    if list(coloured.shape[2:]) == sides:
        return coloured
    resized: Tensor = functional.interpolate(coloured, sides, mode="bilinear", align_corners=False, antialias=True)
    return torch.clamp(resized, 0, 1)


class _Decoder(nn.Module):
    """Maps latents and a class to a picture of 28 × 28."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(_LATENTS + _CLASSES, 64 * 7 * 7)
        self.second = nn.ConvTranspose2d(64, 32, 4, stride=2, padding=1)
        self.third = nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1)
        self.last = nn.Conv2d(16, 1, 3, padding=1)

    def forward(self, latents: Tensor, labels: Tensor) -> Tensor:
        """Return the logits of the pixels."""
        x = torch.cat([latents, functional.one_hot(labels, _CLASSES).to(latents.dtype)], 1)
        x = torch.relu(self.first(x)).view(-1, 64, 7, 7)
        return self.last(torch.relu(self.third(torch.relu(self.second(x)))))  # type: ignore[no-any-return]


class DigitAutoencoder(nn.Module):
    """The variational autoencoder that is trained: pictures to latents with a spread, and back."""

    def __init__(self) -> None:
        super().__init__()
        self.decoder = _Decoder()
        self.look = nn.Sequential(
            nn.Conv2d(1, 32, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.guess = nn.Linear(64 * 7 * 7 + _CLASSES, 2 * _LATENTS)

    def loss(self, pictures: Tensor, labels: Tensor) -> Tensor:
        """Return the negative evidence lower bound of a batch, per picture."""
        seen = torch.cat([self.look(pictures), functional.one_hot(labels, _CLASSES).float()], 1)
        mean, spread = self.guess(seen).chunk(2, 1)
        latents = mean + torch.randn_like(mean) * (spread / 2).exp()
        missed = functional.binary_cross_entropy_with_logits(self.decoder(latents, labels), pictures, reduction="sum")
        surprise = 0.5 * (mean.square() + spread.exp() - spread - 1).sum()
        return (missed + surprise) / len(pictures)  # type: ignore[no-any-return]


class DigitGenerator:
    """The trained decoder of `DigitAutoencoder`, as a generator for GGL."""

    latents = _LATENTS

    def __init__(self, weights: Weights) -> None:
        self._decoder = _Decoder().eval().requires_grad_(False)
        self._decoder.load_state_dict({key: torch.from_numpy(np.array(value)) for key, value in weights.items()})

    def __call__(self, latents: Tensor, labels: Tensor) -> Tensor:
        """Return a digit in [0, 1] for each row of latents and its class."""
        return torch.sigmoid(self._decoder(latents.float(), labels))


class Progan:
    """ProGAN, a progressively grown generator of faces: 512 latents, 22.9 M weights."""

    latents = 512

    def __init__(self, weights: Weights) -> None:
        tensors = {key: torch.from_numpy(np.array(value)) for key, value in weights.items()}
        self._layers = [(tensors[f"conv{i}.weight"], tensors[f"conv{i}.bias"]) for i in range(_PROGAN_LAYERS)]

    def __call__(self, latents: Tensor, labels: Tensor) -> Tensor:
        """Return a face in [0, 1] for each row of latents; it knows no classes."""
        del labels
        x = functional.pad(_of_length_one(latents.float()).view(-1, self.latents, 1, 1), (3, 3, 3, 3))
        for place, (weight, bias) in enumerate(self._layers[:-1]):
            if place and place % 2 == 0:
                x = functional.interpolate(x, scale_factor=2)
            x = functional.conv2d(x, weight, bias, padding=int(place > 0))
            x = _of_length_one(functional.leaky_relu(x, 0.2))
        return functional.conv2d(x, *self._layers[-1]).clamp(0, 1)


class Dcgan:
    """DCGAN, a generator of faces by five transposed convolutions: 100 latents, 3.6 M weights."""

    latents = 100

    def __init__(self, weights: Weights) -> None:
        self._weights = {key: torch.from_numpy(np.array(value)) for key, value in weights.items()}

    def __call__(self, latents: Tensor, labels: Tensor) -> Tensor:
        """Return a face in [0, 1] for each row of latents; it knows no classes."""
        del labels
        x = latents.float().view(-1, self.latents, 1, 1)
        for layer in range(_DCGAN_LAYERS):
            stride, padding = (1, 0) if layer == 0 else (2, 1)
            x = functional.conv_transpose2d(x, self._weights[f"conv{layer}"], stride=stride, padding=padding)
            if layer < _DCGAN_LAYERS - 1:
                x = torch.relu(self._normalised(x, layer))
        return (torch.tanh(x) + 1) / 2

    def _normalised(self, x: Tensor, layer: int) -> Tensor:
        mean, variance, weight, bias = (
            self._weights[f"norm{layer}.{part}"] for part in ("mean", "variance", "weight", "bias")
        )
        return functional.batch_norm(x, mean, variance, weight, bias)


def _of_length_one(x: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).mean(1, keepdim=True) + 1e-8)


def read_progan(content: Path) -> Weights:
    """Read ProGAN from the unpacked package, which holds a list of tensors and their values in pieces.

    As published there, the last convolution gives twice the contrast and a third of all pixels leave the range;
    halved, it gives natural pictures.
    """
    folder = find(content, "progan/model.json").parent
    group = json.loads((folder / "model.json").read_bytes())["weightsManifest"][0]
    values = _values(b"".join((folder / name).read_bytes() for name in group["paths"]), group["weights"])
    weights: Weights = {}
    for layer in range(_PROGAN_LAYERS):
        number = f"_{layer}" if layer else ""
        kernel = values[f"module_apply_default/Conv2D{number}/merged_input"].transpose(3, 2, 0, 1)
        last = layer == _PROGAN_LAYERS - 1
        bias = "module_apply_default/add_26" if last else f"module/g_model/res_{layer // 2}/conv{layer % 2}/bias"
        weights[f"conv{layer}.weight"] = kernel * np.float32(0.5) if last else kernel
        weights[f"conv{layer}.bias"] = values[bias].reshape(-1)
    return weights


def _values(content: bytes, listed: list[dict[str, object]]) -> Weights:
    """Read the values of all tensors in one piece, skipping integers (shapes)."""
    values: Weights = {}
    start = 0
    for tensor in listed:
        shape = tuple(int(side) for side in tensor["shape"])  # type: ignore[attr-defined]
        count = int(np.prod(shape))
        if tensor["dtype"] == "float32":
            values[str(tensor["name"])] = np.frombuffer(content, "<f4", count, start).reshape(shape)
        start += 4 * count
    return values


def read_dcgan(content: Path) -> Weights:
    """Read DCGAN's generator from the unpacked package, with torch's loader that builds nothing but tensors."""
    saved = torch.load(find(content, "weights.tar"), map_location="cpu", weights_only=True)
    if not isinstance(saved, dict) or "netG_state_dict" not in saved:
        raise DataError("weights.tar has no generator", fix="use the version of the package that is named")
    state = saved["netG_state_dict"]
    weights: Weights = {}
    for layer in range(_DCGAN_LAYERS):
        weights[f"conv{layer}"] = state[f"main.{3 * layer}.weight"].numpy()
    names = {"mean": "running_mean", "variance": "running_var", "weight": "weight", "bias": "bias"}
    for layer in range(_DCGAN_LAYERS - 1):
        for part, name in names.items():
            weights[f"norm{layer}.{part}"] = state[f"main.{3 * layer + 1}.{name}"].numpy()
    return weights


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
