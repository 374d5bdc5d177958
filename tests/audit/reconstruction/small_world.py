"""Digits of 8 × 8 pixels and a sigmoid network of 2,410 weights: attacks that take milliseconds."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch

from eris.audit.reconstruction import LocalSteps, UpdateObservation
from eris.audit.reconstruction.public_model import PublicModel
from eris.audit.reconstruction.small_networks import SigmoidPerceptron
from eris.data import mnist_sample
from eris.local.torch_module import FlatModule

SHAPE = (1, 8, 8)


@cache
def digits(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return small digits in [0, 1] with their labels: 24 × 24 pixels in the middle, averaged 3 × 3."""
    train = mnist_sample().train
    places = np.random.default_rng(5).permutation(len(train))[:count]
    middle = train.pixels[places][:, 2:26, 2:26] / 255.0
    return middle.reshape(count, 1, 8, 3, 8, 3).mean(axis=(3, 5)), train.labels[places]


@cache
def world(hidden: int = 32, spread: float = 0.5) -> PublicModel:
    """Return the network as everybody knows it."""
    before = torch.get_rng_state()
    torch.manual_seed(1)
    module = SigmoidPerceptron(inputs=64, hidden=hidden, spread=spread)
    torch.set_rng_state(before)
    vector = FlatModule(module).vector.copy()
    return PublicModel(module, vector, shape=SHAPE, classes=10, mean=(0.13,), std=(0.31,))


def vector_of(public: PublicModel) -> np.ndarray:
    return np.concatenate([public.weights[t.name].numpy().reshape(-1) for t in public.spec.vector_tensors]).astype("f4")


def update_of(public: PublicModel, pictures, labels, local=None, handling=None) -> np.ndarray:
    """Return what a member with these samples sends, in float32 like everything that is sent."""
    images, targets = torch.from_numpy(np.asarray(pictures)), torch.from_numpy(np.asarray(labels))
    return public.update(images, targets, local, handling).detach().numpy().astype(np.float32)


def shard(n: int, aggregators: int, seed: int = 0) -> np.ndarray:
    """Return the coordinates of one of so many random shards."""
    return np.sort(np.random.default_rng(seed).permutation(n)[: n // aggregators])


def observation_of(public, pictures, labels, *, aggregators=1, seed=0, local=None, handling=None) -> UpdateObservation:
    """Return what one aggregator of so many sees of a member with these pictures."""
    local = local or LocalSteps(samples=len(labels), batch=len(labels))
    update = update_of(public, pictures, labels, local, handling)
    seen = shard(public.n, aggregators, seed)
    facts = {} if handling is None else {"handling": handling}
    return UpdateObservation(vector_of(public), seen, update[seen], local, **facts)


def difference(original, recovered) -> float:
    """Return the mean squared difference of two pictures."""
    return float(((np.asarray(original) - np.asarray(recovered)) ** 2).mean())
