"""Synthetic data: blurred blobs under noise, one place and size for each class."""

from __future__ import annotations

import numpy as np

from eris.data.dataset import Dataset, Images
from eris.seeds import Seed, public_root

__all__ = ["synthetic"]


def synthetic(*, samples: int = 1000, classes: int = 10, size: int = 28, seed: int = 0) -> Dataset[Images]:
    """Return a synthetic set, called ``synthetic`` wherever it appears.

    It has `samples` training pictures of `size` × `size`, and a quarter as many to test on.

    >>> blobs = synthetic(samples=100, classes=4)
    >>> blobs.name, blobs.synthetic, len(blobs.train), len(blobs.test)
    ('synthetic', True, 100, 25)
    """
    root = public_root(seed).child("synthetic")
    centres = root.child("centres").uniforms(2 * classes).reshape(classes, 2) * 0.6 + 0.2
    train = _images(samples, centres, size, root.child("train"))
    test = _images(max(1, samples // 4), centres, size, root.child("test"))
    names = tuple(f"synthetic-{label}" for label in range(classes))
    return Dataset("synthetic", f"made up from seed {seed}", names, train, test)


def _images(count: int, centres: np.ndarray[tuple[int, int], np.dtype[np.float64]], size: int, seed: Seed) -> Images:
    labels = seed.child("labels").integers(len(centres), count=count)
    shifts = seed.child("shifts").uniforms(2 * count).reshape(count, 2) * 0.1 - 0.05
    grid = (np.arange(size) + 0.5) / size
    places = centres[labels] + shifts
    across = np.exp(-(((grid - places[:, :1]) / 0.12) ** 2))
    down = np.exp(-(((grid - places[:, 1:]) / 0.12) ** 2))
    noise = seed.child("noise").uniforms(count * size * size).reshape(count, size, size) * 0.2
    pixels = ((down[:, :, None] * across[:, None, :] * 0.8 + noise) * 255).astype(np.uint8)
    return Images(pixels, labels, mean=(0.13,), std=(0.31,))
