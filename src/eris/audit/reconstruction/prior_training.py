"""Train the small networks that some attacks need; it takes minutes and is done once.

All are trained on the *test* split of a data set: members of a run hold pictures of the training split, so no network
here has seen any picture that is attacked there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from eris.audit.networks import Weights
from eris.audit.reconstruction.enhancer import FACTOR, Enhancer, weights_of
from eris.audit.reconstruction.generators import DigitAutoencoder
from eris.audit.similarity.perceptual import Perceptual
from eris.data.dataset import Images
from eris.data.fetch import load
from eris.data.packages import Progress
from eris.errors import DataError
from eris.local.torch_module import one_thread
from eris.seeds import Seed, public_root

__all__ = ["coarse_and_noisy", "train_cifar10_enhancer", "train_digit_generator", "train_mnist_enhancer"]

Loss = Callable[[Tensor, Tensor], Tensor]


def train_cifar10_enhancer(progress: Progress, *, steps: int = 1000) -> Weights:
    """Train ROG's enhancer for small photographs."""
    return _train_enhancer("cifar10", steps, progress)


def train_mnist_enhancer(progress: Progress, *, steps: int = 300) -> Weights:
    """Train ROG's enhancer for handwritten digits."""
    return _train_enhancer("mnist", steps, progress)


def train_digit_generator(progress: Progress, *, steps: int = 1500) -> Weights:
    """Train GGL's generator of handwritten digits."""
    seed = public_root(0).child("prior", "digits")
    with _own_randomness(seed):
        autoencoder = DigitAutoencoder()
        _train(autoencoder, _held_out("mnist"), autoencoder.loss, seed, steps, 1e-3, progress)
    return weights_of(autoencoder.decoder)


def coarse_and_noisy(pictures: Tensor) -> Tensor:
    """Return pictures as a search leaves them: coarse, each with noise of its own strength.

    A search's errors are nearly independent from pixel to pixel, leave the picture paler rather than stronger, and are
    largest at the edges, which fewer weights of a network see.
    """
    sides = [length // FACTOR for length in pictures.shape[-2:]]
    coarse = functional.interpolate(pictures, sides, mode="bicubic", align_corners=False, antialias=True)
    strength, contrast = (torch.rand(len(pictures), 1, 1, 1) for _ in range(2))
    noise = 0.12 * strength * _edges(sides) * torch.randn_like(coarse)
    middle = coarse.mean((2, 3), keepdim=True)
    return (middle + (0.8 + 0.25 * contrast) * (coarse - middle) + noise).clamp(0, 1)


def _edges(sides: list[int]) -> Tensor:
    """Return a factor for each pixel that falls from three at the edge to one far from it."""
    height, width = (torch.minimum(torch.arange(side), torch.arange(side).flip(0)) for side in sides)
    return 1 + 2 * 4.0 ** -torch.minimum(height[:, None], width[None]).float()


def _train_enhancer(name: str, steps: int, progress: Progress) -> Weights:
    seed, images = public_root(0).child("prior", "enhancer", name), _held_out(name)
    perceptual = Perceptual("alexnet")

    def loss(pictures: Tensor, labels: Tensor) -> Tensor:
        del labels
        turned = torch.where(torch.rand(len(pictures), 1, 1, 1) < 0.5, pictures, pictures.flip(3))
        enhanced = enhancer(coarse_and_noisy(turned))
        seen = perceptual.distance(turned, enhanced.clamp(0, 1)).mean()
        return functional.l1_loss(enhanced, turned) + 0.2 * seen

    with _own_randomness(seed):
        enhancer = Enhancer(channels=images.channels)
        _train(enhancer, images, loss, seed, steps, 1e-3, progress)
    return weights_of(enhancer)


def _train(
    module: nn.Module, images: Images, loss: Loss, seed: Seed, steps: int, lr: float, progress: Progress
) -> None:
    """Train a module by Adam on random batches of 32, with a learning rate that falls from `lr` to zero.

    Args:
        images: to draw batches from.
        loss: returns the loss of a batch of pictures and labels.
        seed: of the batches.
        steps: how many batches.
        progress: told the share that is done.
    """
    optimizer = torch.optim.Adam(module.parameters(), lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for step in range(steps):
        pictures, labels = _batch(images, seed.child("batch", step), 32)
        optimizer.zero_grad()
        loss(pictures, labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        progress("training", (step + 1) / steps)


def _batch(images: Images, seed: Seed, size: int) -> tuple[Tensor, Tensor]:
    places = seed.integers(len(images), count=size)
    pixels = images.pixels[places].astype(np.float32) / np.float32(255)
    planes = pixels[:, None] if pixels.ndim == 3 else pixels.transpose(0, 3, 1, 2)
    return torch.from_numpy(np.ascontiguousarray(planes)), torch.from_numpy(images.labels[places])


def _held_out(name: str) -> Images:
    dataset = load(name)
    if not isinstance(dataset.test, Images):
        raise DataError(f"{name} has no pictures", fix="train on a set of pictures")
    return dataset.test


@contextmanager
def _own_randomness(seed: Seed) -> Iterator[None]:
    """Seed torch's generator inside the block and restore it afterwards; use one thread, for the same bits."""
    before = torch.get_rng_state()
    torch.manual_seed(seed.torch_seed())
    try:
        with one_thread():
            yield
    finally:
        torch.set_rng_state(before)
