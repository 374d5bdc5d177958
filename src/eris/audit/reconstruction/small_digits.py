"""Digits of 8 × 8 pixels, so small that an attack on one takes a fraction of a second.

They are the digits of `mnist-sample`: the 24 × 24 pixels in the middle, averaged 3 × 3. A configuration names them by
their path, `data.name = "eris.audit.reconstruction.small_digits:small_digits"`.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from eris.data import Dataset, Images, mnist_sample

__all__ = ["small_digits"]


@lru_cache(maxsize=1)
def small_digits() -> Dataset[Images]:
    """Return the 6,000 + 1,000 digits of `mnist-sample` as 8 × 8 pixels.

    >>> small_digits().train
    Images(6000 × 8×8)
    """
    digits = mnist_sample()
    return Dataset("small-digits", digits.source, digits.classes, _smaller(digits.train), _smaller(digits.test))


def _smaller(images: Images) -> Images:
    middle = images.pixels[:, 2:26, 2:26].reshape(-1, 8, 3, 8, 3).mean(axis=(2, 4))
    return Images(np.rint(middle).astype(np.uint8), images.labels, images.mean, images.std)
