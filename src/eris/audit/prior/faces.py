"""Generators of faces that others trained: ProGAN (128 × 128, on CelebA) and DCGAN (64 × 64, on rendered faces)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from eris.audit.networks import Weights
from eris.data.columns import find
from eris.errors import DataError

__all__ = ["Dcgan", "Progan", "read_dcgan", "read_progan"]

_PROGAN_LAYERS = 13
_DCGAN_LAYERS = 5


class Progan:
    """A progressively grown generator: 512 latents, 22.9 M weights."""

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
    """Five transposed convolutions: 100 latents, 3.6 M weights."""

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
    """Read ProGAN out of the unpacked package: a list of tensors, and their values in pieces.

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
    """Cut the values of all tensors out of one piece; whole numbers (shapes) are passed over."""
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
    """Read DCGAN's generator out of the unpacked package, with torch's loader that builds tensors only."""
    saved = torch.load(find(content, "weights.tar"), map_location="cpu", weights_only=True)
    if not isinstance(saved, dict) or "netG_state_dict" not in saved:
        raise DataError("weights.tar holds no generator", fix="use the version of the package that is named")
    state = saved["netG_state_dict"]
    weights: Weights = {}
    for layer in range(_DCGAN_LAYERS):
        weights[f"conv{layer}"] = state[f"main.{3 * layer}.weight"].numpy()
    names = {"mean": "running_mean", "variance": "running_var", "weight": "weight", "bias": "bias"}
    for layer in range(_DCGAN_LAYERS - 1):
        for part, name in names.items():
            weights[f"norm{layer}.{part}"] = state[f"main.{3 * layer + 1}.{name}"].numpy()
    return weights
