"""What a picture is to a score: values in [0, 1], channels × height × width."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.errors import InputError

__all__ = ["Picture", "Scores", "require_pictures"]

Picture = NDArray[np.floating[Any]]
Scores = NDArray[np.float64]


def require_pictures(*pictures: Picture) -> None:
    """Refuse pictures that a score would misjudge: of unequal shapes, as bytes, out of range, not finite."""
    shapes = {picture.shape for picture in pictures}
    if len(shapes) != 1:
        raise InputError(f"pictures of different shapes {sorted(shapes)}", fix="compare like with like")
    for picture in pictures:
        if picture.ndim < 3 or picture.shape[-3] not in (1, 3) or not np.issubdtype(picture.dtype, np.floating):
            raise InputError(f"a picture is {picture.dtype}{picture.shape}", fix="use floats, (… ×) 1 or 3 × H × W")
        if picture.size and not (np.isfinite(picture).all() and picture.min() >= 0 and picture.max() <= 1):
            raise InputError("a picture has values outside of [0, 1]", fix="undo its normalisation and clip it")
